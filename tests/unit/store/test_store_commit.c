/* Durable stores on disks that lose power: rewrites of random extents and commits of them at the same time,
 * sessions that end in any way, and every byte compared with what its step was. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "offload/store/extent_store.h"
#include "offload/store/superblock.h"
#include "tests/unit/disk_store.h"
#include "tests/unit/seeds.h"
#include "tests/unit/test.h"

/* More leaves than a batch of nodes has. */
#define MANY_EXTENTS 26000
/* As many as three disks remember writes of that no flush has covered. */
#define COUNTED_EXTENTS 8000

/* Twice what there is: the second half waits for the commit. */
static void a_full_rewrite_beside_a_commit_waits_and_ends(void **state)
{
	struct disk_store disk;

	disk_store_open(&disk, DISK_FEW_EXTENTS, 1, 0, 2);
	for (unsigned round = 0; round < 6; round++) {
		for (unsigned extent = 0; extent < DISK_FEW_EXTENTS; extent++)
			disk_store_rewrite_soon(&disk, extent);
		disk_store_await_commit(&disk);
		disk_store_begin_commit(&disk);
		assert_true(disk.is_committing);
	}
	disk_store_end(&disk);
	assert_false(disk.is_dead);
	assert_int_equal(disk.acknowledged, 6);
	disk_store_open_again(&disk);
	store_belong(disk.store, &(struct store_owner){ .share.weight = 77 });
	assert_int_equal(sim_disk_weight(disk.disks[0]), 77);
	disk_store_close(&disk);
}

/* With all places that the other half needs beside it. */
static void what_is_held_back_is_in_no_commit_until_it_is_published(void **state)
{
	struct disk_store disk;

	disk_store_open(&disk, DISK_FEW_EXTENTS, 2, 0, 7);
	disk_store_rewrite_all(&disk);
	disk_store_commit(&disk);
	for (unsigned extent = 0; extent < DISK_FEW_EXTENTS; extent += 2) {
		disk_store_hold(&disk, extent);
		disk_store_drain(&disk);
	}
	for (unsigned round = 0; round < 3; round++) {
		for (unsigned extent = 1; extent < DISK_FEW_EXTENTS; extent += 2)
			disk_store_rewrite_soon(&disk, extent);
		disk_store_begin_commit(&disk);
		disk_store_end_hold(&disk, true);
		disk_store_await_commit(&disk);
	}
	disk_store_expect(&disk, disk.store, disk.content);
	disk_store_end_hold(&disk, true);
	disk_store_expect(&disk, disk.store, disk.content);
	disk_store_begin_commit(&disk);
	disk_store_end(&disk);
	assert_int_equal(disk.acknowledged, 5);
	disk_store_open_again(&disk);
	disk_store_close(&disk);
}

/* The nodes of a large map are made in batches: what is written meanwhile must wait for its leaf, or it would
 * be in a step that it does not belong to. */
static void a_commit_of_many_leaves_has_nothing_of_the_next_step(void **state)
{
	struct disk_store disk;

	disk_store_open(&disk, MANY_EXTENTS, 2, 0, 4);
	for (unsigned round = 0; round < 3; round++) {
		for (unsigned extent = round; extent < MANY_EXTENTS; extent += 20)
			disk_store_rewrite_soon(&disk, extent);
		disk_store_begin_commit(&disk);
		for (unsigned i = 0; i < 200 && disk.is_committing; i++)
			disk_store_rewrite_soon(&disk, disk_store_choose(&disk, MANY_EXTENTS));
		disk_store_await_commit(&disk);
		disk_store_fail_all(&disk, sim_disk_fail_power);
		disk_store_end(&disk);
		disk_store_open_again(&disk);
		assert_int_equal(disk.step, round + 1);
	}
	disk_store_close(&disk);
}

static uint32_t count_places(const struct disk_store *disk)
{
	return lineage_places(container_of(disk->store, struct extent_store, store)->lineage, 0)->count;
}

