/* Pages: what a rank has of a job, and what it does with that without a request.
 *
 * A job is a handle of the user's: its units, what it shares with the daemon, where it stands. job_new()
 * makes it before it is opened. It gets an attachment with the first ready over each connection. It is freed
 * when the job was left and no lease on it is held; left.h is about the time between the two.
 *
 * An attachment is what is mapped over one connection: the directory, the arena, this rank's lease page, its
 * gradients; and gpu_tier.h is what of it lies on a GPU. hold.h takes and gives leases in both without a lock
 * and without a system call; buffers.h has the
 * states of gradient buffers; debug.h makes memory that is not leased inaccessible (TIERD_DEBUG=leases).
 * Tensors and blobs are copied through the exchange window (window.h), piece by piece.
 *
 * A ticket is a request that was sent: ticket.h finds the ticket of a reply, and calls the handler of its
 * kind.
 *
 * This module sends no request by itself: joining/ and calls/ do. */
#ifndef TIERD_CLIENT_JOB_H
#define TIERD_CLIENT_JOB_H

#include "client/library/connection/connection.h"
#include "client/library/connection/mapping.h"
#include "client/library/pages/attachment.h"
#include "proto/pages.h"
#include "proto/unit_layout.h"
#include "proto/vocabulary.h"

struct ticket_kind;

/* A packed request, kept to be sent again. */
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
	uint32_t unheard[PLACES];      /* gathers whose replies were lost with a connection */
};

/* What the hot path of a gather needs of a unit, side by side. */
struct hot_unit {
	const uint64_t *offsets;
	uint64_t awaited_mask; /* 0: the unit is frozen, and every version is the same */
	uint64_t elements;
	_Atomic uint64_t gathers;
};

/* What is to be done before the rank is a member of its job again; see reopen.h. */
enum membership {
	MEMBER,
	MEMBER_LOST,	  /* its connection was lost: the job is opened again before the next request */
	MEMBER_REOPENED,  /* the next call waits for the other ranks */
	MEMBER_SENT_AWAY, /* the daemon has ended the membership; tierd_job_ready opens the job again */
	MEMBER_RETURNING, /* which it does now; it may be sent away again meanwhile */
};

/* How far this rank is in a writing: tierd_write_begin() to tierd_write_end() or tierd_write_cancel(). */
enum writing_state {
	WRITING_NONE,
	WRITING_BEGUN,	    /* it waits for the other ranks */
	WRITING_OPEN,	    /* all ranks have begun */
	WRITING_ENDING,	    /* it has sent its end */
	WRITING_CANCELLING, /* which cancels the writing */
	WRITING_ENDED,	    /* the daemon has accepted its end */
	WRITING_CANCELLED,
};

struct tierd_job {
	/* Constant from the first ready on, but for the atomics: read without the lock. */
	_Atomic uint32_t ready_units; /* 0: not ready */
	uint32_t generation;
	_Atomic uint64_t awaited;		 /* this rank's last step, which gathers must contain */
	_Atomic(struct attachment *) attachment; /* the newest; NULL: not ready */
	struct hot_unit *hot;
	int doorbell_fd;
	struct gpu *gpu; /* that the rank gathers on; NULL: none */

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
	bool has_undecided;	 /* this rank has pushed or set something for a step that it has not closed */
	bool has_written;	 /* values of tensors */
	uint32_t refused_pushes; /* without tickets, in this epoch */
	int push_error;		 /* of the last refused push; the next push or step reports it */
	char push_error_text[512];

	struct unit **units;
	uint32_t unit_count, unit_capacity;

	struct mapping window_mapping;
	bool is_window_busy;
	/* Of a connection that was lost; see reopen.h. */
	struct remembered opening;
	uint64_t incarnation;		/* of the daemon that has opened the job */
	const char *lost_work;		/* that was not reported to this rank yet; NULL: none */
	char phase[TIERD_MAX_NAME + 1]; /* named by tierd_phase(); "": none */
	enum membership membership;
	bool is_rejoining;
	int refusal;		/* with which opening it again was refused; stale_text says why */
	unsigned interruptions; /* lost connections in a row, of one call */

	enum writing_state writing_state;
	struct tierd_ticket *writing;	  /* of tierd_write_begin(), until the end; owned; NULL: none */
	struct tierd_ticket *writing_end; /* of its end, until the reply; owned; NULL: none */
	bool is_writing_busy;		  /* a thread begins or ends it */

	uint64_t gpu_budget;
	bool has_gpu_gradients;
	float gpu_update;
	char gpu_refusal[512]; /* why there is no tier on the GPU, if none could be had */

	bool is_getting_ready;
	bool has_abandoned_ready; /* an abandoned tierd_job_ready() has succeeded */
	uint64_t gather_misses, gather_wait_ns, gradient_wait_ns, step_wait_ns;

	/* Without the lock: gathers of many units. Far from what the hot path reads, so that they share no
	 * cache line. */
	_Atomic uint64_t gathers_of_many, elements_of_many;

	/* Releases in progress, and the state of a job that was left; see left.h. */
	_Atomic uint32_t releasing;
	_Atomic bool has_left;
	bool is_kept;
	uint64_t left_leases;
};

#define JOB_MAX_UNITS 100000

/* ---- With the lock held ---- */

/* Makes gathers take the slow path, which reports what has happened. */
void job_poison(struct tierd_job *job);

/* Whether the newest attachment is of this connection. */
bool job_is_attached(const struct tierd_job *job);

/* 0, or -EINVAL: the job has no such unit. */
int job_check_unit(const struct tierd_job *job, uint32_t unit);
const char *job_unit_name(const struct tierd_job *job, uint32_t unit);

static inline bool unit_is_trainable(const struct unit *unit)
{
	return unit_layout_trainable(&unit->layout) > 0;
}

/* The version of the unit that a request asks for. */
static inline uint64_t job_awaited(const struct tierd_job *job, uint32_t unit)
{
	return unit_is_trainable(job->units[unit]) ? job->awaited : 0;
}

/* Encoded groups, on the heap: they may be too many for a thread's stack. */
struct wire_groups {
	Tierd__Wire__Group *values, **pointers;
};
/* The handle of a job that is not opened yet. */
int job_new(struct tierd_node *node, const struct tierd_job_options *options,
	    const struct wire_groups *groups, struct tierd_job **ret_job);

struct tierd_job *job_free(struct tierd_job *job);
DEFINE_FREEP(struct tierd_job *, job_free)

struct unit *unit_free(struct unit *unit);
DEFINE_FREEP(struct unit *, unit_free)
/* Abandons the tickets of a writing. */
void writing_forget(struct tierd_job *job);

#endif
