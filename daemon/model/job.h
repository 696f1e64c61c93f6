/* A job: one training run, its ranks, its units and where their state is. */
#ifndef TIERD_DAEMON_JOB_H
#define TIERD_DAEMON_JOB_H

#include "common/log.h"
#include "daemon/model/catalog.h"
#include "daemon/model/member.h"
#include "daemon/model/node.h"
#include "daemon/model/options.h"
#include "daemon/model/state.h"
#include "daemon/model/step_state.h"
#include "offload/store/store.h"

/* "UID/NAME-N.store", with its end. */
#define JOB_FILE_BYTES (10 + 1 + WIRE_MAX_JOB_NAME + 1 + 20 + 6 + 1)

/* What becomes of a job: daemon/life/state.c has the table of its changes. */
enum job_state {
	JOB_FORMING,	  /* units are being defined */
	JOB_PLANNING,	  /* memory and disk are being reserved, off the loop */
	JOB_FILLING,	  /* tensors may be written */
	JOB_INITIALIZING, /* masters are being split and stored */
	JOB_TRAINED,	  /* it has a state */
	JOB_RELEASED,	  /* it has one, on NVMe alone: its host memory is given back */
	JOB_RETURNING,	  /* host memory is being reserved again, off the loop */
	JOB_BROKEN,	  /* reason says why: its state is lost, or comes back when its ranks have left */
	JOB_LOST,	  /* its store is there, and cannot be opened: it goes with the job */
	/* It ends: it is freed as soon as nothing of it is in flight. */
	JOB_DROPPED,   /* with its store */
	JOB_CLOSED,    /* its store stays */
	JOB_REPLACED,  /* likewise, as long as the job in its place has no state */
	JOB_REOPENING, /* likewise, and then it comes back from its last durable step */
	JOB_STATES,
};

/* All ranks together train in epochs; the table is there, too. */
enum epoch_state {
	EPOCH_NONE, /* the ranks gather for the first one */
	EPOCH_LIVE, /* they train */
	EPOCH_OVER, /* they gather for another one */
};

/* The streams of a job; those that it has not are never looked at. */
struct job_streams {
	uint32_t parameter[UNIT_SECTIONS];
	uint32_t state[UNIT_TRAINABLE_SECTIONS][STATES_MAXIMUM];
	uint32_t accumulator; /* of spilled sums */
	uint32_t blobs;
};

/* Where a pack's sections start in the streams, in bytes. */
struct pack_place {
	uint64_t parameter[UNIT_SECTIONS], state[UNIT_TRAINABLE_SECTIONS][STATES_MAXIMUM];
	uint64_t accumulator; /* of all its units' sums, one after the other */
};

/* What a record counts, by its format (daemon/durability/record.h); proto/record.proto says when there has to
 * be another one. A job keeps the one that it was made with, as its room is where later ones have more. */
#define RECORD_FORMAT_UNITS 1	/* the updates of each unit */
#define RECORD_FORMAT_TENSORS 2 /* and of each tensor */
#define RECORD_FORMAT_GROUPS 3	/* and has the group of each tensor */
#define RECORD_FORMAT RECORD_FORMAT_GROUPS

/* How many ranks read and train a state, what of it is partitioned among them, and so where parameters live;
 * and what memory they have for that. */
struct job_shape {
	uint32_t world_size, stage, parameter_placement, gradient_buffers;
	uint64_t gradient_bytes, asked_budget, host_budget;
	bool is_pushed_once, has_nvme_parameters;
};

struct job_gpu;
struct job_residency;
struct job_resources;
struct job_values;
struct job_gradients;
struct job_update;
struct job_telemetry;
struct setup;
struct job_durability;
struct job_scrub;
struct job_life;
struct replaced;
struct restore_notice;
struct trace;

