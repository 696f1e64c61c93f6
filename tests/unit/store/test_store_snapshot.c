/* Snapshots of durable stores, while transfers go on. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/size.h"
#include "tests/unit/disk_store.h"
#include "tests/unit/io_support.h"
#include "tests/unit/seeds.h"
#include "tests/unit/test.h"

#define TOO_LONG "a name of sixty-four bytes, which is one more than there is room for"

static int look(struct disk_store *disk, const char *name, struct store **ret_view)
{
	return disk_store_wait(disk, store_open_snapshot(disk->store, name, &disk->request, ret_view));
}

static void expect_refused(struct disk_store *disk, int r, int expected, const char *why)
{
	assert_int_equal(r, expected);
	if (!strstr(store_message(disk->store), why))
		fail_msg("“%s” says nothing of “%s”", store_message(disk->store), why);
}

static void what_cannot_be_kept_is_refused_and_said(void **state)
{
	struct disk_store disk;
	struct store *view = NULL;
	uint64_t bytes = 42;

	disk_store_open(&disk, 20, 2, 1, 1);
	expect_refused(&disk, disk_store_take(&disk, "early"), -ENODATA, "nothing has been committed");
	disk_store_commit(&disk);
	expect_refused(&disk, disk_store_take(&disk, ""), -EINVAL, "1 to 63 bytes");
	expect_refused(&disk, disk_store_take(&disk, TOO_LONG), -EINVAL, "1 to 63 bytes");
	assert_int_equal(disk_store_take(&disk, "one"), 0);
	expect_refused(&disk, disk_store_take(&disk, "one"), -EEXIST, "there is a snapshot one already");
	expect_refused(&disk, disk_store_delete(&disk, "two"), -ENOENT, "there is no snapshot two");
	expect_refused(&disk, look(&disk, "two", &view), -ENOENT, "there is no snapshot two");
	assert_null(view);
	expect_refused(&disk, store_roll_back(disk.store, "two", &disk.request), -ENOENT, "no snapshot two");
	expect_refused(&disk, store_measure_snapshot(disk.store, "two", &disk.request, &bytes), -ENOENT,
		       "no snapshot two");
	expect_refused(&disk, store_diff(disk.store, "one", "two", &disk.request, &bytes), -ENOENT,
		       "no snapshot two");
	assert_int_equal(bytes, 42);
	disk_store_close(&disk);
}

static void a_store_has_fourteen_snapshots_at_most(void **state)
{
	struct store_snapshot snapshots[STORE_MAX_SNAPSHOTS];
	struct disk_store disk;
	char name[16];

	disk_store_open(&disk, 20, 1, 0, 2);
	disk_store_commit(&disk);
	for (unsigned i = 0; i < STORE_MAX_SNAPSHOTS; i++) {
		snprintf(name, sizeof(name), "kept-%u", i);
		assert_int_equal(disk_store_take(&disk, name), 0);
	}
	expect_refused(&disk, disk_store_take(&disk, "more"), -EMFILE, "there are 14 snapshots");
	assert_int_equal(disk_store_delete(&disk, "kept-3"), 0);
	assert_int_equal(disk_store_take(&disk, "more"), 0);
	assert_int_equal(store_snapshots(disk.store, snapshots), STORE_MAX_SNAPSHOTS);
	assert_string_equal(snapshots[3].name, "kept-4");
	assert_string_equal(snapshots[STORE_MAX_SNAPSHOTS - 1].name, "more");
	assert_int_equal(snapshots[0].step, 1);
	assert_true(snapshots[0].seconds > 0);
	disk_store_close(&disk);
}

/* What is all zeros costs nothing; one state fits the reserve, two do not. */
static void a_snapshot_beyond_the_reserve_is_refused_and_steps_go_on(void **state)
{
	struct disk_store disk;

	disk_store_open(&disk, DISK_FEW_EXTENTS, 1, 1, 3);
	disk_store_commit(&disk);
	assert_int_equal(disk_store_take(&disk, "zeros"), 0);
	disk_store_rewrite_all(&disk);
	disk_store_commit(&disk);
	assert_int_equal(disk_store_take(&disk, "first"), 0);
	assert_int_equal(disk_store_take(&disk, "again"), 0);
	disk_store_rewrite_all(&disk);
	disk_store_commit(&disk);
	expect_refused(&disk, disk_store_take(&disk, "second"), -ENOSPC, "would keep 520 MiB");
	expect_refused(&disk, disk_store_take(&disk, "second"), -ENOSPC, "has 260 MiB for snapshots");
	for (unsigned i = 0; i < 3; i++) {
		disk_store_rewrite_all(&disk);
		disk_store_commit(&disk);
	}
	assert_int_equal(disk_store_delete(&disk, "first"), 0);
	expect_refused(&disk, disk_store_take(&disk, "second"), -ENOSPC, "MiB for snapshots");
	assert_int_equal(disk_store_delete(&disk, "again"), 0);
	assert_int_equal(disk_store_take(&disk, "second"), 0);
	disk_store_end(&disk);
	assert_false(disk.is_dead);
	disk_store_open_again(&disk);
	disk_store_close(&disk);
}

