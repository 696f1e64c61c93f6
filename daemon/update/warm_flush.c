/* Writes warm ranges whose updates were not written, from where they lie: before a commit, before somebody
 * reads them in the store, and before their segment goes.
 *
 * No sweep begins on a pack as long as some of it is being written, so what is written is of one
 * applied step. A commit waits for all of them, and no step is decided meanwhile. */
#include <assert.h>
#include <errno.h>

#include "common/size.h"
#include "daemon/residency/residency.h"
#include "daemon/telemetry/telemetry.h"
#include "daemon/update/own.h"
#include "daemon/update/step_listeners.h"
#include "daemon/update/warm_inside.h"

void flush_init(struct warm *warm)
{
	queue_init(&warm->flush.free);
	for (unsigned i = 0; i < SAVES; i++) {
		warm->flush.saves[i].warm = warm;
		queue_push(&warm->flush.free, &warm->flush.saves[i].link);
	}
}

bool warm_has_dirty(const struct job *job)
{
	return job->update->warm && job->update->warm->dirty > 0;
}

bool warm_is_dirty(const struct job *job, uint32_t pack)
{
	const struct warm *warm = job->update->warm;

	if (!warm_has_dirty(job))
		return false;
	for (uint32_t i = warm->first_range[pack]; i < warm->first_range[pack + 1]; i++)
		if (warm->ranges[i].is_dirty)
			return true;
	return false;
}

/* ---- A range ---- */

static void resume(struct job *job)
{
	job->update->sweep_listener->flushed(job);
	job_settle(job);
}

static void fail(struct save *save, const struct save_stream *stream, int status)
{
	save->status = save->warm->flush.status = status;
	job_break_write(save->warm->job, save->pack, &stream->transfer, status);
}

static void end_stream(struct save *save)
{
	struct warm *warm = save->warm;
	struct job *job = warm->job;

	if (--save->writing > 0)
		return;
	save->range->is_writing = false;
	if (save->status == 0)
		warm_mark(job, save->range, false);
	warm->segments[save->range->segment].users--;
	warm->flush.running--;
	queue_push(&warm->flush.free, &save->link);
	residency_end_write(job, save->pack);
	resume(job);
}

static void on_written(struct store_transfer *transfer, int status)
{
	struct save_stream *stream = container_of(transfer, struct save_stream, transfer);
	struct save *save = stream->save;

	trace_transferred(save->warm->job, save->pack, stream->store, transfer);
	if (status < 0)
		fail(save, stream, status);
	end_stream(save);
}

static void write_stream(struct save *save, unsigned index, struct store *store,
			 const struct store_range *piece, void *data)
{
	struct save_stream *stream = &save->streams[index];
	int r;

	*stream = (struct save_stream){ .save = save,
					.store = store,
					.transfer = { .direction = TIER_WRITE,
						      .priority = TIER_WRITE_BACK,
						      .stream = piece->stream,
						      .offset = piece->offset,
						      .length = size_align(piece->length, STORE_PAGE_BYTES),
						      .buffer = data,
						      .done = on_written } };
	r = store_submit(store, &stream->transfer);
	if (r < 0) {
		fail(save, stream, r);
		return;
	}
	save->writing++;
	account_transfer(save->warm->job, STATISTICS_UPDATE, &stream->transfer);
}

/* Of parameters on NVMe each update has written them. */
static void write_parameters(struct save *save, const struct walk *walk)
{
	struct job *job = save->warm->job;
	enum unit_section section = (enum unit_section)walk->section;
	const struct store_range piece =
		job_find_parameters(job, walk->pack, section, walk->first, walk->count);

	if (!job->location.has_nvme_parameters)
		write_stream(save, CHUNK_PARAMETER, job->location.parameter_store, &piece,
			     residency_element(job, walk->pack, section, walk->first));
}

static void write_states(struct save *save, const struct walk *walk)
{
	struct job *job = save->warm->job;
	enum unit_section section = (enum unit_section)walk->section;

	for (unsigned state = 0; state < state_count(&job->options); state++) {
		if (!state_exists(section, state))
			continue;
		const struct store_range kept =
			job_find_kept(job, walk->pack, section, state, walk->first, walk->count);

		write_stream(save, CHUNK_STATE + state, job->location.optimizer_store, &kept,
			     warm_state(job, save->range, walk->pack, section, walk->first, state));
	}
}

static void start(struct save *save, const struct walk *walk)
{
	struct warm *warm = save->warm;

	save->range = &warm->ranges[walk->index];
	save->pack = walk->pack;
	save->status = 0;
	save->writing = 1;
	save->range->is_writing = true;
	warm->segments[save->range->segment].users++;
	warm->flush.running++;
	residency_begin_write(warm->job, walk->pack);
	write_parameters(save, walk);
	write_states(save, walk);
	end_stream(save);
}

/* ---- All of them ---- */

static void begin_walk(struct warm *warm)
{
	warm->flush.walk = (struct walk)WALK_INIT;
	warm->flush.is_walking = true;
}

void warm_flush(struct job *job)
{
	job->update->warm->flush.is_whole = true;
	begin_walk(job->update->warm);
	job_settle(job);
}

void warm_flush_all(struct job *job, void (*done)(struct job *job, int status))
{
	job->update->warm->flush.done = done;
	job->update->warm->flush.status = 0;
	warm_flush(job);
}

void warm_hold(struct job *job, bool is_held)
{
	if (job->update->warm)
		job->update->warm->flush.is_held = is_held;
	job_settle(job);
}

static bool is_wanted(const struct warm *warm)
{
	const struct walk *walk = &warm->flush.walk;
	const struct warm_range *range = &warm->ranges[walk->index];

	/* A sweep that is at the pack may have taken it. */
	return range->is_dirty && !range->is_writing && !residency_is_updated(warm->job, walk->pack) &&
	       pack_update(warm->job, walk->pack)->unwritten == 0 &&
	       (warm->flush.is_whole || warm->segments[range->segment].state == SEGMENT_DRAINING);
}

static bool is_cancelled(const struct warm *warm)
{
	return job_is_broken(warm->job) || job_is_ending(warm->job) || warm->flush.is_held;
}

static void walk_over(struct warm *warm)
{
	struct flush *flush = &warm->flush;

	while (flush->is_walking && !queue_is_empty(&flush->free)) {
		flush->is_walking = warm->dirty > 0 && walk_on(warm->job, &flush->walk);
		if (flush->is_walking && is_wanted(warm))
			start(queue_entry(queue_pop(&flush->free), struct save, link), &flush->walk);
	}
}

/* Asks for no turn when a sweep is at all that is left: the turns would follow each other, and the loop would
 * not come to the ends of the sweep's chunks, which ask for one. */
void flush_draining(struct warm *warm)
{
	if (warm->flush.is_walking || warm->flush.running > 0 || is_cancelled(warm))
		return;
	begin_walk(warm);
	walk_over(warm);
}

void warm_flush_go_on(struct job *job)
{
	struct warm *warm = job->update->warm;
	void (*done)(struct job * job, int status);

	if (!warm || (!warm->flush.is_walking && warm->flush.running == 0 && !warm->flush.is_whole))
		return;
	if (is_cancelled(warm))
		warm->flush.is_walking = false;
	else
		walk_over(warm);
	if (warm->flush.is_walking || warm->flush.running > 0)
		return;
	warm->flush.is_whole = false;
	done = TAKE_PTR(warm->flush.done);
	assert(!done || is_cancelled(warm) || warm->dirty == 0);
	resume(job);
	if (done)
		done(job, is_cancelled(warm) ? -ECANCELED : warm->flush.status);
}
