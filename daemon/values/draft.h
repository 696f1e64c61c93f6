/* A draft: values that ranks give while units are still being defined, or in a writing. It lies on the node's
 * paths, or in host memory where there are none, in the order in which they came. Once the job is laid out,
 * or the writing decided, they are written where they belong in that order, as if they came then: the bits
 * are those of a job that was defined first. */
#ifndef TIERD_DAEMON_DRAFT_H
#define TIERD_DAEMON_DRAFT_H

#include "daemon/values/operation.h"

#define DRAFT_BLOCK_BYTES (UINT64_C(2) << 20)
/* Two blocks. While a draft is written, the first block fills up, and the end of its last record lies behind
 * it. While it is read, the second block is the one that was read, and what is left of the one before lies in
 * front of it. */
#define DRAFT_BUFFER_BYTES (2 * DRAFT_BLOCK_BYTES)
/* A draft grows by so much on each path. */
#define DRAFT_GROWTH_BYTES (UINT64_C(16) << 20)

/* Stands before the values of a write. count 0: the draft ends here. */
struct draft_record {
	uint64_t first, count;
	uint32_t unit, tensor;
	int32_t state;
	bool is_master;
};

#define DRAFT_ALIGN_BYTES sizeof(struct draft_record)

struct draft {
	struct job *job;
	struct queue writes;		    /* operations that wait for their turn */
	struct tensor_operation *operation; /* that is taken, or written where it belongs; NULL: none */
	struct draft_record record;	    /* of it, with its length: units may be defined meanwhile */
	uint64_t length;
	uint64_t checked; /* so many parameters were defined when the plan was last checked */
	bool is_busy;	  /* an operation or a block is on its way */
	char *buffer;
	uint64_t used;	 /* of the buffer */
	uint64_t blocks; /* that are full */
	/* Once the job is laid out. */
	bool has_begun;
	uint64_t begin, end; /* of what is still to be written, in the buffer */
	uint64_t read;	     /* so many blocks were */

	/* Where blocks are kept: one after the other on each path by turns, or each in memory of its own. */
	uint64_t capacity; /* blocks */
	struct tier *tiers[NODE_MAX_PATHS];
	uint64_t *checksums; /* of blocks on the paths */
	char **memory;
	struct tier_io io;
	struct work work;
	enum tier_direction direction; /* of the block in memory that is copied */
	char *place;
	uint64_t block;
	void (*done)(struct draft *draft, int status);
	int status;
	char message[640];
};

/* ---- draft.c ---- */

/* Takes a write of a member into the draft of its job, which begins if there is none. The write is answered
 * once the draft has the values, or with an error. */
void draft_write(struct tensor_operation *operation);

/* ---- draft_storage.c ---- */

/* Makes space for more blocks. If there is none, done() gets an error, and the draft a message. */
void draft_grow(struct draft *draft, void (*done)(struct draft *draft, int status));
/* Moves a block between storage and a place in the buffer. -EBADMSG: it is not what was written. Errors come
 * with a message. */
void draft_move(struct draft *draft, enum tier_direction direction, uint64_t block, char *place,
		void (*done)(struct draft *draft, int status));
/* Frees a block that is in memory. */
void draft_forget_block(struct draft *draft, uint64_t block);
void draft_free_storage(struct draft *draft);

#endif