/* Of each device; it has whole MiB. */
static void expect_growth(const struct disk_store *disk, unsigned from, unsigned to, uint64_t extents)
{
	uint64_t grown = store_space_for(disk->store, to).device_bytes -
			 store_space_for(disk->store, from).device_bytes;

	assert_in_range(grown, extents * disk->place_bytes - MIB + 1, extents * disk->place_bytes + MIB - 1);
	assert_int_equal(grown % MIB, 0);
}

/* Beside it a snapshot keeps what may change, and so much is reserved for one. */
static void what_is_fixed_is_there_once_with_all_snapshots(void **state)
{
	struct disk_store disk;

	disk_store_open_fixed(&disk, DISK_FEW_EXTENTS, 200, 1, 1, 12);
	disk_store_rewrite_all(&disk);
	disk_store_commit(&disk);
	assert_int_equal(store_reserved(disk.store), 1);
	expect_growth(&disk, 1, 2, 60);
	assert_int_equal(disk_store_take(&disk, "one"), 0);
	for (unsigned i = 0; i < 3; i++) {
		disk_store_rewrite_all(&disk);
		disk_store_commit(&disk);
	}
	expect_refused(&disk, disk_store_take(&disk, "two"), -ENOSPC, "would keep 121 MiB");
	expect_refused(&disk, disk_store_take(&disk, "two"), -ENOSPC, "has 60 MiB for snapshots");
	disk_store_end(&disk);
	disk_store_open_again(&disk);
	assert_int_equal(disk_store_wait(&disk, store_roll_back(disk.store, "one", &disk.request)), 0);
	disk.step = disk.acknowledged = 1;
	disk_store_end(&disk);
	disk_store_open_again(&disk);
	disk_store_expect_settled(&disk, 199);
	disk_store_rewrite_all(&disk);
	disk_store_commit(&disk);
	disk_store_close(&disk);
}

/* Of a tierd that reserved what is fixed as often as the rest: its places are there for more snapshots. */
static void a_store_that_has_more_places_is_opened(void **state)
{
	struct disk_store disk;
	char name[16];

	disk_store_open(&disk, DISK_FEW_EXTENTS, 1, 1, 13);
	disk_store_rewrite_all(&disk);
	disk_store_commit(&disk);
	disk_store_end(&disk);
	disk.fixed = DISK_FEW_EXTENTS / 2;
	disk_store_open_again(&disk);
	/* 3 · 260 + 8 is 130 + (2 + 3) · 130 + 8. */
	assert_int_equal(store_reserved(disk.store), 3);
	for (unsigned i = 0; i < 3; i++) {
		snprintf(name, sizeof(name), "kept-%u", i);
		assert_int_equal(disk_store_take(&disk, name), 0);
		disk_store_rewrite_all(&disk);
		disk_store_commit(&disk);
	}
	expect_refused(&disk, disk_store_take(&disk, "more"), -ENOSPC, "has 390 MiB for snapshots");
	disk_store_rewrite_all(&disk);
	disk_store_commit(&disk);
	disk_store_end(&disk);
	assert_false(disk.is_dead);
	disk_store_open_again(&disk);
	disk_store_close(&disk);
}

