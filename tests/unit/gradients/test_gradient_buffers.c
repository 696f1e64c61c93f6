/* How many gradient buffers a rank has, how large they are, and where they lie. */
#include <errno.h>
#include <math.h>
#include <string.h>
#include <unistd.h>

#include "daemon/model/gradient_buffers.h"
#include "daemon/model/job.h"
#include "tests/unit/scene_test.h"
#include "tests/unit/test.h"

/* Of units of so many MiB each, the first ones; the rest are of the last size. */
static struct gradient_buffers plan_in(uint64_t room, uint32_t wanted, unsigned units, const uint64_t *mib,
				       size_t sizes)
{
	static struct actor actor;
	struct gradient_buffers buffers;
	uint64_t elements[16];

	assert_true(units <= ARRAY_LENGTH(elements));
	assert_int_equal(actor_enter(&scene, &actor), 0);
	assert_int_equal(actor_open(&actor, &(struct actor_job){ .stage = 3 }), 0);
	for (unsigned i = 0; i < units; i++)
		elements[i] = mib[i < sizes ? i : sizes - 1] * MIB / 4;
	assert_int_equal(actor_define_sizes(&actor, FORMAT_FP32, elements, units), 0);
	buffers = gradient_buffers_plan(&scene_job("play")->catalog, wanted, room);
	actor_die(&actor);
	scene_settle(&scene);
	return buffers;
}

