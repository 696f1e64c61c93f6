/* Calls: the functions of tierd.h, which is the front of this module; here is what they use of each other.
 *
 * A call checks its arguments, enters its job or reader, asks the daemon, and says in a message what failed.
 * Its file has the request, the handler of the reply, and the function of tierd.h, in this order. Replies are
 * handled in the order in which they come, by whichever thread reads the socket; everything but the hot path
 * of gather and release is done with the node's lock. */
#ifndef TIERD_CLIENT_CALLS_H
#define TIERD_CLIENT_CALLS_H

#include "client/library/joining/joining.h"

/* ---- A job's options ---- */

void wire_groups_free(struct wire_groups *groups);
int job_encode_groups(const struct tierd_group *groups, uint32_t count, struct wire_groups *ret_groups);
/* 0, or what cannot be; the daemon checks the rest. */
int job_options_check(const struct tierd_job_options *options);
void job_options_encode(const struct tierd_job_options *options, struct wire_groups *groups,
			Tierd__Wire__JobOpen *ret_open);

/* ---- With the lock held ---- */

/* Frees the handle, now or with its last lease; the daemon is told elsewhere. Its tickets fail. */
void job_drop(struct tierd_job *job);

/* Zeros what lies between the tensors, and behind them, in a view of the unit's gradients. */
void unit_clear_gradient_padding(const struct unit *unit, char *gradients);

/* ---- Gathers ---- */

/* Who asks, which says whether somebody waits at once, and who notes the gather. */
enum gather_call { GATHER_ONE, GATHER_BEGIN, GATHER_MANY };

/* All with the lock held. The ticket is done already if the unit has come meanwhile. */
int gather_begin_locked(struct tierd_job *job, uint32_t unit, enum gather_call call,
			struct tierd_ticket **ret_ticket);

/* Waits for the ticket, and passes its lease to the caller, who abandons the ticket in any case. */
int gather_finish(struct tierd_ticket *ticket, uint64_t deadline, struct tierd_view *ret_parameters);

/* Gives back the leases that tickets have: the job is about to be left, and nobody has seen them. */
void gathers_leave(struct tierd_job *job);

/* Where this rank must not have a lease on the unit: gives back those that nobody knows of. False: there are
 * more. */
bool gathers_forget(struct tierd_job *job, uint32_t unit);

/* Waits for the answers to gathers that were given up: each may bring a lease, which goes back then. May
 * release the lock; where it returns 0 the job is fit still. */
int gathers_settle(struct tierd_job *job);

/* No lease can come by a gather that was begun: -EBUSY names one whose caller has its ticket. May release the
 * lock. */
int gathers_are_over(struct tierd_job *job);

/* ---- Steps ---- */

/* Reports, once, that a push without a ticket has failed. */
int push_check(struct tierd_job *job);

/* The ticket of a step, not sent yet. -EBUSY names leases on what is trained, and gradient buffers, that
 * this rank holds; before: for what they have to go. */
int step_ticket_new(struct tierd_job *job, const char *before, struct tierd_ticket **ret_ticket);
/* From then on gathers wait for the version that the request makes. */
int step_ticket_send(struct tierd_ticket *ticket, const Tierd__Wire__Request *request);

/* ---- Values of tensors ---- */

/* -EINVAL: there are no such elements. */
int tensor_check_range(const struct tierd_job *job, uint32_t unit, uint32_t tensor, uint64_t first,
		       uint64_t count);
/* In the window; has_full_elements: fp32, whatever the tensor's format. */
uint64_t tensor_element_bytes(const struct tierd_job *job, uint32_t unit, uint32_t tensor,
			      bool has_full_elements);

#endif
