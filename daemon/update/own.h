/* What the update keeps of a job's steps, and how far the update of each pack is. For the files of this
 * module. */
#ifndef TIERD_DAEMON_UPDATE_OWN_H
#define TIERD_DAEMON_UPDATE_OWN_H

#include "daemon/model/model.h"
#include "daemon/residency/residency.h"
#include "daemon/update/early_state.h"
#include "daemon/update/share.h"

/* A pack's update. */
struct pack_update {
	struct queue sweep_link; /* of the sweep, while the pack waits for it */
	struct queue early_link; /* of packs that can be updated early */
	enum early_state early;
	bool is_issued; /* all its chunks have been started */
	/* Chunks in flight that are not computed, or not written: of the running sweep, and of the early
	 * update that it adopts. */
	unsigned uncomputed, unwritten;
	uint64_t begun_step; /* the last step whose sweep has begun to update it */
	uint64_t pass;	     /* what made its state; 0: nobody knows */
	uint64_t early_pass; /* what made that of its early update */
	bool is_written;     /* the open or applied writing has values of it */
	bool is_unsaved;     /* a sweep has updated it since the last backup began */
	bool awaits_backup;  /* the running backup has not begun to write it */
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
	float factor;	       /* that the gradients of the reduced or decided step are multiplied with */
	unsigned shard_copies; /* in flight between windows and the sums of a reduced step */
	struct loss_scale loss_scale;
	uint64_t decided_ns;
	struct sweep *sweep; /* the running one */
	struct pack_update *packs;
	struct warm *warm;	       /* NULL: there has been no warm state */
	struct read_ahead *read_ahead; /* NULL: nothing has been read ahead */
	struct early *early;	       /* NULL: there are no early updates */
	uint64_t early_updates;	       /* of units, that have been published */
	struct share share;
	uint64_t passes;			/* of sweeps over packs: each has a number of its own */
	uint64_t mirror_bytes;			/* of the largest chunk, on a GPU */
	struct optimizer_group *groups;		/* of the last decided step; at first the options' */
	struct optimizer_group group_storage[]; /* of groups, open_rates and decided_rates */
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
