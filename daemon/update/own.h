/* What is the update's alone: how far each pack's update is. For the files of this module. */
#ifndef TIERD_DAEMON_UPDATE_OWN_H
#define TIERD_DAEMON_UPDATE_OWN_H

#include "daemon/model/model.h"
#include "daemon/residency/residency.h"

/* How far a pack's update is that was begun before the decision: its gradients are measured; its chunks are
 * on their way; they are being written; it is done but for what is seen; its slot is seen, while its chunks
 * are still being written. */
enum early_state { EARLY_NOTHING, EARLY_MEASURING, EARLY_RUNNING, EARLY_WRITING, EARLY_READY, EARLY_ADOPTED };

/* A pack's update. */
struct pack_update {
	struct queue sweep_link; /* of the sweep, while the pack waits for it */
	struct queue early_link; /* of those that can be updated early */
	enum early_state early;
	bool is_issued; /* all its chunks have been started */
	/* Chunks that are on their way, of the running sweep, and, unwritten, of what it adopts. */
	unsigned uncomputed, unwritten;
	uint64_t begun_step; /* the last one whose sweep has begun to update it */
	bool is_written;     /* by the writing that is open, or is applied */
	bool is_unsaved;     /* a sweep has updated it since the last backup began */
	bool awaits_backup;  /* the one that is under way has not begun to write it */
};

static inline struct pack_update *pack_update(const struct job *job, uint32_t pack)
{
	return &job->update.packs[pack];
}

static inline uint32_t pack_update_pack(const struct job *job, const struct pack_update *update)
{
	return (uint32_t)(update - job->update.packs);
}

#endif
