/* What a job has of host memory is registered with its GPUs, once it has its pages, and no more once it goes.
 */
#include <string.h>
#include <sys/mman.h>

#include "daemon/gpu/own.h"
#include "daemon/residency/own.h"
#include "daemon/resources/own.h"
#include "tests/lib/gpu/script.h"
#include "tests/unit/gpu/gpu_actor.h"
#include "tests/unit/scene_test.h"
#include "tests/unit/test.h"

#define UNITS 20
#define ELEMENTS (UINT64_C(1) << 20) /* a pack each, of 2 MiB */
#define BUDGET (37 * MIB)

static struct actor first, second;
static struct gpu_peer peer;
static struct driver driver;
static unsigned char uuid[GPU_UUID_BYTES];

static int setup_with(const struct scene_options *options)
{
	struct dynamic_library library = { 0 };
	struct driver_context *context;
	struct gpus gpus;

	standin_tell("STANDIN_GPUS", "1");
	standin_tell("STANDIN_BYTES", "67108864");
	standin_tell("STANDIN_FAILURES", NULL);
	gpus_find(&gpus);
	memcpy(uuid, &gpus.gpus[0].uuid, sizeof(uuid));
	assert_true(driver_open(&driver, &library));
	assert_int_equal(driver.context_retain(&context, 0), DRIVER_DONE);
	assert_int_equal(driver.context_enter(context), DRIVER_DONE);
	gpu_peer_start(&peer);
	return scene_setup_with(options);
}

static int setup(void **state)
{
	return setup_with(&(struct scene_options){ .host_budget = BUDGET, .capacity = GIB });
}

static int setup_with_room(void **state)
{
	return setup_with(&(struct scene_options){ .host_budget = GIB, .capacity = GIB });
}