static uint64_t *copy_content(const struct disk_store *disk)
{
	uint64_t *copy = malloc(disk->extents * sizeof(*copy));

	assert_non_null(copy);
	return memcpy(copy, disk->content, disk->extents * sizeof(*copy));
}

static void a_view_shows_what_was_kept_until_it_is_freed(void **state)
{
	struct disk_store disk;
	struct store *view;
	uint64_t *kept;

	disk_store_open(&disk, DISK_FEW_EXTENTS, 2, 1, 5);
	disk_store_rewrite_all(&disk);
	disk_store_commit(&disk);
	kept = copy_content(&disk);
	/* Not what has changed since the commit. */
	disk_store_rewrite(&disk, 7);
	disk_store_drain(&disk);
	assert_int_equal(disk_store_take(&disk, "one"), 0);
	assert_int_equal(look(&disk, "one", &view), 0);
	assert_int_equal(store_step(view), 1);
	assert_int_equal(store_extents(view), DISK_FEW_EXTENTS);
	assert_true(store_host_bytes(view) > DISK_FEW_EXTENTS);
	disk_store_expect(&disk, view, kept);
	assert_int_equal(disk_store_delete(&disk, "one"), 0);
	for (unsigned i = 0; i < 3; i++) {
		disk_store_rewrite_all(&disk);
		disk_store_commit(&disk);
		disk_store_expect(&disk, view, kept);
	}
	/* What it shows has its place still. */
	expect_refused(&disk, disk_store_take(&disk, "two"), -ENOSPC, "MiB for snapshots");
	view = store_free(view);
	assert_int_equal(disk_store_take(&disk, "two"), 0);
	free(kept);
	disk_store_close(&disk);
}

/* It takes the room of a snapshot, in both orders, and nothing that a crash could leave behind. */
static void a_view_of_the_last_commit_is_a_snapshot_that_ends_with_it(void **state)
{
	struct store *view = NULL, *second = NULL;
	struct disk_store disk;
	uint64_t *kept;

	disk_store_open(&disk, DISK_FEW_EXTENTS, 2, 1, 8);
	expect_refused(&disk, look(&disk, NULL, &view), -ENODATA, "nothing has been committed");
	disk_store_rewrite_all(&disk);
	disk_store_commit(&disk);
	kept = copy_content(&disk);
	disk_store_rewrite(&disk, 7);
	disk_store_drain(&disk);
	assert_int_equal(look(&disk, NULL, &view), 0);
	assert_int_equal(store_step(view), 1);
	assert_int_equal(store_snapshots(disk.store, NULL), 0);
	/* What it keeps is kept once. */
	assert_int_equal(look(&disk, NULL, &second), 0);
	for (unsigned i = 0; i < 3; i++) {
		disk_store_rewrite_all(&disk);
		disk_store_commit(&disk);
		disk_store_expect(&disk, view, kept);
		disk_store_expect(&disk, second, kept);
	}
	expect_refused(&disk, disk_store_take(&disk, "one"), -ENOSPC, "MiB for snapshots");
	view = store_free(view);
	expect_refused(&disk, disk_store_take(&disk, "one"), -ENOSPC, "MiB for snapshots");
	second = store_free(second);
	assert_int_equal(disk_store_take(&disk, "one"), 0);
	disk_store_rewrite_all(&disk);
	disk_store_commit(&disk);
	expect_refused(&disk, look(&disk, NULL, &view), -ENOSPC, "MiB for snapshots");
	assert_null(view);
	/* A snapshot that is there takes no more by being read. */
	assert_int_equal(look(&disk, "one", &view), 0);
	store_free(view);
	free(kept);
	disk_store_close(&disk);
}

