/* The engine over fio: 1 MiB transfers, 16 at once, direct, registered files and buffers of huge pages, on
 * one file; and what both read with other numbers of them at once, for a picture. */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/cleanup.h"
#include "common/clock.h"
#include "common/size.h"
#include "tests/bench/bench.h"
#include "tests/bench/disk.h"
#include "tests/bench/fio.h"

#define DEPTH 16
#define MOST_DEPTH 32
#define DEPTH_TURNS 5 /* odd: one is the median */
#define DEPTH_SECONDS 0.3
#define QUICK_DEPTH_SECONDS 0.01
#define FILE_BYTES FIO_FILE_BYTES
#define LIMIT 0.95

struct slot {
	struct tier_io io;
	struct stage *stage;
};

/* What is compared: transfers take the directions in turns. */
struct subject {
	const char *name, *fio_direction;
	enum tier_direction directions[2];
};

static const struct subject subjects[] = {
	{ "nvme_read_ratio", "read", { TIER_READ, TIER_READ } },
	{ "nvme_write_ratio", "write", { TIER_WRITE, TIER_WRITE } },
	{ "nvme_mixed_ratio", "readwrite", { TIER_READ, TIER_WRITE } },
};

/* Where both sides play. */
struct stage {
	struct bench_disk disk;
	struct tier *tier;
	struct fio_job fio;
	struct slot slots[MOST_DEPTH];
	unsigned depth;
	const struct subject *subject;
	uint64_t next[2]; /* of reads, and of writes */
	uint64_t started, finished, stop_ns;
	unsigned in_flight;
	int error;
};

static void submit_next(struct slot *slot)
{
	struct stage *stage = slot->stage;
	uint64_t *next;
	int r;

	slot->io.direction = stage->subject->directions[stage->started++ % 2];
	next = &stage->next[slot->io.direction == TIER_WRITE];
	slot->io.offset = *next;
	*next = (*next + MIB) % FILE_BYTES;
	r = tier_submit(stage->tier, &slot->io);
	if (r < 0)
		stage->error = r;
	else
		stage->in_flight++;
}

static void transfer_done(struct tier_io *io, int status)
{
	struct slot *slot = container_of(io, struct slot, io);
	struct stage *stage = slot->stage;

	stage->in_flight--;
	stage->finished += MIB;
	if (status < 0)
		stage->error = status;
	if (stage->error == 0 && clock_now_ns() < stage->stop_ns)
		submit_next(slot);
}

static void wait_for_all(struct stage *stage)
{
	struct pollfd wanted = { .fd = engine_fd(stage->disk.engine), .events = POLLIN };

	while (stage->in_flight > 0)
		if (poll(&wanted, 1, -1) > 0)
			engine_reap(stage->disk.engine);
}

static double run_engine(void *context, double seconds)
{
	struct stage *stage = context;
	uint64_t start = clock_now_ns();

	stage->stop_ns = start + (uint64_t)(seconds * 1e9);
	stage->next[0] = stage->next[1] = stage->finished = 0;
	for (unsigned i = 0; i < stage->depth && stage->error == 0; i++)
		submit_next(&stage->slots[i]);
	wait_for_all(stage);
	if (stage->error)
		return stage->error;
	return (double)stage->finished / bench_seconds_since(start);
}

static void fill_slots(struct stage *stage)
{
	for (unsigned i = 0; i < MOST_DEPTH; i++) {
		stage->slots[i].stage = stage;
		stage->slots[i].io = (struct tier_io){
			.buffer = stage->disk.buffers.base + i * MIB,
			.length = MIB,
			.done = transfer_done,
		};
	}
}

/* Neither side shall be the one that turns reserved blocks into written ones. */
static int write_whole_file(struct stage *stage)
{
	stage->subject = &subjects[1];
	stage->stop_ns = 0;
	for (uint64_t offset = 0; offset < FILE_BYTES && stage->error == 0; offset += DEPTH * MIB) {
		for (unsigned i = 0; i < DEPTH; i++)
			submit_next(&stage->slots[i]);
		wait_for_all(stage);
	}
	return stage->error;
}

static int stage_open(struct stage *stage)
{
	int r = bench_disk_open(&stage->disk, MOST_DEPTH);

	if (r == 0)
		r = bench_disk_add(&stage->disk, FILE_BYTES, &stage->tier);
	if (r == 0)
		fill_slots(stage);
	return r < 0 ? r : write_whole_file(stage);
}

static void stage_close(struct stage *stage)
{
	stage->tier = tier_free(stage->tier);
	bench_disk_close(&stage->disk);
}

