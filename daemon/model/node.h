/* The node: what all jobs of this daemon share. */
#ifndef TIERD_DAEMON_MODEL_NODE_H
#define TIERD_DAEMON_MODEL_NODE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "collectives/collective.h"
#include "common/queue.h"
#include "common/workers.h"
#include "offload/device/memory.h"
#include "offload/device/tier.h"
#include "proto/statistics.h"

#define NODE_MAX_PATHS 16

struct node_path {
	char *path;	    /* owned */
	char *folder;	    /* the daemon's own in it; owned */
	uint64_t capacity;  /* bytes that tierd may use there */
	uint64_t endurance; /* bytes that its device may be written with; 0: as the node's others */
	uint64_t used;	    /* bytes that jobs have reserved */
	uint64_t moved[2];  /* bytes, by enum tier_direction, of all jobs there have been */
	int directory_fd;   /* of the folder */
	bool is_direct;	    /* O_DIRECT works there */
	bool is_absent;	    /* its file system is not mounted: daemon/durability/listing.h */
	dev_t file_system;
	unsigned device; /* of the engine: folders of one file system share it */
};

/* Some of the node's paths, by their numbers: those of a job, in the order of its stores' devices. */
struct path_list {
	unsigned count;
	uint8_t paths[NODE_MAX_PATHS];
};

struct limit_list;
struct principal_list;

/* What the GPUs of a job do with packs that all of them want next. */
enum gpu_exchange_mode {
	GPU_EXCHANGE_AUTO,   /* they exchange them, if they find that faster */
	GPU_EXCHANGE_ALWAYS, /* wherever they can */
	GPU_EXCHANGE_NEVER,
};

/* Whether GPUs that all ranks of a job push from sum what they push. */
enum gpu_sums_mode {
	GPU_SUMS_NEVER,
	GPU_SUMS_AUTO,	 /* where that moves no more over the bus, if it turns out to be faster */
	GPU_SUMS_ALWAYS, /* wherever that moves no more */
};

/* As the configuration has it, and may change it while the node is there. */
struct node_settings {
	uint64_t host_budget;			     /* bytes of host memory for all jobs together */
	uint64_t cache_patience_ms;		     /* how long caches are waited for */
	uint64_t idle_release_ms;		     /* 0: never */
	uint32_t durability;			     /* of jobs that do not ask for one */
	const struct principal_list *administrators; /* borrowed until node_free(); NULL: none */
	const struct limit_list *limits;	     /* in the same way */
	unsigned jobs_per_user;
	unsigned units_per_job, tensors_per_job;		      /* of jobs from now on */
	unsigned job_name_length, name_length, dimensions_per_tensor; /* in the same way */
	unsigned connections_per_user;				      /* that the server allows: to be told */
	unsigned gpu_exchange;					      /* enum gpu_exchange_mode */
	unsigned gpu_exchange_seconds;				      /* until one has failed */
	unsigned gpu_sums; /* enum gpu_sums_mode; of GPUs that jobs begin to use */
};

/* As much as there may be. */
#define NODE_SETTINGS_INIT                                                                                   \
	{                                                                                                    \
		.cache_patience_ms = NODE_CACHE_PATIENCE_MS, .jobs_per_user = QUOTA_JOBS_PER_USER,           \
		.units_per_job = CATALOG_MAX_UNITS, .tensors_per_job = CATALOG_MAX_TENSORS,                  \
		.job_name_length = WIRE_MAX_JOB_NAME, .name_length = WIRE_MAX_NAME,                          \
		.dimensions_per_tensor = WIRE_MAX_DIMENSIONS,                                                \
		.gpu_exchange_seconds = NODE_GPU_EXCHANGE_SECONDS                                            \
	}
#define NODE_CACHE_PATIENCE_MS 10000
#define NODE_GPU_EXCHANGE_SECONDS 30

