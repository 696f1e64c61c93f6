/* One read at a time: the device has nothing of it to work off when somebody comes who waits. An extent that
 * is rewritten meanwhile is read where it lies then, which the store sees to. One that cannot be read is read
 * again, block by block, so that all bad blocks are found, and none beside them.
 *
 * Extents go in groups. Before the first of a group the nodes are read that say where its extents are, of all
 * maps, and the extents of it that only snapshots have. */

#include <errno.h>
#include <stdlib.h>

#include "daemon/durability/durability.h"
#include "daemon/model/model.h"
#include "daemon/request/request.h"
#include "daemon/scrub/own.h"
#include "daemon/scrub/scan.h"

int scan_check(const struct job *job, char *message, size_t size)
{
	if (!job_has_state(job))
		return refuse(message, size, -EBUSY, "job %s has no values yet", job->name);
	if (!job->location.is_durable && !job->location.has_nvme_parameters &&
	    !job->location.has_nvme_optimizer)
		return refuse(message, size, -EOPNOTSUPP, "job %s has nothing on NVMe", job->name);
	if (!job_nvme_store(job))
		return refuse(message, size, -EIO, "job %s cannot be read: %s", job->name, job->epoch.reason);
	if (job_is_rolling_back(job))
		return refuse(message, size, -EAGAIN, "job %s is being rolled back; try again", job->name);
	return 0;
}

/* ---- What is known to be damaged ---- */

/* Places are those of the job's extents, and before each the one of the group that may begin there. */
static uint64_t place_of(const struct scan *scan)
{
	return 2 * scan->next + (scan->is_in_group ? 0 : 1);
}

static void begin_place(struct scan *scan, bool is_in_group)
{
	scan->is_in_group = is_in_group;
	scan->damaged = 0;
}

/* At once, since the scan may end before all of the place is read. */
static void found(struct scan *scan, const struct store_flaw *flaw)
{
	scan->damaged += !flaw->is_mended;
	damaged_raise(&scan->job->scrub->damaged, place_of(scan), scan->damaged);
	scan->found(scan, flaw);
}

static void end_place(struct scan *scan)
{
	damaged_set(&scan->job->scrub->damaged, place_of(scan), scan->damaged);
}

/* ---- Extents ---- */

static void read_piece(struct scan *scan);
static void begin_next(struct scan *scan);

static void begin_extent(struct scan *scan)
{
	struct store_range piece;

	store_find_extent(job_nvme_store(scan->job), scan->next, &piece);
	scan->transfer.stream = piece.stream;
	scan->transfer.offset = piece.offset;
	scan->transfer.length = piece.length;
	scan->piece_end = piece.offset + piece.length;
	scan->by_blocks = false;
	begin_place(scan, false);
}

static void end(struct scan *scan, int status)
{
	struct job *job = scan->job;

	job->scrub->scans--;
	job_settle(job);
	scan->done(scan, status);
}

static bool is_over(const struct scan *scan)
{
	return job_is_ending(scan->job) || job_is_rolling_back(scan->job) || scan->is_stopped;
}

static void end_early(struct scan *scan)
{
	end(scan, scan->is_stopped ? -ECANCELED : -ENOENT);
}

static void read_block(struct scan *scan, uint64_t offset)
{
	uint64_t block = store_block_bytes(job_nvme_store(scan->job), scan->transfer.stream);
	uint64_t rest = scan->piece_end - offset;

	scan->transfer.offset = offset;
	scan->transfer.length = rest < block ? rest : block;
	read_piece(scan);
}

static void go_on(struct scan *scan)
{
	uint64_t offset = scan->transfer.offset + scan->transfer.length;

	scan->bytes += scan->transfer.length;
	if (scan->by_blocks && offset < scan->piece_end) {
		read_block(scan, offset);
		return;
	}
	end_place(scan);
	if (++scan->next == scan->end) {
		end(scan, 0);
		return;
	}
	begin_next(scan);
}

