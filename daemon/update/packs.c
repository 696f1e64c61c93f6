/* How far the update of each pack is. */
#include <errno.h>
#include <stdlib.h>

#include "daemon/update/own.h"
#include "daemon/update/update.h"

uint64_t update_pack_bytes(void)
{
	return sizeof(struct pack_update);
}

int update_make_packs(struct job *job)
{
	job->update->packs = calloc(job->catalog.pack_count, sizeof(*job->update->packs));
	if (!job->update->packs)
		return -ENOMEM;
	for (uint32_t pack = 0; pack < job->catalog.pack_count; pack++) {
		queue_init(&job->update->packs[pack].sweep_link);
		queue_init(&job->update->packs[pack].early_link);
	}
	return 0;
}

/* ---- Packs ---- */

bool update_is_writing(const struct job *job, uint32_t pack)
{
	return pack_update(job, pack)->unwritten > 0;
}

/* What is early and not adopted is not seen yet. */
bool update_is_dirty(const struct job *job, uint32_t pack)
{
	const struct pack_update *update = pack_update(job, pack);

	return update->unwritten > 0 && (update->early == EARLY_NOTHING || update->early == EARLY_ADOPTED);
}

bool update_has_taken_sums(const struct job *job, uint32_t pack)
{
	const struct pack_update *update = pack_update(job, pack);

	return update->early != EARLY_NOTHING && update->early != EARLY_ADOPTED;
}

void update_begin_pack(struct job *job, uint32_t pack)
{
	pack_update(job, pack)->begun_step = job->decided;
}

uint64_t update_begun_step(const struct job *job, uint32_t pack)
{
	return pack_update(job, pack)->begun_step;
}

void update_note_written(struct job *job, uint32_t pack, bool is_written)
{
	pack_update(job, pack)->is_written = is_written;
}

bool update_is_written(const struct job *job, uint32_t pack)
{
	return pack_update(job, pack)->is_written;
}

void update_begin_backup(struct job *job)
{
	for (uint32_t pack = 0; pack < job->catalog.pack_count; pack++) {
		struct pack_update *update = pack_update(job, pack);

		update->awaits_backup = update->is_unsaved;
		update->is_unsaved = false;
	}
}

bool update_awaits_backup(const struct job *job, uint32_t pack)
{
	return pack_update(job, pack)->awaits_backup;
}

void update_leave_backup(struct job *job, uint32_t pack)
{
	pack_update(job, pack)->awaits_backup = false;
}
