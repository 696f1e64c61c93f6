/* Packs that wait for slots get them as soon as there are some; those that somebody waits for are updated
 * first; those that a client may read stay. */
#include <string.h>

#include "common/cleanup.h"
#include "daemon/residency/own.h"
#include "daemon/update/own.h"
#include "daemon/update/sweep.h"
#include "tests/unit/scene_test.h"
#include "tests/unit/test.h"

static struct actor actor;

static void slots_that_become_free_together_are_filled_together(void **state)
{
	struct job *job = actor_play(&scene, &actor);
	uint32_t gathers[PLAY_UNITS], slots = residency_slots(job)->count, loading = 0;

	assert_true(slots >= 2 && 2 * slots <= PLAY_UNITS);
	for (uint32_t unit = 0; unit < slots; unit++)
		assert_int_equal(actor_gather(&actor, unit, 0, NULL), 0);
	for (uint32_t unit = slots; unit < 2 * slots; unit++)
		gathers[unit] = actor_send_gather(&actor, unit, 0, false);
	for (uint32_t unit = 0; unit < slots; unit++)
		actor_release(&actor, unit);
	residency_serve(job);
	for (uint32_t pack = 0; pack < PLAY_UNITS; pack++)
		loading += residency_state(job, pack) == DIRECTORY_LOADING;
	assert_int_equal(loading, slots);
	for (uint32_t unit = slots; unit < 2 * slots; unit++)
		assert_int_equal(actor_await(&actor, gathers[unit], 0)->status, 0);
}

static void on_granted(struct staging_wish *wish, struct staging_buffer *buffer)
{
	fail_msg("a buffer was taken that nobody had given back");
}

/* All of them, so that a sweep stands where it is. */
static unsigned take_staging(struct staging *staging, struct staging_buffer **buffers)
{
	struct staging_wish wish = { .granted = on_granted };
	unsigned count = staging->count;

	queue_init(&wish.link);
	for (unsigned i = 0; i < count; i++) {
		buffers[i] = staging_take(staging, &wish);
		assert_non_null(buffers[i]);
	}
	return count;
}

static void packs_that_somebody_waits_for_are_updated_first(void **state)
{
	struct job *job = actor_play(&scene, &actor);
	struct staging_buffer *buffers[64];
	uint32_t gathers[2], step;

	for (uint32_t unit = 0; unit < PLAY_UNITS; unit++)
		assert_int_equal(actor_await(&actor, actor_send_push(&actor, unit, 0), 0)->status, 0);
	assert_true(job->node->staging->count <= ARRAY_LENGTH(buffers));
	unsigned count = take_staging(job->node->staging, buffers);

	step = actor_send_step(&actor, 0.1f);
	/* Before the step is decided, and while it is applied; in their order they would be the last. */
	gathers[0] = actor_send_gather(&actor, PLAY_UNITS - 1, 1, false);
	while (!job->update->sweep || job->update->sweep->pack == SLOT_NONE)
		scene_wait(&scene);
	assert_int_equal(job->update->sweep->pack, PLAY_UNITS - 1);
	assert_true(residency_is_due(job, PLAY_UNITS - 2));
	gathers[1] = actor_send_gather(&actor, PLAY_UNITS - 2, 1, false);
	while (queue_is_empty(&job->update->sweep->wanted))
		scene_wait(&scene);
	staging_give(job->node->staging, buffers[0]);
	while (job->update->sweep->pack == PLAY_UNITS - 1 || job->update->sweep->pack == SLOT_NONE)
		scene_wait(&scene);
	assert_int_equal(job->update->sweep->pack, PLAY_UNITS - 2);
	for (unsigned i = 1; i < count; i++)
		staging_give(job->node->staging, buffers[i]);
	for (unsigned i = 0; i < ARRAY_LENGTH(gathers); i++)
		assert_int_equal(actor_await(&actor, gathers[i], 0)->status, 0);
	assert_int_equal(actor_await(&actor, step, 0)->status, 0);
}

static void gather_and_release(uint32_t unit)
{
	assert_int_equal(actor_gather(&actor, unit, 0, NULL), 0);
	actor_release(&actor, unit);
}

/* All slots have a pack, the first ones, in this order. */
static struct job *play_with_full_slots(void)
{
	struct job *job = actor_play(&scene, &actor);

