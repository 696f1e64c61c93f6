/* The inside of a sweep: its chunks and how far it is. For sweep.c, sweep_issue.c, chunk*.c and early.c; and
 * for warm*.c and read_ahead.c, which keep and read the state of chunks. */
#ifndef TIERD_DAEMON_SWEEP_H
#define TIERD_DAEMON_SWEEP_H

#include "daemon/gpu/gpu.h"
#include "daemon/model/model.h"
#include "daemon/resources/resources.h"
#include "daemon/update/share.h"
#include "daemon/update/sweep_watch.h"

/* At most: 512 KiB of bf16, 1 MiB of fp32. Half of it is whole blocks of every stream, too. */
#define CHUNK_ELEMENTS (UINT64_C(1) << 18)
#define CHUNK_BLOCKS (CHUNK_ELEMENTS * sizeof(float) / STORE_BLOCK_BYTES)

/* The streams of a chunk: the parameters', then the states' by their numbers. */
enum { CHUNK_PARAMETER, CHUNK_STATE, CHUNK_STREAMS = CHUNK_STATE + STATES_MAXIMUM };

/* What a chunk has of one stream. */
struct chunk_stream {
	struct store_transfer transfer;
	struct chunk *chunk;
	struct store *store; /* NULL: it lies in host memory, and is not transferred */
	bool is_read, is_written;
	bool is_moving;	    /* it is being transferred */
	bool is_unverified; /* it was read, and its checksums have yet to be compared */
	bool has_differed;  /* they did differ, and it is read once more */
	void *data;
	uint64_t checksums[CHUNK_BLOCKS]; /* what was read should have; then what is written has */
};

/* Elements of a chunk, of one tensor: those of the unit's section from first on. */
struct chunk_run {
	uint32_t unit;
	const struct tensor *tensor;
	uint64_t first, count;
	uint64_t at; /* in the chunk */
	struct moment_noise noise;
};

/* Of a chunk that a GPU may update. */
#define CHUNK_RUNS 16
struct chunk;
struct chunk_gpu {
	bool is_chosen;		     /* who does; what was read may have to be read again then */
	bool is_lost;		     /* with its GPU, which may write its memory still */
	struct gpu_updates *updates; /* NULL: a processor does */
	struct share_piece piece;
	struct mirror_piece mirrored; /* what its state is */
	struct mirror *mirror;	      /* NULL: there is none */
	bool is_mirrored;	      /* it has that state */
	struct chunk_run runs[CHUNK_RUNS];
	unsigned run_count, next;
	void (*done)(struct chunk *chunk);
	struct gpu_updates_request request;
};

struct chunk {
	struct queue link; /* of the sweep's free ones */
	struct sweep *sweep;
	uint32_t pack;
	enum unit_section section;
	uint64_t first, count; /* elements of the pack's section */
	bool is_adopted;       /* it has been updated early */
	bool is_kept;	       /* until the decision its new parameters lie where its gradients did */
	const char *resident;  /* the parameters of an early update, in their slot; NULL: they are read */
	struct staging_buffer *buffer;
	struct warm_range *warm; /* where its state stays; NULL: nowhere */
	bool is_filled;		 /* its state is there, and need not be read */
	bool is_deferred; /* its state, and parameters in host memory, are not written before the next commit
			   */
	struct chunk_stream streams[CHUNK_STREAMS];
	unsigned transfers_left;
	int status;
	struct work work;
	uint64_t pass, pass_before; /* as of its sweep then */
	struct chunk_gpu gpu;
};

struct sweep {
	struct job *job;
	bool is_initializing;
	bool is_writing; /* it stores what ranks have written; optimizer slots stay as they are */
	bool is_early;	 /* of early updates: nothing of it is seen yet, neither in slots nor in the store */
	bool has_failed;
	const struct step_rates *rates; /* of its updates */
	float factor;
	struct queue wanted, waiting; /* packs that are not begun: somebody waits for them; the others */
	uint32_t packs_left;	      /* not begun */
	unsigned running;	      /* chunks in flight */
	uint64_t moving_bytes;	      /* of those, which wait for devices or are there */

	uint32_t pack; /* whose chunks are being started; SLOT_NONE: none */
	bool was_absent;
	bool is_adopting;	    /* the pack has been updated early */
	bool is_saving;		    /* and a watch keeps its values of before */
	uint64_t pass, pass_before; /* over that pack, and what made the state that it finds */
	enum unit_section section;
	uint64_t first;

	struct staging_wish wish;
	bool is_wishing;
	struct staging_buffer *granted;
	struct event *lease_timer;
	uint32_t leased_pack; /* for which the timer runs */
	struct queue watches; /* workers read it: none comes or leaves while the sweep runs */
	struct queue free_chunks;
	unsigned chunk_count;
	struct chunk chunks[];
};

/* ---- sweep_issue.c ---- */

