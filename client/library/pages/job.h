/* The job as this rank sees it: its units, the pages that it shares with the daemon, and where it stands. */
#ifndef TIERD_CLIENT_JOB_H
#define TIERD_CLIENT_JOB_H

#include "client/library/pages/attachment.h"
#include "client/library/connection/connection.h"
#include "client/library/connection/mapping.h"
#include "proto/pages.h"
#include "proto/unit_layout.h"
#include "proto/vocabulary.h"

struct ticket_kind;

/* A message as it was sent, to be sent again. */
struct remembered {
	uint8_t *bytes; /* owned; NULL: none */
	size_t length;
};

/* A unit as it was defined. */
struct unit {
	char *name;
	struct unit_layout layout;
	struct remembered definition;
	uint32_t tensor_count;
	struct tensor_layout *tensors;
	uint64_t *offsets;	       /* in a view of parameters; known once the job is ready */
	uint64_t *gradient_offsets;    /* in a view of gradients */
	uint64_t spans[UNIT_SECTIONS]; /* where sections begin, by the directory page */
	uint64_t end;		       /* of the last section, from the unit's offset */
	uint32_t unheard;	       /* gathers whose answers were lost with a connection */
};

/* What a gather needs of a unit, side by side. */
struct hot_unit {
	const uint64_t *offsets;
	uint64_t awaited_mask; /* 0: frozen, every version will do */
	uint64_t elements;
	_Atomic uint64_t gathers;
};

struct tierd_job {
	/* Constant from the first ready on, but for the atomics: read without the lock. */
	_Atomic uint32_t ready_units; /* 0: not ready */
	uint32_t generation;
	_Atomic uint64_t awaited;		 /* this rank's last step, which gathers must contain */
	_Atomic(struct attachment *) attachment; /* the newest; NULL: not ready */
	struct hot_unit *hot;
	int doorbell_fd;

	/* With the node's lock. */
	struct tierd_node *node;
	struct queue link;
	uint32_t number;
	char name[TIERD_MAX_JOB_NAME + 1];
	uint32_t rank, world_size, stage, group_count;
	uint32_t moments[WIRE_MAX_GROUPS]; /* enum wire_moments */
	bool is_by_owner;		   /* the optimizer is none */
	bool is_paced;			   /* its steps wait for each other before they become durable */
	struct tierd_job_state state;
	uint32_t epoch;
	bool is_stale;
	char stale_text[512];
	bool has_undecided;	 /* handed in for a step that this rank has not closed */
	bool has_written;	 /* values of tensors */
	uint32_t refused_pushes; /* without tickets, in this epoch */
	int push_error;		 /* of the last of them: the next push or step reports it */
	char push_error_text[512];

	struct unit **units;
	uint32_t unit_count, unit_capacity;

	struct mapping window_mapping;
	bool is_window_busy;
	/* Of a connection that was lost; see reopen.h. */
	struct remembered opening;
	uint64_t incarnation;		/* of the daemon that opened it */
	const char *lost_work;		/* that this rank is still to be told of; NULL: none */
	char phase[TIERD_MAX_NAME + 1]; /* that the rank has named; "": none */
	bool must_reopen;		/* before anything else is asked */
	bool must_rejoin;		/* the other ranks, before the next call goes on */
	bool is_sent_away;		/* from a job that it may open again */
	bool is_rejoining;
	int refusal;		/* it cannot be opened again, stale_text says why */
	unsigned interruptions; /* in a row */

	struct tierd_ticket *writing;	  /* begun and not ended; owned; NULL: none */
	bool may_write;			  /* all ranks have begun it */
	struct tierd_ticket *writing_end; /* sent and not answered; owned; NULL: none */
	bool has_ended_writing;		  /* the daemon knows */
	bool is_cancelling;		  /* by its end, that was sent */
	bool is_writing_busy;		  /* a thread is in a call that begins or ends it */

	bool is_getting_ready;
	bool has_unclaimed_ready; /* a ready that nobody waited for any more came through */
	uint64_t gather_misses, gather_wait_ns, gradient_wait_ns, step_wait_ns;

	/* Without the lock, but never beside what the hot path reads: gathers of many units at once. */
	_Atomic uint64_t gathers_of_many, elements_of_many;

	/* Releases under way; see left.h. */
	_Atomic uint32_t releasing;
	_Atomic bool has_left;
	bool is_kept;
	uint64_t left_leases;
};

#define JOB_MAX_UNITS 100000

/* What a call needs of its job. */
enum job_need {
	JOB_OPEN,  /* a connection */
	JOB_LIVE,  /* and no epoch that has ended */
	JOB_STATE, /* and a ready that was answered, once */
	JOB_READY, /* over this connection, too: where it was lost, the other ranks have to come */
};

