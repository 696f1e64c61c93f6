/* Caches shrink when another job needs the memory, and grow when there is some: what is leased stays where it
 * is, what was reserved stays, and the kernel gets the pages. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "daemon/gradients/gradients.h"
#include "daemon/residency/own.h"
#include "daemon/values/values.h"
#include "daemon/update/warm.h"
#include "tests/unit/scene_test.h"
#include "tests/unit/test.h"

#define UNITS 20
#define MORE_UNITS 44
#define ELEMENTS (UINT64_C(1) << 20) /* a pack each, of 2 MiB */
#define BUDGET (37 * MIB)

static struct actor first, second;
static unsigned units;

static struct job *find(const char *name)
{
	return job_find(scene.node, geteuid(), name);
}

static void define_units(struct actor *actor)
{
	for (unsigned i = 0; i < units; i++) {
		char unit[16];
		/* The first one is trained: an adapter beside what is frozen. */
		const struct actor_tensor tensor = { unit, FORMAT_BF16, INITIALIZE_UNIFORM,
						     i > 0 ? ELEMENTS : 256, i > 0 };

		snprintf(unit, sizeof(unit), "u%u", i);
		assert_int_equal(actor_define(actor, unit, &tensor, 1), 0);
	}
}

static void open_job(struct actor *actor, const char *name, uint64_t host_budget)
{
	const struct actor_job job = { .name = name, .stage = 3, .host_budget = host_budget };

	assert_int_equal(actor_enter(&scene, actor), 0);
	assert_int_equal(actor_open(actor, &job), 0);
	define_units(actor);
}

/* With all the cache that it was given. */
static void start(struct actor *actor, const char *name, uint64_t host_budget)
{
	open_job(actor, name, host_budget);
	assert_int_equal(actor_ready(actor), 0);
	while (segment_bytes_to_come(find(name)) > 0)
		scene_wait(&scene);
}

static uint64_t digest(const void *values, uint32_t unit)
{
	const uint64_t *words = values;
	size_t bytes = 2 * (unit > 0 ? ELEMENTS : 256);
	uint64_t sum = UINT64_C(0xcbf29ce484222325);

	for (size_t i = 0; i < bytes / sizeof(*words); i++)
		sum = (sum ^ words[i]) * UINT64_C(0x100000001b3);
	return sum;
}

static uint64_t gather_digest(struct actor *actor, uint32_t unit)
{
	const void *values;
	uint64_t sum;

	assert_int_equal(actor_gather(actor, unit, 0, &values), 0);
	sum = digest(values, unit);
	actor_release(actor, unit);
	return sum;
}

static bool is_draining(const struct job *job)
{
	return segment_bytes(job, SEGMENT_DRAINING) > 0;
}

static bool is_moving(const struct job *job)
{
	return job->residency->cache_moves > 0 || is_draining(job) || segment_bytes_to_come(job) > 0;
}

/* More and more segments are to become empty, none does. */
static void await_draining(void)
{
	while (residency_slots(find("first"))->segments[0].state != SEGMENT_DRAINING)
		scene_wait(&scene);
}

static void release_all(uint32_t count)
{
	for (uint32_t unit = 0; unit < count; unit++)
		actor_release(&first, unit);
}

/* What grows or shrinks is charged, and is not there yet, or not any more. */
static void come_to_rest(void)
{
	bool is_resting = false;

	while (!is_resting) {
		event_base_loop(scene.loop, EVLOOP_NONBLOCK);
		is_resting = true;
		QUEUE_FOREACH (link, &scene.node->jobs.live)
			is_resting &= !is_moving(queue_entry(link, struct job, link));
		if (!is_resting)
			scene_wait(&scene);
	}
}

static void expect_consistent(void)
{
	uint64_t used = staging_bytes(scene.node->staging->count);

	come_to_rest();
	QUEUE_FOREACH (link, &scene.node->jobs.live) {
		struct job *job = queue_entry(link, struct job, link);
		uint64_t here = residency_slots(job)->cache - segment_bytes(job, SEGMENT_AWAY);

		assert_int_equal(budget_cache_bytes(job) - warm_bytes(job), here);
		/* What nobody holds, the kernel has. */
		if (job->residency->cache.base)
			assert_int_equal(memory_resident(&job->residency->cache), here);
		used += budget_host_bytes(job);
	}
	assert_int_equal(budget_host_used(scene.node), used);
	assert_true(used <= scene.node->settings.host_budget);
}