/* Why a job is lost, and what room there was then: daemon/life/lost.h. */
struct loss {
	int error;     /* negative errno */
	int lacking;   /* -ENOMEM, -ENOSPC: room; 0: something else */
	bool is_asked; /* somebody who opens it has had it tried again */
	/* What else is in its files nobody has seen: forks of it, or of one that was called so. */
	bool is_unread;
	bool is_explained; /* the reason says what to do about it */
	uint64_t host_room, path_room[NODE_MAX_PATHS];
	struct loss_record {
		bool is_read;
		uint32_t world_size, stage, epoch, units;
		uint64_t step, parameters;
		const struct optimizer *optimizer;
	} record; /* what its record says, if that could be read */
};

/* What a job's life does for the modules below it, which call it by functions of daemon/model/job.c. */
struct job_callbacks {
	/* job_abort(), of a live epoch, and job_break(), of a job that was not broken: job->reason says why.
	 */
	void (*abort)(struct job *job, int r);
	void (*break_down)(struct job *job, const struct log_fields *about);
	/* member_release(), of one that has left and whose memory the daemon does not use. */
	void (*let_go)(struct member *member);
	/* The functions of these names. */
	void (*throw_out)(struct member *member, const char *reason);
	void (*send_away)(struct member *member, const char *reason);
	const char *(*describe_loss)(const struct job *job, char *text, size_t size);
	bool (*is_quiet)(const struct job *job);
	/* Its turn is to come, and, before long, who waits for slots is looked at: job_settle(),
	 * job_watch_slots(). */
	void (*settle)(struct job *job);
	void (*watch_slots)(struct job *job);
	/* Another job of its name stays until this one has a state. */
	bool (*replaces)(const struct job *job);
};

/* Where its state is kept. */
struct job_location {
	bool has_nvme_parameters, has_nvme_optimizer, has_nvme_sums;
	bool has_stored_parameters; /* they are written to NVMe, whether they live there or in host memory */
	bool has_backup; /* the optimizer's state is in host memory, and written to NVMe before each commit */
	bool has_given_slots;	/* ranks have written slots: what was never updated may be no zeros */
	bool has_given_masters; /* first masters have gone to where they are kept, beside sums too narrow for
				   them */
	/* The first two are one and the same where they are on NVMe; NULL: none. */
	struct store *parameter_store, *optimizer_store, *gradient_store;
	struct job_streams streams;
	struct pack_place *places;
	char file[JOB_FILE_BYTES]; /* of its store: daemon/durability/job_file.h */
	uint32_t durability; /* what counted when it was opened: DURABILITY_DEFAULT is by where its state lies
			      */
	bool is_durable;     /* as it is planned: its state outlives the daemon */
	uint32_t record_format;	       /* RECORD_FORMAT_…: what there is room for in its record */
	struct path_list paths;	       /* that its stores lie on, by their devices */
	uint64_t warm_most_bytes;      /* that may stay in memory of its state on NVMe, as it is planned */
	struct job_shape former_shape; /* world_size 0: its memory is there, or was, in the one that it has */
};

/* One incarnation of its membership. */
struct job_epoch {
	uint32_t number;
	enum epoch_state state;
	char reason[512]; /* why the last one ended, or the job is broken */
};

/* Its ranks, and who was one. */
struct job_members {
	struct member **ranks; /* NULL: it is not there */
	unsigned count;
	struct queue lingering; /* those that have left, whose memory is still used */
	char departed[256]; /* who has closed its membership, "" if nobody: no step is possible any more */
	uint64_t idle_since_ns; /* has had no rank since; once it has a state */
};

struct job {
	struct queue link; /* of the node's */
	struct node *node;
	char name[WIRE_MAX_JOB_NAME + 1];
	uid_t uid;
	uint64_t number; /* of all jobs that this node has made */
	struct job_options options;
	struct catalog catalog;
	enum job_state state;
	struct job_epoch epoch;
	struct job_members members;
	struct gradient_buffers gradient_buffers; /* of each rank */
	uint64_t step;				  /* applied */
	uint64_t decided;			  /* step, or step + 1 while it is being applied */
	struct current_step current;

