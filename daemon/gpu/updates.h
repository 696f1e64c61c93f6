/* Updates on the GPUs that a job uses: which of them take some, what host memory they copy from and to, and
 * what went through them. */
#ifndef TIERD_DAEMON_GPU_UPDATES_H
#define TIERD_DAEMON_GPU_UPDATES_H

#include "daemon/model/model.h"
#include "offload/cuda/gpu_update.h"

/* What a job's first rank on a GPU asks for, instead of a fraction from 0 to 1. */
#define GPU_UPDATES_AS_MEASURED (-1.0f)
static inline bool gpu_updates_is_fraction(float fraction)
{
	return fraction == GPU_UPDATES_AS_MEASURED || (fraction >= 0 && fraction <= 1);
}

/* What takes updates of a job on one of its GPUs. */
struct gpu_updates;

/* The one with the least to do; NULL:
 * there is none. It is there until the loop goes on, or for as long as somebody holds it. */
struct gpu_updates *gpu_updates_find(const struct job *job);
void gpu_updates_hold(struct gpu_updates *updates);
void gpu_updates_release(struct gpu_updates *updates);
/* What part of the job's updates that takes: as a rank has asked for. */
float gpu_updates_fraction(const struct gpu_updates *updates);

/* Host memory of the job, of whole pages, which stays until it is given up, or its ranks have left. The GPUs
 * that take updates now pin it. Again, or where that fails: nothing happens. */
void gpu_updates_pin(struct job *job, void *base, size_t bytes);
/* No update uses it any more. False: it is still pinned; the job is settled when it may be asked again. */
bool gpu_updates_give_up(struct job *job, const void *base);
/* Where it does not, a copy would hold up all others. */
bool gpu_updates_reach(const struct gpu_updates *updates, const void *memory, size_t bytes);

/* Of updates that are held. The caller owns it, and leaves it alone until done() runs, once, on the loop. All
 * of update but its pass is the caller's; of that it sets the count. */
struct gpu_updates_request {
	struct gpu_update update;
	void (*done)(struct gpu_updates_request *request, int status); /* 0 or -errno */

	/* Of the GPU, while submitted. */
	struct gpu_updates *updates;
};
/* After an error each element may be old or new; that GPU takes no more updates then, of any job, until the
 * daemon ends; and the update's pass has the problem. */
void gpu_updates_run(struct gpu_updates *updates, struct gpu_updates_request *request);

/* What updates have copied, since the daemon has the job, and what they would have copied to GPUs, too, had
 * it not been there. */
struct gpu_updates_figures {
	uint64_t to_gpu_bytes, from_gpu_bytes, spared_bytes;
};
struct gpu_updates_figures gpu_updates_figures(const struct job *job);

#endif
