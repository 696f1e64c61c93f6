/* Where in a rank's room its gradients lie. */
#include "client/library/pages/gradient_room.h"
#include "common/cleanup.h"
#include "tests/unit/test.h"

#define MANY 64
#define ROUNDS 20000
#define ALIGN 256

struct scene {
	struct gradient_room room;
	struct gradient_span held[MANY];
	unsigned count;
	uint64_t seed;
};

static uint64_t choose(struct scene *scene, uint64_t count)
{
	scene->seed = scene->seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
	return (scene->seed >> 33) % count;
}

static struct scene begin(uint64_t bytes)
{
	struct scene scene = { .room.bytes = bytes };

	gradient_room_rewind(&scene.room);
	return scene;
}

static bool is_free(const struct scene *scene, struct gradient_span span)
{
	for (unsigned i = 0; i < scene->count; i++)
		if (gradient_spans_meet(scene->held[i], span))
			return false;
	return span.bytes <= scene->room.bytes && span.first <= scene->room.bytes - span.bytes;
}

/* If there is a place, one begins where the room does, or where something ends. */
static bool has_place(const struct scene *scene, uint64_t bytes)
{
	for (unsigned i = 0; i < scene->count; i++)
		if (is_free(scene,
			    (struct gradient_span){ scene->held[i].first + scene->held[i].bytes, bytes }))
			return true;
	return is_free(scene, (struct gradient_span){ 0, bytes });
}

static bool take(struct scene *scene, uint64_t bytes)
{
	struct gradient_span span = { 0, bytes };
	bool is_found = gradient_room_find(&scene->room, scene->held, scene->count, bytes, &span.first);

	assert_int_equal(is_found, has_place(scene, bytes));
	if (!is_found)
		return false;
	assert_true(is_free(scene, span));
	assert_int_equal(span.first % ALIGN, 0);
	gradient_room_take(&scene->room, span);
	scene->held[scene->count++] = span;
	return true;
}

static uint64_t give(struct scene *scene, unsigned which)
{
	uint64_t first = scene->held[which].first;

	scene->held[which] = scene->held[--scene->count];
	return first;
}

/* ---- The tests ---- */

static void what_has_a_place_gets_one_that_nobody_holds(void **state)
{
	for (uint64_t seed = 0; seed < 8; seed++) {
		struct scene scene = begin(ALIGN * 16 * (1 + seed * seed));

		scene.seed = seed;
		for (unsigned i = 0; i < ROUNDS; i++) {
			uint64_t most = scene.room.bytes >> choose(&scene, 7);

			if (scene.count == MANY || (scene.count > 0 && choose(&scene, 2) == 0))
				give(&scene, (unsigned)choose(&scene, scene.count));
			else if (most >= ALIGN)
				take(&scene, ALIGN * (1 + choose(&scene, most / ALIGN)));
			if (choose(&scene, 100) == 0)
				gradient_room_rewind(&scene.room);
		}
	}
}

/* Norms are held from the begin of a backward pass to its end, the layers and then an embedding come between;
 * and so in each micro-batch. */
static void what_is_small_and_held_for_long_leaves_a_large_one_its_room(void **state)
{
	struct scene scene = begin(ALIGN * 16 * 120);

	for (unsigned micro_batch = 0; micro_batch < 10; micro_batch++) {
		assert_true(take(&scene, ALIGN * 16 * 2));
		for (unsigned layer = 0; layer < 12; layer++) {
			assert_true(take(&scene, ALIGN * 16 * 14));
			give(&scene, 1);
		}
		assert_true(take(&scene, ALIGN * 16 * 77));
		give(&scene, 1);
		give(&scene, 0);
	}
}

/* So what was pushed has time to be summed before its bytes are wanted. */
static void one_after_the_other_they_lie_side_by_side(void **state)
{
	struct scene scene = begin(ALIGN * 16 * 4);
	uint64_t places[12];

	for (unsigned i = 0; i < ARRAY_LENGTH(places); i++) {
		assert_true(take(&scene, ALIGN * 16));
		places[i] = give(&scene, 0);
	}
	for (unsigned i = 0; i + 4 < ARRAY_LENGTH(places); i++)
		for (unsigned after = 1; after < 3; after++)
			assert_int_not_equal(places[i], places[i + after]);
}

static void a_step_begins_where_the_one_before_it_did(void **state)
{
	struct scene scene = begin(ALIGN * 16 * 4);
	uint64_t places[2][3];

	for (unsigned step = 0; step < 2; step++) {
		for (unsigned i = 0; i < 3; i++) {
			assert_true(take(&scene, ALIGN * (i == 1 ? 1 : 20)));
			places[step][i] = give(&scene, 0);
		}
		gradient_room_rewind(&scene.room);
	}
	assert_memory_equal(places[0], places[1], sizeof(places[0]));
}

static void spans_that_touch_do_not_meet(void **state)
{
	const struct gradient_span span = { 100, 10 }, all = { 0, UINT64_MAX };

	for (uint64_t first = 0; first < 200; first++)
		for (uint64_t bytes = 1; bytes < 20; bytes++) {
			struct gradient_span other = { first, bytes };

			assert_int_equal(gradient_spans_meet(span, other),
					 first < 110 && first + bytes > 100);
			assert_int_equal(gradient_spans_meet(other, span),
					 first < 110 && first + bytes > 100);
		}
	assert_true(gradient_spans_meet(span, all));
	assert_false(gradient_spans_meet(span, (struct gradient_span){ UINT64_MAX, UINT64_MAX }));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_has_a_place_gets_one_that_nobody_holds),
		cmocka_unit_test(what_is_small_and_held_for_long_leaves_a_large_one_its_room),
		cmocka_unit_test(one_after_the_other_they_lie_side_by_side),
		cmocka_unit_test(a_step_begins_where_the_one_before_it_did),
		cmocka_unit_test(spans_that_touch_do_not_meet),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
