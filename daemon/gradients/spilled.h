/* The inside of spilled sums: where a pack's sums are, and what moves them; for spill.c and spilled.c. */
#ifndef TIERD_DAEMON_SPILLED_H
#define TIERD_DAEMON_SPILLED_H

#include "daemon/gradients/own.h"

enum spill_state { SPILL_ABSENT, SPILL_LOADING, SPILL_PRESENT, SPILL_WRITING };

/* A pack's sums. */
struct spilled {
	struct spill *spill;
	struct queue link; /* of the wishes, or of the ready ones */
	uint64_t bytes;	   /* 0: it has none, and nothing is done for it */
	enum spill_state state;
	char *buffer;	/* unless it is absent */
	bool is_wanted; /* by somebody who has not pinned it yet */
	bool is_stored; /* what lies on NVMe is what it is */
	bool is_void;	/* to be dropped when it comes home */
	unsigned pins;
	uint64_t used; /* spill->clock when it was changed last */
	struct store_transfer transfer;
	struct work work;
};

struct spill {
	struct job *job;
	uint64_t clock;
	uint32_t micro_batches; /* of the last step */
	unsigned writing;
	struct queue sweep_wishes, wishes; /* packs that wait for a buffer */
	struct queue ready;		   /* that are present now, as somebody wanted */
	uint32_t buffer_count;
	struct spilled **owners; /* by buffer; NULL: it is free */
	struct norm_sums measured;
	struct spilled packs[];
};

/* Of the sums' memory, which is cut into buffers; nothing, if they are never spilled. */
int spill_new(struct job *job);
void spill_free(struct job *job);

uint32_t spilled_pack(const struct spilled *spilled);
/* It is a part of a decided step, or of what the first sweep splits. */
bool spilled_is_in_sweep(const struct spilled *spilled);
/* What is on its way comes as fast as it is waited for now. */
void spilled_raise(struct spilled *spilled);

/* False: no buffer is free. */
bool spilled_take_buffer(struct spilled *spilled);
void spilled_give_buffer(struct spilled *spilled);
/* Nothing is left of it. */
void spilled_clear(struct spilled *spilled);
/* Waits for a buffer. */
void spilled_wish(struct spilled *spilled);

/* It has a buffer: it is present now, or is on its way, if there is something to load. */
void spilled_start(struct spilled *spilled);
/* Its buffer will be free, unless it is wanted meanwhile. */
void spilled_write(struct spilled *spilled);

#endif
