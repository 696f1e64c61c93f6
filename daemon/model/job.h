/* A job: one training run, its ranks, its units and where their state is. */
#ifndef TIERD_DAEMON_JOB_H
#define TIERD_DAEMON_JOB_H

#include "daemon/durability/blobs.h"
#include "daemon/model/catalog.h"
#include "daemon/telemetry/events.h"
#include "daemon/model/member.h"
#include "daemon/resources/node.h"
#include "daemon/model/options.h"
#include "daemon/scrub/damaged.h"
#include "daemon/durability/presence.h"
#include "daemon/scrub/scrub.h"
#include "daemon/resources/shortage.h"
#include "daemon/resources/slots.h"
#include "daemon/resources/staging.h"
#include "daemon/model/state.h"
#include "offload/store/store.h"
#include "proto/statistics.h"

/* "UID/NAME-N.store", with its end. */
#define JOB_FILE_BYTES (10 + 1 + WIRE_MAX_JOB_NAME + 1 + 20 + 6 + 1)

enum job_phase {
	JOB_FORMING,	  /* units are being defined */
	JOB_PLANNING,	  /* memory and disk are being reserved, off the loop */
	JOB_FILLING,	  /* tensors may be written */
	JOB_INITIALIZING, /* masters are being split and stored */
	JOB_TRAINED,	  /* it has a state */
	JOB_RELEASED,	  /* it has one, on NVMe alone: its host memory is given back */
	JOB_RETURNING,	  /* host memory is being reserved again, off the loop */
	JOB_BROKEN,	  /* reason says why: the state is lost, comes back, or cannot be opened */
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

/* Values that ranks write between two steps: daemon/values/writing.h. */
enum writing_state {
	WRITING_NOTHING,
	WRITING_ENTERED,  /* some rank has come for it */
	WRITING_OPEN,	  /* values come */
	WRITING_DECIDED,  /* all of them are there; who reads the old ones comes to an end */
	WRITING_FLUSHING, /* what the store lacks is written */
	WRITING_PLACING,  /* they are written where they belong */
	WRITING_SWEEPING, /* they are stored, and shown */
};

enum sweep_state { SWEEP_NOTHING, SWEEP_WAITING, SWEEP_RUNNING };

/* How far a pack's update is that was begun before the decision: its gradients are measured; its chunks are
 * on their way; they are being written; it is done but for what is seen; its slot is seen, while its chunks
 * are still being written. */
enum early_state { EARLY_NOTHING, EARLY_MEASURING, EARLY_RUNNING, EARLY_WRITING, EARLY_READY, EARLY_ADOPTED };

struct residence;

/* Moves a section between its slot and the store. */
struct pack_transfer {
	struct store_transfer transfer;
	struct residence *residence;
	bool is_loading;
};

/* How a pack is present in host memory. */
struct residence {
	enum directory_state state; /* never DRAINING: that takes no time here */
	enum sweep_state sweep;	    /* what the running sweep has to do with it */
	enum early_state early;
	bool is_dirty;	    /* frozen values were written; the NVMe copy is older */
	bool is_blank;	    /* all of it is frozen, and there is no NVMe copy yet */
	bool is_unsaved;    /* a sweep has updated it since the last backup began */
	bool is_written;    /* by the writing that is open, or is applied */
	bool awaits_backup; /* the one that is under way has not begun to write it */
	bool wants_slot;
	uint32_t slot;
	unsigned pins;	 /* readers in the daemon */
	unsigned writes; /* transfers from the slot */
	/* Chunks that are on their way, of the running sweep, and, unwritten, of what it adopts; is_issued:
	 * all have been started. */
	unsigned uncomputed, unwritten;
	bool is_issued;
	enum tier_priority priority; /* of the load */
	uint64_t version;
	uint64_t changed; /* the last step whose sweep has begun to update it */
	uint64_t used;	  /* job->clock at its last use */
	struct queue waiters;
	struct queue link;	 /* of job->slot_wishes */
	struct queue sweep_link; /* of the sweep, in SWEEP_WAITING */
	struct queue early_link; /* of those that can be updated early */
	struct pack_transfer parts[UNIT_SECTIONS];
	unsigned transfers_left;
	int status;
	struct job *job;
};

/* The sum of a unit's gradients in the open step (stages 0 and 1: of one rank's). */
struct sum {
	struct queue waiting; /* contributions */
	uint32_t waiting_count;
	struct queue link;   /* of job->sums_waiting for a reduction */
	uint32_t unit, rank; /* rank: of stages 0 and 1 */
	uint32_t next;	     /* the micro-batch that comes next */
	bool has_content;    /* of the open step */
	bool is_reducing;
};

/* One rank's gradients of a unit in one micro-batch, not yet summed. */
struct contribution {
	struct queue link; /* of its sum */
	struct member *member;
	uint32_t rank, unit, micro_batch, buffer;
	uint64_t step; /* that it belongs to */
	const void *data;
	const uint8_t *absent;	  /* a bit for each tensor that it has no gradient of; NULL: it has all */
	struct held_buffer *held; /* where it was put aside, or NULL: in the member's buffer */
	struct pending *pending;
	bool is_active;	 /* pushed and not yet summed */
	bool is_reading; /* a worker reads it */
	bool is_void;	 /* its epoch has ended while a worker reads it */
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

struct gradient_listener;
struct commit_listener;
struct writing_listener;
struct sweep_listener;
struct reduction;
struct held_buffer;
struct norm_work;
struct sweep;
struct early;
struct ahead;
struct setup;
struct source;
struct spill;
struct warm;
struct draft;
struct durable;
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
	/* The functions of these names. */
	void (*throw_out)(struct member *member, const char *reason);
	void (*drop)(struct job *job);
	const char *(*describe_loss)(const struct job *job, char *text, size_t size);
	bool (*is_quiet)(const struct job *job);
};

/* Where its state is kept. */
struct job_location {
	bool has_nvme_parameters, has_nvme_optimizer, has_nvme_sums;
	bool has_stored_parameters; /* they are written to NVMe, whether they live there or in host memory */
	bool has_backup; /* the optimizer's state is in host memory, and written to NVMe before each commit */
	/* The first two are one and the same where they are on NVMe; NULL: none. */
	struct store *parameter_store, *optimizer_store, *gradient_store;
	struct job_streams streams;
	struct pack_place *places;
};

/* What is counted of it. */
struct job_telemetry {
	struct unit_account account; /* of rank 0 */
	uint64_t waits_told_ns;	     /* since when its ranks waited for others, as was told last:
					daemon/observe/waits.h */
	struct statistics_figures figures;
	struct memory page;  /* its page, once somebody has asked for it */
	struct trace *trace; /* NULL: nobody traces it */
};

/* What it has of the node's memory and disk. */
struct job_resources {
	uint64_t host_bytes, nvme_bytes;     /* of the budgets */
	uint64_t host_budget, nvme_budget;   /* its own; 0: none */
	uint64_t host_maximum, nvme_maximum; /* of all jobs of its owner; 0: none */
	unsigned io_share;		     /* its owner's, of the devices */
	uint64_t charged_bytes;		     /* of host_bytes: outside of the plan */
	uint64_t kept_bytes;		     /* of its plan: what stays when it is released */
	uint64_t cache_bytes;		     /* of host_bytes: tracts and warm state */
	uint64_t warm_most_bytes;	     /* as it is planned: were all warm that can be */
	struct shortage shortage;	     /* what its plan lacks */
	uint32_t windows;		     /* of members, as many as were charged */
	bool has_plan;			     /* all its ranks' windows are in it */
	struct path_list paths;		     /* that its stores lie on, by their devices */
	uint64_t path_bytes[NODE_MAX_PATHS];
	uint64_t lent_path_bytes;  /* the same: for growth that is not there yet, or a fork */
	uint64_t sums_path_bytes;  /* of path_bytes, on each of its paths: its spilled sums */
	uint64_t draft_path_bytes; /* the same: its draft */
};

/* Its packs in host memory. */
struct job_residency {
	uint32_t returned_packs; /* of parameters in host memory: those that are asked back from there */
	struct memory directory_memory, arena;
	struct memory cache; /* the arena goes on there, at slots_cache_offset() */
	struct directory_header *directory;
	struct slots slots;
	struct residence *residences;
	struct queue slot_wishes; /* residences that wait for a slot */
	const struct residency_listener *listener;
	const struct cache_tenant *cache_tenant; /* daemon/residency/cache.h */
	uint64_t clock;
	char holders[384];    /* who keeps a gather from ever fitting, for its message */
	unsigned cache_moves; /* tracts, and shares of warm state, that come or go */
	unsigned rescues;     /* how often memory of others was waited for */
	uint32_t *next_use;   /* by pack */
	bool has_next_uses;   /* nothing has moved since they were found */
	uint64_t loading_bytes;
};

/* Its gradients, and their sums. */
struct job_gradients {
	struct memory sums_memory;
	const struct gradient_listener *listener; /* daemon/gradients/gradient_listener.h */
	/* By unit: bytes of sums_memory, which has a region per rank in stages 0 and 1; or, where sums may be
	 * spilled, of the pack's buffer. */
	uint64_t *sum_offsets;
	uint64_t sum_buffer_bytes; /* 0: they are all in sums_memory */
	struct spill *spill;	   /* NULL in the same case */
	struct sum *sums;
	uint32_t sum_ranks; /* 1, or world_size in stages 0 and 1 */
	struct reduction *reductions;
	struct queue free_reductions, sums_waiting;
	unsigned reductions_running; /* and copies and transfers of gradients */
	/* Contributions that wait in sums: of the open step and the one after it, each at its number
	 * modulo 2. */
	uint64_t waiting_of_step[2];
	uint32_t folded_units; /* units before this one are folded, in stages 0 and 1 */
	struct queue free_held, all_held;
	unsigned held_count; /* that are in the plan */
	unsigned grown_held; /* beyond it */
	struct norm_work *norm;
};

/* Its steps. */
struct job_update {
	const struct commit_listener *commit_listener; /* daemon/update/step_listeners.h */
	const struct writing_listener *writing_listener;
	const struct sweep_listener *sweep_listener;
	unsigned closed_count;
	struct step_rates open_rates;
	bool has_open_rates;
	double gradient_norm;
	bool is_skipped;
	float factor;		    /* of the reduced or decided step's gradients */
	bool is_reduced;	    /* the open step waits for the owners of its parts, or for values */
	enum writing_state writing; /* of the open or the decided step */
	struct step_rates decided_rates;
	struct optimizer_group *groups; /* of the last decided step; at first the options' */
	struct optimizer_group *rooms;	/* for these, those of the options, and those of rates */
	struct loss_scale loss_scale;
	uint64_t decided_ns;
	struct sweep *sweep; /* the running one */
	struct warm *warm;   /* daemon/update/warm.h; NULL: none of its state ever was */
	struct ahead
		*ahead; /* daemon/update/ahead.h; NULL: nothing has been, or can be, read before its update */
	struct early *
		early; /* daemon/update/early.h; NULL: no update can be, or has been, begun before its step */
	uint64_t early_updates; /* of units, that were applied with their steps */
};

/* Its store, and what is durable there. */
struct job_durability {
	char file[JOB_FILE_BYTES];     /* of its store: daemon/durability/stored.h */
	struct presence_files files;   /* its own, once it is durable */
	bool is_leaving;	       /* its store, which others have, too */
	bool has_left, is_left_behind; /* in vain: it is still to be removed from there */
	struct store_request leaving;
	bool is_retention_missed; /* a step was not kept by itself that was due, and none since */
	uint64_t first_kept;	  /* no step before this one is kept by itself: retention_begin() */
	uint32_t snapshots_asked; /* options.snapshots may be more: what forks that are gone have left */
	bool is_retention_set;	  /* by daemon/durability/retain.h: its ranks need not know */
	struct queue kept_steps;  /* for readers: daemon/durability/kept.h */
	bool has_earlier_updates; /* units have had more than its steps, there */
	uint32_t record_format;	  /* RECORD_FORMAT_…: what there is room for in its record */
	uint32_t setting; /* what counted when it was opened: DURABILITY_DEFAULT is by where its state lies
			   */
	bool is_durable;
	struct blobs blobs;
	struct durable *durable; /* NULL: its state ends with the daemon, or has not begun */
	struct backup *backup;	 /* NULL: it needs none */
	struct queue errands;	 /* of its store, beside commits: daemon/durability/errand.h */
};

/* Who reads and writes its values. */
struct job_values {
	struct queue readers;	     /* daemon/values/reader.h */
	struct source *source;	     /* where its first values come from; NULL: from nobody, or it has them */
	struct queue takers;	     /* those whose source it is: daemon/values/source.h */
	struct queue tensor_waiting; /* operations that wait for a pack to be written back */
	struct queue filling;	     /* pendings of tensor writes that wait for the plan */
	bool is_drafted;	     /* units may be defined when tensors have been written */
	struct draft *draft;	     /* what was written so; NULL: nothing, or it is where it belongs */
	struct queue state_writes; /* operations that wait for their turn to write what the optimizer keeps */
	bool is_writing_state;	   /* one of them has it */
	bool has_given_slots;	   /* some was, at any time: what was never updated may be no zeros */
	bool has_first_step;	   /* what was written so was kept after that step, at which the job begins */
	uint64_t first_step;
	bool has_values;  /* every tensor has been written, or has an initializer */
	bool has_masters; /* some of that went to where masters are kept, beside sums that are too narrow */
	/* Frozen tensors have been filled in units before this one, and in it in those before that tensor. */
	uint32_t initialized_units, initialized_tensors;
	bool is_filling_tensor;	     /* an initializer fills a frozen one: one at a time */
	int writing_error;	     /* it will come to nothing; */
	uint32_t writing_culprit;    /* because of this rank */
	unsigned shard_copies;	     /* under way, between their windows and the sums */
	unsigned snapshot_copies;    /* that read a snapshot */
	struct queue copies_waiting; /* for what is warm to be written */
};

/* What looks for damage in its store. */
struct job_scrub {
	unsigned scans; /* under way: daemon/scrub/scan.h */
	struct scrub_state state;
	struct damaged damaged; /* as scans have found */
};

/* What becomes of it. */
struct job_life {
	struct job_shape former_shape; /* world_size 0: its memory is there, or was, in the one that it has */
	bool is_dropped;	       /* freed as soon as nothing is in flight */
	bool is_kept;		       /* then its store stays: the daemon ends, or it is replaced */
	bool comes_back;	       /* after that, from its last durable step */
	bool is_lost;		       /* its store is there, and cannot be opened: it goes with it */
	struct loss loss;
	struct replaced *replaced;     /* what it takes the place of, until it has a state; owned */
	struct replaced *remains;      /* or it is replaced itself: what is left of it then; borrowed */
	bool is_rolling_back;	       /* and nobody may join it */
	bool is_sharing_set;	       /* by daemon/life/share.h */
	struct restore_notice *notice; /* told when it has come back; NULL: nobody waits */
	char departed[256]; /* who has closed its membership, "" if nobody: no step is possible any more */
	struct queue lingering; /* members that have left, whose memory is still used */
	bool is_read;		/* by processes that live, though it ends */
	bool has_begun;		/* an epoch was live once */
	struct setup *setup;
	struct event *slot_timer, *turn, *idle_timer; /* idle_timer: NULL, or of daemon/life/idle.c */
	uint32_t turns_in_a_row;		      /* that only other turns have asked for */
	uint64_t idle_since_ns;			      /* has had no rank since; once it has a state */
};

struct job {
	struct queue link; /* of the node's */
	struct node *node;
	const struct job_callbacks *callbacks;
	char name[WIRE_MAX_JOB_NAME + 1];
	uid_t uid;
	uint64_t number; /* of all jobs that this node has made */
	struct job_options options;
	struct catalog catalog;
	enum job_phase phase;
	uint32_t epoch;
	bool is_live;
	char reason[512]; /* why the last epoch ended, or the job is broken */
	struct member **ranks;
	unsigned member_count;
	struct gradient_buffers gradient_buffers; /* of each rank */
	uint64_t step;				  /* applied */
	uint64_t decided;			  /* step, or step + 1 while it is being applied */

