/* What is the update's alone: what a job keeps of its steps, and how far each pack's update is. For the files
 * of this module. */
#ifndef TIERD_DAEMON_UPDATE_OWN_H
#define TIERD_DAEMON_UPDATE_OWN_H

#include "daemon/model/model.h"
#include "daemon/residency/residency.h"
#include "daemon/update/early_state.h"

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

/* What a job keeps of its steps. */
struct job_update {
	/* daemon/update/step_listeners.h */
	const struct commit_listener *commit_listener;
	const struct writing_listener *writing_listener;
	const struct sweep_listener *sweep_listener;
	struct step_rates open_rates, decided_rates;
	double gradient_norm;
	bool is_skipped;
	float factor;	       /* of the reduced or decided step's gradients */
	unsigned shard_copies; /* of a reduced step: under way, between windows and the sums */
	struct loss_scale loss_scale;
	uint64_t decided_ns;
	struct sweep *sweep; /* the running one */
	struct pack_update *packs;
	struct warm *warm;		/* NULL: none of its state ever was */
	struct read_ahead *read_ahead;	/* NULL: nothing has been, or can be, read before its update */
	struct early *early;		/* NULL: no update can be, or has been, begun before its step */
	uint64_t early_updates;		/* of units, that were applied with their steps */
	struct optimizer_group *groups; /* of the last decided step; at first the options' */
	struct optimizer_group group_storage[]; /* of these, and of two rates */
};

static inline struct pack_update *pack_update(const struct job *job, uint32_t pack)
{
	return &job->update->packs[pack];
}

static inline uint32_t pack_update_pack(const struct job *job, const struct pack_update *update)
{
	return (uint32_t)(update - job->update->packs);
}

#endif
