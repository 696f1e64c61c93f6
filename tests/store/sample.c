/* Writes a small store to files, one per device: sample BLOCK FILE…. BLOCK: bytes of the second stream's
 * blocks. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/size.h"
#include "offload/store/store.h"
#include "tests/unit/io_support.h"
#include "tests/unit/sim_disk.h"
#include "tests/unit/test.h"

#define MAX_DEVICES 3
#define STEPS 3

/* As check_store passes them to the reader: whole extents, and bytes behind them; the last section is never
 * written. */
static const struct {
	uint32_t stream;
	uint64_t extents, bytes;
} sections[] = { { 0, 3, 0 }, { 0, 0, 300000 }, { 1, 5, 4096 }, { 1, 2, 0 } };

struct sample {
	unsigned device_count;
	uint64_t block_bytes;
	struct sim_disk *disks[MAX_DEVICES];
	struct workers *workers;
	struct store *store;
	struct store_request request;
	struct store_transfer transfer;
	bool is_done;
	uint64_t offsets[ARRAY_LENGTH(sections)];
};

static uint64_t length_of(const struct sample *sample, unsigned section)
{
	uint64_t block_bytes = sections[section].stream == 1 ? sample->block_bytes : STORE_BLOCK_BYTES;

	return sections[section].extents * STORE_EXTENT_BLOCKS * block_bytes + sections[section].bytes;
}

static struct store_layout *make_layout(struct sample *sample)
{
	struct store_layout *layout;

	assert_int_equal(store_layout_new(&layout), 0);
	store_layout_set_durable(layout);
	store_layout_set_snapshots(layout, 1);
	assert_int_equal(store_layout_add_stream(layout, "first"), 0);
	assert_int_equal(store_layout_add_stream(layout, "second"), 1);
	assert_int_equal(store_layout_set_blocks(layout, 1, sample->block_bytes), 0);
	for (unsigned i = 0; i < ARRAY_LENGTH(sections); i++)
		assert_int_equal(store_layout_add_section(layout, sections[i].stream, length_of(sample, i),
							  &sample->offsets[i]),
				 0);
	return layout;
}

static struct sample sample;

static void on_request(struct store_request *request, int status)
{
	assert_int_equal(status, 0);
	sample.is_done = true;
}

static void on_transfer(struct store_transfer *transfer, int status)
{
	assert_int_equal(status, 0);
	sample.is_done = true;
}

static void wait(int r)
{
	assert_int_equal(r, 0);
	while (!sample.is_done) {
		workers_reap(sample.workers);
		for (unsigned i = 0; i < sample.device_count; i++)
			sim_disk_turn(sample.disks[i]);
	}
	sample.is_done = false;
}

static void write_section(unsigned section, uint64_t seed)
{
	size_t length = size_align(length_of(&sample, section), 4096);
	unsigned char *bytes = pages_new(length);

	pages_fill(bytes, length, seed);
	sample.transfer = (struct store_transfer){ .direction = TIER_WRITE,
						   .priority = TIER_WRITE_BACK,
						   .stream = sections[section].stream,
						   .offset = sample.offsets[section],
						   .length = length,
						   .buffer = bytes,
						   .done = on_transfer };
	wait(store_submit(sample.store, &sample.transfer));
	free(bytes);
}

/* What nobody wrote stays a hole. */
static void save(struct sim_disk *disk, uint64_t bytes, const char *path)
{
	static const unsigned char nothing[4096];
	unsigned char page[4096];
	int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);

	assert_true(fd >= 0 && ftruncate(fd, (off_t)bytes) == 0);
	for (uint64_t at = 0; at < bytes; at += sizeof(page)) {
		sim_disk_read(disk, at, page, sizeof(page));
		if (memcmp(page, nothing, sizeof(page)) != 0)
			assert_int_equal(pwrite(fd, page, sizeof(page), (off_t)at), sizeof(page));
	}
	assert_int_equal(close(fd), 0);
}

static void take_steps(void)
{
	for (unsigned step = 1; step <= STEPS; step++) {
		for (unsigned i = 0; i + 1 < ARRAY_LENGTH(sections); i++)
			if (step == 1 || i == step % 3)
				write_section(i, 10 * step + i);
		wait(store_commit(sample.store, step, &sample.request));
		if (step == 2)
			wait(store_snapshot(sample.store, "before", &sample.request));
	}
}

/* A job of its own from here on, with what it has not written in common with the other. */
static void fork_it(void)
{
	struct store_fork fork = {
		.name = "fork", .serial = (UINT64_C(1) << 40) + 1, .snapshot = "before", .snapshots = 1
	};
	struct store *job = sample.store, *forked = NULL;

	wait(store_fork(job, &fork, &sample.request, &forked));
	assert_int_equal(store_adopt(forked, make_layout(&sample)), 0);
	sample.store = forked;
	write_section(0, 99);
	wait(store_commit(forked, STEPS + 1, &sample.request));
	sample.store = job;
	store_free(forked);
}

int main(int count, char *paths[])
{
	struct store_config config = { .name = "sample", .serial = 3 };
	struct store_layout *layout;
	struct tier *tiers[MAX_DEVICES];
	uint64_t bytes;

	sample.device_count = (unsigned)count - 2;
	assert_true(count > 2 && sample.device_count <= MAX_DEVICES);
	sample.block_bytes = strtoull(paths[1], NULL, 10);
	layout = make_layout(&sample);
	/* A fork needs more. */
	bytes = 2 * store_layout_device_bytes(layout, sample.device_count) / sample.device_count;
	sample.request.done = on_request;
	assert_int_equal(workers_new(1, "sample", &sample.workers), 0);
	config.workers = sample.workers;
	for (unsigned i = 0; i < sample.device_count; i++) {
		sample.disks[i] = sim_disk_new(bytes, 1 + i);
		tiers[i] = sim_disk_tier(sample.disks[i]);
	}
	assert_int_equal(store_new_nvme(&config, layout, tiers, sample.device_count, &sample.store), 0);
	wait(store_create(sample.store, &sample.request));
	take_steps();
	fork_it();
	sample.store = store_free(sample.store);
	sample.workers = workers_free(sample.workers);
	for (unsigned i = 0; i < sample.device_count; i++) {
		save(sample.disks[i], bytes, paths[2 + i]);
		sim_disk_free(sample.disks[i]);
	}
	return 0;
}
