/* The inside of a sweep: its chunks and how far it is; for sweep.c and chunk.c. */
#ifndef TIERD_DAEMON_SWEEP_H
#define TIERD_DAEMON_SWEEP_H

#include "daemon/job.h"
#include "daemon/view.h"

/* At most: 512 KiB of bf16, 1 MiB of fp32. Half of that is whole blocks of every stream, too. */
#define CHUNK_ELEMENTS (UINT64_C(1) << 18)
#define CHUNK_BLOCKS (CHUNK_ELEMENTS * sizeof(float) / STORE_BLOCK_BYTES)

/* The streams of a chunk: the parameters', then the states' by their numbers. */
enum chunk_stream { CHUNK_PARAMETER, CHUNK_STATE, CHUNK_STREAMS = CHUNK_STATE + STATES_MAXIMUM };

/* One stream's part of a chunk. */
struct chunk_part {
	struct store_transfer transfer;
	struct chunk *chunk;
	struct store *store; /* NULL: in host memory, nothing to transfer */
	bool is_read, is_written;
	bool is_reading; /* now */
	void *data;
	uint64_t checksums[CHUNK_BLOCKS];
};

struct chunk {
	struct queue link; /* of the sweep's free ones */
	struct sweep *sweep;
	uint32_t pack;
	enum unit_section section;
	uint64_t first, count; /* elements of the pack's section */
	struct staging_buffer *buffer;
	struct chunk_part parts[CHUNK_STREAMS];
	unsigned transfers_left;
	int status;
	struct work work;
};

struct sweep {
	struct job *job;
	bool is_initializing;
	bool has_failed;
	struct queue wanted,
		waiting;     /* packs that are not begun: those that somebody waits for, the others */
	uint32_t packs_left; /* not begun */
	unsigned running;    /* chunks in flight */

	uint32_t pack; /* whose chunks are being started; SLOT_NONE: none */
	bool was_absent;
	enum unit_section section;
	uint64_t first;

	struct staging_wish wish;
	bool is_wishing;
	struct staging_buffer *granted;
	struct event *lease_timer;
	uint32_t leased_pack; /* why the timer runs */
	struct queue views;   /* that lack something; the same ones as long as it runs, for the workers */
	struct queue free_chunks;
	struct chunk chunks[];
};

/* Starts the chunk at the sweep's position, and moves that behind it. The chunk has the buffers that it
 * needs. */
void chunk_start(struct sweep *sweep, struct chunk *chunk);

/* Publishes the pack if its last chunk has come far enough. */
void sweep_check_pack(struct job *job, uint32_t pack);

#endif