	struct job_location location;
	struct job_telemetry *telemetry; /* daemon/telemetry/own.h */
	struct job_resources *resources; /* daemon/resources/own.h */
	struct job_residency *residency;
	struct job_gpu *gpu;		   /* daemon/gpu/own.h */
	struct job_gradients *gradients;   /* daemon/gradients/own.h */
	struct job_update *update;	   /* daemon/update/own.h */
	struct job_durability *durability; /* daemon/durability/own.h */
	struct job_values *values;
	struct job_scrub *scrub; /* daemon/scrub/own.h */
	struct job_life *life;	 /* daemon/life/own.h */
};

/* ---- what may be asked of any job, and what its life is told ---- */

static inline bool job_is_live(const struct job *job)
{
	return job->epoch.state == EPOCH_LIVE;
}

/* All its calls fail. */
static inline bool job_is_broken(const struct job *job)
{
	return job->state == JOB_BROKEN || job->state == JOB_LOST;
}

static inline bool job_is_lost(const struct job *job)
{
	return job->state == JOB_LOST;
}

/* It is not found any more. */
static inline bool job_is_ending(const struct job *job)
{
	return job->state >= JOB_DROPPED;
}

/* It ends, and its store does not. */
static inline bool job_keeps_store(const struct job *job)
{
	return job->state > JOB_DROPPED;
}

/* It has one, or had one that is lost. */
static inline bool job_has_state(const struct job *job)
{
	return job->state >= JOB_TRAINED && !job_is_ending(job);
}

struct job *job_find(struct node *node, uid_t uid, const char *name);

/* The member leaves because it keeps the others from going on. */
void job_throw_out(struct member *member, const char *reason);
/* It leaves, and may come back: with memory of its own that is new. */
void job_send_away(struct member *member, const char *reason);

/* Ends the epoch for all ranks. */
void job_abort(struct job *job, int r, const char *format, ...) __attribute__((format(printf, 3, 4)));

/* All calls fail from now on, and what is not durable is lost. Logged here; about: as events_of_job() takes
 * it. */
void job_break(struct job *job, const struct log_fields *about, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

/* Something that was in flight has come home. What waited for that (the sweep, wishes for slots, a start, a
 * drop) goes on in a turn of its own, from the loop: the caller may be in the middle of a member, an
 * operation or a queue that this would change. Who calls it in a turn has got something done: a turn that
 * asks for another one all the same takes a processor for nothing, and after very many of them that is told.
 */
void job_settle(struct job *job);
/* Memory or disk has become free, which others may have waited for. */
void job_settle_all(struct node *node);
/* Asks the clients to ring at a release, and looks again after a while anyway. */
void job_watch_slots(struct job *job);
/* Another job of its name stays until this one has a state. */
bool job_replaces(const struct job *job);
/* Nothing of it is in flight. */
bool job_is_quiet(const struct job *job);

const char *job_status_name(const struct job *job);
/* That a job is broken, why, and what to do. */
const char *job_describe_loss(const struct job *job, char *text, size_t size);
#define JOB_LOSS_TEXT 1000
/* Where its state is on NVMe; NULL: nowhere. */
struct store *job_nvme_store(const struct job *job);
/* What is kept of elements of a pack's section, in the stream of that state. */
struct store_range job_find_kept(const struct job *job, uint32_t pack, enum unit_section section,
				 unsigned state, uint64_t first, uint64_t count);
/* And of its parameters. */
struct store_range job_find_parameters(const struct job *job, uint32_t pack, enum unit_section section,
				       uint64_t first, uint64_t count);
/* It has a state, or had one, and no ranks. */
bool job_is_idle(const struct job *job);

/* False, and the request is answered, if the member may not train now: stale, not ready, broken. */
bool job_check_live(struct pending *pending, uint32_t epoch);
bool job_check_unit(struct pending *pending, uint32_t unit);

#endif
