/* Pages: what a rank has of a job, and what happens to that without a request.
 *
 * A job is a handle of the user's: its units, what it shares with the daemon, where it stands. It is made
 * before it is opened (job_new), gets an attachment with each ready over a new connection, and goes with its
 * last lease: left.h has what remains when a user has left a job while views of it are in use.
 *
 * An attachment is what is mapped over one connection: the directory, the arena, this rank's lease page, its
 * gradients. hold.h takes and gives leases there without a lock and without a system call; buffers.h has the
 * states of gradient buffers; debug.h closes what is not leased in a debugging run. The exchange window
 * (window.h) is for one piece of a tensor or a blob at a time.
 *
 * A ticket is a request on its way: ticket.h pairs replies with them, and tells the handler of their kind.
 *
 * Here nothing is opened, and nothing is asked again: joining/ and calls/ do that. */
#ifndef TIERD_CLIENT_JOB_H
#define TIERD_CLIENT_JOB_H

#include "client/library/connection/connection.h"
#include "client/library/connection/mapping.h"
#include "client/library/pages/attachment.h"
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

void job_exit(struct tierd_job *job);

/* ---- With the lock held ---- */

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
/* Not opened yet. */
int job_new(struct tierd_node *node, const struct tierd_job_options *options,
	    const struct wire_groups *groups, struct tierd_job **ret_job);

struct tierd_job *job_free(struct tierd_job *job);
DEFINE_FREEP(struct tierd_job *, job_free)

struct unit *unit_free(struct unit *unit);
DEFINE_FREEP(struct unit *, unit_free)
/* What it has begun comes to nothing, or is forgotten. */
void writing_forget(struct tierd_job *job);

#endif
