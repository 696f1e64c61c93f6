/* The inside of warm state: its segments, its ranges in the order of a sweep, and the writing of those
 * that have changed; for warm*.c. */
#ifndef TIERD_DAEMON_WARM_INSIDE_H
#define TIERD_DAEMON_WARM_INSIDE_H

#include "daemon/model/model.h"
#include "daemon/resources/resources.h"
#include "daemon/update/sweep.h"
#include "daemon/update/warm.h"

/* Small enough that little more goes than is needed, and few enough for the kernel's table of buffers. */
#define SEGMENTS_USUAL 32
#define SEGMENTS_MOST (2 * SEGMENTS_USUAL)
#define SEGMENT_LEAST (2 * MIB)

/* Whole extents of every stream: what is rewritten of an extent is seen when all of it has been. */
#define RANGE_ELEMENTS (4 * CHUNK_ELEMENTS)

struct warm_segment {
	struct warm *warm;
	struct memory memory;
	uint64_t bytes;
	enum segment_state state;
	unsigned failures; /* to give it back */
	unsigned users;	   /* chunks that are taken, ranges that are being written */
	uint32_t dirty;	   /* ranges */
	struct work work;
	int status, pinning;
};

/* A range of the sweep over all packs. */
struct walk {
	uint32_t pack, index;
	int section;
	uint64_t first, count; /* elements of the range; count 0: none of the section yet */
	uint64_t bytes;	       /* of its states, as they lie in a segment */
};

#define WALK_INIT                                                                                            \
	{                                                                                                    \
		.index = UINT32_MAX                                                                          \
	}

/* Ranges that are written at a time: as many as keep a device busy while one of them ends. */
#define SAVES 4

struct save;

struct save_stream {
	struct store_transfer transfer;
	struct save *save;
	struct store *store;
};

/* A range that is being written. */
struct save {
	struct queue link; /* of the free ones */
	struct warm *warm;
	struct warm_range *range;
	uint32_t pack;
	unsigned writing;
	int status;
	struct save_stream streams[CHUNK_STREAMS];
};

/* Writes ranges that have changed. */
struct flush {
	struct walk walk;
	bool is_walking;
	bool is_whole; /* else it writes what is in segments that are given up */
	bool is_held;  /* its store takes nothing now */
	unsigned running;
	int status;
	void (*done)(struct job *job, int status); /* NULL: nobody waits */
	struct queue free;
	struct save saves[SAVES];
};

struct warm {
	struct job *job;
	bool is_refused;    /* the kernel had no memory: it is not asked again */
	bool has_told_kept; /* a GPU's driver keeps some of it */
	uint32_t dirty;	    /* ranges */
	struct flush flush;
	struct warm_segment segments[SEGMENTS_MOST];
	uint32_t *first_range; /* by pack, and behind the last one */
	struct warm_range *ranges;
};

/* ---- warm_plan.c ---- */

struct warm_size {
	uint32_t ranges;
	uint64_t bytes;
};

struct warm_size warm_measure(const struct job *job);
/* To the next range; false: there is none. */
bool walk_on(const struct job *job, struct walk *walk);
/* Gives ranges and segments their places; there are some. */
void warm_plan(struct warm *warm, struct warm_size size);

/* ---- warm_flush.c ---- */

void flush_init(struct warm *warm);
/* What lies in segments that are given up is written, but of packs that a sweep is at. */
void flush_draining(struct warm *warm);

#endif
