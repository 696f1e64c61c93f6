/* Snapshots on disks that lose power: taken, read, compared, deleted and rolled back to, at random. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "offload/store/lineage_backend.h"
#include "tests/unit/seeds.h"
#include "tests/unit/test.h"
#include "tests/unit/toy_store.h"

#define MOST (HEAD_RECORDS - 1)

/* What has been asked for, and may be done or not when a session is interrupted. */
enum wish { NOTHING, COMMIT, TAKE, DELETE, ROLL_BACK };

struct run {
	struct toy toy;
	struct toy_kept kept[MOST];
	unsigned count, taken;
	enum wish wish;
	struct toy_kept wished;
	uint64_t promised;
	uint64_t committed[TOY_MAX_EXTENTS];
	uint64_t end; /* operations of the disks after which the session is interrupted */
};

/* ---- What there should be ---- */

static void keep(struct run *run, const struct toy_kept *kept)
{
	run->kept[run->count++] = *kept;
}

static void forget(struct run *run, const char *name)
{
	unsigned index = 0;

	while (strcmp(run->kept[index].name, name) != 0)
		index++;
	memmove(&run->kept[index], &run->kept[index + 1], (run->count - index - 1) * sizeof(run->kept[0]));
	run->count--;
}

static void note_commit(struct run *run)
{
	run->promised = run->toy.head.step;
	memcpy(run->committed, run->toy.history[run->promised], sizeof(run->committed));
}

static void note_roll_back(struct run *run)
{
	run->promised = run->wished.step;
	memcpy(run->committed, run->wished.content, sizeof(run->committed));
	memcpy(run->toy.history[run->promised], run->committed, sizeof(run->committed));
}

static void fulfil(struct run *run)
{
	if (run->wish == COMMIT)
		note_commit(run);
	else if (run->wish == TAKE)
		keep(run, &run->wished);
	else if (run->wish == DELETE)
		forget(run, run->wished.name);
	else if (run->wish == ROLL_BACK)
		note_roll_back(run);
	run->wish = NOTHING;
}

static bool is_listed(const struct run *run, const char *name)
{
	struct head_record records[HEAD_RECORDS];
	unsigned count = lineage_snapshots(&run->toy.head, records);

	for (unsigned i = 0; i < count; i++)
		if (strcmp(records[i].name, name) == 0)
			return true;
	return false;
}

/* Those that were acknowledged, in their order, and no others. */
static void expect_list(struct run *run)
{
	struct head_record records[HEAD_RECORDS];

	assert_int_equal(lineage_snapshots(&run->toy.head, records), run->count);
	for (unsigned i = 0; i < run->count; i++) {
		assert_string_equal(records[i].name, run->kept[i].name);
		assert_int_equal(records[i].step, run->kept[i].step);
	}
}

static void expect_all(struct run *run)
{
	expect_list(run);
	for (unsigned i = 0; i < TOY_MAX_VIEWS; i++)
		if (run->toy.views[i].toy)
			toy_expect_view(&run->toy.views[i]);
	toy_expect_places(&run->toy);
}

/* ---- Operations ---- */

/* 1: it has ended well; 0: it was refused; else the session is over. */
static int finish(struct run *run, enum wish wish, int r)
{
	struct toy *toy = &run->toy;

	if (r < 0)
		return lineage_is_fenced(toy->lineage) ? r : 0;
	run->wish = wish;
	while (toy->done_count == 0) {
		if (toy_count(&run->toy) >= run->end)
			return -EINTR;
		assert_true(toy_turn(toy));
	}
	toy->done_count = 0;
	if (toy->status < 0)
		return toy->status;
	fulfil(run);
	sim_watch_promise(toy->watch, run->promised);
	return 1;
}

static int commit(struct run *run)
{
	int r = toy_take_step(&run->toy);

	if (r < 0)
		return r;
	return finish(run, COMMIT, toy_begin_commit(&run->toy));
}