/* What a node is made from; the daemon's configuration fills it. */
struct node_config {
	struct node_settings settings;
	unsigned workers;
	unsigned queue_depth;
	uint64_t background_bytes; /* see engine_config */
	bool is_plain_io;	   /* do not try io_uring */
	bool needs_io_uring;	   /* do not do without it */
	bool is_buffered_io;	   /* do not try O_DIRECT */
	bool needs_reservation;	   /* refuse file systems that break it */
	bool needs_disk;	   /* refuse those that are memory */
	unsigned path_count;
	struct {
		const char *path; /* an existing folder */
		uint64_t capacity;
		uint64_t endurance; /* 0: the one below */
	} paths[NODE_MAX_PATHS];
	unsigned scrub_days;	     /* once through all data; 0: never */
	uint64_t endurance;	     /* bytes; 0: not known */
	const char *state_directory; /* borrowed; NULL: it keeps nothing there */
	const char *fault;	     /* as fault_config_parse() takes it; for tests; NULL: none */
};

struct event_base;
struct holder;
struct job;
struct life_recovery;
struct node;
struct node_durability;
struct node_gpu;
struct staging;
struct node_recovery;
struct node_resources;
struct node_scrub;
struct node_values;
struct node_life;
struct node_observe;
struct job_callbacks;
struct node_telemetry;

/* What the modules above this one give a node. */
struct node_parts {
	const struct holder *const *holders; /* in the order in which they are asked; NULL ends them */
	/* Makes what they keep for a node that is whole but for that. NULL, of both: nothing. */
	int (*open)(struct node *node, const struct node_config *config);
	/* No job is left; also where open() has failed. */
	void (*close)(struct node *node);
	/* What they keep beside jobs has ended, too. */
	bool (*has_ended)(const struct node *node);
	/* Of what the node still waits for at its end: calls of libraries that do not return keep the job;
	 * and so many of its works. NULL, of all three: there is nothing of that kind. */
	bool (*is_kept)(const struct job *job);
	unsigned (*kept_works)(const struct node *node);
	/* Nothing else is waited for. The process ends here, if such a call has taken too long. */
	void (*give_up)(struct node *node);
	/* The job has something to finish before the daemon ends; it may begin with that; and it is to end,
	 * and its store stays. */
	bool (*is_behind)(const struct job *job);
	void (*hasten)(struct job *job);
	void (*end_job)(struct job *job);
	const struct job_callbacks *life;     /* daemon/model/job.h */
	const struct life_recovery *recovery; /* daemon/life/life_recovery.h; NULL: no job comes back */
	/* One of this name is, and not on its way out, or will be when another one has ended; and with whom
	 * it is shared, as far as this daemon has known it. */
	bool (*comes_back)(const struct node *node, uid_t uid, const char *name, uint32_t *ret_sharing,
			   uint32_t *ret_share_group);
};

struct node_jobs {
	struct queue live;
	struct queue dying; /* dropped, and not quiet yet */
	uint64_t created;
};

struct node {
	const struct node_parts *parts;
	struct event_base *loop; /* borrowed */
	struct engine *engine;
	struct workers *workers;      /* optimizer, reduction, checksums */
	struct workers *slow_workers; /* what can take long in the kernel */
	struct collective *collective;
	struct node_path paths[NODE_MAX_PATHS];
	unsigned path_count;
	struct node_jobs jobs;
	struct staging *staging; /* daemon/resources/staging.h */
	uint64_t incarnation;
	uint64_t started_ns;
	bool is_stopping;
	bool is_draining; /* only jobs that have ranks may be opened */
	const char *fault;

	struct node_settings settings;
	struct node_resources *resources; /* daemon/resources/own.h */
	struct node_telemetry *telemetry; /* daemon/telemetry/own.h */
	struct node_gpu *gpu;		  /* daemon/gpu/own.h; NULL: nobody has asked for one */
	struct node_values *values;
	struct node_recovery *recovery;	    /* daemon/recovery/own.h */
	struct node_scrub *scrub;	    /* daemon/scrub/own.h */
	struct node_durability *durability; /* daemon/durability/own.h */
	struct node_observe *observe;	    /* daemon/observe/own.h */
	struct node_life *life;		    /* daemon/life/own.h */
};

#endif