static void nothing_of_a_view_outlives_a_crash(void **state)
{
	struct disk_store disk;
	struct store *view;
	char name[16];

	disk_store_open(&disk, DISK_FEW_EXTENTS, 2, 1, 11);
	for (unsigned turn = 0; turn < 4; turn++) {
		disk_store_rewrite_all(&disk);
		disk_store_commit(&disk);
		assert_int_equal(look(&disk, NULL, &view), 0);
		disk_store_rewrite_all(&disk);
		disk_store_commit(&disk);
		disk_store_fail_all(&disk, turn % 2 ? sim_disk_fail_power : sim_disk_kill);
		store_free(view);
		disk_store_end(&disk);
		disk_store_open_again(&disk);
		assert_int_equal(store_snapshots(disk.store, NULL), 0);
		/* All of its room is there again. */
		snprintf(name, sizeof(name), "kept-%u", turn);
		assert_int_equal(disk_store_take(&disk, name), 0);
		assert_int_equal(disk_store_delete(&disk, name), 0);
	}
	disk_store_close(&disk);
}

static uint64_t moved(const struct disk_store *disk, enum tier_direction direction)
{
	uint64_t bytes = 0;

	for (unsigned i = 0; i < disk->device_count; i++)
		bytes += sim_disk_moved(disk->disks[i], direction);
	return bytes;
}

/* Two copies of the table, and two of the superblock on each device. */
static void a_snapshot_costs_a_table_and_superblocks_whatever_the_size(void **state)
{
	for (unsigned extents = 2; extents <= 4000; extents *= 10) {
		struct disk_store disk;
		uint64_t before;

		disk_store_open(&disk, extents, 3, 1, extents);
		disk_store_rewrite_all(&disk);
		disk_store_commit(&disk);
		before = moved(&disk, TIER_WRITE);
		assert_int_equal(disk_store_take(&disk, "one"), 0);
		assert_int_equal(moved(&disk, TIER_WRITE) - before, 2 * 4096 + 3 * 2 * 4096);
		disk_store_close(&disk);
	}
}

static uint64_t cost_of_opening(struct disk_store *disk)
{
	disk_store_end(disk);
	disk_store_open_again(disk);
	/* What was compared are the pages in use. */
	return moved(disk, TIER_READ) - (uint64_t)disk->extents * DISK_PAGE;
}

/* Two of them share all with the job, and then all but one of forty leaves. */
static void opening_reads_of_a_snapshot_what_is_in_no_other_map(void **state)
{
	struct disk_store disk;
	uint64_t without;

	disk_store_open(&disk, 4000, 2, 2, 9);
	disk_store_rewrite_all(&disk);
	disk_store_commit(&disk);
	without = cost_of_opening(&disk);
	assert_int_equal(disk_store_take(&disk, "one"), 0);
	assert_int_equal(disk_store_take(&disk, "two"), 0);
	assert_int_equal(cost_of_opening(&disk), without);
	disk_store_rewrite(&disk, 5);
	disk_store_drain(&disk);
	disk_store_commit(&disk);
	/* The leaf that both have, and the node above it. */
	assert_int_equal(cost_of_opening(&disk), without + 2 * 4096);
	disk_store_close(&disk);
}

static void nobody_done(struct store_transfer *transfer, int status)
{
	fail_msg("it was refused");
}

static void nothing_is_written_to_a_view(void **state)
{
	struct store_transfer transfer = { .direction = TIER_WRITE,
					   .length = DISK_PAGE,
					   .done = nobody_done };
	struct disk_store disk;
	struct store *view;

	disk_store_open(&disk, 20, 1, 1, 6);
	disk_store_commit(&disk);
	assert_int_equal(disk_store_take(&disk, "one"), 0);
	assert_int_equal(look(&disk, "one", &view), 0);
	transfer.buffer = disk.slots[0].page;
	assert_int_equal(store_submit(view, &transfer), -EROFS);
	assert_int_equal(store_commit(view, 2, &disk.request), -EOPNOTSUPP);
	assert_int_equal(store_snapshot(view, "two", &disk.request), -EOPNOTSUPP);
	assert_int_equal(store_snapshots(view, NULL), 0);
	store_free(view);
	disk_store_close(&disk);
}