/* In whatever order, again and again: for that it has no places of its own. */
static void what_is_fixed_is_written_until_the_first_commit_begins(void **state)
{
	struct disk_store disk;

	disk_store_open_fixed(&disk, DISK_FEW_EXTENTS, DISK_FEW_EXTENTS - 2, 1, 0, 6);
	assert_int_equal(count_places(&disk), DISK_FEW_EXTENTS - 2 + 2 * 2 + 8);
	for (unsigned round = 0; round < 3; round++)
		disk_store_rewrite_all(&disk);
	disk_store_begin_commit(&disk);
	disk_store_expect_settled(&disk, 0);
	disk_store_await_commit(&disk);
	for (unsigned round = 0; round < 3; round++) {
		disk_store_expect_settled(&disk, DISK_FEW_EXTENTS - 3);
		disk_store_rewrite_all(&disk);
		disk_store_commit(&disk);
	}
	disk_store_end(&disk);
	assert_false(disk.is_dead);
	assert_int_equal(disk.acknowledged, 4);
	disk_store_open_again(&disk);
	disk_store_expect_settled(&disk, 7);
	disk_store_close(&disk);
}

static uint64_t written_bytes(const struct disk_store *disk)
{
	uint64_t bytes = 0;

	for (unsigned i = 0; i < disk->device_count; i++)
		bytes += sim_disk_moved(disk->disks[i], TIER_WRITE);
	return bytes;
}

/* Rewrites every stride-th extent, and returns what a commit of that writes beside them. */
static uint64_t cost_of_commit(struct disk_store *disk, unsigned stride)
{
	uint64_t before;

	for (unsigned extent = 0; extent < disk->extents; extent += stride)
		disk_store_rewrite_soon(disk, extent);
	disk_store_drain(disk);
	before = written_bytes(disk);
	disk_store_commit(disk);
	return written_bytes(disk) - before;
}

/* Two copies of each node, and a pair of superblocks on each device. What is rewritten counts as whole
 * extents, as it is where sections are large. */
static void a_commit_writes_the_nodes_of_what_changed_and_a_pair_of_superblocks(void **state)
{
	static const struct {
		unsigned stride, nodes; /* leaves, the root above them, and the table of heads */
		double most;		/* of what is rewritten */
	} cases[] = { { 1, 80 + 1 + 1, 0.0002 }, { 1000, 8 + 1 + 1, 0.03 }, { 100, 80 + 1 + 1, 0.03 } };
	struct disk_store disk;

	disk_store_open(&disk, COUNTED_EXTENTS, 3, 0, 5);
	for (unsigned i = 0; i < ARRAY_LENGTH(cases); i++) {
		uint64_t bytes = cost_of_commit(&disk, cases[i].stride);
		uint64_t rewritten = COUNTED_EXTENTS / cases[i].stride * disk.place_bytes;

		assert_int_equal(bytes, cases[i].nodes * 2 * NODE_BYTES +
						3 * SUPERBLOCK_COPIES / 2 * SUPERBLOCK_BYTES);
		assert_true((double)bytes <= cases[i].most * (double)rewritten);
	}
	disk_store_close(&disk);
}

static void run_seed(uint64_t seed)
{
	static const unsigned fixed[] = { 0, DISK_FEW_EXTENTS * 9 / 10, DISK_FEW_EXTENTS - 2 };
	struct disk_store disk;

	disk_store_open_fixed(&disk, DISK_FEW_EXTENTS, fixed[seed / DISK_MAX_DEVICES % ARRAY_LENGTH(fixed)],
			      1 + (unsigned)(seed % DISK_MAX_DEVICES), 0, seed);
	for (unsigned session = 0; session < 4; session++) {
		unsigned actions = disk_store_choose(&disk, 1200);

		if (disk_store_choose(&disk, 4) == 0)
			sim_disk_fail_flush(disk.disks[0], 1 + disk_store_choose(&disk, 6));
		for (unsigned i = 0; i < actions && !disk.is_dead; i++)
			disk_store_act(&disk);
		disk_store_fail_all(&disk, disk_store_choose(&disk, 2) ? sim_disk_fail_power : sim_disk_kill);
		disk_store_end(&disk);
		disk_store_open_again(&disk);
	}
	disk_store_close(&disk);
}

static void whatever_ends_a_session_the_last_step_is_whole(void **state)
{
	seeds_run(60, run_seed);
}

