/* How long it takes to open a store of 10 TB of state, of which all has been written: what is read is its
 * map.
 *
 * The store is a real one, on two sparse files that are as long as its devices would be (one could not be, on
 * ext4), read and written with O_DIRECT. But what it writes to extents goes nowhere, because no machine has
 * that much: they are holes. Superblocks and nodes are all there. Some extents have the checksums of what
 * a hole reads as, and can be read after the opening; the others have such as match nothing. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/size.h"
#include "offload/store/map_tree.h"
#include "offload/store/store_layout.h"
#include "tests/bench/bare_store.h"
#include "tests/bench/bench.h"
#include "tests/bench/hollow.h"

#define STATE_BYTES (UINT64_C(10000000000000) / STORE_EXTENT_BYTES * STORE_EXTENT_BYTES)
#define QUICK_STATE_BYTES (UINT64_C(100000000000) / STORE_EXTENT_BYTES * STORE_EXTENT_BYTES)
#define DEVICES 2
#define OPENINGS 5 /* odd: one is the median */
#define QUICK_OPENINGS 1
#define LIMIT_SECONDS 10
#define EXTENT_LIMIT 128
#define SAMPLE_EXTENTS UINT64_C(50021) /* of so many one can be read */
#define PIECE_BYTES MIB

/* ---- The stage ---- */

struct stage {
	struct bare_store bare;
	struct hollow_tier hollows[DEVICES];
	char *zeros;			     /* an extent of them */
	double step_seconds, commit_seconds; /* of the step that has written all of it */
};

static struct stage *stage_of(struct bare_store *bare)
{
	return container_of(bare, struct stage, bare);
}

static int turn(struct bare_store *bare)
{
	bool has_more = false;

	for (unsigned i = 0; i < DEVICES; i++)
		has_more |= hollow_tell(&stage_of(bare)->hollows[i]);
	return has_more ? 0 : -1;
}

static bool is_sample(uint64_t offset)
{
	return offset / STORE_EXTENT_BYTES % SAMPLE_EXTENTS == 0;
}

static void checksum(struct bare_store *bare, uint64_t offset, uint64_t *ret_checksums)
{
	for (uint64_t block = 0; block < STORE_EXTENT_BYTES / STORE_BLOCK_BYTES; block++)
		ret_checksums[block] =
			is_sample(offset) ? store_checksum(bare->store, 0, offset + block * STORE_BLOCK_BYTES,
							   stage_of(bare)->zeros, STORE_BLOCK_BYTES)
					  : offset + block;
}

static void name_device(unsigned device, char name[16])
{
	snprintf(name, 16, "device-%u", device);
}

static struct nvme_config config_of(const struct stage *stage, const char *name, uint64_t capacity)
{
	return (struct nvme_config){ .engine = stage->bare.disk.engine,
				     .directory_fd = stage->bare.disk.folder_fd,
				     .directory = stage->bare.disk.folder,
				     .name = name,
				     .capacity = capacity };
}

static int drop_tiers(struct tier **tiers, unsigned count, int r)
{
	while (count > 0)
		tier_free(tiers[--count]);
	return r;
}

/* Nothing is reserved. None of them are there after an error. */
static int make_tiers(struct stage *stage, uint64_t capacity, struct tier **ret_tiers)
{
	for (unsigned device = 0; device < DEVICES; device++) {
		struct nvme_config config;
		struct tier *tier;
		char name[16];
		int r;

		name_device(device, name);
		config = config_of(stage, name, capacity);
		r = nvme_tier_new(&config, &tier);
		if (r == -EFBIG)
			fprintf(stderr, "open_10tb_s: %s has no files of %llu bytes\n", config.directory,
				(unsigned long long)capacity);
		if (r < 0)
			return drop_tiers(ret_tiers, device, r);
		hollow_init(&stage->hollows[device], tier, stage->bare.disk.buffers.base,
			    stage->bare.disk.buffers.length);
		ret_tiers[device] = &stage->hollows[device].tier;
	}
	return 0;
}

