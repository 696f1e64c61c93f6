/* A job that is given its values before it is ready: what of them goes to the devices, and when. */
#include <string.h>
#include <unistd.h>

#include "daemon/model/job.h"
#include "daemon/residency/residency.h"
#include "daemon/telemetry/telemetry.h"
#include "tests/unit/test.h"
#include "tests/unit/values/values_test.h"

#define ELEMENTS (UINT64_C(1) << 19) /* of bf16: as many as the window holds */
#define UNITS 3

static struct actor actor;

/* Each unit is a pack of its own. */
static void begin(void)
{
	static const struct actor_tensor tensors[] = {
		{ NULL, FORMAT_BF16, INITIALIZE_NONE, ELEMENTS, true },
		{ NULL, FORMAT_BF16, INITIALIZE_NONE, ELEMENTS, true },
		{ NULL, FORMAT_BF16, INITIALIZE_ONES, 1, false },
	};

	assert_int_equal(scene_open(&(struct scene_options){ 0 }, &scene), 0);
	assert_int_equal(actor_enter(&scene, &actor), 0);
	assert_int_equal(actor_open(&actor, &(struct actor_job){ .stage = 3 }), 0);
	for (unsigned i = 0; i < UNITS; i++)
		assert_int_equal(define_unit(&actor, i, tensors, 3), 0);
}

static uint64_t written(void)
{
	return figures_of(play())->bytes[STATISTICS_WRITE_BACK][STATISTICS_WRITTEN];
}

static void fill(uint32_t unit, uint32_t tensor, uint64_t first, uint64_t count)
{
	memset(actor.window.base, (int)(16 * unit + tensor + 1), count * sizeof(uint16_t));
	assert_int_equal(actor_write(&actor, unit, tensor, first, count), 0);
}

static void a_unit_is_written_when_its_last_frozen_value_is_there(void **state)
{
	begin();
	fill(0, 0, 0, ELEMENTS);
	fill(0, 1, 1, ELEMENTS - 1);
	fill(1, 1, 0, ELEMENTS);
	assert_int_equal(written(), 0);
	fill(0, 1, 0, 1);
	assert_int_equal(written(), 2 * ELEMENTS * sizeof(uint16_t));
	scene_close(&scene);
}

/* What is read comes from the device. */
static uint16_t read_back(uint32_t unit, uint32_t tensor, uint64_t at)
{
	struct job *job = play();
	uint16_t value;

	scene_settle(&scene);
	for (uint32_t pack = 0; pack < job->catalog.pack_count; pack++)
		residency_evict(job, pack);
	assert_int_equal(residency_state(job, job->catalog.units[unit].pack), DIRECTORY_ABSENT);
	assert_int_equal(actor_read(&actor, unit, tensor, "parameter", at, 1, 0), 0);
	memcpy(&value, actor.window.base, sizeof(value));
	return value;
}

static void values_may_be_given_again_while_they_are_written(void **state)
{
	begin();
	for (unsigned again = 0; again < 2; again++)
		for (uint32_t unit = 0; unit < UNITS; unit++)
			for (uint32_t tensor = 0; tensor < 2; tensor++)
				fill(unit, tensor, 0, ELEMENTS);
	memset(actor.window.base, 77, sizeof(uint16_t));
	assert_int_equal(actor_write(&actor, 1, 1, 5, 1), 0);
	assert_int_equal(actor_ready(&actor), 0);
	assert_int_equal(read_back(1, 1, 4), 0x1212);
	assert_int_equal(read_back(1, 1, 5), 77 * 0x101);
	assert_int_equal(read_back(0, 0, ELEMENTS - 1), 0x0101);
	assert_int_equal(read_back(2, 1, 0), 0x2222);
	scene_close(&scene);
}

static void values_are_written_before_they_are_evicted(void **state)
{
	begin();
	fill(0, 0, 0, ELEMENTS);
	assert_int_equal(written(), 0);
	assert_false(residency_evict(play(), 0));
	scene_settle(&scene);
	assert_true(residency_evict(play(), 0));
	fill(0, 1, 0, ELEMENTS);
	for (uint32_t unit = 1; unit < UNITS; unit++)
		for (uint32_t tensor = 0; tensor < 2; tensor++)
			fill(unit, tensor, 0, ELEMENTS);
	assert_int_equal(actor_ready(&actor), 0);
	assert_int_equal(read_back(0, 0, 5), 0x0101);
	scene_close(&scene);
}