static int compare(struct bench *bench, struct stage *stage, const struct subject *subject)
{
	const struct bench_comparison comparison = {
		.name = subject->name,
		.bound = BENCH_AT_LEAST,
		.limit = LIMIT,
		.unit = "MB/s",
		.scale = 1e6,
		.ours = { run_engine, stage },
		.theirs = { fio_run, &stage->fio },
	};

	stage->subject = subject;
	stage->fio.direction = subject->fio_direction;
	stage->depth = stage->fio.depth = DEPTH;
	return bench_compare(bench, &comparison);
}

/* ---- Other depths ---- */

struct depth {
	unsigned depth;
	const char *ours, *theirs;
};

static const struct depth depths[] = {
	{ 1, "nvme_depth_1_tierd", "nvme_depth_1_fio" },
	{ 2, "nvme_depth_2_tierd", "nvme_depth_2_fio" },
	{ 4, "nvme_depth_4_tierd", "nvme_depth_4_fio" },
	{ 8, "nvme_depth_8_tierd", "nvme_depth_8_fio" },
	{ 16, "nvme_depth_16_tierd", "nvme_depth_16_fio" },
	{ 32, "nvme_depth_32_tierd", "nvme_depth_32_fio" },
};

static int record_rate(struct bench *bench, const char *name, double *rates)
{
	return bench_record(bench, name, bench_median(rates, DEPTH_TURNS) / 1e6, "MB/s", 0);
}

static bool is_depth_wanted(const struct bench *bench, const struct depth *depth)
{
	return bench_wants(bench, depth->ours) || bench_wants(bench, depth->theirs);
}

/* Each is first in every second turn. */
static int read_at_depth(struct bench *bench, struct stage *stage, const struct depth *depth)
{
	double seconds = bench_is_quick(bench) ? QUICK_DEPTH_SECONDS : DEPTH_SECONDS;
	const struct bench_side sides[2] = { { run_engine, stage }, { fio_run, &stage->fio } };
	double rates[2][DEPTH_TURNS];
	int r;

	stage->depth = stage->fio.depth = depth->depth;
	for (unsigned i = 0; i < 2 * DEPTH_TURNS; i++) {
		unsigned turn = i / 2, side = (i + turn) % 2;
		double rate = sides[side].run(sides[side].context, seconds);

		if (rate < 0)
			return (int)rate;
		rates[side][turn] = rate;
	}
	r = record_rate(bench, depth->ours, rates[0]);
	return r < 0 ? r : record_rate(bench, depth->theirs, rates[1]);
}

static int read_at_depths(struct bench *bench, struct stage *stage)
{
	int r = 0;

	stage->subject = &subjects[0];
	stage->fio.direction = subjects[0].fio_direction;
	for (size_t i = 0; i < ARRAY_LENGTH(depths) && r == 0; i++)
		if (is_depth_wanted(bench, &depths[i]))
			r = read_at_depth(bench, stage, &depths[i]);
	return r;
}

/* ---- */

static int compare_all(struct bench *bench, struct stage *stage)
{
	int r = stage_open(stage);

	if (r < 0)
		return r;
	printf("%s, %s, %s\n", stage->tier->label, engine_name(stage->disk.engine),
	       nvme_tier_is_direct(stage->tier) ? "direct" : "buffered");
	snprintf(stage->fio.file, sizeof(stage->fio.file), "%s", stage->tier->label);
	for (size_t i = 0; i < ARRAY_LENGTH(subjects) && r == 0; i++)
		if (bench_wants(bench, subjects[i].name))
			r = compare(bench, stage, &subjects[i]);
	return r < 0 ? r : read_at_depths(bench, stage);
}

static bool is_wanted(const struct bench *bench)
{
	for (size_t i = 0; i < ARRAY_LENGTH(subjects); i++)
		if (bench_wants(bench, subjects[i].name))
			return true;
	for (size_t i = 0; i < ARRAY_LENGTH(depths); i++)
		if (is_depth_wanted(bench, &depths[i]))
			return true;
	return false;
}

static void skip(struct bench *bench)
{
	for (size_t i = 0; i < ARRAY_LENGTH(subjects); i++)
		bench_skip(bench, subjects[i].name, FIO_MISSING);
	for (size_t i = 0; i < ARRAY_LENGTH(depths); i++) {
		bench_skip(bench, depths[i].ours, FIO_MISSING);
		bench_skip(bench, depths[i].theirs, FIO_MISSING);
	}
}

static int run(struct bench *bench)
{
	struct stage stage = { .disk = BENCH_DISK_INIT };
	int r = 0;

	if (!fio_is_installed())
		skip(bench);
	else if (is_wanted(bench))
		r = compare_all(bench, &stage);
	stage_close(&stage);
	return r;
}

int main(int argc, char **argv)
{
	return bench_main(argc, argv, run);
}
