/* The pages of statistics: what the daemon's loop writes about itself and its jobs, for others to read
 * without asking it. So they can be read when it does not turn any more.
 *
 * A page has two copies of its body. The writer fills the one that is not shown, then shows it; so one that
 * is stopped in the middle leaves the last whole copy behind, where a lock of any kind would stay closed. A
 * reader takes the copy that is shown, and again if another one is by the time it has it. */
#ifndef TIERD_PROTO_STATISTICS_H
#define TIERD_PROTO_STATISTICS_H

#include <stddef.h>
#include <stdint.h>

#define STATISTICS_MAGIC 0x74737264 /* "drst" */
#define STATISTICS_VERSION 3
#define STATISTICS_PAGE_BYTES 8192
#define STATISTICS_MAX_PATHS 16
#define STATISTICS_PATH_BYTES 88
#define STATISTICS_NAME_BYTES 72
#define STATISTICS_MAX_GPUS 16
/* Of a sensor. */
#define STATISTICS_UNKNOWN UINT64_MAX
/* The daemon writes its pages so often. */
#define STATISTICS_INTERVAL_MS 500

enum statistics_subject { STATISTICS_OF_NODE = 1, STATISTICS_OF_JOB };

/* Who waits for the bytes: a gather; a gather to come; a step, which reads and writes state; nobody, for
 * values that were written or initialized and go to NVMe; a push or a step, for sums of gradients that have
 * no room in host memory. */
enum statistics_kind {
	STATISTICS_DEMAND,
	STATISTICS_PREFETCH,
	STATISTICS_UPDATE,
	STATISTICS_WRITE_BACK,
	STATISTICS_GRADIENT,
	STATISTICS_KINDS
};

/* What a rank waits for: bytes from NVMe; room in the arena; the version that a step brings; a free gradient
 * buffer; a GPU, which has no room, or copies what the rank wants, or has pushed. */
enum statistics_cause {
	STATISTICS_NVME_READ,
	STATISTICS_SLOT,
	STATISTICS_STEP,
	STATISTICS_GRADIENT_BUFFER,
	STATISTICS_GPU,
	STATISTICS_CAUSES
};

enum { STATISTICS_READ, STATISTICS_WRITTEN, STATISTICS_DIRECTIONS };

/* Counts since the start of the daemon, or of the job. Of 64-bit words alone, as all of a page's body. */
struct statistics_figures {
	uint64_t bytes[STATISTICS_KINDS][STATISTICS_DIRECTIONS];
	uint64_t transfers[STATISTICS_KINDS][STATISTICS_DIRECTIONS];
	uint64_t gathers; /* granted, in shared memory or by message */
	uint64_t misses;  /* by message */
	uint64_t pushes;
	uint64_t stall_ns[STATISTICS_CAUSES]; /* of all ranks together */
	uint64_t steps, skipped_steps;	      /* steps: the skipped ones, too */
	uint64_t step_ns;		      /* from decision to applied */
	uint64_t epochs, broken_epochs;	      /* begun; ended by a loss */
};

struct statistics_path {
	uint64_t capacity, used;
	uint64_t moved[STATISTICS_DIRECTIONS];
	char path[STATISTICS_PATH_BYTES]; /* "NUMBER:…" and its end, if it is longer */
	/* Its device had transfers to do; of a node with workers. Where the ends of long paths were before.
	 */
	uint64_t busy_ns;
};

/* One that jobs use. */
struct statistics_gpu {
	uint32_t number, is_slice;
	unsigned char uuid[16];
	uint64_t bytes, held;		       /* its memory; of that, by the daemon for all jobs */
	uint64_t moved[STATISTICS_DIRECTIONS]; /* read: from host memory to it; since jobs have used it */
	/* Of its sensors, as of the last two seconds or so, and of all processes. */
	uint64_t busy_percent, used, celsius, milliwatts, millijoules;
};

struct statistics_node {
	uint64_t heartbeat_ns; /* CLOCK_MONOTONIC, when the loop wrote this */
	uint64_t started_ns, incarnation, pid;
	uint64_t host_budget, host_used, host_cache, pinned;
	uint64_t clients, requests, jobs;
	struct statistics_figures figures; /* of all jobs, those that are gone included */
	uint64_t path_count;
	struct statistics_path paths[STATISTICS_MAX_PATHS];
	uint64_t durable_jobs, fleeting_jobs; /* whose state comes back if the daemon ends now; the others */
	uint64_t host_withheld; /* of host_used: of jobs that have ended, and clients still have it */
	uint64_t gpu_count;	/* of those that jobs use, the first */
	struct statistics_gpu gpus[STATISTICS_MAX_GPUS];
	uint64_t ranks, workers; /* workers: 0: the daemon does not count how busy it and its devices are */
	/* All workers together had work; the loop had something to do; also while they got no processor. */
	uint64_t worker_busy_ns, loop_busy_ns;
};

struct statistics_job {
	uint64_t heartbeat_ns;
	uint64_t uid;
	uint64_t stage, world_size, ranks; /* ranks: that are there */
	uint64_t epoch, step;
	uint64_t units, parameters;
	uint64_t host_bytes, host_budget, cache_bytes, nvme_bytes;
	struct statistics_figures figures;
	char name[STATISTICS_NAME_BYTES];
	char status[24];
	uint64_t durable_step, durable_lag_steps, durable_lag_ns; /* not durable: none; all; 0 */
	uint64_t early_updates;		      /* of units, begun before their step was decided */
	uint64_t warm_bytes, warm_most_bytes; /* of cache_bytes: optimizer state; were all of it there */
	uint64_t is_lost; /* its store cannot be opened: of its own nothing is known but owner, name and
			     status */
	uint64_t has_durable_step; /* without: nothing of it would be back if the daemon ended now */
	uint64_t gpu_bytes;
	uint64_t gpu_millijoules, gpu_steps; /* of its GPUs with all who use them; its steps meanwhile */
};

/* page: STATISTICS_PAGE_BYTES of zeros. */
void statistics_page_init(void *page, enum statistics_subject subject, size_t body_bytes);
void statistics_page_write(void *page, const void *body);

/* A body of the same version may have grown at its end: what is more than the reader knows is left out, what
 * is less is 0. -EPROTO: it is no such page; -EPROTONOSUPPORT: of another version; -EAGAIN: there is nothing
 * in it yet, or its writer was always faster. */
int statistics_page_read(const void *page, enum statistics_subject subject, void *body, size_t body_bytes);

uint32_t statistics_page_version(const void *page);

/* Where a daemon that listens at the socket publishes the page of its node: beside it. -ENAMETOOLONG. */
#define STATISTICS_FILE_SIZE 128
int statistics_file(const char *socket, char path[STATISTICS_FILE_SIZE]);

#endif
