/* A watch is somebody who keeps what packs are before a sweep updates them: the sweep tells it of each pack,
 * and has it save what its chunks are about to overwrite, from where they have it anyway. */
#ifndef TIERD_DAEMON_SWEEP_WATCH_H
#define TIERD_DAEMON_SWEEP_WATCH_H

#include "common/queue.h"
#include "daemon/model/model.h"
#include "offload/optimizer/optimizer.h"

struct sweep_watch;

/* Elements of a pack's section. */
struct sweep_range {
	uint32_t pack;
	enum unit_section section;
	uint64_t first, count;
};

struct sweep_watch_ops {
	/* The pack is about to be updated: what is missing of it is saved by its chunks. */
	void (*begin_save)(struct sweep_watch *watch, uint32_t pack);
	/* Some of it is. */
	bool (*saves)(const struct sweep_watch *watch, uint32_t pack);
	/* On a worker: a chunk is about to update the range; its values, and what is kept beside them, lie in
	 * arrays. */
	void (*save)(const struct sweep_watch *watch, const struct sweep_range *range,
		     const struct optimizer_arrays *arrays);
	/* All chunks of the pack have been there. */
	void (*end_save)(struct sweep_watch *watch, uint32_t pack);
	/* The sweep is over, or, with an error, has failed; the watch leaves its queue. */
	void (*end_sweep)(struct sweep_watch *watch, int status);
};

struct sweep_watch {
	struct queue link; /* of the sweep that it watches */
	const struct sweep_watch_ops *ops;
};

#endif
