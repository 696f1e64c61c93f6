/* The inside of spilled sums: where a pack's sums are, and what moves them; for spill.c and spilled.c. */
#ifndef TIERD_DAEMON_SPILLED_H
#define TIERD_DAEMON_SPILLED_H

#include "daemon/gradients/own.h"

enum spill_state { SPILL_ABSENT, SPILL_LOADING, SPILL_PRESENT, SPILL_WRITING };

/* A pack's sums. */
struct spilled {
	struct spill *spill;
	struct queue link; /* of the wishes, or of the ready ones */
	uint64_t bytes;	   /* 0: it has no sums */
	enum spill_state state;
	char *buffer;	/* unless it is absent */
	bool is_wanted; /* somebody wants it who has not pinned it yet */
	bool is_stored; /* NVMe has the same sums */
	bool is_void;	/* it is dropped when its transfer ends */
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
	struct queue ready;		   /* that have become present for somebody who wanted them */
	uint32_t buffer_count;
	struct spilled **owners; /* by buffer; NULL: it is free */
	struct norm_sums measured;
	struct spilled packs[];
};

/* Cuts the sums' memory into buffers; does nothing if sums are never spilled. */
int spill_new(struct job *job);
void spill_free(struct job *job);

uint32_t spilled_pack(const struct spilled *spilled);
/* A sweep has still to apply it. */
bool spilled_is_in_sweep(const struct spilled *spilled);
/* Its read gets the priority of who waits for it now. */
void spilled_raise(struct spilled *spilled);

/* False: no buffer is free. */
bool spilled_take_buffer(struct spilled *spilled);
void spilled_give_buffer(struct spilled *spilled);
/* Forgets the sums, and gives the buffer back. */
void spilled_clear(struct spilled *spilled);
/* It waits for a buffer now. */
void spilled_wish(struct spilled *spilled);

/* It has a buffer: it is present, or is being read if NVMe has something of it. */
void spilled_start(struct spilled *spilled);
/* Its buffer is free when it is written, unless somebody wants it meanwhile. */
void spilled_write(struct spilled *spilled);

#endif
