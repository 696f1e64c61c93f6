/* Random operations on a lineage and on a plain model in memory: both have the same values at any time. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "common/little_endian.h"
#include "tests/unit/seeds.h"
#include "tests/unit/toy_store.h"

#define OPERATIONS 60

/* What a store is, without disks: values, and those of the last commit. */
struct model {
	uint64_t now[TOY_MAX_EXTENTS], committed[TOY_MAX_EXTENTS];
	uint64_t step, committed_step;
	uint64_t last; /* value that was given */
};

static void expect_same(struct toy *toy, const struct model *model)
{
	assert_int_equal(toy->head.step, model->step);
	for (unsigned i = 0; i < toy->extents; i++) {
		const struct toy_extent *extent = &toy->map[i];
		uint8_t page[TOY_PAGE] = { 0 };

		if (extent->place != UINT32_MAX)
			sim_disk_read(toy->disks[i % toy->device_count], toy_offset(toy, extent->place), page,
				      TOY_PAGE);
		for (unsigned at = 0; at < TOY_PAGE; at += 8)
			assert_int_equal(get64(page + at), model->now[i]);
	}
	toy_expect_places(toy);
}

static void update(struct toy *toy, struct model *model)
{
	unsigned first = toy_first(toy), most = toy->extents - first, count = 1 + toy_choose(toy, most);

	while (count-- > 0) {
		unsigned extent = first + toy_choose(toy, most);

		model->now[extent] = ++model->last;
		assert_int_equal(toy_update(toy, extent, model->last), 0);
	}
}

static void commit(struct toy *toy, struct model *model)
{
	toy->head.step = ++model->step;
	assert_int_equal(toy_commit(toy), 0);
	model->committed_step = model->step;
	memcpy(model->committed, model->now, sizeof(model->now));
}

/* What was not committed is gone, however the session ends. */
static void open_again(struct toy *toy, struct model *model, void (*end)(struct sim_disk *disk))
{
	for (unsigned i = 0; end && i < toy->device_count; i++)
		end(toy->disks[i]);
	toy_reopen(toy);
	model->step = model->committed_step;
	memcpy(model->now, model->committed, sizeof(model->now));
}

/* It fails at either of its flushes, and the one who opens is told what became of it. */
static void fail_commit(struct toy *toy, struct model *model)
{
	sim_disk_fail_flush(toy->disks[toy_choose(toy, toy->device_count)], 1 + toy_choose(toy, 2));
	toy->head.step = ++model->step;
	assert_int_equal(toy_commit(toy), -EIO);
	for (unsigned i = 0; i < toy->device_count; i++)
		sim_disk_fail_power(toy->disks[i]);
	toy_reopen(toy);
	assert_true(toy->head.step == model->step || toy->head.step == model->committed_step);
	if (toy->head.step == model->committed_step)
		memcpy(model->now, model->committed, sizeof(model->now));
	model->step = model->committed_step = toy->head.step;
	memcpy(model->committed, model->now, sizeof(model->now));
}

static void operate(struct toy *toy, struct model *model)
{
	switch (toy_choose(toy, 10)) {
	case 0:
		open_again(toy, model, NULL);
		break;
	case 1:
		open_again(toy, model, sim_disk_kill);
		break;
	case 2:
		open_again(toy, model, sim_disk_fail_power);
		break;
	case 3:
		fail_commit(toy, model);
		break;
	case 4:
	case 5:
	case 6:
		commit(toy, model);
		break;
	default:
		update(toy, model);
	}
}

static void run_seed(uint64_t seed)
{
	static struct toy toy;
	static struct model model;
	/* Of one leaf, or of several. */
	unsigned extents = 1 + (unsigned)(seed * 37 % TOY_MAX_EXTENTS);

	toy_open_fixed(&toy, extents, toy_choose_fixed(extents, seed), 1 + (unsigned)(seed % TOY_MAX_DEVICES),
		       seed);
	model = (struct model){ 0 };
	for (unsigned i = 0; i < OPERATIONS; i++) {
		operate(&toy, &model);
		expect_same(&toy, &model);
	}
	toy_close(&toy);
}

static void a_lineage_has_what_a_plain_model_has(void **state)
{
	seeds_run(60, run_seed);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_teardown(a_lineage_has_what_a_plain_model_has, seeds_tell),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