/* Of the last commit, whatever has changed since. */
static int take(struct run *run)
{
	struct toy *toy = &run->toy;
	int r;

	run->wished = (struct toy_kept){ .step = run->promised };
	snprintf(run->wished.name, sizeof(run->wished.name), "kept-%u", ++run->taken);
	memcpy(run->wished.content, run->committed, sizeof(run->committed));
	r = lineage_snapshot(&toy->head, run->wished.name, &toy->request);
	if (r < 0 && !lineage_is_fenced(toy->lineage))
		assert_true(r == -ENODATA || r == -ENOSPC || r == -EMFILE);
	return finish(run, TAKE, r);
}

static bool choose_kept(struct run *run)
{
	if (run->count == 0)
		return false;
	run->wished = run->kept[toy_choose(&run->toy, run->count)];
	return true;
}

static uint64_t count_free(struct run *run)
{
	uint64_t count = 0;

	for (unsigned i = 0; i < run->toy.device_count; i++)
		count += lineage_places(run->toy.lineage, i)->free_count;
	return count;
}

/* What it is said to keep alone is what becomes free. */
static int drop(struct run *run)
{
	struct toy *toy = &run->toy;
	uint64_t own = 0, free_before = count_free(run);
	int r;

	if (!choose_kept(run))
		return 0;
	r = finish(run, NOTHING, lineage_measure_snapshot(&toy->head, run->wished.name, &own, &toy->request));
	if (r <= 0)
		return r;
	r = finish(run, DELETE, lineage_delete_snapshot(&toy->head, run->wished.name, &toy->request));
	if (r > 0)
		assert_int_equal(count_free(run) - free_before, own);
	return r;
}

struct comparison {
	struct lineage_difference difference;
	bool differs[TOY_MAX_EXTENTS];
};

static void tell(struct lineage_difference *difference, uint64_t extent, const struct node_extent *from,
		 const struct node_extent *to)
{
	struct comparison *comparison = container_of(difference, struct comparison, difference);

	assert_false(comparison->differs[extent]);
	comparison->differs[extent] = true;
}

/* With the last commit, or another one. */
static int compare(struct run *run)
{
	struct comparison comparison = { .difference = { .head = &run->toy.head, .tell = tell } };
	const uint64_t *to = run->committed;
	int r;

	if (!choose_kept(run))
		return 0;
	comparison.difference.from = run->wished.name;
	if (toy_choose(&run->toy, 2)) {
		const struct toy_kept *other = &run->kept[toy_choose(&run->toy, run->count)];

		comparison.difference.to = other->name;
		to = other->content;
	}
	r = finish(run, NOTHING, lineage_compare(&comparison.difference, &run->toy.request));
	for (unsigned i = 0; r > 0 && i < run->toy.extents; i++)
		assert_int_equal(comparison.differs[i], run->wished.content[i] != to[i]);
	return r;
}

/* Whoever has looked is not disturbed; then the session is over. */
static int roll_back(struct run *run)
{
	struct toy *toy = &run->toy;
	int r;

	if (!choose_kept(run))
		return 0;
	r = finish(run, ROLL_BACK, lineage_roll_back(&toy->head, run->wished.name, &toy->request));
	if (r > 0)
		assert_int_equal(toy_begin_commit(toy), -EROFS);
	return r == 0 ? 0 : -EINTR;
}

/* Without a record, and with the room of one. */
static void look_at_last(struct run *run, struct toy_view *view)
{
	struct toy_kept last = { .step = run->promised };
	int r;

	memcpy(last.content, run->committed, sizeof(last.content));
	r = toy_open_view(&run->toy, view, &last);
	assert_true(r == 0 || r == -ENODATA || r == -ENOSPC);
}

static int look(struct run *run)
{
	struct toy_view *view = &run->toy.views[toy_choose(&run->toy, TOY_MAX_VIEWS)];

	if (view->toy)
		toy_close_view(view);
	else if (toy_choose(&run->toy, 2) == 0)
		look_at_last(run, view);
	else if (choose_kept(run))
		assert_int_equal(toy_open_view(&run->toy, view, &run->wished), 0);
	return 0;
}

