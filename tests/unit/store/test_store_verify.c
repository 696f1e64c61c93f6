/* Verifying durable stores: what only snapshots have is read, while transfers and commits go on. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "offload/store/extent_store.h"
#include "offload/store/store_verify.h"
#include "tests/unit/disk_store.h"
#include "tests/unit/seeds.h"
#include "tests/unit/store_support.h"
#include "tests/unit/test.h"

#define GROUPS (DISK_FEW_EXTENTS / STORE_GROUP_EXTENTS + 1)
/* Nodes, and all but the reading of extents. */
static void ask(struct disk_store *disk, struct store_finder *finder, uint64_t group)
{
	finder->verification.group = group;
	assert_int_equal(
		disk_store_wait(disk, store_verify(disk->store, &finder->verification, &disk->request)), 0);
	finder->is_over = false;
}

static void verify(struct disk_store *disk, struct store_finder *finder)
{
	finder->count = 0;
	for (uint64_t group = 0; group < GROUPS; group++) {
		ask(disk, finder, group);
		finder->is_over = !store_verify_extents(&finder->verification);
		while (!finder->is_over)
			disk_store_turn(disk);
	}
}

static void rewrite(struct disk_store *disk, unsigned first, unsigned end)
{
	for (unsigned extent = first; extent < end; extent++)
		disk_store_rewrite_soon(disk, extent);
	disk_store_drain(disk);
	disk_store_commit(disk);
}

/* Where the job has an extent now. */
static uint64_t offset_of(struct disk_store *disk, unsigned extent)
{
	const struct extent_store *store = container_of(disk->store, const struct extent_store, store);

	return extent_place_offset(store, store->map.extents[extent].place);
}

static uint64_t stream_offset_of(const struct disk_store *disk, unsigned extent)
{
	unsigned half = disk->extents / 2;

	return extent < half ? extent * STORE_EXTENT_BYTES : (extent - half) * disk->place_bytes;
}

static void an_extent_that_only_snapshots_have_is_read(void **state)
{
	struct disk_store disk;
	struct store_finder finder;
	uint64_t offsets[4];
	unsigned extents[] = { 0, 99, 201, 259 };

	store_finder_init(&finder);
	disk_store_open(&disk, DISK_FEW_EXTENTS, 2, 2, 2);
	rewrite(&disk, 0, DISK_FEW_EXTENTS);
	for (unsigned i = 0; i < 4; i++)
		offsets[i] = offset_of(&disk, extents[i]);
	assert_int_equal(disk_store_take(&disk, "one"), 0);
	verify(&disk, &finder);
	assert_int_equal(finder.verification.bytes, 0);
	rewrite(&disk, 0, 202);
	assert_int_equal(disk_store_take(&disk, "two"), 0);
	rewrite(&disk, 200, DISK_FEW_EXTENTS);
	verify(&disk, &finder);
	assert_int_equal(finder.count, 0);
	/* Each place once, whatever names it: those of “one”, and two more of “two”. */
	assert_int_equal(finder.verification.bytes, (DISK_FEW_EXTENTS + 2) * (uint64_t)DISK_PAGE);
	for (unsigned i = 0; i < 4; i++) {
		struct sim_disk *device = disk.disks[extents[i] % 2];

		sim_disk_flip(device, offsets[i] + 17, 2);
		verify(&disk, &finder);
		assert_int_equal(finder.count, 1);
		assert_int_equal(finder.flaws[0].part, STORE_EXTENT);
		assert_int_equal(finder.flaws[0].device_offset, offsets[i]);
		assert_int_equal(finder.flaws[0].status, -EBADMSG);
		assert_int_equal(finder.flaws[0].block.stream, extents[i] >= DISK_FEW_EXTENTS / 2);
		assert_int_equal(finder.flaws[0].block.offset, stream_offset_of(&disk, extents[i]));
		assert_string_equal(finder.flaws[0].snapshots, extents[i] < 202 ? "one" : "one, two");
		sim_disk_flip(device, offsets[i] + 17, 2);
	}
	verify(&disk, &finder);
	assert_int_equal(finder.count, 0);
	store_finder_destroy(&finder);
	disk_store_close(&disk);
}