static void caches_shrink_for_a_job_that_opens(void **state)
{
	uint64_t sums[UNITS], before;

	start(&first, "first", 0);
	for (uint32_t unit = 0; unit < UNITS; unit++)
		sums[unit] = gather_digest(&first, unit);
	before = budget_cache_bytes(find("first"));
	assert_true(before > 8 * MIB && before < residency_slots(find("first"))->cache);
	expect_consistent();
	start(&second, "second", 0);
	assert_true(budget_cache_bytes(find("first")) < before);
	expect_consistent();
	for (uint32_t unit = 0; unit < UNITS; unit++) {
		assert_int_equal(gather_digest(&first, unit), sums[unit]);
		assert_int_equal(gather_digest(&second, unit) != 0, 1);
	}
	expect_consistent();
}

/* The job is ready, and one segment of its cache at most has its pages; until the blockade ends nothing of
 * the others comes. */
static void start_without_cache(struct actor *actor, const char *name, struct blockade *blockade)
{
	uint32_t ready;

	open_job(actor, name, 0);
	ready = actor_send_ready(actor, -1);
	blockade_begin_for_pages(&scene, find(name), blockade);
	assert_int_equal(actor_finish_ready(actor, ready), 0);
	assert_true(segment_bytes(find(name), SEGMENT_PLANNED) > budget_cache_bytes(find(name)) / 2);
}

static void what_is_only_planned_is_given_up_at_once(void **state)
{
	static struct blockade blockade;
	uint64_t before;
	uint32_t ready;

	start_without_cache(&first, "first", &blockade);
	before = segment_bytes(find("first"), SEGMENT_PLANNED);
	/* A rank that has leased what there is does not keep it. */
	for (uint32_t unit = 0; unit < residency_slots(find("first"))->here; unit++)
		assert_int_equal(actor_gather(&first, unit, 0, NULL), 0);
	open_job(&second, "second", 0);
	ready = actor_send_ready(&second, -1);
	event_base_loop(scene.loop, EVLOOP_NONBLOCK);
	assert_in_range(segment_bytes(find("first"), SEGMENT_PLANNED), 1, before - 1);
	assert_int_equal(segment_bytes(find("first"), SEGMENT_DRAINING), 0);
	assert_false(shortage_is_awaited(scene.node));
	blockade_end(&blockade);
	assert_int_equal(actor_finish_ready(&second, ready), 0);
	expect_consistent();
}

static void a_job_without_ranks_fetches_no_more(void **state)
{
	static struct blockade blockade;

	start_without_cache(&first, "first", &blockade);
	actor_die(&first);
	event_base_loop(scene.loop, EVLOOP_NONBLOCK);
	assert_int_equal(segment_bytes(find("first"), SEGMENT_PLANNED), 0);
	blockade_end(&blockade);
	expect_consistent();
}

/* Of what was leased last. */
static const void *addresses[MORE_UNITS];

/* Leases as many units as have a slot; how many. */
static uint32_t lease_all(struct actor *actor, const struct job *job)
{
	uint32_t count = residency_slots(job)->here;

	assert_true(count > 4 && count < units);
	for (uint32_t unit = 0; unit < count; unit++)
		assert_int_equal(actor_gather(actor, unit, 0, &addresses[unit]), 0);
	return count;
}

static void what_is_leased_stays_until_it_is_released(void **state)
{
	uint64_t sums[UNITS];
	uint32_t count, ready;

	start(&first, "first", 0);
	count = lease_all(&first, find("first"));
	for (uint32_t unit = 0; unit < count; unit++)
		sums[unit] = digest(addresses[unit], unit);
	open_job(&second, "second", 0);
	ready = actor_send_ready(&second, -1);
	await_draining();
	assert_null(actor_find(&second, ready, 0));
	assert_int_equal(find("first")->residency->cache_moves, 0);
	for (uint32_t unit = 0; unit < count; unit++) {
		assert_int_equal(digest(addresses[unit], unit), sums[unit]);
		actor_release(&first, unit);
	}
	assert_int_equal(actor_finish_ready(&second, ready), 0);
	expect_consistent();
	for (uint32_t unit = 0; unit < count; unit++)
		assert_int_equal(gather_digest(&first, unit), sums[unit]);
}

