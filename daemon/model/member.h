/* A member is a rank's place in a job: the memory it shares with the daemon, and how far it is in its step.
 */
#ifndef TIERD_DAEMON_MEMBER_H
#define TIERD_DAEMON_MEMBER_H

#include <event2/event_struct.h>

#include "daemon/model/awaited.h"
#include "daemon/model/options.h"
#include "daemon/request/request.h"
#include "offload/device/memory.h"
#include "proto/pages.h"

struct gpu_rank;
struct job;
struct pusher;
struct order;
struct refusal;

#define WINDOW_BYTES (UINT64_C(1) << 20)
/* Of the orders of one member. */
#define MEMBER_MAX_PHASES 16

/* What units of a job take, as one of its ranks counts it: kept up as they are defined, because a sum over
 * all of them would take the loop's time. It begins anew where the job gets another shape. */
struct unit_account {
	uint32_t units, world_size, stage; /* units: the first ones, that are in it */
	bool is_as_pushed;
	uint64_t parameter_bytes, gradient_bytes, optimizer_bytes;
};

/* What a client has of jobs. Embedded in the client. */
struct memberships {
	struct queue members;
	struct refusal *refusal; /* the last one of an opening: daemon/life/refusal.h */
};

struct member {
	struct queue link;	  /* of the job's lingering members, once it has left */
	struct queue client_link; /* of the client's */
	struct job *job;
	struct memberships *client; /* NULL: its process is gone */
	struct port *port;	    /* NULL: its connection is */
	uint32_t handle;	    /* names the job on the connection */
	uint32_t rank;
	pid_t pid;
	uint32_t epoch;	      /* that it takes part in; of a job that runs, job->epoch, or it is stale */
	uint32_t defined;     /* units that it has defined, or found equal */
	bool has_reconnected; /* it has lost an earlier connection, and may read what there is */
	bool has_left;
	bool has_void_leases; /* it kept one where it may not: they do not count any more */
	bool is_stuck;	      /* scratch: waits for a slot that cannot become free */
	unsigned busy;	      /* operations in flight that use its memory */

	struct memory window, page, gradients;
	struct lease_header *leases; /* page.base */
	uint32_t buffer_count;
	int doorbell_fd;
	struct event doorbell;
	bool has_pages;

	struct queue pendings;		     /* all of them that wait */
	struct pending *ready;		     /* its tierd_job_ready that waits */
	struct pending *step;		     /* its step that is not applied yet */
	struct pending *next_step;	     /* the one after it */
	struct pending *leaving;	     /* its leave, which waits for them */
	struct awaited awaited;		     /* those that are applied, and not yet durable */
	struct step_rates next_rates;	     /* of next_step */
	struct optimizer_group *rate_groups; /* what the groups of its rates lie in */
	uint16_t *groups; /* by tensor, of its next step; they count if it has moved some */
	bool has_moved;
	bool is_closed;	  /* its part of the open step is */
	bool is_finished; /* and of a reduced step its shard is written */
	/* What tierd_step_begin has announced: of the open step, and, once it is closed, of the one after it.
	 */
	struct announcement {
		bool is_made;
		uint32_t micro_batches;
		struct step_rates rates;
	} announced, announced_next;
	struct pusher *pusher; /* daemon/gradients/own.h; with its pages */
	struct gpu_rank *gpu;  /* daemon/gpu/own.h; NULL: it gathers on none */

	struct tensor_operation *operation; /* the one that uses the window */
	struct batch *batch;		    /* or many do: daemon/values/batch.c */
	struct staged_blob *upload;	    /* what it is setting, and how much of it has come; or NULL */
	uint64_t uploaded;

	struct queue orders;
	struct order *order; /* of the current phase */
	unsigned phases;
	uint64_t charged_bytes;		      /* of those after the first */
	uint64_t trace_tail;		      /* read up to here */
	uint64_t counted_gathers, counted_ns; /* of the trace's head: counted so far, and when */

	struct unit_account account;
	uint64_t pushes, communicated_elements;
	uint64_t joined_ns, heard_ns; /* when it has opened the job; when its last request came */

	/* Silent pushes that were refused in this epoch, and why the last one was: the step must not go on
	 * without them. */
	uint32_t refused_pushes;
	int push_error;
	char push_message[256];

	struct refusal *untold; /* of another rank, that has gone */
};

/* Frees it if it has left, nothing uses its memory, and its process is gone or holds no lease. */
void member_release(struct member *member);

static inline bool member_has_lease(const struct member *member, uint32_t unit)
{
	return member->has_pages && !member->has_void_leases &&
	       lease_is_held(&lease_counters(member->leases, member->buffer_count)[unit]);
}

/* The buffer is one that the unit may be pushed from. */
bool member_buffer_takes(const struct member *member, uint32_t buffer, uint32_t unit);

bool member_has_leases(const struct member *member);

/* Of the job's ranks that are there, as many as there is room for. */
void members_describe(const struct job *job, char *text, size_t size);

/* A step of the member has been answered: if that was the last, it may leave. */
void member_step_over(struct member *member);
/* A step of it is to be applied, or to become durable. */
bool member_has_steps(const struct member *member);

/* The version of the last step that the rank has closed. What it gathers has that version at most. */
uint64_t member_last_version(const struct member *member);

/* The rank has closed a step, or begun to write values, and has to make another call before that goes on.
 * Which call that is. */
bool member_owes_step(const struct member *member);
const char *member_owed_call(const struct member *member);

#endif