static void tell(struct scan *scan, int status)
{
	const struct store_transfer *transfer = &scan->transfer;
	struct store_flaw flaw = {
		.part = STORE_EXTENT,
		.is_of_job = true,
		.block = { transfer->stream, transfer->offset, transfer->length },
		.device = transfer->fault.device,
		.device_offset = transfer->fault.device_offset,
		.length = transfer->length,
		.status = status,
	};

	found(scan, &flaw);
}

static void on_read(struct store_transfer *transfer, int status)
{
	struct scan *scan = container_of(transfer, struct scan, transfer);

	if (is_over(scan)) {
		end_early(scan);
		return;
	}
	if (status < 0 && !scan->by_blocks) {
		scan->by_blocks = true;
		read_block(scan, transfer->offset);
		return;
	}
	if (status < 0)
		tell(scan, status);
	go_on(scan);
}

static void read_piece(struct scan *scan)
{
	int r = store_submit(job_nvme_store(scan->job), &scan->transfer);

	/* Only our own mistakes are refused: no section, or no page. */
	if (r < 0)
		abort();
}

static void read_extent(struct scan *scan)
{
	begin_extent(scan);
	read_piece(scan);
}

/* ---- Groups ---- */

/* Of what was committed, by one who may ask its store for something. */
static bool has_group(const struct scan *scan)
{
	uint64_t step;

	return scan->next % STORE_GROUP_EXTENTS == 0 && !job_is_broken(scan->job) && !is_over(scan) &&
	       durable_has_step(scan->job, &step);
}

static int begin_group(struct store_task *task, struct store *store)
{
	struct scan *scan = container_of(task, struct scan, task);

	return store_verify(store, &scan->group, &task->request);
}

static void on_flaw(struct store_verification *group, const struct store_flaw *flaw)
{
	found(container_of(group, struct scan, group), flaw);
}

static bool goes_on(struct store_verification *group)
{
	return !is_over(container_of(group, struct scan, group));
}

static void on_group_read(struct store_verification *group)
{
	struct scan *scan = container_of(group, struct scan, group);

	scan->bytes += group->bytes;
	if (is_over(scan)) {
		end_early(scan);
		return;
	}
	end_place(scan);
	read_extent(scan);
}

static void on_group(struct store_task *task, int status)
{
	struct scan *scan = container_of(task, struct scan, task);

	if (status == 0 && !is_over(scan)) {
		if (!store_verify_extents(&scan->group))
			on_group_read(&scan->group);
		return;
	}
	store_verification_clear(&scan->group);
	if (status == -ENOMEM)
		end(scan, status);
	else
		end_early(scan);
}

static void begin_next(struct scan *scan)
{
	if (!has_group(scan)) {
		read_extent(scan);
		return;
	}
	begin_place(scan, true);
	scan->group = (struct store_verification){ .group = scan->next / STORE_GROUP_EXTENTS,
						   .buffer = scan->buffer,
						   .found = on_flaw,
						   .goes_on = goes_on,
						   .done = on_group_read };
	scan->task = (struct store_task){ .job = scan->job, .begin = begin_group, .done = on_group };
	store_task_send(&scan->task);
}

int scan_start(struct scan *scan, struct job *job, uint64_t first, uint64_t end)
{
	if (!scan->buffer)
		scan->buffer = aligned_alloc(STORE_PAGE_BYTES, STORE_MAX_EXTENT_BYTES);
	if (!scan->buffer)
		return -ENOMEM;
	scan->job = job;
	scan->first = scan->next = first;
	scan->end = end;
	scan->bytes = 0;
	scan->is_stopped = false;
	scan->transfer = (struct store_transfer){
		.direction = TIER_READ, .priority = TIER_IDLE, .buffer = scan->buffer, .done = on_read
	};
	job->scrub->scans++;
	begin_next(scan);
	return 0;
}

void scan_clear(struct scan *scan)
{
	free(scan->buffer);
	scan->buffer = NULL;
}