/* What it will read keeps its place, though the snapshot goes; then it is free. */
static void places_stay_until_they_were_read(void **state)
{
	struct disk_store disk;
	struct store_finder finder;
	struct places *places;
	uint64_t bytes = 42;

	store_finder_init(&finder);
	disk_store_open(&disk, 20, 1, 1, 1);
	rewrite(&disk, 0, 20);
	assert_int_equal(disk_store_take(&disk, "one"), 0);
	rewrite(&disk, 0, 20);
	places = lineage_places(container_of(disk.store, struct extent_store, store)->lineage, 0);
	assert_int_equal(places->count - places->free_count, 40);
	ask(&disk, &finder, 0);
	assert_int_equal(
		disk_store_wait(&disk, store_measure_snapshot(disk.store, "one", &disk.request, &bytes)),
		-EAGAIN);
	assert_int_equal(disk_store_delete(&disk, "one"), 0);
	assert_int_equal(places->count - places->free_count, 40);
	assert_true(store_verify_extents(&finder.verification));
	finder.is_stopped = true;
	while (!finder.is_over)
		disk_store_turn(&disk);
	assert_int_equal(places->count - places->free_count, 20);
	assert_int_equal(bytes, 42);
	store_finder_destroy(&finder);
	disk_store_close(&disk);
}

static void a_snapshot_that_is_shown_cannot_be_measured(void **state)
{
	struct disk_store disk;
	struct store *view;
	uint64_t bytes = 42;

	disk_store_open(&disk, 20, 2, 1, 1);
	rewrite(&disk, 0, 20);
	assert_int_equal(disk_store_take(&disk, "one"), 0);
	rewrite(&disk, 0, 20);
	assert_int_equal(disk_store_wait(&disk, store_open_snapshot(disk.store, "one", &disk.request, &view)),
			 0);
	assert_int_equal(
		disk_store_wait(&disk, store_measure_snapshot(disk.store, "one", &disk.request, &bytes)),
		-EAGAIN);
	assert_int_equal(bytes, 42);
	view = store_free(view);
	assert_int_equal(
		disk_store_wait(&disk, store_measure_snapshot(disk.store, "one", &disk.request, &bytes)), 0);
	assert_int_equal(bytes, 20 * disk.place_bytes);
	disk_store_close(&disk);
}

/* Nothing is taken for damage because it is written meanwhile. */
static void run_seed(uint64_t seed)
{
	struct disk_store disk;
	struct store_finder finder;

	store_finder_init(&finder);
	disk_store_open(&disk, DISK_FEW_EXTENTS, 1 + seed % 3, 2, seed);
	rewrite(&disk, 0, DISK_FEW_EXTENTS);
	assert_int_equal(disk_store_take(&disk, "one"), 0);
	for (unsigned round = 0; round < 6 && !disk.is_dead; round++) {
		for (unsigned i = disk_store_choose(&disk, 200); i > 0; i--)
			disk_store_act(&disk);
		disk_store_drain(&disk);
		disk_store_await_commit(&disk);
		if (round == 3)
			assert_int_equal(disk_store_take(&disk, "two"), 0);
		ask(&disk, &finder, disk_store_choose(&disk, GROUPS));
		finder.is_over = !store_verify_extents(&finder.verification);
		while (!finder.is_over)
			disk_store_act(&disk);
		disk_store_drain(&disk);
		disk_store_await_commit(&disk);
		if (round == 4)
			assert_int_equal(disk_store_delete(&disk, "one"), 0);
	}
	assert_int_equal(finder.count, 0);
	store_finder_destroy(&finder);
	disk_store_end(&disk);
	disk_store_open_again(&disk);
	disk_store_close(&disk);
}

static void what_is_written_meanwhile_is_no_damage(void **state)
{
	seeds_run(40, run_seed);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(an_extent_that_only_snapshots_have_is_read),
		cmocka_unit_test(places_stay_until_they_were_read),
		cmocka_unit_test(a_snapshot_that_is_shown_cannot_be_measured),
		cmocka_unit_test_teardown(what_is_written_meanwhile_is_no_damage, seeds_tell),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