	struct job_location location;
	struct job_telemetry telemetry;
	struct job_resources resources;
	struct job_residency residency;
	struct job_gradients gradients;
	struct job_update update;
	struct job_durability durability;
	struct job_values values;
	struct job_scrub scrub;
	struct job_life life;
};

/* ---- job.c, opening.c, unit_requests.c, ready.c, epoch.c: membership and epochs ---- */

struct job *job_find(struct node *node, uid_t uid, const char *name);
/* A job without ranks and units, in JOB_FORMING; freed by job_free(). */
int job_new(struct node *node, uid_t uid, const struct quota *quota, const char *name,
	    const struct job_options *options, struct job **ret_job);
/* What it may take of memory, of disk and of the devices' time, by what its owner may. */
void job_set_limits(struct job *job, const struct quota *quota);
/* Of the devices; for the files of its store, and for its draft. */
struct tier_share job_share(const struct job *job);
/* 0, or a negative errno with a message: whether a user may have one more, and a new one that name. */
int job_check_count(const struct node *node, uid_t uid, char *message, size_t size);
int job_check_name(const struct node *node, const char *name, char *message, size_t size);
/* Checks and charges the next unit. A negative errno with a message. */
int job_add_unit(struct job *job, const Tierd__Wire__UnitDefine *definition, char *message, size_t size);
void job_open(struct pending *pending, const Tierd__Wire__JobOpen *open, struct memberships *client,
	      uint32_t handle);
void job_define(struct pending *pending, const Tierd__Wire__UnitDefine *definition);
void job_ready(struct pending *pending, int timeout_ms);
/* Those that wait to be ready are told why they will not be. */
void job_fail_ready(struct job *job, int r, const char *message);

/* The member leaves. is_orderly: nobody is disturbed until a step would need it. */
void job_leave(struct member *member, bool is_orderly, const char *reason);

/* The member leaves because it keeps the others from going on. */
void job_throw_out(struct member *member, const char *reason);

/* Ends the epoch for all ranks. */
void job_abort(struct job *job, int r, const char *format, ...) __attribute__((format(printf, 3, 4)));

/* All calls fail from now on, and what is not durable is lost. Logged here; about: as events_of_job() takes
 * it. */
void job_break(struct job *job, int r, const struct log_fields *about, const char *format, ...)
	__attribute__((format(printf, 4, 5)));

/* The same, because a transfer of the pack to its NVMe store has failed. */
void job_break_write(struct job *job, uint32_t pack, const struct store_transfer *transfer, int status);

/* Something that was in flight has come home. What waited for that (the sweep, wishes for slots, a start, a
 * drop) goes on in a turn of its own, from the loop: the caller may be in the middle of a member, an
 * operation or a queue that this would change. Who calls it in a turn has got something done: a turn that
 * asks for another one all the same takes a processor for nothing, and after very many of them that is told.
 */
void job_settle(struct job *job);
/* Memory or disk has become free, which others may have waited for. */
void job_settle_all(struct node *node);
/* In its turn: starts what all ranks are ready for. */
void job_go_on(struct job *job);
/* Asks the clients to ring at a release, and looks again after a while anyway. */
void job_watch_slots(struct job *job);
/* Nothing of it is in flight. */
bool job_is_quiet(const struct job *job);
/* But scans, which need no more than its store: a scrub that is hurried reads on and on, and would keep an
 * idle job from giving back its memory. */
bool job_is_at_rest(const struct job *job);
/* But scans, and early updates that are ready and wait for the step's decision. */
bool job_is_still(const struct job *job);
void job_drop(struct job *job);
void job_free(struct job *job);

const char *job_status_name(const struct job *job);
/* That a job is broken, why, and what to do. */
const char *job_describe_loss(const struct job *job, char *text, size_t size);
#define JOB_LOSS_TEXT 1000
/* Where its state is on NVMe; NULL: nowhere. */
struct store *job_nvme_store(const struct job *job);
/* What is kept of elements of a pack's section, in the stream of that state. */
struct store_piece job_find_kept(const struct job *job, uint32_t pack, enum unit_section section,
				 unsigned state, uint64_t first, uint64_t count);
/* It has a state, and no ranks. */
bool job_is_idle(const struct job *job);

/* False, and the request is answered, if the member may not train now: stale, not ready, broken. */
bool job_check_live(struct pending *pending, uint32_t epoch);
bool job_check_unit(struct pending *pending, uint32_t unit);

/* ---- setup.c: reserving memory and disk; daemon/life/setup_plan.c plans them ---- */

/* Plans and reserves; job->phase becomes JOB_FILLING, or JOB_FORMING again after an error, and job_planned()
 * is called. Of a released job: JOB_TRAINED, or JOB_RELEASED. */
void setup_start(struct job *job);
/* Gives back what host memory a job needs only while it is used. It has no ranks, all of its state is on
 * NVMe, and nothing is in flight. */
void setup_release(struct job *job);
void setup_clear(struct job *job);
void job_planned(struct job *job, int r, const char *message);

/* ---- residency.c, eviction.c, deadlock.c: packs in host memory ---- */

/* Who is told what becomes of packs; the table is of a module above. */
struct residency_listener {
	/* Somebody has come to wait for a pack, as the first one. */
	void (*awaited)(struct job *job, uint32_t pack);
	/* Or for one that the running sweep has begun, at a version that has been decided. */
	void (*raised)(struct job *job, uint32_t pack);
};

/* True: the pack is resident at the version. False: the waiter is queued, and the pack is loaded if need be.
 */
bool residency_want(struct job *job, uint32_t pack, struct waiter *waiter, enum tier_priority priority);
/* Whether somebody waits for it, at a version that has been decided. */
bool residency_is_awaited(const struct job *job, uint32_t pack);
void residency_forget(struct waiter *waiter);
/* The rank of a gather that waits has come to do nothing else. */
void residency_note_stall(const struct job *job, uint32_t pack, struct waiter *waiter);
/* Starts a load without anybody waiting; false if there is no slot for it. */
bool residency_prefetch(struct job *job, uint32_t pack);
void residency_pin(struct job *job, uint32_t pack);
void residency_unpin(struct job *job, uint32_t pack);
/* RESIDENT → UPDATING; false while somebody has a lease on one of its trainable units. */
bool residency_begin_update(struct job *job, uint32_t pack);
/* Who has one, or NULL. */
struct member *residency_update_holder(struct job *job, uint32_t pack);
/* ABSENT → UPDATING, of a pack that has just got a slot. */
void residency_mark_updating(struct job *job, uint32_t pack);
/* Publishes the pack at the version; wakes the waiters. */
void residency_publish(struct job *job, uint32_t pack, uint64_t version);
/* The values have not changed, or are not in host memory: only the version. */
void residency_set_version(struct job *job, uint32_t pack, uint64_t version);
/* Takes a slot for the pack if one is free, or one can be had from a pack with a later use than it. */
bool residency_take_slot(struct job *job, uint32_t pack, uint32_t distance);
/* Serves those who wait for slots, after a release or the end of a transfer. */
void residency_serve(struct job *job);
/* The pack leaves host memory, unless somebody reads it, or it has to be written first. */
bool residency_evict(struct job *job, uint32_t pack);
/* Somebody has a lease on one of its units. */
bool residency_is_leased(struct job *job, uint32_t pack);
/* It could not leave host memory now. */
bool residency_is_held(struct job *job, uint32_t pack);
/* The arena has gone, and all packs with it. */
void residency_forget_all(struct job *job);
/* Writes frozen values that are only in host memory; true if it started something. */
bool residency_flush(struct job *job, uint32_t pack);
/* Whether a gather of the member waits for a slot that comes free only when a rank releases a unit: all that
 * fit are leased, and none is being loaded, written or evicted. */
bool residency_awaits_release(struct job *job, const struct member *member);
/* A step that was awaited has failed: who waits for its version looks again. */
void residency_fail_awaited(struct job *job);
/* A client waits for a slot that it will never get: fails one such wait. */
void residency_check_deadlock(struct job *job);
uint32_t residence_pack(const struct residence *residence);
const struct slot_class *residency_class(const struct job *job, uint32_t pack);
void residency_unwish(struct residence *residence);
struct directory_entry *residency_entry(const struct job *job, uint32_t unit);
void residency_set_state(struct job *job, uint32_t pack, enum directory_state state);
/* Its slot is free, whoever is there. */
void residency_vacate(struct job *job, uint32_t pack);
/* No load, write-back or reader. */
bool residency_is_quiet(const struct job *job);
/* The first of its units' names, and what is wrong with a store, for messages. */
/* What the last load has failed at; NULL: nothing that has a place. */
const struct store_transfer *residency_fault(const struct job *job, uint32_t pack);
const char *pack_name(const struct job *job, uint32_t pack);
const char *store_error(int status);
/* What a transfer of the pack that has failed is about, for the log. */
struct log_fields store_fault(const struct job *job, uint32_t pack, const struct store_transfer *transfer);
char *residency_address(const struct job *job, uint32_t pack);

/* ---- gather.c ---- */
void gather_start(struct pending *pending, const Tierd__Wire__Gather *gather);
/* The member closes the step before version: what it waits for it gets at that version. A lease on older
 * values would be one that it holds through its step. */
void gather_expect(struct member *member, uint64_t version);
/* A step of the member is refused: what waits for its version looks again. */
void gather_fail_refused(struct member *member);
/* True, and it is answered, if the gather waits for a step that its own rank has yet to finish. */
bool gather_refuse_owed(struct pending *pending);
void gather_cancel(struct pending *pending, const Tierd__Wire__GatherCancel *cancel);
/* Its rank has come to do nothing else but to wait for it. */
void gather_await(struct pending *pending, const Tierd__Wire__GatherAwait *await);

/* ---- prefetch.c ---- */
/* Looks at the ranks' progress and loads what comes next. */
void prefetch_run(struct job *job);
/* In the job's turn: parameters that live in host memory come back there, all of them. */
void prefetch_bring_back(struct job *job);
void prefetch_hint(struct pending *pending, const Tierd__Wire__Prefetch *prefetch);
/* Gathers of the rank follow another order from now on. */
void prefetch_enter_phase(struct pending *pending, const Tierd__Wire__Phase *phase);
/* Fills job->next_use, if it is out of date. */
void prefetch_find_next_uses(struct job *job);
/* The packs in the order of their first use in a pass: of a whole one, or from where the ranks are now on;
 * order has pack_count entries. */
void prefetch_pass_order(struct job *job, bool is_whole, uint32_t *order);

/* ---- gradient.c, reduction.c, held.c ---- */
int gradient_init(struct job *job);
/* The step that ranks push to now. */
uint64_t gradient_open_step(const struct job *job);
void gradient_clear(struct job *job);
void gradient_push(struct pending *pending, const Tierd__Wire__Push *push);
void gradient_wait(struct pending *pending, const Tierd__Wire__BufferWait *wait);
void gradient_unblock(struct job *job, bool with_gathers);
void gradient_try(struct job *job, uint32_t unit);
void gradient_try_all(struct job *job);
/* A rank has closed its part: sums need not wait for it any more. */
void gradient_try_closed(struct job *job);
bool gradient_is_complete(const struct job *job); /* all contributions to the open step are summed */
bool gradient_fold(struct job *job);		  /* stages 0, 1: true if something was started */
bool gradient_has_content(const struct job *job, uint32_t unit);
char *gradient_sum(const struct job *job, uint32_t unit); /* as daemon/model/sums.h says */
/* Its sum is consumed. The units of a pack are reset together. */
void gradient_reset_unit(struct job *job, uint32_t unit);
void gradient_abort(struct job *job);	  /* the epoch has ended */
void gradient_drop_open(struct job *job); /* the open step has failed */
/* The member's contributions have nobody to answer any more; are void (what a worker reads is not summed
 * again). */
void gradient_forget_pendings(struct member *member);
void gradient_forget_member(struct member *member);
bool gradient_has_pushed(const struct member *member);
uint64_t gradient_held_bytes(const struct job *job, unsigned count);

/* Nobody trains: what held buffers have grown beyond the plan is given back. */
void gradient_shrink_held(struct job *job);

/* The sums' place has values that are written, not gradients. */
static inline bool job_writes_sums(const struct job *job)
{
	return job->phase < JOB_TRAINED || job->update.is_reduced || job->update.writing == WRITING_PLACING;
}

/* ---- step.c ---- */
/* Closes the rank's part of a step, or of a writing, or keeps it until it can be closed. False: it is
 * refused. */
bool step_take(struct pending *pending, struct step_rates *rates);
void step_fail_refused(struct member *member);
/* The open step is decided: ranks can begin with the next one. */
void step_begin_decided(struct job *job);
/* The open step cannot be taken: its gradients are dropped, the ranks may push again. */
void step_fail(struct job *job, int r, const char *message);
void step_close(struct pending *pending, const Tierd__Wire__Step *step);
void step_begin(struct pending *pending, const Tierd__Wire__StepBegin *begin);
/* Decides the open step if everything is there. */
void step_advance(struct job *job);
/* The open step is decided; broken: the unit whose gradients are not finite, so that it is skipped, or NULL.
 */
void step_decide(struct job *job, const char *broken);
void step_applied(struct job *job); /* the sweep is done */
void step_abort(struct job *job);

/* ---- reduced.c ---- */
/* The open step's gradients are there for the owners of its parts. */
void reduced_begin(struct job *job);
/* Decides it if all owners have finished and nothing of theirs is under way. */
void reduced_advance(struct job *job);
void reduced_finish(struct pending *pending, const Tierd__Wire__StepFinish *finish);
/* It has ended its part. */
void reduced_end_part(struct member *member);
/* False, and the request is answered, if the tensor's gradients cannot be read now, nor masters written.
 * Ranks divide a step among them as they like. */
bool reduced_check(struct pending *pending, uint32_t index, const struct tensor *tensor);

/* ---- sweep.c, course.c, chunk_work.c ---- */
/* The memory that one takes. */
uint64_t sweep_metadata_bytes(const struct job *job);
/* Passes over all packs that have something to do: applies the decided step, or splits the masters. */
int sweep_start(struct job *job, bool is_initializing);
/* In the job's turn alone. */
void sweep_go_on(struct job *job);
/* What is waited for comes before others. */
extern const struct residency_listener sweep_residency_listener;
void sweep_free(struct job *job);
/* What is in flight comes home, no more is started, nothing is applied. */
void sweep_cancel(struct job *job);
/* The initializer's values of elements of a tensor. */
void sweep_fill_tensor(const struct job *job, const struct tensor *tensor, uint64_t first, uint64_t count,
		       float *values);

/* ---- tensor.c ---- */
void tensor_write(struct pending *pending, const Tierd__Wire__TensorWrite *write);
void tensor_read(struct pending *pending, const Tierd__Wire__TensorRead *read);
/* Fills frozen tensors that have an initializer, one at a time, and writes them back. 0: all is done; 1:
 * something is under way, and job_settle() follows; or -errno. */
int tensor_initialize(struct job *job);
void tensor_fill_waiting(struct job *job);

/* ---- operation.c: see daemon/values/operation.h, too ---- */
/* A pack has been written back, or its sums are in host memory. */
void operation_resume(struct job *job);
/* The request belongs to an operation in flight; it is answered when that is done. */
bool operation_is_under_way(struct member *member, const struct pending *pending);
/* A step of the member is refused: an operation that waits for its version fails. */
void operation_fail_refused(struct member *member);
/* The operation in flight, if any, has nobody to answer any more. */
void operation_forget(struct member *member);

/* ---- account.c ---- */
void account_read(struct pending *pending);
/* Units have been defined. */
void account_define(struct job *job, struct member *member);
/* Of a member, or, NULL, as rank 0 counts it. */
void account_statistics(struct job *job, struct member *member, Tierd__Wire__StatisticsReply *reply);
/* It has been submitted. */
void account_transfer(struct job *job, enum statistics_kind kind, struct store_transfer *transfer);
void account_step(struct job *job);
void account_push(struct job *job, struct member *member, uint32_t unit);

#endif
