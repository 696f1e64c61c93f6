/* A member that keeps a lease through its step is thrown out. That happens from the loop, never below an
 * operation of its own: whatever of it is under way is answered once, and nothing of it is used afterwards.
 */
#include <errno.h>
#include <string.h>

#include "daemon/update/own.h"
#include "daemon/update/sweep.h"
#include "daemon/values/values.h"
#include "tests/unit/scene_test.h"

#define ELEMENTS 1000000
#define PATIENCE_NS UINT64_C(1100000000)

static struct actor keeper, other;

static void open_rank(struct actor *actor, uint32_t rank, uint32_t world_size)
{
	const struct actor_tensor one[] = { { "w", FORMAT_BF16, INITIALIZE_ONES, ELEMENTS, false } };
	const struct actor_tensor two[] = { { "v", FORMAT_BF16, INITIALIZE_ONES, ELEMENTS, false } };
	const struct actor_job job = { .stage = 3, .rank = rank, .world_size = world_size };

	assert_int_equal(actor_join(&scene, actor, &job), 0);
	assert_int_equal(actor_define(actor, "one", one, 1), 0);
	assert_int_equal(actor_define(actor, "two", two, 1), 0);
}

static void push_both(struct actor *actor)
{
	actor_send_push(actor, 0, 0);
	actor_send_push(actor, 1, 1);
}

static void take_lease(struct actor *actor, uint32_t unit)
{
	lease_counters((struct lease_header *)actor->leases.base, actor->buffer_count)[unit]++;
}

/* Of unit 1, at a moment where no lease is lawful; the sweep has done all but that unit, and waits. */
static void keep_a_lease(void)
{
	struct job *job = scene_job(NULL);

	for (uint32_t unit = 0; unit < 2; unit++) {
		assert_int_equal(actor_gather(&keeper, unit, 0, NULL), 0);
		actor_release(&keeper, unit);
	}
	push_both(&keeper);
	actor_send_step(&keeper, 0.1f);
	if (other.client)
		actor_send_step(&other, 0.1f);
	take_lease(&keeper, 1);
	while (job->decided == 0 || job->update->sweep->running > 0 || job->update->sweep->packs_left != 1)
		scene_wait(&scene);
}

/* The patience is over, and something else than the timer is the first to see it. */
static void end_patience(void)
{
	event_del(scene_job(NULL)->update->sweep->lease_timer);
	scene_job(NULL)->update->decided_ns -= PATIENCE_NS;
}

static void take_all_staging(struct queue *taken)
{
	struct staging_wish wish = { .granted = NULL };
	struct staging_buffer *buffer;

	queue_init(taken);
	queue_init(&wish.link);
	while ((buffer = staging_take(scene.node->staging, &wish)))
		queue_push(taken, &buffer->link);
	queue_remove(&wish.link);
}

static void give_all_staging(struct queue *taken)
{
	for (struct queue *link = queue_pop(taken); link; link = queue_pop(taken))
		staging_give(scene.node->staging, queue_entry(link, struct staging_buffer, link));
}

static void await_close(struct actor *actor)
{
	while (!actor->is_closed)
		scene_wait(&scene);
}

static void its_own_read_may_end_its_membership(void **state)
{
	struct queue taken;
	uint32_t read;

	open_rank(&keeper, 0, 1);
	assert_int_equal(actor_ready(&keeper), 0);
	keep_a_lease();
	take_all_staging(&taken);
	read = actor_send_read(&keeper, 0, 0, "m", 0, 10, 1);
	end_patience();
	give_all_staging(&taken);
	await_close(&keeper);
	assert_int_equal(actor_outstanding(&keeper), 0);
	assert_int_equal(actor_find(&keeper, read, 0)->status, 0);
	assert_null(actor_find(&keeper, read, 1));
}

static void it_may_die_when_its_patience_has_just_ended(void **state)
{
	const struct member *member;
	struct queue taken;

	open_rank(&keeper, 0, 1);
	assert_int_equal(actor_ready(&keeper), 0);
	keep_a_lease();
	take_all_staging(&taken);
	actor_send_read(&keeper, 0, 0, "m", 0, 10, 1);
	end_patience();
	client_hang_up(keeper.client, "its process died");
	give_all_staging(&taken);
	assert_false(queue_is_empty(&scene_job(NULL)->members.lingering));
	member = queue_entry(queue_first(&scene_job(NULL)->members.lingering), struct member, link);
	assert_true(queue_is_empty(&member->pendings));
	scene_settle(&scene);
	/* The lease of a process that lives is respected, until the sweep had to go on without it. */
	assert_int_equal(scene_job(NULL)->step, 1);
}

static void the_others_train_on(void **state)
{
	open_rank(&keeper, 0, 2);
	open_rank(&other, 1, 2);
	actor_ready_both(&keeper, &other);
	keep_a_lease();
	end_patience();
	/* Something that lets the sweep look. */
	assert_int_equal(actor_read(&other, 0, 0, "m", 0, 10, 1), 0);
	await_close(&keeper);
	assert_non_null(strstr(keeper.reason, "has kept a lease on unit \"two\""));
	scene_settle(&scene);
	assert_int_equal(scene_job(NULL)->step, 1);
	actor_die(&keeper);
	open_rank(&keeper, 0, 2);
	actor_ready_both(&keeper, &other);
	assert_int_equal(keeper.step, 1);
}

/* It may read blobs of a job that has a state, and its window is taken back. */
static void one_that_was_in_no_epoch_yet_is_told(void **state)
{
	open_rank(&keeper, 0, 2);
	open_rank(&other, 1, 2);
	job_throw_out(scene_job(NULL)->members.ranks[0], "rank 0 was taken over");
	assert_int_equal(keeper.ended_epochs, 1);
	assert_string_equal(keeper.reason, "rank 0 was taken over");
	assert_int_equal(other.ended_epochs, 0);
}

#define TEST(name) SCENE_TEST(name, scene_setup)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(its_own_read_may_end_its_membership),
		TEST(it_may_die_when_its_patience_has_just_ended),
		TEST(the_others_train_on),
		TEST(one_that_was_in_no_epoch_yet_is_told),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