static int make_store(struct stage *stage)
{
	struct bare_store *bare = &stage->bare;
	struct store_config config = { .workers = bare->workers, .name = "bench" };
	_cleanup_(store_layout_freep) struct store_layout *layout = NULL;
	struct lineage_geometry geometry;
	struct tier *tiers[DEVICES];
	int r = bare_store_layout(bare, &layout);

	if (r < 0)
		return r;
	geometry = store_layout_geometry(layout, DEVICES);
	r = make_tiers(stage, lineage_device_bytes(&geometry), tiers);
	if (r == 0)
		r = store_new_nvme(&config, TAKE_PTR(layout), tiers, DEVICES, &bare->store);
	if (r < 0)
		return r;
	store_keep(bare->store, true);
	return bare_store_wait_for_request(bare, store_create(bare->store, &bare->request));
}

/* One step that has written all of it. */
static int make(struct stage *stage)
{
	struct bare_store *bare = &stage->bare;
	uint64_t dropped = 0, start;
	int r = bare_store_open(bare);

	bare->turn = turn;
	bare->checksum = checksum;
	stage->zeros = calloc(1, STORE_EXTENT_BYTES);
	if (r == 0)
		r = stage->zeros ? make_store(stage) : -ENOMEM;
	start = clock_now_ns();
	if (r == 0)
		r = bare_store_take_step(bare);
	stage->step_seconds = bench_seconds_since(start);
	for (unsigned i = 0; i < DEVICES && r == 0; i++)
		dropped += stage->hollows[i].dropped;
	start = clock_now_ns();
	if (r == 0)
		r = dropped == bare->bytes ? bare_store_commit(bare) : -ENODATA;
	stage->commit_seconds = bench_seconds_since(start);
	bare->store = store_free(bare->store);
	bare->turn = NULL;
	return r;
}

static void stage_close(struct stage *stage)
{
	stage->bare.store = store_free(stage->bare.store);
	for (unsigned device = 0; device < DEVICES; device++) {
		char name[16];

		name_device(device, name);
		(void)unlinkat(stage->bare.disk.folder_fd, name, 0);
	}
	bare_store_close(&stage->bare);
	free(stage->zeros);
}

/* ---- Opening it ---- */

static int open_tiers(const struct stage *stage, struct tier **ret_tiers)
{
	for (unsigned device = 0; device < DEVICES; device++) {
		struct nvme_config config;
		char name[16];
		int r;

		name_device(device, name);
		config = config_of(stage, name, 0);
		r = nvme_tier_open(&config, 0, &ret_tiers[device]);
		if (r < 0)
			return drop_tiers(ret_tiers, device, r);
	}
	return 0;
}

static int open_store(struct stage *stage)
{
	struct bare_store *bare = &stage->bare;
	struct store_config config = { .workers = bare->workers };
	_cleanup_(store_layout_freep) struct store_layout *layout = NULL;
	struct tier *tiers[DEVICES];
	int r = open_tiers(stage, tiers);

	if (r == 0)
		r = store_new_found(&config, tiers, DEVICES, &bare->store);
	if (r == 0)
		r = bare_store_wait_for_request(bare, store_open(bare->store, &bare->request));
	if (r == 0)
		r = bare_store_layout(bare, &layout);
	if (r == 0)
		r = store_adopt(bare->store, layout);
	if (r == 0)
		layout = NULL;
	return r;
}

static void transfer_done(struct store_transfer *transfer, int status)
{
	struct bare_store *bare = container_of(transfer, struct bare_slot, transfer)->bare;

	bare->in_flight--;
	bare->error = status;
}

static int read_extent(struct bare_store *bare, uint64_t offset)
{
	struct store_transfer *transfer = &bare->slots[0].transfer;
	int r;

	*transfer = (struct store_transfer){ .direction = TIER_READ,
					     .offset = offset,
					     .buffer = bare->disk.buffers.base,
					     .length = STORE_EXTENT_BYTES,
					     .done = transfer_done };
	r = store_submit(bare->store, transfer);
	if (r < 0)
		return r;
	bare->in_flight++;
	return bare_store_wait(bare);
}

/* It is the map that was written: what it says of holes is true where it was meant to be. */
static int expect_all(struct bare_store *bare)
{
	int r = store_step(bare->store) == bare->step ? 0 : -ENODATA;

	for (uint64_t offset = 0; offset < bare->bytes && r == 0; offset += STORE_EXTENT_BYTES)
		if (is_sample(offset))
			r = read_extent(bare, offset);
	if (r == 0)
		r = read_extent(bare, STORE_EXTENT_BYTES) == -EBADMSG ? 0 : -EPROTO;
	bare->error = 0;
	return r;
}