static int reserve(struct disk_store *disk, unsigned snapshots)
{
	return disk_store_wait(disk, store_reserve(disk->store, snapshots, &disk->request));
}

/* Three states, each rewritten wholly: more than there was room for. */
static void fill_reserve(struct disk_store *disk)
{
	char name[16];

	for (unsigned i = 0; i < 3; i++) {
		disk_store_rewrite_all(disk);
		disk_store_commit(disk);
		snprintf(name, sizeof(name), "state-%u", i);
		assert_int_equal(disk_store_take(disk, name), 0);
	}
	disk_store_rewrite_all(disk);
	disk_store_commit(disk);
	expect_refused(disk, disk_store_take(disk, "more"), -ENOSPC, "MiB for snapshots");
}

static void a_reserve_grows_and_stays(void **state)
{
	struct disk_store disk;

	disk_store_open(&disk, 40, 2, 0, 10);
	assert_int_equal(reserve(&disk, 3), -ENODATA);
	disk_store_rewrite_all(&disk);
	disk_store_commit(&disk);
	expect_refused(&disk, disk_store_take(&disk, "early"), -ENOSPC, "has 0 MiB for snapshots");
	assert_int_equal(reserve(&disk, 0), -EINVAL);
	/* What was said of the request before is not its reason. */
	assert_string_equal(store_message(disk.store), "");
	assert_int_equal(reserve(&disk, STORE_MAX_SNAPSHOTS + 1), -EMFILE);
	/* A simulated disk grows to four times what it was: not to sixteen states from two. */
	assert_int_equal(reserve(&disk, STORE_MAX_SNAPSHOTS), -ENOSPC);
	assert_int_equal(store_reserved(disk.store), 0);
	assert_int_equal(reserve(&disk, 3), 0);
	assert_int_equal(store_reserved(disk.store), 3);
	assert_int_equal(reserve(&disk, 3), -EINVAL);
	fill_reserve(&disk);
	disk_store_end(&disk);
	disk_store_open_again(&disk);
	assert_int_equal(store_reserved(disk.store), 3);
	/* The disks have half of forty extents each. */
	expect_growth(&disk, 1, 3, 2 * 20);
	expect_refused(&disk, disk_store_take(&disk, "more"), -ENOSPC, "MiB for snapshots");
	assert_int_equal(disk_store_delete(&disk, "state-1"), 0);
	assert_int_equal(disk_store_take(&disk, "more"), 0);
	disk_store_close(&disk);
}

/* After each number of transfers, while a worker grows the files, too: the store opens, as large as it was or
 * larger, and can grow then. */
static void a_growth_that_is_interrupted_loses_nothing(void **state)
{
	unsigned smaller = 0;

	for (unsigned run = 0; run < 30; run++) {
		struct disk_store disk;

		disk_store_open(&disk, 40, 2, 0, 100 + run);
		disk_store_rewrite_all(&disk);
		disk_store_commit(&disk);
		assert_int_equal(store_reserve(disk.store, 3, &disk.request), 0);
		for (unsigned i = 0; i < run / 2 && disk.done_count == 0;)
			i += disk_store_turn(&disk);
		disk_store_fail_all(&disk, run % 2 ? sim_disk_fail_power : sim_disk_kill);
		while (disk.done_count == 0)
			disk_store_turn(&disk);
		disk_store_end(&disk);
		disk_store_open_again(&disk);
		int r = reserve(&disk, 3);

		assert_true(r == 0 || r == -EINVAL);
		smaller += r == 0;
		fill_reserve(&disk);
		disk_store_close(&disk);
	}
	assert_true(smaller > 0 && smaller < 30);
}

/* ---- At random, with transfers in flight ---- */

/* As a snapshot, or as a view of what was the last commit. */
struct kept {
	char name[16];
	struct store *view;
	uint64_t *content;
};

static void expect_kept(struct disk_store *disk, const struct kept *kept)
{
	struct store *view;

	assert_int_equal(look(disk, kept->name, &view), 0);
	disk_store_expect(disk, view, kept->content);
	store_free(view);
}