/* The memory of a sweep of so many chunks. */
uint64_t sweep_bytes(unsigned chunks);
/* -ENOMEM. chunks: how many may be in flight at once. */
int sweep_new(struct job *job, unsigned chunks, struct sweep **ret_sweep);
/* It wants no buffer any more. Chunks in flight come home. */
void sweep_stop(struct sweep *sweep);
/* NULL is taken, too. */
struct sweep *sweep_destroy(struct sweep *sweep);

void sweep_enter(struct sweep *sweep, uint32_t pack);
/* Starts the next chunk of the pack. HAS_LEFT: all chunks have been issued, and the pack is SLOT_NONE now.
 * HAS_TO_WAIT: there is no free chunk or buffer, the devices have enough, or the state is still being read
 * ahead. */
enum sweep_issue { SWEEP_HAS_ISSUED, SWEEP_HAS_LEFT, SWEEP_HAS_TO_WAIT };
enum sweep_issue sweep_issue(struct sweep *sweep);

/* A transfer of a chunk begins, or ends: where it waited for devices the sweep goes on in the job's turn. */
void sweep_note_moving(struct sweep *sweep, uint64_t bytes);
void sweep_note_moved(struct sweep *sweep, uint64_t bytes);

/* ---- chunk_work.c ---- */

/* On a worker: work is a chunk's, for which all has been read. The first does all of it, the others what is
 * before the update, and behind it. Where what was read does not match its checksums nothing is done, and
 * those streams stay unverified. */
void chunk_run(struct work *work);
void chunk_prepare(struct work *work);
void chunk_finish(struct work *work);

/* What its update goes through. False: there are more of them. */
bool chunk_find_runs(const struct chunk *chunk, struct chunk_run *ret_runs, unsigned most,
		     unsigned *ret_count);
void chunk_set_constants(const struct chunk *chunk, const struct chunk_run *run,
			 struct optimizer_constants *ret_constants);
/* From its element at on; and the sum of a unit, from that element of the chunk's section on. */
struct optimizer_arrays chunk_arrays_at(const struct chunk *chunk, uint64_t at);
char *chunk_sum_at(const struct chunk *chunk, uint32_t unit, uint64_t first);

/* ---- chunk_gpu.c ---- */

/* The GPUs of the job may update some of what comes. */
void chunk_gpu_begin_step(struct job *job);
/* Who updates the chunk, for which all has been read; until the end, when it is done, or has failed. */
void chunk_choose_side(struct chunk *chunk);
void chunk_end_side(struct chunk *chunk);
/* Of one that is prepared; done() follows, with the chunk's status. */
void chunk_update_on_gpu(struct chunk *chunk, void (*done)(struct chunk *chunk));

/* ---- chunk_mirror.c ---- */

void chunk_mirrors_begin_step(struct job *job);
/* Says which state the chunk finds, of its runs. */
void chunk_mirror_name(struct chunk *chunk);
/* Of one that is named, for its update on that GPU, and when that is over. There may be none. */
void chunk_mirror_take(struct chunk *chunk, struct gpu_updates *gpu);
void chunk_mirror_give(struct chunk *chunk);
/* Of one that is taken: where the stream's element at of the chunk lies. */
driver_address chunk_mirror_at(const struct chunk *chunk, unsigned stream, uint64_t at);

/* ---- chunk_layout.c ---- */

/* The elements of each chunk of a section but the last one: as many as fit a staging buffer. */
uint64_t chunk_elements(const struct job_options *options, enum unit_section section);

/* Where a state of count elements lies in a staging buffer: behind the parameters and the states before it.
 */
char *chunk_staged_state(char *data, enum unit_section section, unsigned state, uint64_t count);

/* Of so many elements. */
uint64_t chunk_stream_bytes(enum unit_section section, unsigned stream, uint64_t count);
/* Where a stream of so many lies in a mirror: behind those before it. */
uint64_t chunk_mirror_offset(enum unit_section section, unsigned stream, uint64_t count);

/* ---- chunk.c, sweep.c ---- */

/* Starts the chunk at the sweep's position, and moves the position behind it. The chunk has its buffers. */
void chunk_start(struct sweep *sweep, struct chunk *chunk);

/* Of reads for the pack's chunks. */
enum tier_priority sweep_read_priority(const struct sweep *sweep, uint32_t pack);
/* Somebody waits for the pack: its transfers go before all others. */
void chunks_raise(struct sweep *sweep, uint32_t pack);
/* All transfers of the sweep go before write-back. */
void chunks_hasten(struct sweep *sweep);

/* Publishes the pack if its last chunk has come far enough. */
void sweep_check_pack(struct sweep *sweep, uint32_t pack);
/* The pack has frozen elements, which an update does not read. */
bool sweep_has_frozen(const struct pack *pack);
/* Updates write parameters to the store; else a backup does. */
bool sweep_writes_parameters(const struct job *job);

#endif
