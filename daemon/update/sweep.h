/* The inside of a sweep: its chunks and how far it is; for sweep.c, sweep_issue.c, chunk*.c and early.c, and
 * for what keeps or reads the states of chunks, warm*.c and read_ahead.c. */
#ifndef TIERD_DAEMON_SWEEP_H
#define TIERD_DAEMON_SWEEP_H

#include "daemon/model/model.h"
#include "daemon/resources/resources.h"
#include "daemon/update/sweep_watch.h"

/* At most: 512 KiB of bf16, 1 MiB of fp32. Half of that is whole blocks of every stream, too. */
#define CHUNK_ELEMENTS (UINT64_C(1) << 18)
#define CHUNK_BLOCKS (CHUNK_ELEMENTS * sizeof(float) / STORE_BLOCK_BYTES)

/* The streams of a chunk: the parameters', then the states' by their numbers. */
enum { CHUNK_PARAMETER, CHUNK_STATE, CHUNK_STREAMS = CHUNK_STATE + STATES_MAXIMUM };

/* What a chunk has of one stream. */
struct chunk_stream {
	struct store_transfer transfer;
	struct chunk *chunk;
	struct store *store; /* NULL: in host memory, nothing to transfer */
	bool is_read, is_written;
	bool is_moving; /* now */
	void *data;
	uint64_t checksums[CHUNK_BLOCKS];
};

struct chunk {
	struct queue link; /* of the sweep's free ones */
	struct sweep *sweep;
	uint32_t pack;
	enum unit_section section;
	uint64_t first, count; /* elements of the pack's section */
	bool is_adopted;       /* it was updated early */
	const char *resident;  /* of an early update: the parameters, in a slot; NULL: they are read */
	struct staging_buffer *buffer;
	struct warm_range *warm; /* where its states stay; NULL: nowhere */
	bool is_filled;		 /* they need not be read */
	bool is_deferred;	 /* nor written before the next commit, nor are parameters in host memory */
	struct chunk_stream streams[CHUNK_STREAMS];
	unsigned transfers_left;
	int status;
	struct work work;
};

struct sweep {
	struct job *job;
	bool is_initializing;
	bool is_writing; /* what ranks have written; slots stay as they are */
	bool is_early;	 /* nothing of it is seen yet, neither in slots nor in the store */
	bool has_failed;
	const struct step_rates *rates; /* of its updates */
	float factor;
	struct queue wanted,
		waiting;     /* packs that are not begun: those that somebody waits for, the others */
	uint32_t packs_left; /* not begun */
	unsigned running;    /* chunks in flight */

	uint32_t pack; /* whose chunks are being started; SLOT_NONE: none */
	bool was_absent;
	bool is_adopting; /* it was updated early */
	bool is_saving;	  /* and somebody keeps what it was before that */
	enum unit_section section;
	uint64_t first;

	struct staging_wish wish;
	bool is_wishing;
	struct staging_buffer *granted;
	struct event *lease_timer;
	uint32_t leased_pack; /* why the timer runs */
	struct queue watches; /* that lack something; the same ones as long as it runs, for the workers */
	struct queue free_chunks;
	unsigned chunk_count;
	struct chunk chunks[];
};

/* ---- sweep_issue.c ---- */

/* With as many chunks. */
uint64_t sweep_bytes(unsigned chunks);
/* -ENOMEM. chunks: as many as are ever on their way. */
int sweep_new(struct job *job, unsigned chunks, struct sweep **ret_sweep);
/* It wants no buffer any more. Chunks that are on their way come home. */
void sweep_stop(struct sweep *sweep);
/* NULL is taken, too. */
struct sweep *sweep_destroy(struct sweep *sweep);

void sweep_enter(struct sweep *sweep, uint32_t pack);
/* The next chunk of the pack is started, if it has one. HAS_LEFT: it has none any more, and all are issued;
 * the pack is SLOT_NONE then. HAS_TO_WAIT: for a chunk that is free, a buffer, or what is read ahead. */
enum sweep_issue { SWEEP_HAS_ISSUED, SWEEP_HAS_LEFT, SWEEP_HAS_TO_WAIT };
enum sweep_issue sweep_issue(struct sweep *sweep);

/* ---- chunk_work.c ---- */

/* On a worker: work is a chunk's, and all that it needs has been read. */
void chunk_run(struct work *work);

/* ---- chunk.c, sweep.c ---- */

/* Starts the chunk at the sweep's position, and moves that behind it. The chunk has the buffers that it
 * needs. */
void chunk_start(struct sweep *sweep, struct chunk *chunk);

/* Of the section, all chunks but its last one: as many as a staging buffer has room for. */
uint64_t chunk_elements(const struct job_options *options, enum unit_section section);

/* Where the state of so many elements lies in a staging buffer: behind their parameters, one after the other.
 */
char *chunk_staged_state(char *data, enum unit_section section, unsigned state, uint64_t count);

/* Of what is read for its chunks. */
enum tier_priority sweep_read_priority(const struct sweep *sweep, uint32_t pack);
/* Somebody waits for the pack: what is on its way for it goes before all else. */
void chunks_raise(struct sweep *sweep, uint32_t pack);
/* All that is on its way goes before what is written back. */
void chunks_hasten(struct sweep *sweep);

/* Publishes the pack if its last chunk has come far enough. */
void sweep_check_pack(struct sweep *sweep, uint32_t pack);
/* It stays in host memory, whatever becomes of its trainable part. */
bool sweep_has_frozen(const struct pack *pack);
/* Updates write parameters to the store, not a backup. */
bool sweep_writes_parameters(const struct job *job);

#endif