static void who_keeps_everything_leased_is_named(void **state)
{
	uint32_t count;
	uint64_t before;

	scene.node->settings.cache_patience_ms = 300;
	start(&first, "first", 0);
	count = lease_all(&first, find("first"));
	before = budget_cache_bytes(find("first"));
	open_job(&second, "second", 0);
	assert_int_equal(actor_ready(&second), -ENOMEM);
	assert_non_null(strstr(actor_message(&second), "first has"));
	assert_non_null(strstr(actor_message(&second), "of it cache"));
	/* It has lost nothing by that, and the other may try again. */
	assert_int_equal(budget_cache_bytes(find("first")), before);
	assert_int_equal(residency_slots(find("first"))->here, count);
	release_all(count);
	assert_int_equal(actor_ready(&second), 0);
	expect_consistent();
}

static void what_is_reserved_is_not_taken(void **state)
{
	start(&first, "first", 9 * MIB);
	open_job(&second, "second", 0);
	/* As if others had all that the second job lacks, beside the cache. */
	scene.node->settings.host_budget = budget_host_used(scene.node) + MIB;
	assert_true(budget_cache_bytes(find("first")) > 0);
	assert_int_equal(actor_ready(&second), -ENOMEM);
	assert_non_null(strstr(actor_message(&second), "first has"));
	assert_int_equal(budget_shortage(find("second"))->since_ns, 0);
	assert_int_equal(segment_bytes(find("first"), SEGMENT_HERE), residency_slots(find("first"))->cache);
}

static void a_job_that_dies_while_it_shrinks_leaves_its_memory(void **state)
{
	uint32_t ready;

	start(&first, "first", 0);
	lease_all(&first, find("first"));
	open_job(&second, "second", 0);
	ready = actor_send_ready(&second, -1);
	await_draining();
	actor_die(&first);
	assert_int_equal(actor_finish_ready(&second, ready), 0);
	expect_consistent();
}

static void who_waits_may_die(void **state)
{
	uint64_t before;
	uint32_t count;

	start(&first, "first", 0);
	count = lease_all(&first, find("first"));
	before = budget_cache_bytes(find("first"));
	open_job(&second, "second", 0);
	actor_send_ready(&second, -1);
	await_draining();
	actor_die(&second);
	scene_settle(&scene);
	assert_false(is_draining(find("first")));
	assert_int_equal(budget_cache_bytes(find("first")), before);
	release_all(count);
}

static void drop(struct actor *actor, const char *name)
{
	struct job *job = find(name);

	actor_die(actor);
	/* Its state outlives its rank. */
	if (find(name))
		job_drop(job);
}

static void a_cache_grows_when_memory_is_given_back(void **state)
{
	uint64_t before, shrunk;

	start(&first, "first", 0);
	before = budget_cache_bytes(find("first"));
	start(&second, "second", 0);
	shrunk = budget_cache_bytes(find("first"));
	assert_true(shrunk < before);
	drop(&second, "second");
	while (budget_cache_bytes(find("first")) < before || find("first")->residency->cache_moves > 0)
		scene_wait(&scene);
	expect_consistent();
	for (uint32_t unit = 0; unit < UNITS; unit++)
		gather_digest(&first, unit);
}

static void who_comes_later_gets_as_much(void **state)
{
	start(&first, "first", 0);
	start(&second, "second", 0);
	expect_consistent();
	uint64_t one = budget_cache_bytes(find("first")), other = budget_cache_bytes(find("second"));

	assert_true(other > 0);
	assert_in_range(one > other ? one - other : other - one, 0, 6 * MIB);
	/* And a job without ranks needs none. */
	actor_die(&first);
	gather_digest(&second, 1);
	expect_consistent();
	assert_true(budget_cache_bytes(find("second")) > other);
	expect_consistent();
}

/* A second job that tierd may place. */
static void open_six(void)
{
	const struct actor_job job = { .name = "second",
				       .stage = 3,
				       .parameter_placement = PLACEMENT_AUTO,
				       .optimizer_placement = PLACEMENT_AUTO };

	units = 6;
	assert_int_equal(actor_enter(&scene, &second), 0);
	assert_int_equal(actor_open(&second, &job), 0);
	define_units(&second);
}