#define PLAN(wanted, units, ...) PLAN_IN(0, wanted, units, __VA_ARGS__)
#define PLAN_IN(room, wanted, units, ...)                                                                    \
	plan_in(room, wanted, units, (const uint64_t[]){ __VA_ARGS__ },                                      \
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

/* ---- A room ---- */

static void a_room_has_the_bytes_that_were_asked_for(void **state)
{
	struct gradient_buffers buffers = PLAN_IN(200 * MIB + 1, 7, 13, 150, 28);

	assert_int_equal(buffers.count, 7);
	assert_int_equal(buffers.room, 200 * MIB + 4096);
	assert_int_equal(gradient_buffers_bytes(&buffers), buffers.room);
	for (uint32_t i = 0; i < 8; i++)
		assert_int_equal(gradient_buffer_takes(&buffers, i, 150 * MIB), i < 7);
	assert_false(gradient_buffer_takes(&buffers, 0, buffers.room + 1));
	/* And never less than the largest unit. */
	buffers = PLAN_IN(1, 7, 13, 150, 28);
	assert_int_equal(buffers.room, 150 * MIB);
}

#define PAGE 1024 /* elements: 4 KiB */
#define ROOM (8 * 4096)

static struct actor first, second;

static void join(struct actor *actor, uint32_t rank)
{
	static const uint64_t elements[] = { 4 * PAGE, PAGE, PAGE, PAGE, PAGE, PAGE };
	const struct actor_job job = { .stage = 3, .rank = rank, .world_size = 2, .gradient_bytes = ROOM };

	assert_int_equal(actor_enter(&scene, actor), 0);
	assert_int_equal(actor_open(actor, &job), 0);
	assert_int_equal(actor_define_sizes(actor, FORMAT_FP32, elements, ARRAY_LENGTH(elements)), 0);
}

/* So that nothing is summed that the first one alone pushes. */
static void join_both(void)
{
	join(&first, 0);
	join(&second, 1);
	actor_ready_both(&first, &second);
	assert_int_equal(first.gradients.bytes, ROOM);
}

static uint32_t push_at(struct actor *actor, uint32_t unit, uint32_t buffer, uint64_t offset)
{
	/* As the library does. */
	if (buffer < actor->buffer_count)
		atomic_store(&lease_buffers((struct lease_header *)actor->leases.base)[buffer],
			     GRADIENT_BUFFER_PUSHED);
	return actor_send_push_at(actor, unit, buffer, offset);
}

static void expect_refusal(uint32_t unit, uint32_t buffer, uint64_t offset, const char *text)
{
	uint32_t push = push_at(&first, unit, buffer, offset);

	scene_settle(&scene);
	assert_non_null(actor_find(&first, push, 0));
	assert_int_equal(actor_find(&first, push, 0)->status, -EINVAL);
	assert_non_null(strstr(actor_message(&first), text));
}

static void gradients_lie_in_the_room_and_not_over_others(void **state)
{
	static const char outside[] = "cannot lie at byte",
			  over[] = "gradient buffer 5 lies, which is on its way";

	join_both();
	push_at(&first, 1, 5, 4096);
	expect_refusal(0, 1, ROOM - 3 * 4096, outside);
	expect_refusal(1, 1, ROOM, outside);
	expect_refusal(1, 1, UINT64_MAX - 255, outside);
	expect_refusal(1, 1, 128, outside);
	expect_refusal(2, 1, 4096, over);
	expect_refusal(2, 1, 8192 - 256, over);
	expect_refusal(2, 1, 256, over);
	expect_refusal(0, 1, 0, over);
	expect_refusal(2, 5, 8192, "gradient buffer 5 is on its way already");
	expect_refusal(2, 64, 8192, "there is no gradient buffer 64");
	push_at(&first, 2, 1, 0);
	push_at(&first, 0, 63, ROOM - 4 * 4096);
	scene_settle(&scene);
	assert_int_equal(scene_job("play")->members.ranks[0]->busy, 3);
}

static uint32_t wait_for(struct actor *actor, uint64_t offset, uint64_t bytes, uint32_t pushed)
{
	Tierd__Wire__Request request = TIERD__WIRE__REQUEST__INIT;
	Tierd__Wire__BufferWait wait = TIERD__WIRE__BUFFER_WAIT__INIT;

	wait.job = actor->job;
	wait.epoch = actor->epoch;
	wait.unit = 0;
	wait.pushed = pushed;
	wait.offset = offset;
	wait.bytes = bytes;
	request.body_case = TIERD__WIRE__REQUEST__BODY_BUFFER_WAIT;
	request.buffer_wait = &wait;
	return actor_send(actor, &request);
}

static unsigned free_buffers(const struct actor *actor, uint32_t count)
{
	unsigned mask = 0;

	for (uint32_t i = 0; i < count; i++)
		if (atomic_load(&lease_buffers((struct lease_header *)actor->leases.base)[i]) ==
		    GRADIENT_BUFFER_FREE)
			mask |= 1U << i;
	return mask;
}

/* What has some of them is put aside, one after the other, and nothing else. */
static void who_waits_for_bytes_gets_those(void **state)
{
	join_both();
	for (uint32_t i = 0; i < 5; i++)
		push_at(&first, 1 + i, i, i * 4096);
	scene_settle(&scene);
	assert_int_equal(free_buffers(&first, 5), 0);
	assert_int_equal(actor_await(&first, wait_for(&first, 8192 - 256, 512, 2), 0)->status, 0);
	assert_int_equal(free_buffers(&first, 5), 1 << 1);
	assert_int_equal(actor_await(&first, wait_for(&first, 8192 - 256, 512, 1), 0)->status, 0);
	assert_int_equal(free_buffers(&first, 5), 3 << 1);
	/* They are free, and so are those of which there are none. */
	assert_int_equal(actor_await(&first, wait_for(&first, 8192 - 256, 512, 1), 0)->status, 0);
	assert_int_equal(actor_await(&first, wait_for(&first, UINT64_MAX, UINT64_MAX, 1), 0)->status, 0);
	assert_int_equal(free_buffers(&first, 5), 3 << 1);
}

/* Whatever was put aside, and from where: each is summed once. */
static void what_was_pushed_from_there_is_summed(void **state)
{
	uint32_t steps[2];
	double norm;

	join_both();
	for (unsigned micro_batch = 0; micro_batch < 2; micro_batch++)
		for (uint32_t i = 1; i < 6; i++) {
			uint64_t offset = 4096 * ((i + 3 * micro_batch) % 8);

			if (micro_batch == 1)
				actor_await(&first, wait_for(&first, offset, 4096, 1), 0);
			for (unsigned j = 0; j < PAGE; j++)
				((float *)(first.gradients.base + offset))[j] = (float)(micro_batch + 1);
			push_at(&first, i, i + 5 * micro_batch, offset);
			scene_settle(&scene);
		}
	steps[0] = actor_send_step(&first, 0.1f);
	steps[1] = actor_send_step(&second, 0.1f);
	assert_int_equal(actor_await(&first, steps[0], 0)->status, 0);
	assert_int_equal(actor_await(&second, steps[1], 0)->status, 0);
	norm = actor_find(&first, steps[0], 0)->reply->step->gradient_norm;
	/* 1 and 2 of each element. */
	assert_true(fabs(norm - 3 * sqrt(5 * PAGE)) < 1e-6);
}

#define TEST(name) SCENE_TEST(name, scene_setup)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(units_that_are_alike_have_as_many_as_are_wanted),
		TEST(an_embedding_has_one_of_its_own),
		TEST(an_embedding_and_a_head_share_one),
		TEST(each_unit_has_one_that_takes_it),
		TEST(a_room_has_the_bytes_that_were_asked_for),
		TEST(gradients_lie_in_the_room_and_not_over_others),
		TEST(who_waits_for_bytes_gets_those),
		TEST(what_was_pushed_from_there_is_summed),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
