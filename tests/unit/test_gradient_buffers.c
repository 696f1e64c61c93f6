/* How many gradient buffers a rank has, and how large they are. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "daemon/gradient_buffers.h"
#include "daemon/job.h"
#include "tests/unit/scene_test.h"

/* Of units of so many MiB each, the first ones; the rest are of the last size. */
static struct gradient_buffers plan(uint32_t wanted, unsigned units, const uint64_t *mib, size_t sizes)
{
	static struct actor actor;
	struct gradient_buffers buffers;

	assert_int_equal(actor_enter(&scene, &actor), 0);
	assert_int_equal(actor_open(&actor, &(struct actor_job){ .stage = 3 }), 0);
	for (unsigned i = 0; i < units; i++) {
		char name[16];
		const struct actor_tensor tensor = { name, FORMAT_FP32, INITIALIZE_ONES,
						     mib[i < sizes ? i : sizes - 1] * MIB / 4, false };

		snprintf(name, sizeof(name), "u%u", i);
		assert_int_equal(actor_define(&actor, name, &tensor, 1), 0);
	}
	buffers = gradient_buffers_plan(&job_find(scene.node, geteuid(), "play")->catalog, wanted);
	actor_die(&actor);
	scene_settle(&scene);
	return buffers;
}

#define PLAN(wanted, units, ...)                                                                             \
	plan(wanted, units, (const uint64_t[]){ __VA_ARGS__ },                                               \
	     sizeof((const uint64_t[]){ __VA_ARGS__ }) / sizeof(uint64_t))

static void expect(struct gradient_buffers buffers, uint32_t count, uint64_t mib, uint64_t last_mib)
{
	assert_int_equal(buffers.count, count);
	assert_int_equal(buffers.bytes, mib * MIB);
	assert_int_equal(buffers.last_bytes, last_mib * MIB);
	assert_int_equal(gradient_buffers_bytes(&buffers), ((count - 1) * mib + last_mib) * MIB);
}

static void units_that_are_alike_have_as_many_as_are_wanted(void **state)
{
	expect(PLAN(2, 12, 28), 2, 28, 28);
	expect(PLAN(3, 12, 28, 27, 28), 3, 28, 28);
	expect(PLAN(1, 12, 28), 1, 28, 28);
	expect(PLAN(2, 1, 28), 2, 28, 28);
	/* A small one among them changes nothing. */
	expect(PLAN(2, 13, 1, 28), 2, 28, 28);
}

static void an_embedding_has_one_of_its_own(void **state)
{
	expect(PLAN(2, 13, 150, 28), 3, 28, 150);
	expect(PLAN(2, 13, 28, 28, 150, 28), 3, 28, 150);
	expect(PLAN(4, 13, 150, 28), 5, 28, 150);
	expect(PLAN(2, 2, 150, 28), 3, 28, 150);
	/* Where one is all that is wanted it takes less with others. */
	expect(PLAN(1, 13, 150, 28), 1, 150, 150);
}

static void an_embedding_and_a_head_share_one(void **state)
{
	expect(PLAN(2, 14, 150, 149, 28), 3, 28, 150);
	expect(PLAN(2, 14, 149, 150, 28), 3, 28, 150);
	expect(PLAN(2, 14, 150, 150, 28), 3, 28, 150);
	/* Three are no exception, and of few units two are not. */
	expect(PLAN(2, 15, 150, 150, 150, 28), 2, 150, 150);
	expect(PLAN(2, 4, 150, 150, 28), 2, 150, 150);
}

static void each_unit_has_one_that_takes_it(void **state)
{
	struct gradient_buffers buffers = { 3, 28, 150 };

	for (uint32_t i = 0; i < 5; i++) {
		assert_int_equal(gradient_buffer_takes(&buffers, i, 28), i < 2);
		assert_int_equal(gradient_buffer_takes(&buffers, i, 29), i == 2);
		assert_int_equal(gradient_buffer_takes(&buffers, i, 150), i == 2);
		assert_false(gradient_buffer_takes(&buffers, i, 151));
	}
	assert_false(gradient_buffer_takes(&buffers, UINT32_MAX, 1));
	assert_false(gradient_buffer_takes(&buffers, UINT32_MAX, 29));
	assert_int_equal(gradient_buffer_offset(&buffers, 2), 56);
	buffers = (struct gradient_buffers){ 2, 28, 28 };
	for (uint32_t i = 0; i < 4; i++)
		assert_int_equal(gradient_buffer_takes(&buffers, i, 28), i < 2);
}

#define TEST(name) SCENE_TEST(name, scene_setup)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(units_that_are_alike_have_as_many_as_are_wanted),
		TEST(an_embedding_has_one_of_its_own),
		TEST(an_embedding_and_a_head_share_one),
		TEST(each_unit_has_one_that_takes_it),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
