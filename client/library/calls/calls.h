/* Calls: the functions of tierd.h, which is the front of this module; here is what they use of each other.
 *
 * A call checks its arguments, enters its job or reader, asks the daemon, and says in a message what failed.
 * Its file has the request, the handler of the reply, and the function of tierd.h, in this order. Replies are
 * handled in the order in which they come, by whichever thread reads the socket; everything but the hot path
 * of gather and release is done with the node's lock. */
#ifndef TIERD_CLIENT_CALLS_H
#define TIERD_CLIENT_CALLS_H

#include "client/library/joining/joining.h"
#include "client/library/pages/buffers.h"

/* ---- A job's options ---- */

void wire_groups_free(struct wire_groups *groups);
int job_encode_groups(const struct tierd_group *groups, uint32_t count, struct wire_groups *ret_groups);
/* -EINVAL: an option cannot be. The daemon checks the others. */
int job_options_check(const struct tierd_job_options *options);
void job_options_encode(const struct tierd_job_options *options, struct wire_groups *groups,
			Tierd__Wire__JobOpen *ret_open);

/* ---- With the lock held ---- */

/* Frees the handle, now or with its last lease, without telling the daemon. Its tickets fail. */
void job_drop(struct tierd_job *job);

/* Zeros the padding between and behind the tensors of a unit's gradients. */
int unit_clear_gradient_padding(const struct unit *unit, const struct buffer_writer *writer, char *gradients);

/* -EOPNOTSUPP: the job has no memory on this rank's GPU, and the message says why. */
int gpu_check_tier(const struct tierd_job *job, const char *instead);

/* Asks for the memory of the rank's gradients there, unless it is mapped. May release the lock. */
int gpu_have_gradients(struct tierd_job *job);

/* Holds a buffer for the unit, where and by whom it will be written. */
int gradients_show(struct tierd_job *job, uint32_t unit, uint32_t flags, const struct buffer_writer *writer,
		   struct tierd_view *ret_gradients);
/* -EINVAL: there are no such flags. */
int gradients_check_flags(uint32_t flags, const char *call);

/* ---- Gathers ---- */

/* Which call gathers: that decides whether a thread waits at once, and which function traces the gather. */
enum gather_call { GATHER_ONE, GATHER_BEGIN, GATHER_MANY };

extern const struct ticket_kind gather_kinds[PLACES];

int gather_send(struct tierd_job *job, enum place place, uint32_t unit, enum gather_call call,
		struct tierd_ticket **ret_ticket);

/* If the unit has become resident, the ticket is done already. */
int gather_begin_locked(struct tierd_job *job, uint32_t unit, enum gather_call call,
			struct tierd_ticket **ret_ticket);

/* Waits for the ticket, and passes its lease to the caller, which abandons the ticket also on failure. */
int gather_finish(struct tierd_ticket *ticket, uint64_t deadline, struct tierd_view *ret_parameters);

/* Before the job is left: gives back leases of tickets that no call has returned. */
void gathers_leave(struct tierd_job *job);

/* Gives back leases whose replies were lost with a connection. False: the rank has other leases on the unit.
 */
bool gathers_forget(struct tierd_job *job, enum place place, uint32_t unit);

/* Waits for the replies to abandoned gathers, each of which may bring a lease that is given back. May release
 * the lock; if it returns 0, the job is still fit for the call. */
int gathers_settle(struct tierd_job *job);

/* Checks that no gather is in progress: -EBUSY names one whose ticket the program has. May release the lock.
 */
int gathers_are_over(struct tierd_job *job);

/* ---- Steps ---- */

/* Reports once that a push without a ticket has failed. */
int push_check(struct tierd_job *job);

/* The ticket of a step, not sent yet. -EBUSY names leases on trainable units, and gradient buffers, that this
 * rank still holds. before: what it has to give them back for. */
int step_ticket_new(struct tierd_job *job, const char *before, struct tierd_ticket **ret_ticket);
/* Sends it. From then on gathers wait for the version of the coming step. */
int step_ticket_send(struct tierd_ticket *ticket, const Tierd__Wire__Request *request);

/* ---- Values of tensors ---- */

/* -EINVAL: there are no such elements. */
int tensor_check_range(const struct tierd_job *job, uint32_t unit, uint32_t tensor, uint64_t first,
		       uint64_t count);
/* The bytes of an element in the window. has_full_elements: of fp32, whatever the tensor's format. */
uint64_t tensor_element_bytes(const struct tierd_job *job, uint32_t unit, uint32_t tensor,
			      bool has_full_elements);

#endif