	for (uint32_t unit = 0; unit < residency_slots(job)->count; unit++)
		gather_and_release(unit);
	scene_settle(&scene);
	for (uint32_t pack = 0; pack < residency_slots(job)->count; pack++)
		assert_int_equal(residency_state(job, pack), DIRECTORY_RESIDENT);
	job->residency->has_next_uses = true;
	return job;
}

static uint32_t gone(const struct job *job)
{
	uint32_t pack = 0;

	while (pack < residency_slots(job)->count && residency_state(job, pack) == DIRECTORY_RESIDENT)
		pack++;
	return pack;
}

static void expect_to_go(struct job *job, uint32_t pack)
{
	assert_true(residency_take_slot(job, PLAY_UNITS - 1, 0));
	assert_int_equal(gone(job), pack);
	give_slot(job, PLAY_UNITS - 1);
	gather_and_release(pack);
	assert_int_equal(gone(job), residency_slots(job)->count);
}

static void who_is_used_last_has_to_go(void **state)
{
	struct job *job = play_with_full_slots();

	assert_true(residency_slots(job)->count > 2);
	for (uint32_t pack = 0; pack < PLAY_UNITS; pack++)
		job->residency->next_use[pack] = 10 + pack;
	job->residency->next_use[1] = 100;
	/* Not for one that is used later still, or at the same time. */
	assert_false(residency_take_slot(job, PLAY_UNITS - 1, 100));
	assert_int_equal(gone(job), residency_slots(job)->count);
	expect_to_go(job, 1);
	/* Of several, the one that was used first. */
	job->residency->has_next_uses = true;
	for (uint32_t pack = 0; pack < PLAY_UNITS; pack++)
		job->residency->next_use[pack] = 10;
	gather_and_release(0);
	expect_to_go(job, 2);
}

static void what_the_daemon_reads_stays(void **state)
{
	struct job *job = actor_play(&scene, &actor);
	bool is_evicted;

	gather_and_release(0);
	residency_pin(job, 0);
	is_evicted = residency_evict(job, 0);
	residency_unpin(job, 0);
	assert_false(is_evicted);
	assert_true(residency_evict(job, 0));
}

static void a_gather_that_can_never_fit_fails(void **state)
{
	const struct job *job = actor_play(&scene, &actor);

	for (uint32_t unit = 0; unit < residency_slots(job)->count; unit++)
		assert_int_equal(actor_gather(&actor, unit, 0, NULL), 0);
	actor_send_gather(&actor, PLAY_UNITS - 1, 0, true);
	scene_settle(&scene);
	assert_int_equal(actor_outstanding(&actor), 0);
	assert_non_null(
		strstr(actor_message(&actor), "unit \"u7\" can never be gathered beside what is leased"));
	assert_non_null(strstr(actor_message(&actor), "\"u0\" by rank 0"));
}

/* Its connection has ended, its process lives, and may read what it has leased. */
static void what_a_rank_that_has_left_reads_stays(void **state)
{
	struct job *job = actor_play(&scene, &actor);
	uint32_t slots = 0;

	assert_int_equal(actor_gather(&actor, 0, 0, NULL), 0);
	client_hang_up(actor.client, "it closed the connection");
	assert_false(residency_evict(job, 0) || close_to_updates(job, 0));
	/* Nor does another unit get its slot. */
	for (uint32_t pack = 1; pack < PLAY_UNITS; pack++)
		if (residency_state(job, pack) == DIRECTORY_RESIDENT)
			assert_true(residency_evict(job, pack));
	while (residency_take_slot(job, slots + 1, 0))
		slots++;
	assert_int_equal(slots, residency_slots(job)->count - 1);
	assert_int_equal(residency_state(job, 0), DIRECTORY_RESIDENT);
	for (uint32_t pack = 1; pack <= slots; pack++)
		give_slot(job, pack);
	actor_release(&actor, 0);
	assert_true(residency_evict(job, 0));
}

#define TEST(name) SCENE_TEST(name, scene_setup)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(slots_that_become_free_together_are_filled_together),
		TEST(packs_that_somebody_waits_for_are_updated_first),
		TEST(who_is_used_last_has_to_go),
		TEST(what_the_daemon_reads_stays),
		TEST(a_gather_that_can_never_fit_fails),
		TEST(what_a_rank_that_has_left_reads_stays),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