static uint64_t resident_bytes(void)
{
	return bench_proc_bytes("/proc/self/status", "VmRSS");
}

struct opening {
	double seconds, floor; /* floor: to read as many bytes, one after the other */
	double resident;       /* bytes */
};

static uint64_t map_bytes(const struct stage *stage)
{
	return tree_nodes(stage->bare.bytes / STORE_EXTENT_BYTES) * NODE_BYTES;
}

/* From all devices, which an opening reads from, too; but one after the other. */
static int read_plainly(const struct stage *stage)
{
	uint64_t each = size_align(map_bytes(stage) / DEVICES, PIECE_BYTES);

	for (unsigned device = 0; device < DEVICES; device++) {
		_cleanup_close_ int fd = -1;
		char name[16];

		name_device(device, name);
		fd = openat(stage->bare.disk.folder_fd, name, O_RDONLY | O_DIRECT | O_CLOEXEC);
		if (fd < 0)
			return -errno;
		for (uint64_t offset = 0; offset < each; offset += PIECE_BYTES)
			if (pread(fd, stage->bare.disk.buffers.base, PIECE_BYTES, (off_t)(MIB + offset)) !=
			    (ssize_t)PIECE_BYTES)
				return -EIO;
	}
	return 0;
}

static int measure(struct stage *stage, struct opening *ret_opening)
{
	uint64_t before = resident_bytes(), start = clock_now_ns();
	int r = open_store(stage);

	ret_opening->seconds = bench_seconds_since(start);
	ret_opening->resident = (double)(resident_bytes() - before);
	if (r == 0)
		r = expect_all(&stage->bare);
	stage->bare.store = store_free(stage->bare.store);
	start = clock_now_ns();
	if (r == 0)
		r = read_plainly(stage);
	ret_opening->floor = bench_seconds_since(start);
	return r;
}

/* ---- Telling ---- */

static int report(struct bench *bench, const struct stage *stage, const struct opening *openings,
		  unsigned count)
{
	double seconds[OPENINGS], floors[OPENINGS], resident[OPENINGS];
	double extents = (double)(stage->bare.bytes / STORE_EXTENT_BYTES);
	int r;

	for (unsigned i = 0; i < count; i++) {
		seconds[i] = openings[i].seconds;
		floors[i] = openings[i].floor;
		resident[i] = openings[i].resident / extents;
	}
	printf("open_10tb_s: %.3f TB in %.0f extents; their map has %.1f MiB, and to read as much takes %.2f "
	       "s; "
	       "a step that changed all of them took %.2f s, and %.2f s to be committed\n",
	       (double)stage->bare.bytes / 1e12, extents, (double)map_bytes(stage) / (double)MIB,
	       bench_median(floors, count), stage->step_seconds, stage->commit_seconds);
	r = bench_record(bench, "open_10tb_s", bench_median(seconds, count), "s", LIMIT_SECONDS);
	return r < 0 ? r
		     : bench_record(bench, "metadata_extent_bytes", bench_median(resident, count), "bytes",
				    EXTENT_LIMIT);
}

static int measure_all(struct bench *bench, struct stage *stage)
{
	unsigned count = bench_is_quick(bench) ? QUICK_OPENINGS : OPENINGS;
	struct opening openings[OPENINGS];
	int r = make(stage);

	for (unsigned i = 0; i < count && r == 0; i++)
		r = measure(stage, &openings[i]);
	return r < 0 ? r : report(bench, stage, openings, count);
}

static int run(struct bench *bench)
{
	struct stage stage = { .bare = BARE_STORE_INIT };
	int r = 0;

	stage.bare.bytes = bench_is_quick(bench) ? QUICK_STATE_BYTES : STATE_BYTES;
	if (bench_wants_any(bench, "open_10tb_s", "metadata_extent_bytes"))
		r = measure_all(bench, &stage);
	stage_close(&stage);
	return r;
}

int main(int argc, char **argv)
{
	return bench_main(argc, argv, run);
}