/* Locks the node if the job is fit for the call. */
int job_enter(struct tierd_job *job, enum job_need need);
void job_exit(struct tierd_job *job);

/* The same at the end of a call that asked the daemon. JOB_AGAIN: the connection was lost in the middle of
 * it, and the call can be made again from the start. If it cannot, that is said as by the next call. */
#define JOB_AGAIN 1
int job_finish(struct tierd_job *job, int r);

/* Whether the call that failed with r lost its connection, and may be made again; counted. */
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

/* ---- With the lock held ---- */

/* 0, or why the job is not fit. May release the lock for a moment. */
int job_check(struct tierd_job *job, enum job_need need);

/* From now on gathers take the slow way, and learn there what happened. */
void job_poison(struct tierd_job *job);

/* What is mapped belongs to this connection. */
bool job_is_attached(const struct tierd_job *job);

/* 0, or -EINVAL. */
int job_check_unit(const struct tierd_job *job, uint32_t unit);
const char *job_unit_name(const struct tierd_job *job, uint32_t unit);

static inline bool unit_is_trainable(const struct unit *unit)
{
	return unit_layout_trainable(&unit->layout) > 0;
}

/* The version that requests for the unit name. */
static inline uint64_t job_awaited(const struct tierd_job *job, uint32_t unit)
{
	return unit_is_trainable(job->units[unit]) ? job->awaited : 0;
}

/* Groups as they go over the wire: too many for a thread's stack. */
struct wire_groups {
	Tierd__Wire__Group *values, **pointers;
};
void wire_groups_free(struct wire_groups *groups);
int job_encode_groups(const struct tierd_group *groups, uint32_t count, struct wire_groups *ret_groups);
/* 0, or what cannot be; the daemon checks the rest. */
int job_options_check(const struct tierd_job_options *options);
void job_options_encode(const struct tierd_job_options *options, struct wire_groups *groups,
			Tierd__Wire__JobOpen *ret_open);

/* Not opened yet. */
int job_new(struct tierd_node *node, const struct tierd_job_options *options,
	    const struct wire_groups *groups, struct tierd_job **ret_job);

/* Opens the job, or opens it again. */
int job_open_call(struct tierd_job *job, const Tierd__Wire__Request *request, uint64_t deadline);

/* As tierd_job_ready, with the lock held. */
int job_ready_locked(struct tierd_job *job, int timeout_ms, struct tierd_job_state *ret_state);
int job_ready_begin_locked(struct tierd_job *job, int timeout_ms, struct tierd_ticket **ret_ticket);

/* Waits for the other ranks, as tierd_job_ready; then the job goes on as if nothing had happened. */
int job_rejoin(struct tierd_job *job);

/* Frees the handle, now or with its last lease; the daemon is told elsewhere. Its tickets fail. */
void job_drop(struct tierd_job *job);
struct tierd_job *job_free(struct tierd_job *job);
DEFINE_FREEP(struct tierd_job *, job_free)

/* ---- Parts that other files have ---- */

struct unit *unit_free(struct unit *unit);
DEFINE_FREEP(struct unit *, unit_free)
/* Zeros what lies between the tensors, and behind them, in a view of the unit's gradients. */
void unit_clear_gradient_padding(const struct unit *unit, char *gradients);

/* Waits until no thread zeros a buffer any more: who gives one back meanwhile would have two write to it. May
 * release the lock. */
void gradients_settle(struct tierd_job *job);

/* Gives back the buffers that this rank holds; they are settled. */
void gradients_drop(struct tierd_job *job);

/* At the begin of an epoch: the daemon has let go of all buffers. Of a push that it refused because the old
 * epoch had ended, nobody waited for the answer that would have freed the buffer. */
void gradients_recover(struct tierd_job *job);

/* A step is closed: where the buffers of the next one lie follows from what is taken in it alone. */
void gradients_rewind(struct tierd_job *job);

/* The name of a unit of which this rank holds a buffer, from the one numbered *next on; NULL: none. */
const char *gradients_held(const struct tierd_job *job, uint32_t *next);

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

/* Reports, once, that a push without a ticket has failed. */
int push_check(struct tierd_job *job);

/* A ticket of step_kind, not sent yet. -EBUSY names leases on what is trained, and gradient buffers, that
 * this rank holds; before: for what they have to go. */
int step_ticket_new(struct tierd_job *job, const char *before, struct tierd_ticket **ret_ticket);
/* From then on gathers wait for the version that the request makes. */
int step_ticket_send(struct tierd_ticket *ticket, const Tierd__Wire__Request *request);

/* What it has begun comes to nothing, or is forgotten. */
void writing_forget(struct tierd_job *job);

extern const struct ticket_kind step_kind, ready_kind;

#endif