/* All that is whole of its superblocks says that places have so many bytes, and is sealed. */
static void set_places(struct sim_disk *disk, uint64_t bytes)
{
	for (unsigned copy = 0; copy < SUPERBLOCK_COPIES; copy++) {
		uint64_t offset = copy * (uint64_t)SUPERBLOCK_STRIDE;
		uint8_t before[SUPERBLOCK_BYTES], after[SUPERBLOCK_BYTES];
		struct superblock superblock;
		uint32_t format;

		sim_disk_read(disk, offset, before, sizeof(before));
		assert_int_equal(superblock_decode(before, copy, &superblock, &format), 0);
		superblock.format = superblock_format(bytes);
		superblock.place_bytes = bytes;
		superblock_encode(&superblock, copy, after);
		for (unsigned i = 0; i < SUPERBLOCK_BYTES; i++)
			if (before[i] != after[i])
				sim_disk_flip(disk, offset + i, before[i] ^ after[i]);
	}
}

/* What is refused is left as it is. */
static void expect_refused(struct disk_store *disk, const char *says)
{
	struct store_config config = { .workers = disk->workers };
	struct tier *tier = sim_disk_tier(disk->disks[0]);
	struct store *store;

	assert_int_equal(store_new_found(&config, &tier, 1, &store), 0);
	assert_int_equal(disk_store_wait(disk, store_open(store, &disk->request)), -EBADMSG);
	assert_non_null(strstr(store_message(store), says));
	assert_int_equal(sim_disk_moved(disk->disks[0], TIER_WRITE), 0);
	store_free(store);
}

static void places_of_a_size_that_cannot_be_are_refused(void **state)
{
	static const uint64_t senseless[] = { 0,
					      4096,
					      STORE_EXTENT_BYTES - 16384,
					      DISK_WIDE_EXTENT + 4096,
					      STORE_MAX_EXTENT_BYTES + 16384,
					      UINT64_MAX - 16383 };
	struct disk_store disk;
	char says[64];

	disk_store_open(&disk, 20, 1, 0, 8);
	disk_store_rewrite_all(&disk);
	disk_store_begin_commit(&disk);
	disk_store_end(&disk);
	for (size_t i = 0; i < ARRAY_LENGTH(senseless); i++) {
		set_places(disk.disks[0], senseless[i]);
		snprintf(says, sizeof(says), "says that it has places of %llu bytes",
			 (unsigned long long)senseless[i]);
		expect_refused(&disk, says);
	}
	set_places(disk.disks[0], DISK_WIDE_EXTENT);
	disk_store_open_again(&disk);
	disk_store_close(&disk);
}

/* Its extents would not have room in what the store has. */
static void a_layout_that_needs_larger_places_is_refused(void **state)
{
	for (uint64_t seed = 8; seed <= 9; seed++) {
		struct store_layout *wide;
		struct disk_store disk;
		uint64_t offset;

		disk_store_open(&disk, 20, 1, 0, seed);
		disk_store_rewrite_all(&disk);
		disk_store_begin_commit(&disk);
		disk_store_end(&disk);
		disk_store_open_again(&disk);
		assert_int_equal(store_layout_new(&wide), 0);
		store_layout_set_durable(wide);
		assert_int_equal(store_layout_add_stream(wide, "wide"), 0);
		assert_int_equal(store_layout_set_blocks(
					 wide, 0, disk.place_bytes / STORE_EXTENT_BLOCKS + STORE_PAGE_BYTES),
				 0);
		for (unsigned i = 0; i < disk.extents; i++)
			assert_int_equal(store_layout_add_section(wide, 0, 1, &offset), 0);
		assert_int_equal(store_adopt(disk.store, wide), -EINVAL);
		wide = store_layout_free(wide);
		disk_store_expect(&disk, disk.store, disk.content);
		disk_store_close(&disk);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_full_rewrite_beside_a_commit_waits_and_ends),
		cmocka_unit_test(what_is_held_back_is_in_no_commit_until_it_is_published),
		cmocka_unit_test(what_is_fixed_is_written_until_the_first_commit_begins),
		cmocka_unit_test(a_commit_of_many_leaves_has_nothing_of_the_next_step),
		cmocka_unit_test(a_commit_writes_the_nodes_of_what_changed_and_a_pair_of_superblocks),
		cmocka_unit_test_teardown(whatever_ends_a_session_the_last_step_is_whole, seeds_tell),
		cmocka_unit_test(places_of_a_size_that_cannot_be_are_refused),
		cmocka_unit_test(a_layout_that_needs_larger_places_is_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