/* ---- Frozen alone ---- */

#define FROZEN_UNITS 6

/* A gap is left behind each tensor, in every unit elsewhere. */
static uint64_t frozen_elements(uint32_t unit, uint32_t tensor)
{
	return ELEMENTS - 1 - (tensor == 0 ? 128 * unit : 0);
}

/* More packs than slots. */
static struct job *begin_frozen(void)
{
	assert_int_equal(scene_open(&(struct scene_options){ 0 }, &scene), 0);
	assert_int_equal(actor_enter(&scene, &actor), 0);
	assert_int_equal(actor_open(&actor, &(struct actor_job){ .stage = 3, .host_budget = 8 * MIB }), 0);
	for (unsigned i = 0; i < FROZEN_UNITS; i++) {
		struct actor_tensor tensors[2];

		for (unsigned k = 0; k < 2; k++)
			tensors[k] = (struct actor_tensor){ NULL, FORMAT_BF16, INITIALIZE_NONE,
							    frozen_elements(i, k), true };
		assert_int_equal(define_unit(&actor, i, tensors, 2), 0);
	}
	return play();
}

static void fill_frozen(void)
{
	for (uint32_t unit = 0; unit < FROZEN_UNITS; unit++)
		for (uint32_t tensor = 0; tensor < 2; tensor++)
			fill(unit, tensor, 0, frozen_elements(unit, tensor));
}

static void what_has_no_values_yet_is_not_loaded(void **state)
{
	struct job *job = begin_frozen();

	fill_frozen();
	assert_true(residency_slots(job)->count < FROZEN_UNITS);
	assert_int_equal(figures_of(job)->bytes[STATISTICS_DEMAND][STATISTICS_READ], 0);
	/* What was written, and had to give its slot up, has to come back, though, before it is changed. */
	fill(0, 0, 7, 1);
	assert_true(figures_of(job)->bytes[STATISTICS_DEMAND][STATISTICS_READ] > 0);
	assert_int_equal(actor_ready(&actor), 0);
	assert_int_equal(read_back(0, 0, 6), 0x0101);
	assert_int_equal(read_back(0, 1, frozen_elements(0, 1) - 1), 0x0202);
	scene_close(&scene);
}

static uint16_t frozen_value(uint32_t unit, uint64_t at)
{
	uint64_t first = frozen_elements(unit, 0), second = first + 1;

	if (at < first)
		return (uint16_t)(0x101 * (16 * unit + 1));
	return at >= second && at < second + frozen_elements(unit, 1) ? (uint16_t)(0x101 * (16 * unit + 2))
								      : 0;
}

static void gaps_are_zero_whoever_had_the_slot(void **state)
{
	struct job *job = begin_frozen();

	fill_frozen();
	assert_int_equal(actor_ready(&actor), 0);
	for (uint32_t unit = 0; unit < FROZEN_UNITS; unit++) {
		const struct pack *pack = &job->catalog.packs[job->catalog.units[unit].pack];
		const uint16_t *values;

		assert_int_equal(actor_gather(&actor, unit, 0, (const void **)&values), 0);
		for (uint64_t i = 0; i < pack->slot_bytes / sizeof(uint16_t); i++)
			assert_int_equal(values[i], frozen_value(unit, i));
		actor_release(&actor, unit);
	}
	scene_close(&scene);
}

static void staging_buffers_are_for_what_is_trained(void **state)
{
	begin_frozen();
	fill_frozen();
	assert_int_equal(actor_ready(&actor), 0);
	assert_int_equal(scene.node->staging->users, 0);
	scene_close(&scene);
	begin();
	fill(0, 0, 0, 1);
	assert_int_equal(scene.node->staging->users, 1);
	actor_die(&actor);
	scene_settle(&scene);
	scene_await_disposals(&scene);
	assert_int_equal(scene.node->staging->users, 0);
	scene_close(&scene);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_unit_is_written_when_its_last_frozen_value_is_there),
		cmocka_unit_test(values_may_be_given_again_while_they_are_written),
		cmocka_unit_test(values_are_written_before_they_are_evicted),
		cmocka_unit_test(what_has_no_values_yet_is_not_loaded),
		cmocka_unit_test(gaps_are_zero_whoever_had_the_slot),
		cmocka_unit_test(staging_buffers_are_for_what_is_trained),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
