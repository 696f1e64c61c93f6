/* The engine over fio: 1 MiB transfers, 16 at once, direct, registered files and buffers, on one file.
 * The engine's buffers are huge pages, as the daemon's are; fio's are what it takes by itself. */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/cleanup.h"
#include "common/clock.h"
#include "common/size.h"
#include "tests/bench/bench.h"
#include "tests/bench/disk.h"
#include "tests/bench/fio.h"

#define DEPTH 16
#define FILE_BYTES FIO_FILE_BYTES
#define SKIPPED 77

struct slot {
	struct tier_io io;
	struct stage *stage;
};

/* Where both sides play. */
struct stage {
	struct bench_disk disk;
	struct tier *tier;
	struct slot slots[DEPTH];
	enum tier_direction direction;
	uint64_t next, finished, stop_ns;
	unsigned in_flight;
	int error;
};

static void submit_next(struct slot *slot)
{
	struct stage *stage = slot->stage;
	int r;

	slot->io.direction = stage->direction;
	slot->io.offset = stage->next;
	stage->next = (stage->next + MIB) % FILE_BYTES;
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
	stage->next = stage->finished = 0;
	for (unsigned i = 0; i < DEPTH && stage->error == 0; i++)
		submit_next(&stage->slots[i]);
	wait_for_all(stage);
	if (stage->error)
		return stage->error;
	return (double)stage->finished / ((double)(clock_now_ns() - start) / 1e9);
}

static double run_fio(void *context, double seconds)
{
	const struct stage *stage = context;

	return fio_run(stage->tier->label, stage->direction == TIER_READ ? "read" : "write", seconds);
}

static void fill_slots(struct stage *stage)
{
	for (unsigned i = 0; i < DEPTH; i++) {
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
	stage->direction = TIER_WRITE;
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
	int r = bench_disk_open(&stage->disk, DEPTH);

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

static int compare(struct bench *bench, struct stage *stage, const char *name, enum tier_direction direction)
{
	struct bench_comparison comparison = {
		.name = name,
		.limit = 0.9,
		.unit = "MiB/s",
		.scale = (double)MIB,
		.ours = { run_engine, stage },
		.theirs = { run_fio, stage },
	};

	if (!bench_wants(bench, name))
		return 0;
	stage->direction = direction;
	return bench_compare(bench, &comparison);
}

static int run(struct bench *bench, struct stage *stage)
{
	int r = stage_open(stage);

	if (r < 0)
		return r;
	printf("%s, %s, %s\n", stage->tier->label, engine_name(stage->disk.engine),
	       nvme_tier_is_direct(stage->tier) ? "direct" : "buffered");
	r = compare(bench, stage, "nvme_read_ratio", TIER_READ);
	return r < 0 ? r : compare(bench, stage, "nvme_write_ratio", TIER_WRITE);
}

static bool is_wanted(const struct bench *bench)
{
	return bench_wants(bench, "nvme_read_ratio") || bench_wants(bench, "nvme_write_ratio");
}

int main(int argc, char **argv)
{
	struct stage stage = { .disk = BENCH_DISK_INIT };
	struct bench *bench = NULL;
	int r = bench_new(argc, argv, &bench);

	if (r < 0)
		return EXIT_FAILURE;
	if (is_wanted(bench) && !fio_is_installed()) {
		printf("skipped: fio is not installed\n");
		bench_end(bench, 0);
		return SKIPPED;
	}
	if (is_wanted(bench))
		r = run(bench, &stage);
	stage_close(&stage);
	return bench_end(bench, r);
}
