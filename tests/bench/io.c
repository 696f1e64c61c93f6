/* The engine over fio: 1 MiB transfers, 16 at once, direct, registered files and buffers, on one file.
 * The engine's buffers are huge pages, as the daemon's are; fio's are what it takes by itself. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/cleanup.h"
#include "common/clock.h"
#include "common/size.h"
#include "offload/memory.h"
#include "offload/nvme.h"
#include "tests/bench/bench.h"
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
	char directory[64];
	int directory_fd;
	struct engine *engine;
	struct tier *tier;
	struct memory memory;
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
	struct pollfd wanted = { .fd = engine_fd(stage->engine), .events = POLLIN };

	while (stage->in_flight > 0)
		if (poll(&wanted, 1, -1) > 0)
			engine_reap(stage->engine);
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

static int open_tier(struct stage *stage)
{
	const char *parent = getenv("TMPDIR");
	struct nvme_config config = { .engine = stage->engine, .name = "bench", .capacity = FILE_BYTES };
	int r;

	snprintf(stage->directory, sizeof(stage->directory), "%s/tierd-bench-XXXXXX",
		 parent ? parent : "/var/tmp");
	if (!mkdtemp(stage->directory))
		return -errno;
	stage->directory_fd = open(stage->directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (stage->directory_fd < 0)
		return -errno;
	config.directory_fd = stage->directory_fd;
	config.directory = stage->directory;
	r = nvme_tier_new(&config, &stage->tier);
	return r < 0 ? r : nvme_tier_reserve(stage->tier);
}

static int open_memory(struct stage *stage)
{
	int r = memory_new_private(DEPTH * MIB, &stage->memory);

	if (r < 0)
		return r;
	memory_make_huge(&stage->memory, true);
	r = engine_buffer_add(stage->engine, stage->memory.base, stage->memory.length);
	if (r < 0)
		return r;
	for (unsigned i = 0; i < DEPTH; i++) {
		stage->slots[i].stage = stage;
		stage->slots[i].io = (struct tier_io){
			.buffer = stage->memory.base + i * MIB,
			.length = MIB,
			.done = transfer_done,
		};
	}
	return 0;
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
	struct engine_config config = { .queue_depth = DEPTH };
	int r = engine_new(&config, &stage->engine);

	if (r == 0)
		r = open_tier(stage);
	if (r == 0)
		r = open_memory(stage);
	return r < 0 ? r : write_whole_file(stage);
}

static void stage_close(struct stage *stage)
{
	stage->tier = tier_free(stage->tier);
	stage->engine = engine_free(stage->engine);
	memory_free(&stage->memory);
	stage->directory_fd = fd_close(stage->directory_fd);
	(void)rmdir(stage->directory);
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
	printf("%s, %s, %s\n", stage->tier->label, engine_name(stage->engine),
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
	struct stage stage = { .directory_fd = -1, .memory = MEMORY_INIT };
	struct bench *bench = NULL;
	int r = bench_new(argc, argv, &bench);

	if (r < 0)
		return EXIT_FAILURE;
	if (is_wanted(bench) && !fio_is_installed()) {
		printf("skipped: fio is not installed\n");
		bench_end(bench);
		return SKIPPED;
	}
	if (is_wanted(bench))
		r = run(bench, &stage);
	stage_close(&stage);
	if (r < 0)
		fprintf(stderr, "benchmark failed: %s\n", strerror(-r));
	return bench_end(bench) == EXIT_SUCCESS && r == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