/* In the middle of whatever transfers are on their way. False: the reserve is used. */
static bool keep(struct disk_store *disk, struct kept *kept, unsigned number)
{
	int r;

	snprintf(kept->name, sizeof(kept->name), "kept-%u", number);
	r = number % 2 ? disk_store_take(disk, kept->name) : look(disk, NULL, &kept->view);
	if (r == -ENOSPC || r == -ENODATA)
		return false;
	assert_int_equal(r, 0);
	kept->content = malloc(disk->extents * sizeof(uint64_t));
	assert_non_null(kept->content);
	memcpy(kept->content, disk->history[disk->acknowledged], disk->extents * sizeof(uint64_t));
	return true;
}

static void forget(struct disk_store *disk, struct kept *kept)
{
	if (kept->view) {
		disk_store_expect(disk, kept->view, kept->content);
		kept->view = store_free(kept->view);
	} else {
		expect_kept(disk, kept);
		assert_int_equal(disk_store_delete(disk, kept->name), 0);
	}
	free(kept->content);
	kept->content = NULL;
}

/* Views end with their store, however that ends. */
static void close_view(struct kept *kept)
{
	if (!kept->view)
		return;
	kept->view = store_free(kept->view);
	free(kept->content);
	kept->content = NULL;
}

static void run_seed(uint64_t seed)
{
	unsigned extents = 20 + 2 * (unsigned)(seed * 31 % 120), fixed = seed / 2 % 2 ? extents * 3 / 4 : 0;
	struct kept kept[3] = { 0 };
	struct disk_store disk;

	disk_store_open_fixed(&disk, extents, fixed, 1 + (unsigned)(seed % DISK_MAX_DEVICES), 2, seed);
	for (unsigned i = 0; i < 1500 && disk.step + 1 < DISK_STEPS; i++) {
		struct kept *one = &kept[disk_store_choose(&disk, 3)];

		disk_store_act(&disk);
		if (disk.is_committing || disk_store_choose(&disk, 60) > 0)
			continue;
		if (one->content)
			forget(&disk, one);
		else
			(void)keep(&disk, one, i);
	}
	disk_store_await_commit(&disk);
	disk_store_fail_all(&disk, disk_store_choose(&disk, 2) ? sim_disk_fail_power : sim_disk_kill);
	for (unsigned i = 0; i < 3; i++)
		close_view(&kept[i]);
	disk_store_end(&disk);
	disk_store_open_again(&disk);
	for (unsigned i = 0; i < 3; i++)
		if (kept[i].content)
			forget(&disk, &kept[i]);
	disk_store_close(&disk);
}

static void snapshots_are_whole_whatever_is_on_its_way(void **state)
{
	seeds_run(40, run_seed);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_cannot_be_kept_is_refused_and_said),
		cmocka_unit_test(a_store_has_fourteen_snapshots_at_most),
		cmocka_unit_test(a_snapshot_beyond_the_reserve_is_refused_and_steps_go_on),
		cmocka_unit_test(what_is_fixed_is_there_once_with_all_snapshots),
		cmocka_unit_test(a_store_that_has_more_places_is_opened),
		cmocka_unit_test(a_view_shows_what_was_kept_until_it_is_freed),
		cmocka_unit_test(a_view_of_the_last_commit_is_a_snapshot_that_ends_with_it),
		cmocka_unit_test(nothing_of_a_view_outlives_a_crash),
		cmocka_unit_test(a_snapshot_costs_a_table_and_superblocks_whatever_the_size),
		cmocka_unit_test(opening_reads_of_a_snapshot_what_is_in_no_other_map),
		cmocka_unit_test(nothing_is_written_to_a_view),
		cmocka_unit_test(a_reserve_grows_and_stays),
		cmocka_unit_test(a_growth_that_is_interrupted_loses_nothing),
		cmocka_unit_test_teardown(snapshots_are_whole_whatever_is_on_its_way, seeds_tell),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