static void a_choice_of_tierd_counts_on_caches(void **state)
{
	start(&first, "first", 0);
	open_six();
	assert_true(budget_host_used(scene.node) + 10 * MIB > scene.node->settings.host_budget);
	assert_int_equal(actor_ready(&second), 0);
	assert_false(find("second")->location.has_nvme_parameters);
	expect_consistent();
}

static void a_choice_of_tierd_takes_what_is_left_of_caches_in_use(void **state)
{
	scene.node->settings.cache_patience_ms = 300;
	start(&first, "first", 0);
	lease_all(&first, find("first"));
	/* Enough for the least, and not for all that it would like to have in host memory. */
	for (uint32_t unit = 5; unit < 9; unit++)
		actor_release(&first, unit);
	open_six();
	assert_int_equal(actor_ready(&second), 0);
	assert_true(find("second")->location.has_nvme_parameters);
	actor_die(&first);
	expect_consistent();
}

static void a_budget_of_its_own_bounds_what_grows(void **state)
{
	start(&first, "first", 16 * MIB);
	assert_int_equal(residency_slots(find("first"))->here, residency_slots(find("first"))->count);
	assert_true(budget_host_bytes(find("first")) <= 16 * MIB);
	assert_true(budget_host_bytes(find("first")) > 13 * MIB);
}

/* A gather that only slots of a segment which is to go could serve gets one of them. */
static void a_rank_that_can_go_on_no_other_way_keeps_its_cache(void **state)
{
	uint32_t count, ready, gather, segment = 0;

	units = MORE_UNITS;
	scene.node->settings.host_budget = 90 * MIB;
	start(&first, "first", 0);
	count = lease_all(&first, find("first"));
	open_job(&second, "second", 0);
	scene.node->settings.host_budget = budget_host_used(scene.node) + MIB;
	ready = actor_send_ready(&second, -1);
	await_draining();
	/* Of a segment of two slots or more, one is free, and is not to be used. */
	while (residency_slots(find("first"))->segments[segment].count < 2)
		assert_true(++segment < residency_slots(find("first"))->segment_count);
	actor_release(
		&first,
		residency_slots(find("first"))
			->owners[residency_slots(find("first"))
					 ->in_segments
						 [residency_slots(find("first"))->segments[segment].first]]);
	gather = actor_send_gather(&first, count, 0, true);
	assert_int_equal(actor_await(&first, gather, 0)->status, 0);
	actor_die(&first);
	assert_int_equal(actor_finish_ready(&second, ready), 0);
}

/* Of what others can do without; what they hold is not waited for for ever. */
static void a_rank_that_has_leased_all_its_slots_gets_another_one(void **state)
{
	uint32_t count, unit;
	int r = 0;

	start(&first, "first", 0);
	start(&second, "second", 0);
	come_to_rest();
	count = lease_all(&second, find("second"));
	assert_int_equal(actor_gather(&second, count, 0, NULL), 0);
	come_to_rest();
	lease_all(&first, find("first"));
	for (unit = count + 1; unit < units && r == 0; unit++)
		r = actor_gather(&second, unit, 0, NULL);
	assert_int_equal(r, -EDEADLK);
	actor_die(&first);
	assert_int_equal(actor_gather(&second, unit - 1, 0, NULL), 0);
}

/* ---- Readers ---- */

/* The first job has leased all it has, and there is no room for a reader beside it, who has come; returns his
 * request, and the leases. */
static uint32_t start_reader_without_room(uint32_t *ret_count)
{
	uint32_t request;

	start(&first, "first", 0);
	*ret_count = lease_all(&first, find("first"));
	come_to_rest();
	scene.node->settings.host_budget = budget_host_used(scene.node) + MIB;
	assert_int_equal(actor_enter(&scene, &second), 0);
	request = actor_send_open_reader(&second, "first");
	assert_null(actor_find(&second, request, 0));
	assert_true(is_draining(find("first")));
	return request;
}

