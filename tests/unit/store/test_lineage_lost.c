/* A snapshot whose map cannot be read keeps no store from opening, and none of its places is given out as
 * long as it is there: is its disk as it was again, so is the snapshot. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "offload/store/lineage_backend.h"
#include "tests/unit/test.h"
#include "tests/unit/toy_store.h"

#define EXTENTS 250

static void keep(struct toy *toy, struct toy_kept *kept, const char *name)
{
	toy_keep(toy, name);
	memset(kept, 0, sizeof(*kept));
	strcpy(kept->name, name);
	kept->step = toy->head.step;
	memcpy(kept->content, toy->history[kept->step], sizeof(kept->content));
}

static void change(struct toy *toy, unsigned first, unsigned end)
{
	uint64_t step = ++toy->head.step;

	memcpy(toy->history[step], toy->history[step - 1], sizeof(toy->history[step]));
	for (unsigned i = first; i < end; i++) {
		assert_int_equal(toy_update(toy, i, step << 16 | i | 1), 0);
		toy->history[step][i] = toy->map[i].content;
	}
	assert_int_equal(toy_commit(toy), 0);
}

static struct node_pointer root_of(const struct toy *toy, unsigned snapshot)
{
	return toy->lineage->heads.records[1 + snapshot].root;
}

/* The nodes below a root of level 1. */
static struct node_pointer leaf_of(struct toy *toy, const struct node_pointer *root, unsigned index)
{
	uint8_t bytes[NODE_BYTES];
	struct node_pointer leaf;

	sim_disk_read(toy_disk_of(toy, root, 0), toy_offset_of(root, 0), bytes, NODE_BYTES);
	node_get_pointer(bytes, index, &leaf);
	return leaf;
}

static void open_with(struct toy *toy, uint32_t lost)
{
	toy_reopen(toy);
	toy_expect_step(toy);
	assert_int_equal(lineage_lost(&toy->head), lost);
}

static void expect_whole(struct toy *toy, const struct toy_kept *kept)
{
	assert_int_equal(toy_open_view(toy, &toy->views[0], kept), 0);
	toy_close_view(&toy->views[0]);
}

/* ---- What is lost ---- */

struct writes {
	struct sim_observer observer;
	unsigned beyond; /* superblocks */
};

static void submitted(struct sim_observer *observer, struct sim_disk *disk, const struct tier_io *io)
{
	if (io->direction == TIER_WRITE && io->offset >= 1024 * 1024)
		container_of(observer, struct writes, observer)->beyond++;
}

static void expect_refused(struct toy *toy, int r)
{
	assert_int_equal(r, -EROFS);
	assert_non_null(strstr(lineage_message(toy->lineage), "snapshot first is there"));
}

static void expect_nothing_is_written(struct toy *toy)
{
	struct lineage_geometry geometry = lineage_geometry(toy->lineage);
	struct writes writes = { .observer = { .submitted = submitted } };
	struct node_pointer pointer;
	uint64_t extents = 42;

	for (unsigned i = 0; i < toy->device_count; i++)
		sim_disk_observe(toy->disks[i], &writes.observer);
	geometry.extents++;
	for (unsigned i = 0; i < toy->device_count; i++)
		assert_int_equal(places_take(lineage_places(toy->lineage, i)), PLACES_NONE);
	assert_int_equal(node_area_add(toy->lineage->nodes, &pointer), -ENOSPC);
	toy->head.step++;
	expect_refused(toy, toy_begin_commit(toy));
	toy->head.step--;
	expect_refused(toy, lineage_snapshot(&toy->head, "another", &toy->request));
	expect_refused(toy, lineage_delete_snapshot(&toy->head, "first", &toy->request));
	expect_refused(toy, lineage_delete_snapshot(&toy->head, "second", &toy->request));
	expect_refused(toy, lineage_roll_back(&toy->head, "second", &toy->request));
	expect_refused(toy, lineage_grow(&toy->head, &geometry, &toy->request));
	assert_int_equal(lineage_measure_snapshot(&toy->head, "first", &extents, &toy->request), -EBADMSG);
	assert_non_null(strstr(lineage_message(toy->lineage), "snapshot first cannot be read"));
	if (lineage_lost(&toy->head) == 1)
		assert_int_equal(lineage_delete_lost(&toy->head, "second", &toy->request), -EINVAL);
	assert_int_equal(lineage_delete_lost(&toy->head, "third", &toy->request), -ENOENT);
	assert_int_equal(writes.beyond, 0);
	for (unsigned i = 0; i < toy->device_count; i++)
		sim_disk_observe(toy->disks[i], NULL);
}

/* Two snapshots, each with leaves of its own, one that they share, and one that the job has, too. */
static void make(struct toy *toy, struct toy_kept kept[2], uint64_t seed)
{
	toy_open(toy, EXTENTS, 1 + seed % 2, seed);
	toy_make_steps(toy, 1);
	keep(toy, &kept[0], "first");
	change(toy, 0, 1);
	keep(toy, &kept[1], "second");
	change(toy, 0, 150);
}

