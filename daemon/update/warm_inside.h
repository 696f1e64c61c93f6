/* The inside of warm state: its shares, its stretches in the order of a sweep, and the writing of those
 * that have changed; for warm*.c. */
#ifndef TIERD_DAEMON_WARM_INSIDE_H
#define TIERD_DAEMON_WARM_INSIDE_H

#include "daemon/model/model.h"
#include "daemon/update/sweep.h"
#include "daemon/update/warm.h"

/* Small enough that little more goes than is needed, and few enough for the kernel's table of buffers. */
#define SHARES_USUAL 32
#define SHARES_MOST (2 * SHARES_USUAL)
#define SHARE_LEAST (2 * MIB)

/* Whole extents of every stream: what is rewritten of an extent is seen when all of it has been. */
#define STRETCH_ELEMENTS (4 * CHUNK_ELEMENTS)

enum share_state { SHARE_AWAY, SHARE_COMING, SHARE_HERE, SHARE_DRAINING, SHARE_GOING };

struct share {
	struct warm *warm;
	struct memory memory;
	uint64_t bytes;
	enum share_state state;
	unsigned users; /* chunks that are taken, stretches that are being written */
	uint32_t dirty; /* stretches */
	struct work work;
	int status, pinning;
};

/* A stretch of the sweep over all packs. */
struct walk {
	uint32_t pack, index;
	int section;
	uint64_t first, count; /* elements of the stretch; count 0: none of the section yet */
	uint64_t bytes;	       /* of its states, as they lie in a share */
};

#define WALK_INIT                                                                                            \
	{                                                                                                    \
		.index = UINT32_MAX                                                                          \
	}

/* Stretches that are written at a time: as many as keep a device busy while one of them ends. */
#define SAVES 4

struct save;

struct save_part {
	struct store_transfer transfer;
	struct save *save;
	struct store *store;
};

/* A stretch that is being written. */
struct save {
	struct queue link; /* of the free ones */
	struct warm *warm;
	struct warm_stretch *stretch;
	uint32_t pack;
	unsigned writing;
	int status;
	struct save_part parts[CHUNK_STREAMS];
};

/* Writes stretches that have changed. */
struct flush {
	struct walk walk;
	bool is_walking;
	bool is_whole; /* else it writes what is in shares that are given up */
	unsigned running;
	int status;
	void (*done)(struct job *job, int status); /* NULL: nobody waits */
	struct queue free;
	struct save saves[SAVES];
};

struct warm {
	struct job *job;
	bool is_refused; /* the kernel had no memory: it is not asked again */
	uint32_t dirty;	 /* stretches */
	struct flush flush;
	struct share shares[SHARES_MOST];
	uint32_t *first_stretch; /* by pack, and behind the last one */
	struct warm_stretch *stretches;
};

/* ---- warm_plan.c ---- */

struct warm_size {
	uint32_t stretches;
	uint64_t bytes;
};

struct warm_size warm_measure(const struct job *job);
/* To the next stretch; false: there is none. */
bool walk_on(const struct job *job, struct walk *walk);
/* Gives stretches and shares their places; there are some. */
void warm_plan(struct warm *warm, struct warm_size size);

/* ---- warm_flush.c ---- */

void flush_init(struct warm *warm);
/* What lies in shares that are given up is written, but of packs that a sweep is at. */
void flush_draining(struct warm *warm);

#endif
