/* Joining: a rank becomes a member of its job, and becomes one again after its connection was lost.
 *
 * A call enters its job (job_enter) with what it needs of it: a connection, an epoch that lives, a job that
 * is ready. Where the connection was lost, the first call that needs it connects again and opens all jobs
 * again (reconnect); where a job stands as its rank does, the other ranks are waited for (job_rejoin) and the
 * call goes on as if nothing had happened; where it does not, the call says what was lost. A call that lost
 * its connection in the middle is made again from the start (JOB_CALL).
 *
 * The module is told of what comes over the connection: the end of an epoch (job_epoch_ended), the end of the
 * connection (job_lose). It reports to nobody. A daemon that hangs is waited for as long as reconnect_ms
 * says. */
#ifndef TIERD_CLIENT_JOINING_H
#define TIERD_CLIENT_JOINING_H

#include "client/library/pages/job.h"
#include "client/library/pages/ticket.h"

/* ---- A call ---- */

/* What a call needs of its job. */
enum job_need {
	JOB_OPEN,  /* a connection */
	JOB_LIVE,  /* and no epoch that has ended */
	JOB_STATE, /* and a ready that was answered, once */
	JOB_READY, /* over this connection, too: where it was lost, the other ranks have to come */
};

/* Locks the node if the job is fit for the call. */
int job_enter(struct tierd_job *job, enum job_need need);

/* Unlocks the node at the end of a call that returns r. JOB_AGAIN: the connection was lost in the middle of
 * the call, which can be made again from the start. If it cannot, the error is that of the next call. */
#define JOB_AGAIN 1
int job_finish(struct tierd_job *job, int r);

/* Whether the call that failed with r has lost its connection, and may be made again. Counts these. */
bool job_can_repeat(struct tierd_job *job, int r);

#define JOB_REPEAT(call)                                                                                     \
	({                                                                                                   \
		int repeat_r;                                                                                \
                                                                                                             \
		do                                                                                           \
			repeat_r = (call);                                                                   \
		while (repeat_r == JOB_AGAIN);                                                               \
		repeat_r;                                                                                    \
	})

/* A call of a job that is fit for it: enters the job, and makes the call again where that is possible. */
#define JOB_CALL(job, need, call)                                                                            \
	JOB_REPEAT(({                                                                                        \
		int call_r = job_enter(job, need);                                                           \
                                                                                                             \
		call_r < 0 ? call_r : job_finish(job, call);                                                 \
	}))

/* ---- A node ---- */

/* Connects to the node's socket. While no daemon listens there, or it takes no more connections, tries again
 * for reconnect_ms. Called without the lock. */
int reconnect_first(struct tierd_node *node);

/* Where the node reconnects, keeps a message to be sent again. -ENOMEM. */
int reopen_remember(const struct tierd_node *node, const ProtobufCMessage *message,
		    struct remembered *ret_message);

/* ---- With the lock held ---- */

/* Opens a lost connection again, and its jobs; or waits for another thread that does. Releases the lock
 * meanwhile. 0: the connection is open. */
int reconnect(struct tierd_node *node);

/* Waits for another thread that opens the connection. */
void reconnect_settle(struct tierd_node *node);

/* 0, or why the job is not fit. May release the lock for a moment. */
int job_check(struct tierd_job *job, enum job_need need);

/* After values were copied from the window: -ESTALE if this rank has no part in the job any more, since tierd
 * takes the window's pages back then, and zeros may be what was copied. It says so before, and what it has
 * said is heard. As job_check(), or JOB_AGAIN. */
int job_check_copied(struct tierd_job *job);

/* The connection was lost: the job is stale from now on, if this rank has lost work with it. */
void job_lose(struct tierd_job *job);

/* The epoch has ended: the job is stale from now on. If the rank may return, its membership has ended,
 * because the job was rolled back. */
void job_epoch_ended(struct tierd_job *job, const Tierd__Wire__Event__EpochEnded *event);

/* Opens the job, or opens it again. */
int job_open_call(struct tierd_job *job, const Tierd__Wire__Request *request, uint64_t deadline);
/* The job of that number whose opening was answered, if its thread has not seen that yet; or NULL. */
struct tierd_job *job_being_opened(const struct tierd_node *node, uint32_t number);

/* tierd_job_ready and tierd_job_ready_begin, with the lock held. */
int job_ready_locked(struct tierd_job *job, int timeout_ms, struct tierd_job_state *ret_state);
int job_ready_begin_locked(struct tierd_job *job, int timeout_ms, struct tierd_ticket **ret_ticket);

extern const struct ticket_kind ready_kind;

#endif