static void a_reader_waits_until_caches_have_shrunk(void **state)
{
	uint32_t count, request = start_reader_without_room(&count);
	uint64_t before = budget_cache_bytes(find("first"));

	release_all(count);
	assert_int_equal(actor_await(&second, request, 0)->status, 0);
	assert_true(budget_cache_bytes(find("first")) < before);
	assert_true(budget_host_used(scene.node) <= scene.node->settings.host_budget);
	assert_false(shortage_is_awaited(scene.node));
}

static void a_refresh_waits_until_caches_have_shrunk(void **state)
{
	Tierd__Wire__ReaderPiece piece = TIERD__WIRE__READER_PIECE__INIT;
	uint32_t count, reader, request = start_reader_without_room(&count);

	release_all(count);
	reader = actor_await(&second, request, 0)->reply->reader_open->reader;
	come_to_rest();
	count = residency_slots(find("first"))->here;
	for (uint32_t unit = 0; unit < count; unit++)
		assert_int_equal(actor_gather(&first, unit, 0, NULL), 0);
	come_to_rest();
	scene.node->settings.host_budget = budget_host_used(scene.node);
	piece.state = (char *)"parameter";
	piece.unit = 1;
	piece.all_tensors = true;
	request = actor_send_refresh(&second, reader, &piece, 1);
	while (!is_draining(find("first")))
		scene_wait(&scene);
	assert_null(actor_find(&second, request, 0));
	release_all(count);
	assert_int_equal(actor_await(&second, request, 0)->status, 0);
	assert_true(budget_host_used(scene.node) <= scene.node->settings.host_budget);
}

static void a_reader_is_told_who_keeps_everything_leased(void **state)
{
	uint32_t count, request;
	uint64_t before;

	scene.node->settings.cache_patience_ms = 300;
	request = start_reader_without_room(&count);
	before = budget_cache_bytes(find("first"));
	assert_int_equal(actor_await(&second, request, 0)->status, -ENOMEM);
	assert_non_null(strstr(actor_message(&second), "first has"));
	assert_non_null(strstr(actor_message(&second), "of it cache"));
	assert_true(node_values_have_ended(scene.node));
	assert_int_equal(budget_cache_bytes(find("first")), before);
	assert_false(is_draining(find("first")));
	release_all(count);
}

static void a_reader_that_waits_may_die(void **state)
{
	uint32_t count;

	start_reader_without_room(&count);
	actor_die(&second);
	assert_true(node_values_have_ended(scene.node));
	assert_false(is_draining(find("first")));
	release_all(count);
}

static void a_reader_that_waits_outlives_its_job(void **state)
{
	uint32_t count, request = start_reader_without_room(&count);

	drop(&first, "first");
	assert_int_equal(actor_await(&second, request, 0)->status, -ENOENT);
	assert_true(node_values_have_ended(scene.node));
	assert_false(shortage_is_awaited(scene.node));
}

static int setup(void **state)
{
	units = UNITS;
	return scene_setup_with(&(struct scene_options){ .host_budget = BUDGET, .capacity = GIB });
}

#define TEST(name) SCENE_TEST(name, setup)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(caches_shrink_for_a_job_that_opens),
		TEST(what_is_only_planned_is_given_up_at_once),
		TEST(a_job_without_ranks_fetches_no_more),
		TEST(what_is_leased_stays_until_it_is_released),
		TEST(who_keeps_everything_leased_is_named),
		TEST(what_is_reserved_is_not_taken),
		TEST(a_job_that_dies_while_it_shrinks_leaves_its_memory),
		TEST(who_waits_may_die),
		TEST(a_cache_grows_when_memory_is_given_back),
		TEST(who_comes_later_gets_as_much),
		TEST(a_choice_of_tierd_counts_on_caches),
		TEST(a_choice_of_tierd_takes_what_is_left_of_caches_in_use),
		TEST(a_budget_of_its_own_bounds_what_grows),
		TEST(a_rank_that_has_leased_all_its_slots_gets_another_one),
		TEST(a_rank_that_can_go_on_no_other_way_keeps_its_cache),
		TEST(a_reader_waits_until_caches_have_shrunk),
		TEST(a_refresh_waits_until_caches_have_shrunk),
		TEST(a_reader_is_told_who_keeps_everything_leased),
		TEST(a_reader_that_waits_may_die),
		TEST(a_reader_that_waits_outlives_its_job),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