/* Root, its own leaf, the shared one. */
static void a_snapshot_that_is_lost_is_back_with_its_disk(void **state)
{
	static struct toy toy;
	struct toy_kept kept[2];

	for (unsigned node = 0; node < 3; node++) {
		struct node_pointer pointer;

		make(&toy, kept, node);
		pointer = root_of(&toy, 0);
		if (node > 0)
			pointer = leaf_of(&toy, &pointer, node - 1);
		toy_flip_nodes(&toy, &pointer, 77);
		for (unsigned time = 0; time < 3; time++)
			open_with(&toy, node == 2 ? 3 : 1);
		if (node < 2)
			expect_whole(&toy, &kept[1]);
		expect_nothing_is_written(&toy);
		toy_flip_nodes(&toy, &pointer, 77);
		open_with(&toy, 0);
		toy_expect_places(&toy);
		expect_whole(&toy, &kept[0]);
		expect_whole(&toy, &kept[1]);
		change(&toy, 20, EXTENTS);
		toy_reopen(&toy);
		expect_whole(&toy, &kept[0]);
		toy_close(&toy);
	}
}

/* What both have is the other's alone then. */
static void what_another_snapshot_has_stays(void **state)
{
	static struct toy toy;
	struct toy_kept kept[2];
	struct node_pointer pointer;

	make(&toy, kept, 1);
	pointer = root_of(&toy, 0);
	pointer = leaf_of(&toy, &pointer, 0);
	toy_flip_nodes(&toy, &pointer, 77);
	open_with(&toy, 1);
	assert_int_equal(toy_wait(&toy, lineage_delete_lost(&toy.head, "first", &toy.request)), 0);
	assert_int_equal(toy_begin_commit(&toy), -EROFS);
	open_with(&toy, 0);
	toy_expect_places(&toy);
	for (unsigned i = 0; i < 6; i++) {
		change(&toy, 0, EXTENTS);
		expect_whole(&toy, &kept[1]);
	}
	toy_reopen(&toy);
	expect_whole(&toy, &kept[1]);
	toy_close(&toy);
}

/* The deletion of one writes over nothing that another one, which is lost, too, may have. */
static void the_deletion_of_one_costs_no_other(void **state)
{
	static struct toy toy;
	struct toy_kept kept[2];
	struct node_pointer first, second;

	make(&toy, kept, 0);
	first = root_of(&toy, 0);
	second = root_of(&toy, 1);
	toy_flip_nodes(&toy, &first, 77);
	toy_flip_nodes(&toy, &second, 78);
	sim_watch_allow_lost(toy.watch);
	open_with(&toy, 3);
	assert_int_equal(toy_wait(&toy, lineage_delete_lost(&toy.head, "first", &toy.request)), 0);
	open_with(&toy, 1);
	toy_flip_nodes(&toy, &second, 78);
	open_with(&toy, 0);
	toy_expect_places(&toy);
	expect_whole(&toy, &kept[1]);
	toy_flip_nodes(&toy, &second, 78);
	open_with(&toy, 1);
	assert_int_equal(toy_wait(&toy, lineage_delete_lost(&toy.head, "second", &toy.request)), 0);
	open_with(&toy, 0);
	toy_expect_places(&toy);
	change(&toy, 0, EXTENTS);
	open_with(&toy, 0);
	toy_close(&toy);
}

static void power_may_fail_while_one_is_deleted(void **state)
{
	static struct toy toy;
	struct toy_kept kept[2];

	for (uint64_t seed = 0; seed < 60; seed++) {
		struct node_pointer first, second;
		uint32_t lost;

		make(&toy, kept, seed);
		first = root_of(&toy, 0);
		second = root_of(&toy, 1);
		toy_flip_nodes(&toy, &first, 77);
		toy_flip_nodes(&toy, &second, 78);
		sim_watch_allow_lost(toy.watch);
		open_with(&toy, 3);
		assert_int_equal(lineage_delete_lost(&toy.head, "first", &toy.request), 0);
		toy_fail_power(&toy, (unsigned)seed / 2);
		lost = lineage_lost(&toy.head);
		assert_true(lost == 3 || lost == 1);
		toy_flip_nodes(&toy, &first, 77);
		toy_flip_nodes(&toy, &second, 78);
		open_with(&toy, 0);
		toy_expect_places(&toy);
		expect_whole(&toy, &kept[1]);
		if (lost == 3)
			expect_whole(&toy, &kept[0]);
		toy_close(&toy);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_snapshot_that_is_lost_is_back_with_its_disk),
		cmocka_unit_test(what_another_snapshot_has_stays),
		cmocka_unit_test(the_deletion_of_one_costs_no_other),
		cmocka_unit_test(power_may_fail_while_one_is_deleted),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