static int teardown(void **state)
{
	int r = scene_teardown(state);

	gpu_peer_end(&peer);
	driver.context_release(0);
	return r;
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

static void start(struct actor *actor, const char *name)
{
	const struct actor_job job = { .name = name, .stage = 3 };

	assert_int_equal(actor_enter(&scene, actor), 0);
	assert_int_equal(actor_open(actor, &job), 0);
	for (unsigned i = 0; i < UNITS; i++) {
		char unit[16];
		const struct actor_tensor tensor = { unit, FORMAT_BF16, INITIALIZE_UNIFORM,
						     i > 0 ? ELEMENTS : 256, i > 0 };

		snprintf(unit, sizeof(unit), "u%u", i);
		assert_int_equal(actor_define(actor, unit, &tensor, 1), 0);
	}
	assert_int_equal(actor_ready(actor), 0);
}

static struct job *find_job(const char *name)
{
	return job_find(scene.node, geteuid(), name);
}

static bool is_registered(void *base)
{
	if (driver.host_register(base, 4096, 0) != DRIVER_DONE)
		return true;
	assert_int_equal(driver.host_unregister(base), DRIVER_DONE);
	return false;
}

static bool is_at_rest(const struct job *job)
{
	QUEUE_FOREACH (link, &job->gpu->tiers)
		if (queue_entry(link, struct gpu_tier, link)->outstanding > 0)
			return false;
	return cache_is_quiet(job) && segment_bytes(job, SEGMENT_DRAINING) == 0 &&
	       segment_bytes_to_come(job) == 0;
}

static void come_to_rest(const struct job *job)
{
	event_base_loop(scene.loop, EVLOOP_NONBLOCK);
	while (!is_at_rest(job))
		scene_wait(&scene);
}

/* Returns how many are there. */
static unsigned expect_registered(const struct job *job, bool is_refused)
{
	const struct slots *slots = residency_slots(job);
	unsigned here = 0, registered = 0;

	for (uint32_t i = 0; i < slots->segment_count; i++) {
		bool is_here = slots->segments[i].state == SEGMENT_HERE;
		bool is_known = is_registered(arena_share(job).cache->base + slots->segments[i].offset);

		assert_true(is_here || !is_known);
		here += is_here;
		registered += is_known;
	}
	assert_int_equal(registered, is_refused ? 0 : here);
	return here;
}

static struct job *start_on_gpu(const char *name)
{
	start(&first, name);
	assert_int_equal(actor_await(&first, gpu_actor_send_attach(&peer, &first, uuid, 0), 0)->status, 0);
	come_to_rest(find_job(name));
	return find_job(name);
}

static void segments_are_registered_while_they_are_there(void **state)
{
	struct job *job = start_on_gpu("first");
	unsigned before = expect_registered(job, false), after;

	start(&second, "play");
	come_to_rest(job);
	after = expect_registered(job, false);
	assert_true(after < before);
	assert_int_equal(actor_drop(&second, true), 0);
	do {
		scene_wait(&scene);
		come_to_rest(job);
	} while (expect_registered(job, false) <= after);
}

static void a_segment_that_a_gpu_refuses_comes_and_goes(void **state)
{
	struct job *job;

	standin_tell("STANDIN_FAILURES", "cuMemHostRegister_v2=1");
	job = start_on_gpu("first");
	standin_tell("STANDIN_FAILURES", NULL);
	expect_registered(job, true);
	start(&second, "play");
	come_to_rest(job);
}

static void the_last_rank_leaves_none_registered(void **state)
{
	struct job *job = start_on_gpu("first");

	assert_true(expect_registered(job, false) > 0);
	actor_die(&first);
	while (!queue_is_empty(&job->gpu->tiers))
		scene_wait(&scene);
	for (uint32_t i = 0; i < residency_slots(job)->segment_count; i++)
		assert_false(is_registered(arena_share(job).cache->base +
					   residency_slots(job)->segments[i].offset));
}

/* Copies would go to pages that are not there any more. */
static void a_segment_that_is_not_unregistered_stays(void **state)
{
	struct job *job = start_on_gpu("first");

	standin_tell("STANDIN_FAILURES", "cuMemHostUnregister#1=999");
	start(&second, "play");
	standin_tell("STANDIN_FAILURES", NULL);
	assert_true(job->residency->has_told_kept);
	/* The next time it works. */
	come_to_rest(job);
	expect_registered(job, false);
}

/* A driver that has lost its mind: caches would be asked for ever. */
static void a_segment_that_is_never_unregistered_is_given_up_no_more(void **state)
{
	struct job *job = start_on_gpu("first");
	const struct claim claim = { .node = scene.node, .uid = geteuid() };
	unsigned here = expect_registered(job, false), rounds = 0;

	standin_tell("STANDIN_FAILURES", "cuMemHostUnregister=999");
	while (cache_holder.bytes_at_most(&claim) > 0) {
		assert_true(rounds++ < here * SEGMENT_TRIES);
		cache_reclaim(&claim, 1);
		come_to_rest(job);
	}
	standin_tell("STANDIN_FAILURES", NULL);
	assert_int_equal(rounds, here * SEGMENT_TRIES);
	assert_int_equal(expect_registered(job, false), here);
}

/* What it still does there nobody knows. Others have its context, too. */
static void a_segment_that_a_lost_gpu_may_use_stays(void **state)
{
	struct job *job = start_on_gpu("first");
	const struct claim claim = { .node = scene.node, .uid = geteuid() };
	struct gpu_tier *tier = queue_entry(queue_first(&job->gpu->tiers), struct gpu_tier, link);
	uint64_t away = segment_bytes(job, SEGMENT_AWAY);

	standin_tell("STANDIN_FAILURES", "cuMemHostUnregister=719!");
	cache_reclaim(&claim, 1);
	come_to_rest(job);
	standin_tell("STANDIN_FAILURES", NULL);
	assert_int_equal(tier->state, GPU_TIER_FAILED);
	cache_reclaim(&claim, 1);
	come_to_rest(job);
	assert_int_equal(segment_bytes(job, SEGMENT_AWAY), away);
	assert_true(job->residency->has_told_kept);
}

static void memory_that_is_not_unregistered_is_not_given_back(void **state)
{
	struct job *job = start_on_gpu("play");
	struct memory cache = *arena_share(job).cache;
	uint64_t used = scene.node->resources->host_used;
	unsigned char resident;

	standin_tell("STANDIN_FAILURES", "cuMemHostUnregister=999");
	assert_int_equal(actor_drop(&first, true), 0);
	actor_die(&first);
	while (!queue_is_empty(&scene.node->jobs.dying))
		scene_wait(&scene);
	scene_await_disposals(&scene);
	standin_tell("STANDIN_FAILURES", NULL);
	assert_true(gpu_pin_keeps(cache.base, cache.length));
	assert_int_equal(mincore(cache.base, 4096, &resident), 0);
	assert_true(is_registered(cache.base));
	assert_in_range(scene.node->resources->host_used, used / 2, used);
}

#define ARENA_UNITS 20
#define ARENA_ELEMENTS (UINT64_C(2) << 20) /* a pack each, of 8 MiB of fp32 */

static bool has_asked_for_all_else(const struct job *job)
{
	const struct gpu_tier *tier =
		queue_is_empty(&job->gpu->tiers)
			? NULL
			: queue_entry(queue_first(&job->gpu->tiers), struct gpu_tier, link);

	return tier && tier->pin.bytes > 0 && tier->outstanding <= 1;
}

/* Returns the request of its rank to attach to a GPU, while pages of the arena are still to come. */
static uint32_t attach_before_all_pages(struct blockade *blockade)
{
	struct job *job;
	uint32_t attach, ready;

	actor_join_in_host_memory(&scene, &first, ARENA_UNITS, ARENA_ELEMENTS);
	assert_int_equal(actor_ready(&first), 0);
	job = find_job("play");
	actor_leave_released(&scene, &first);
	actor_join_in_host_memory(&scene, &first, ARENA_UNITS, ARENA_ELEMENTS);
	ready = actor_send_ready(&first, -1);
	blockade_begin_for_pages(&scene, job, blockade);
	assert_int_equal(actor_finish_ready(&first, ready), 0);
	attach = gpu_actor_send_attach(&peer, &first, uuid, 0);
	while (!has_asked_for_all_else(job))
		scene_wait(&scene);
	assert_true(arena_is_coming(job));
	assert_false(is_registered(arena_share(job).arena->base));
	assert_null(actor_find(&first, attach, 0));
	return attach;
}

/* Pages that a driver finds are pinned, and those that are pinned never become huge. */
static void an_arena_is_registered_when_all_its_pages_are_there(void **state)
{
	static struct blockade blockade;
	uint32_t attach = attach_before_all_pages(&blockade);
	struct job *job = find_job("play");

	blockade_end(&blockade);
	assert_int_equal(actor_await(&first, attach, 0)->status, 0);
	assert_false(arena_is_coming(job));
	assert_true(is_registered(arena_share(job).arena->base));
}

static void an_arena_of_a_job_that_ends_is_not_registered(void **state)
{
	static struct blockade blockade;
	uint64_t used = scene.node->resources->host_used;
	const struct gpu_tier *tier;

	attach_before_all_pages(&blockade);
	tier = queue_entry(queue_first(&find_job("play")->gpu->tiers), struct gpu_tier, link);
	assert_int_equal(actor_drop(&first, true), 0);
	actor_die(&first);
	blockade_end(&blockade);
	while (tier->is_pin_put_off)
		scene_wait(&scene);
	assert_int_equal(tier->pin.bytes, 0);
	while (!queue_is_empty(&scene.node->jobs.dying))
		scene_wait(&scene);
	scene_await_disposals(&scene);
	assert_int_equal(scene.node->resources->host_used, used);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		TEST(segments_are_registered_while_they_are_there),
		TEST(a_segment_that_a_gpu_refuses_comes_and_goes),
		TEST(the_last_rank_leaves_none_registered),
		TEST(a_segment_that_is_not_unregistered_stays),
		TEST(a_segment_that_is_never_unregistered_is_given_up_no_more),
		TEST(a_segment_that_a_lost_gpu_may_use_stays),
		TEST(memory_that_is_not_unregistered_is_not_given_back),
		cmocka_unit_test_setup_teardown(an_arena_is_registered_when_all_its_pages_are_there,
						setup_with_room, teardown),
		cmocka_unit_test_setup_teardown(an_arena_of_a_job_that_ends_is_not_registered,
						setup_with_room, teardown),
	};

	if (argc > 1)
		return gpu_peer_run(argc, argv);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
