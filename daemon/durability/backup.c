#include "daemon/durability/backup.h"

#include <errno.h>
#include <stdlib.h>

#include "daemon/durability/host_stream.h"
#include "daemon/durability/own.h"
#include "daemon/residency/residency.h"
#include "daemon/telemetry/telemetry.h"
#include "daemon/update/update.h"

/* Packs that are written at a time: as many as keep a device busy while one of them ends. */
#define SAVES 4

struct save;

struct save_write {
	struct store_transfer transfer;
	struct save *save;
	bool is_writing;
};

/* A pack that is being written. */
struct save {
	struct queue link; /* of the free ones */
	struct backup *backup;
	uint32_t pack;
	unsigned writing;
	struct save_write writes[HOST_STREAMS];
};

struct backup {
	struct job *job;
	void (*done)(struct job *job, int status);
	bool is_running;
	uint32_t next;	 /* packs before it have been begun */
	uint32_t wanted; /* a sweep waits for this one; PACK_NONE: for none */
	unsigned running;
	int status;
	struct queue free;
	struct save saves[SAVES];
};

int backup_init(struct job *job, void (*done)(struct job *job, int status))
{
	struct backup *backup = calloc(1, sizeof(*backup));

	if (!backup)
		return -ENOMEM;
	backup->job = job;
	backup->done = done;
	queue_init(&backup->free);
	for (unsigned i = 0; i < SAVES; i++) {
		backup->saves[i].backup = backup;
		queue_push(&backup->free, &backup->saves[i].link);
	}
	job->durability->backup = backup;
	return 0;
}

void backup_free(struct job *job)
{
	free(TAKE_PTR(job->durability->backup));
}

/* ---- A pack ---- */

/* Slots that no update has touched are zeros, which a store has without being told, unless they were given
 * their first values; frozen values were written before the first step. */
static bool is_needed(const struct job *job, uint32_t pack, struct host_stream stream)
{
	const struct pack *units = &job->catalog.packs[pack];

	if (!section_is_trainable(stream.section))
		return false;
	if (stream.state < STATE_SLOTS || job->location.has_given_slots)
		return true;
	for (uint32_t u = units->first_unit; u < units->first_unit + units->unit_count; u++)
		if (job->catalog.units[u].updates > 0)
			return true;
	return false;
}

static void fail(struct save *save, const struct store_transfer *transfer, int status)
{
	struct backup *backup = save->backup;

	if (backup->status == 0)
		backup->status = status;
	job_break_write(backup->job, save->pack, transfer, status);
}

static void end_write(struct save *save)
{
	struct backup *backup = save->backup;

	if (--save->writing > 0)
		return;
	residency_end_write(backup->job, save->pack);
	backup->running--;
	queue_push(&backup->free, &save->link);
	/* Its sweep, or the next pack. */
	job_settle(backup->job);
}

static void on_written(struct store_transfer *transfer, int status)
{
	struct save_write *write = container_of(transfer, struct save_write, transfer);
	struct job *job = write->save->backup->job;

	write->is_writing = false;
	trace_transferred(job, write->save->pack, job_nvme_store(job), transfer);
	if (status < 0)
		fail(write->save, transfer, status);
	end_write(write->save);
}

static void begin_write(struct save *save, unsigned index, enum tier_priority priority)
{
	struct job *job = save->backup->job;
	struct save_write *write = &save->writes[index];
	int r;

	*write = (struct save_write){
		.save = save,
		.transfer = { .direction = TIER_WRITE, .priority = priority, .done = on_written }
	};
	if (!is_needed(job, save->pack, host_stream_at(index)) ||
	    !host_stream_find(job, save->pack, host_stream_at(index), &write->transfer))
		return;
	r = store_submit(job_nvme_store(job), &write->transfer);
	if (r < 0) {
		fail(save, &write->transfer, r);
		return;
	}
	write->is_writing = true;
	save->writing++;
	account_transfer(job, STATISTICS_WRITE_BACK, &write->transfer);
}

static void start(struct save *save, uint32_t pack, enum tier_priority priority)
{
	struct backup *backup = save->backup;

	update_leave_backup(backup->job, pack);
	residency_begin_write(backup->job, pack);
	backup->running++;
	save->pack = pack;
	save->writing = 1;
	for (unsigned i = 0; i < HOST_STREAMS; i++)
		begin_write(save, i, priority);
	end_write(save);
}

static struct save *take_save(struct backup *backup)
{
	struct queue *link = queue_pop(&backup->free);

	return link ? queue_entry(link, struct save, link) : NULL;
}

/* ---- All of them ---- */

void backup_begin(struct job *job)
{
	struct backup *backup = job->durability->backup;

	backup->is_running = true;
	backup->status = 0;
	backup->next = 0;
	backup->wanted = PACK_NONE;
	update_begin_backup(job);
	job_settle(job);
}

/* PACK_NONE: none is left. */
static uint32_t find_next(struct backup *backup)
{
	const struct job *job = backup->job;

	if (backup->wanted != PACK_NONE && update_awaits_backup(job, backup->wanted))
		return backup->wanted;
	while (backup->next < job->catalog.pack_count && !update_awaits_backup(job, backup->next))
		backup->next++;
	return backup->next < job->catalog.pack_count ? backup->next : PACK_NONE;
}

static bool is_cancelled(const struct backup *backup)
{
	return backup->status < 0 || job_is_broken(backup->job) || job_is_ending(backup->job);
}

static void forget_the_rest(struct backup *backup)
{
	for (uint32_t pack = 0; pack < backup->job->catalog.pack_count; pack++)
		update_leave_backup(backup->job, pack);
	if (backup->status == 0)
		backup->status = -ECANCELED;
}

void backup_go_on(struct job *job)
{
	struct backup *backup = job->durability->backup;
	uint32_t pack;

	if (!backup || !backup->is_running)
		return;
	if (is_cancelled(backup))
		forget_the_rest(backup);
	for (pack = find_next(backup); pack != PACK_NONE && !queue_is_empty(&backup->free);
	     pack = find_next(backup))
		start(take_save(backup), pack, pack == backup->wanted ? TIER_DEMAND : TIER_WRITE_BACK);
	if (pack != PACK_NONE || backup->running > 0)
		return;
	backup->is_running = false;
	backup->done(job, backup->status);
}

static void raise_writes(const struct job *job, struct save *save)
{
	for (unsigned i = 0; i < HOST_STREAMS; i++) {
		struct store_transfer *transfer = &save->writes[i].transfer;

		if (save->writes[i].is_writing && transfer->priority != TIER_DEMAND)
			store_raise(job_nvme_store(job), transfer, TIER_DEMAND);
	}
}

static void raise_pack(struct backup *backup, uint32_t pack)
{
	for (unsigned i = 0; i < SAVES; i++)
		if (backup->saves[i].pack == pack)
			raise_writes(backup->job, &backup->saves[i]);
}

bool backup_lets(struct job *job, uint32_t pack)
{
	struct backup *backup = job->durability->backup;
	struct save *save;

	if (!backup || !backup->is_running)
		return true;
	if (!update_awaits_backup(job, pack)) {
		/* It may be on its way: then the caller sees its writes. */
		raise_pack(backup, pack);
		return true;
	}
	backup->wanted = pack;
	save = take_save(backup);
	if (save)
		start(save, pack, TIER_DEMAND);
	return false;
}