static int act(struct run *run)
{
	switch (toy_choose(&run->toy, 13)) {
	case 0:
	case 1:
	case 2:
		return take(run);
	case 3:
	case 4:
		return drop(run);
	case 5:
	case 6:
		return look(run);
	case 7:
		return compare(run);
	case 8:
		return toy_choose(&run->toy, 4) == 0 ? roll_back(run) : 0;
	default:
		return commit(run);
	}
}

/* ---- Sessions ---- */

static void run_until(struct run *run)
{
	run->end = toy_count(&run->toy) + toy_choose(&run->toy, 200);
	while (run->toy.head.step + 1 < TOY_STEPS && toy_count(&run->toy) < run->end) {
		if (act(run) < 0)
			return;
		expect_all(run);
	}
}

static void interrupt(struct run *run)
{
	struct toy *toy = &run->toy;

	toy_interrupt(toy);
	for (unsigned i = 0; i < TOY_MAX_VIEWS; i++)
		if (toy->views[i].toy)
			toy_close_view(&toy->views[i]);
	toy_end(toy);
}

/* Steps may come twice, once one was rolled back; and a step may change nothing. */
static bool is_root_of_job(const struct run *run, const char *name)
{
	const struct head_table *heads = &run->toy.lineage->heads;
	unsigned index = 1;

	while (strcmp(heads->records[index].name, name) != 0)
		index++;
	return heads->records[0].step == heads->records[index].step &&
	       memcmp(&heads->records[0].root, &heads->records[index].root, sizeof(struct node_pointer)) == 0;
}

/* Whether what was on its way has happened. */
static bool has_happened(const struct run *run)
{
	switch (run->wish) {
	case COMMIT:
		return run->toy.head.step != run->promised;
	case TAKE:
		return is_listed(run, run->wished.name);
	case DELETE:
		return !is_listed(run, run->wished.name);
	case ROLL_BACK:
		return is_root_of_job(run, run->wished.name);
	default:
		return false;
	}
}

static void open_again(struct run *run)
{
	struct toy *toy = &run->toy;
	struct toy_view *view = &toy->views[0];

	toy_begin(toy);
	if (toy_wait(toy, lineage_open(toy->lineage, &toy->request)) < 0)
		fail_msg("%s", lineage_message(toy->lineage));
	if (has_happened(run))
		fulfil(run);
	run->wish = NOTHING;
	assert_int_equal(toy->head.step, run->promised);
	sim_watch_promise(toy->watch, run->promised);
	memcpy(toy->history[run->promised], run->committed, sizeof(run->committed));
	toy_expect_step(toy);
	expect_all(run);
	for (unsigned i = 0; i < run->count; i++) {
		assert_int_equal(toy_open_view(toy, view, &run->kept[i]), 0);
		toy_close_view(view);
	}
	expect_all(run);
}

static void run_seed(uint64_t seed)
{
	static struct run run;
	/* Of one leaf, or of several. */
	unsigned extents = 1 + (unsigned)(seed * 37 % 130);

	memset(&run, 0, sizeof(run));
	toy_open_fixed(&run.toy, extents, toy_choose_fixed(extents, seed),
		       1 + (unsigned)(seed % TOY_MAX_DEVICES), seed);
	for (unsigned session = 0; session < 4; session++) {
		if (toy_choose(&run.toy, 4) == 0)
			sim_disk_fail_flush(run.toy.disks[toy_choose(&run.toy, run.toy.device_count)],
					    1 + toy_choose(&run.toy, 12));
		run_until(&run);
		interrupt(&run);
		open_again(&run);
	}
	toy_close(&run.toy);
}

static void whatever_ends_a_session_every_snapshot_is_whole(void **state)
{
	seeds_run(400, run_seed);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_teardown(whatever_ends_a_session_every_snapshot_is_whole, seeds_tell),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
