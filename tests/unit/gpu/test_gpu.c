/* A job's packs on a GPU: which bytes come there, when they are overwritten, and what a rank is told that
 * gets none. The stand-in plays the GPU; as test_gpu_tier it is a real one. */
#include <stdio.h>
#include <string.h>

#include "daemon/gpu/own.h"
#include "daemon/telemetry/telemetry.h"
#include "offload/cuda/gpu_private.h"
#include "tests/lib/gpu/script.h"
#include "tests/unit/gpu/gpu_actor.h"
#include "tests/unit/scene_test.h"
#include "tests/unit/test.h"
#include "tests/unit/training.h"

/* Of a unit of actor_play(). */
#define UNIT_BYTES (PLAY_ELEMENTS * 2)

static struct actor actor;
static struct gpu_peer peer;
/* As the driver has it of GPU 0. */
static unsigned char uuid[GPU_UUID_BYTES];
static char gpu_text[160];

static int setup(void **state)
{
	struct gpus gpus;

	standin_tell("STANDIN_GPUS", "1");
	standin_tell("STANDIN_BYTES", "67108864");
	standin_tell("STANDIN_FAILURES", NULL);
	gpus_find(&gpus);
	assert_true(gpus.count > 0);
	memcpy(uuid, &gpus.gpus[0].uuid, sizeof(uuid));
	snprintf(gpu_text, sizeof(gpu_text), "GPU 0 (%s)", gpus.gpus[0].name);
	gpu_peer_start(&peer);
	return scene_setup(state);
}

static int teardown(void **state)
{
	int r = scene_teardown(state);

	gpu_peer_end(&peer);
	return r;
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

/* ---- Requests ---- */

static uint32_t send_attach(struct actor *rank, uint64_t budget)
{
	return gpu_actor_send_attach(&peer, rank, uuid, budget);
}

static const Tierd__Wire__GpuAttachReply *attach(uint64_t budget)
{
	const struct answer *answer = actor_await(&actor, send_attach(&actor, budget), 0);
	const Tierd__Wire__GpuAttachReply *reply = answer->reply->gpu_attach;
	unsigned char handles[64][GPU_HANDLE_BYTES];

	assert_int_equal(answer->status, 0);
	assert_true(reply->n_events <= ARRAY_LENGTH(handles));
	for (size_t i = 0; i < reply->n_events; i++)
		memcpy(handles[i], reply->events[i].data, GPU_HANDLE_BYTES);
	gpu_peer_map(&peer, actor.gpu_memory, reply->memory_bytes, (unsigned)reply->n_events,
		     (const unsigned char(*)[GPU_HANDLE_BYTES])handles);
	return reply;
}

/* The peer reads the unit's beginning behind its copy. */
static void read_unit(const Tierd__Wire__GpuGatherReply *reply)
{
	gpu_peer_read(&peer, reply->offset, reply->has_arrived ? PEER_NO_EVENT : reply->event);
}

static const Tierd__Wire__GpuGatherReply *gather(uint32_t unit, uint64_t version)
{
	const struct answer *answer = actor_await(&actor, gpu_actor_send_gather(&actor, unit, version), 0);

	assert_int_equal(answer->status, 0);
	assert_true(answer->reply->gpu_gather->version >= version);
	return answer->reply->gpu_gather;
}

static struct gpu_lease_header *leases_of(const struct actor *rank)
{
	return (struct gpu_lease_header *)rank->gpu_leases.base;
}

/* As the library does where a tier does not keep all units. */
static void release(uint32_t unit)
{
	uint64_t number = atomic_fetch_add(&leases_of(&actor)->recorded, 1) + 1;

	gpu_peer_record(&peer, number);
	atomic_store(&gpu_lease_released(leases_of(&actor), PLAY_UNITS)[unit], number);
	assert_true(lease_give(&gpu_lease_counters(leases_of(&actor))[unit]));
}

static void give_lease(uint32_t unit)
{
	assert_true(lease_give(&gpu_lease_counters(leases_of(&actor))[unit]));
}

/* What host memory has of the unit. */
static void expect_host_values(uint32_t unit, uint64_t version)
{
	unsigned char found[PEER_READ_BYTES];
	const void *address;

	gpu_peer_look(&peer, found);
	assert_int_equal(actor_gather(&actor, unit, version, &address), 0);
	assert_memory_equal(found, address, sizeof(found));
	actor_release(&actor, unit);
}

static struct gpu_tier *tier_of(const struct job *job)
{
	struct queue *link = queue_first(&job->gpu->tiers);

	return link ? queue_entry(link, struct gpu_tier, link) : NULL;
}

/* ---- Values ---- */

static void a_tier_without_a_budget_keeps_all_units(void **state)
{
	struct job *job = actor_play(&scene, &actor);

	assert_true(attach(0)->is_whole);
	for (uint32_t unit = 0; unit < PLAY_UNITS; unit++) {
		read_unit(gather(unit, 0));
		expect_host_values(unit, 0);
		give_lease(unit);
	}
	for (uint32_t unit = 0; unit < PLAY_UNITS; unit++)
		while (tier_of(job)->packs[job->catalog.units[unit].pack].state != GPU_RESIDENT)
			scene_wait(&scene);
	/* Now they are in the directory. */
	assert_true(gather(3, 0)->has_arrived);
}

static void units_take_turns_in_the_slots_that_there_are(void **state)
{
	struct job *job = actor_play(&scene, &actor);

	assert_false(attach(3 * UNIT_BYTES)->is_whole);
	assert_int_equal(tier_of(job)->slots.count, 3);
	for (unsigned pass = 0; pass < 2; pass++)
		for (uint32_t unit = 0; unit < PLAY_UNITS; unit++) {
			read_unit(gather(unit, 0));
			expect_host_values(unit, 0);
			release(unit);
		}
}

/* The stand-in would end the peer, whose reads a copy has overtaken. */
static void nothing_is_overwritten_before_what_reads_it_has_ended(void **state)
{
	unsigned char found[PEER_READ_BYTES];
	const Tierd__Wire__GpuGatherReply *reply;
	struct job *job = actor_play(&scene, &actor);
	uint32_t waiting;
	const void *address;

	attach(2 * UNIT_BYTES);
	gpu_peer_hold(&peer, true);
	for (uint32_t unit = 0; unit < 2; unit++) {
		read_unit(gather(unit, 0));
		release(unit);
	}
	waiting = gpu_actor_send_gather(&actor, 2, 0);
	for (unsigned i = 0; i < 20 && tier_of(job)->packs[job->catalog.units[2].pack].state != GPU_COPYING;
	     i++)
		scene_wait(&scene);
	assert_int_equal(tier_of(job)->packs[job->catalog.units[2].pack].state, GPU_COPYING);
	for (unsigned i = 0; i < 20; i++) {
		event_base_loop(scene.loop, EVLOOP_NONBLOCK);
		assert_int_equal(actor_outstanding(&actor), 1);
		usleep(1000);
	}
	gpu_peer_hold(&peer, false);
	gpu_peer_look(&peer, found);
	assert_int_equal(actor_gather(&actor, 1, 0, &address), 0);
	assert_memory_equal(found, address, sizeof(found));
	reply = actor_await(&actor, waiting, 0)->reply->gpu_gather;
	read_unit(reply);
	expect_host_values(2, 0);
}

static void a_step_brings_newer_values(void **state)
{
	unsigned char before[PEER_READ_BYTES], after[PEER_READ_BYTES];

	actor_play(&scene, &actor);
	attach(0);
	read_unit(gather(1, 0));
	gpu_peer_look(&peer, before);
	give_lease(1);
	for (uint32_t unit = 0; unit < PLAY_UNITS; unit++)
		training_push(&actor, unit, 1);
	assert_int_equal(actor_take_step(&actor), 0);
	read_unit(gather(1, 1));
	gpu_peer_look(&peer, after);
	assert_true(memcmp(before, after, sizeof(before)) != 0);
	expect_host_values(1, 1);
}

/* It is asked for while the step is under way. */
static void values_of_a_step_are_waited_for(void **state)
{
	uint32_t step, number;

	actor_play(&scene, &actor);
	attach(2 * UNIT_BYTES);
	read_unit(gather(1, 0));
	release(1);
	for (uint32_t unit = 0; unit < PLAY_UNITS; unit++)
		training_push(&actor, unit, 1);
	step = actor_send_step(&actor, 0.1f);
	number = gpu_actor_send_gather(&actor, 1, 1);
	assert_int_equal(actor_await(&actor, number, 0)->status, 0);
	read_unit(actor_find(&actor, number, 0)->reply->gpu_gather);
	assert_int_equal(actor_await(&actor, step, 0)->status, 0);
	expect_host_values(1, 1);
}

/* ---- What a rank waits for ---- */

static struct statistics_figures figures_now(struct job *job)
{
	stall_count(job);
	return *figures_of(job);
}

/* For its values from NVMe first, and then for their copy. */
static void what_a_gather_there_waits_for_is_counted(void **state)
{
	struct job *job = actor_play(&scene, &actor);
	struct statistics_figures before, after;

	attach(0);
	scene_settle(&scene);
	before = figures_now(job);
	gather(scene_absent_unit(job), 0);
	after = figures_now(job);
	assert_true(after.stall_ns[STATISTICS_NVME_READ] > before.stall_ns[STATISTICS_NVME_READ]);
	assert_true(after.stall_ns[STATISTICS_GPU] > before.stall_ns[STATISTICS_GPU]);
	assert_int_equal(after.stall_ns[STATISTICS_STEP], before.stall_ns[STATISTICS_STEP]);
}

/* Which nobody takes. */
static void a_gather_there_waits_for_a_step(void **state)
{
	struct job *job = actor_play(&scene, &actor);
	struct statistics_figures before, after;

	attach(0);
	scene_settle(&scene);
	before = figures_now(job);
	training_push(&actor, 0, 1);
	actor_send_step(&actor, 0.1f);
	gpu_actor_send_gather(&actor, 1, 1);
	after = figures_now(job);
	assert_true(after.stall_ns[STATISTICS_STEP] > before.stall_ns[STATISTICS_STEP]);
	assert_int_equal(after.stall_ns[STATISTICS_GPU], before.stall_ns[STATISTICS_GPU]);
}

static struct actor other;
/* That it is of; 0: this process. */
static pid_t other_pid;

static void open_two_ranks(void)
{
	struct actor *ranks[] = { &actor, &other };

	for (unsigned i = 0; i < 2; i++) {
		const struct actor_job job = {
			.rank = i, .world_size = 2, .stage = 3, .host_budget = 2 * PLAY_HOST_BUDGET
		};

		assert_int_equal(actor_enter(&scene, ranks[i]), 0);
		if (i == 1 && other_pid > 0)
			ranks[i]->port.pid = other_pid;
		assert_int_equal(actor_open(ranks[i], &job), 0);
		assert_int_equal(actor_define_units(ranks[i], PLAY_UNITS, PLAY_ELEMENTS), 0);
	}
	actor_ready_both(&actor, &other);
}

/* One rank waits for the step that another one has still to close; that one needs the values before it. */
static void a_rank_gets_the_values_that_it_needs_for_the_step(void **state)
{
	uint32_t step, newer, older;

	open_two_ranks();
	attach(0);
	assert_int_equal(actor_await(&other, send_attach(&other, 0), 0)->status, 0);
	step = actor_send_step(&actor, 0.1f);
	newer = gpu_actor_send_gather(&actor, 1, 1);
	older = gpu_actor_send_gather(&other, 1, 0);
	assert_int_equal(actor_await(&other, older, 0)->status, 0);
	assert_int_equal(actor_find(&other, older, 0)->reply->gpu_gather->version, 0);
	assert_true(lease_give(&gpu_lease_counters(leases_of(&other))[1]));
	assert_int_equal(actor_take_step(&other), 0);
	assert_int_equal(actor_await(&actor, newer, 0)->status, 0);
	assert_int_equal(actor_await(&actor, step, 0)->status, 0);
}

/* All the others stay, and are not looked at. */
static void newer_values_come_when_the_older_ones_are_given_back(void **state)
{
	const struct gpu_tier *tier;
	const struct gpu_pack *pack;
	uint32_t step, newer;

	open_two_ranks();
	attach(0);
	assert_int_equal(actor_await(&other, send_attach(&other, 0), 0)->status, 0);
	tier = scene_job(NULL)->members.ranks[0]->gpu->tier;
	pack = &tier->packs[tier->job->catalog.units[1].pack];
	assert_int_equal(actor_await(&other, gpu_actor_send_gather(&other, 1, 0), 0)->status, 0);
	assert_true(queue_is_empty(&tier->renewals));
	step = actor_send_step(&actor, 0.1f);
	assert_int_equal(actor_take_step(&other), 0);
	assert_int_equal(actor_await(&actor, step, 0)->status, 0);
	while (pack->state != GPU_RESIDENT)
		scene_wait(&scene);
	newer = gpu_actor_send_gather(&actor, 1, 1);
	assert_null(actor_find(&actor, newer, 0));
	assert_ptr_equal(queue_first(&tier->renewals), &pack->renewal);
	assert_true(lease_give(&gpu_lease_counters(leases_of(&other))[1]));
	assert_int_equal(actor_await(&actor, newer, 0)->status, 0);
	assert_int_equal(actor_find(&actor, newer, 0)->reply->gpu_gather->version, 1);
	scene_settle(&scene);
	assert_true(queue_is_empty(&tier->renewals));
}

/* ---- Ranks that leave ---- */

/* Its last kernels are held. */
static uint32_t leave_and_want_its_slots(void)
{
	attach(2 * UNIT_BYTES);
	assert_int_equal(actor_await(&other, send_attach(&other, 0), 0)->status, 0);
	gpu_peer_hold(&peer, true);
	for (uint32_t unit = 0; unit < 2; unit++) {
		const struct answer *answer = actor_await(&other, gpu_actor_send_gather(&other, unit, 0), 0);
		uint64_t number = atomic_fetch_add(&leases_of(&other)->recorded, 1) + 1;

		read_unit(answer->reply->gpu_gather);
		gpu_peer_record(&peer, number);
		atomic_store(&gpu_lease_released(leases_of(&other), PLAY_UNITS)[unit], number);
		assert_true(lease_give(&gpu_lease_counters(leases_of(&other))[unit]));
	}
	actor_send_leave(&other, false);
	return gpu_actor_send_gather(&actor, 2, 0);
}

static void who_leaves_with_kernels_under_way_keeps_what_they_read(void **state)
{
	struct statistics_figures before, after;
	uint32_t waiting;

	open_two_ranks();
	waiting = leave_and_want_its_slots();
	before = figures_now(scene_job(NULL));
	for (unsigned i = 0; i < 20; i++) {
		event_base_loop(scene.loop, EVLOOP_NONBLOCK);
		assert_int_equal(actor_outstanding(&actor), 1);
		usleep(1000);
	}
	after = figures_now(scene_job(NULL));
	assert_true(after.stall_ns[STATISTICS_GPU] > before.stall_ns[STATISTICS_GPU]);
	gpu_peer_hold(&peer, false);
	assert_int_equal(actor_await(&actor, waiting, 0)->status, 0);
	scene_settle(&scene);
	assert_null(tier_of(scene_job(NULL))->ranks[1]);
}

/* Its kernels are gone with it. */
static void who_leaves_and_dies_holds_up_nobody(void **state)
{
	uint32_t waiting;

	other_pid = peer.pid;
	open_two_ranks();
	waiting = leave_and_want_its_slots();
	/* As where another pack has that slot, and waits for its values in host memory. */
	tier_of(scene_job(NULL))->places[1].behind[1] = 1;
	gpu_peer_end(&peer);
	assert_int_equal(actor_await(&actor, waiting, 0)->status, 0);
	scene_settle(&scene);
	assert_null(tier_of(scene_job(NULL))->ranks[1]);
	/* Another rank may come to its place. */
	assert_int_equal(tier_of(scene_job(NULL))->places[1].behind[1], 0);
	gpu_peer_start(&peer);
}

/* ---- Ranks that get none ---- */

/* A real driver fails when it wants to. */
static void skip_without_stand_in(void)
{
	if (strcmp(gpu_text, "GPU 0 (stand-in)") == 0)
		return;
	print_message("skipped: a real driver does not fail on demand\n");
	skip();
}

static const char *refused(uint32_t number, int status)
{
	const struct answer *answer = actor_await(&actor, number, 0);

	assert_int_equal(answer->status, status);
	return answer->reply->status->message;
}

static void a_gpu_that_is_not_there_is_refused(void **state)
{
	actor_play(&scene, &actor);
	uuid[0] ^= 1;
	assert_non_null(strstr(refused(send_attach(&actor, 0), -ENODEV), ", and that of the rank is not"));
	assert_non_null(
		strstr(refused(gpu_actor_send_gather(&actor, 0, 0), -EINVAL), "rank 0 has asked for no GPU"));
	/* The rank may ask again. */
	uuid[0] ^= 1;
	attach(0);
	assert_non_null(
		strstr(refused(send_attach(&actor, 0), -EEXIST), "rank 0 has asked for a GPU already"));
}

static void a_budget_without_room_for_two_units_is_refused(void **state)
{
	const char *why;

	actor_play(&scene, &actor);
	why = refused(send_attach(&actor, UNIT_BYTES), -ENOMEM);
	assert_non_null(strstr(why, "the job needs at least 4.0 MiB of "));
	assert_non_null(strstr(why, gpu_text));
	attach(2 * UNIT_BYTES);
}

static void a_gpu_that_cannot_be_opened_is_opened_later_and_closed(void **state)
{
	const struct gpu_in_use *gpu;

	skip_without_stand_in();
	actor_play(&scene, &actor);
	standin_tell("STANDIN_FAILURES", "cuDevicePrimaryCtxRetain=2");
	refused(send_attach(&actor, 0), -ENOMEM);
	standin_tell("STANDIN_FAILURES", NULL);
	scene_settle(&scene);
	gpu = &scene.node->gpu->in_use[0];
	assert_int_equal(gpu->tiers, 0);
	attach(0);
	assert_int_equal(gpu->tiers, 1);
	actor_die(&actor);
	while (gpu->tiers > 0)
		scene_wait(&scene);
	/* A worker closes it, and nobody hears it any more. */
	assert_null(gpu->event);
	assert_int_equal(actor_enter(&scene, &actor), 0);
}

static void memory_that_a_gpu_does_not_have_is_not_waited_for(void **state)
{
	struct job *job;

	skip_without_stand_in();
	job = actor_play(&scene, &actor);
	standin_tell("STANDIN_FAILURES", "cuMemCreate=2");
	refused(send_attach(&actor, 0), -ENOMEM);
	standin_tell("STANDIN_FAILURES", NULL);
	scene_settle(&scene);
	assert_null(tier_of(job));
	attach(0);
}

static void who_leases_all_slots_is_told(void **state)
{
	actor_play(&scene, &actor);
	attach(2 * UNIT_BYTES);
	gather(0, 0);
	gather(1, 0);
	assert_non_null(strstr(refused(gpu_actor_send_gather(&actor, 2, 0), -EDEADLK),
			       "can never be gathered on GPU 0"));
	release(0);
	read_unit(gather(2, 0));
	expect_host_values(2, 0);
}

static void a_tier_goes_with_its_last_rank(void **state)
{
	struct job *job = actor_play(&scene, &actor);

	attach(0);
	gather(0, 0);
	actor_die(&actor);
	while (tier_of(job))
		scene_wait(&scene);
	assert_int_equal(actor_enter(&scene, &actor), 0);
}

static void a_gpu_that_is_lost_takes_nothing_else_with_it(void **state)
{
	const void *address;

	skip_without_stand_in();
	actor_play(&scene, &actor);
	attach(2 * UNIT_BYTES);
	gather(0, 0);
	release(0);
	standin_tell("STANDIN_FAILURES", "cuMemcpyAsync=719!");
	assert_non_null(strstr(refused(gpu_actor_send_gather(&actor, 1, 0), -ENODEV), gpu_text));
	assert_non_null(strstr(refused(gpu_actor_send_gather(&actor, 0, 0), -ENODEV), gpu_text));
	standin_tell("STANDIN_FAILURES", NULL);
	assert_int_equal(actor_gather(&actor, 0, 0, &address), 0);
}

/* It has a lease, and reads on for as long as it likes. */
static void a_job_that_is_dropped_outlives_its_tier(void **state)
{
	actor_play(&scene, &actor);
	attach(2 * UNIT_BYTES);
	gather(0, 0);
	assert_int_equal(actor_drop(&actor, true), 0);
	assert_false(queue_is_empty(&scene.node->jobs.dying));
	while (!queue_is_empty(&scene.node->jobs.dying))
		scene_wait(&scene);
	actor_die(&actor);
	scene_settle(&scene);
}

/* As if a call had begun long ago. */
static void a_gpu_whose_driver_hangs_is_lost(void **state)
{
	const struct actor_job another = { .name = "other", .stage = 3 };
	struct gpu_in_use *gpu;
	static struct actor second;
	const void *address;

	actor_play(&scene, &actor);
	attach(2 * UNIT_BYTES);
	gather(0, 0);
	release(0);
	gpu = tier_of(scene_job(NULL))->gpu;
	while (!gpu->is_lost) {
		atomic_store(&gpu->engine->at_work_since_ns, 1);
		gpu_check_engines(scene.node);
	}
	assert_non_null(strstr(refused(gpu_actor_send_gather(&actor, 1, 0), -ENODEV),
			       "its driver has not come back from a call for 60 s"));
	assert_int_equal(actor_gather(&actor, 0, 0, &address), 0);
	/* Nobody waits for what does not answer. */
	assert_int_equal(actor_join(&scene, &second, &another), 0);
	assert_int_equal(actor_define_units(&second, 1, PLAY_ELEMENTS), 0);
	assert_int_equal(actor_ready(&second), 0);
	assert_int_equal(actor_await(&second, send_attach(&second, 0), 0)->status, -ENODEV);
	assert_non_null(strstr(actor_message(&second), "has not come back"));
}

/* The pack is kept where it is for a copy that does not end. */
static void a_decided_step_does_not_wait_for_a_driver_that_hangs(void **state)
{
	uint32_t waiting, step;
	const void *address;
	struct job *job;

	skip_without_stand_in();
	job = actor_play(&scene, &actor);
	attach(2 * UNIT_BYTES);
	for (uint32_t unit = 0; unit < PLAY_UNITS; unit++)
		training_push(&actor, unit, 1);
	gpu_peer_block("cuMemcpyAsync");
	waiting = gpu_actor_send_gather(&actor, 0, 0);
	while (!residency_is_pinned(job, job->catalog.units[0].pack))
		scene_wait(&scene);
	gpu_peer_await_blocked();
	step = actor_send_step(&actor, 0.1f);
	while (job->decided == 0)
		scene_wait(&scene);
	atomic_store(&tier_of(job)->gpu->engine->at_work_since_ns, 1);
	gpu_check_engines(scene.node);
	assert_non_null(strstr(refused(waiting, -ENODEV), "has not come back"));
	assert_int_equal(actor_await(&actor, step, 0)->status, 0);
	assert_int_equal(actor_gather(&actor, 0, 1, &address), 0);
	gpu_peer_unblock();
	actor_die(&actor);
	scene_settle(&scene);
}

/* It waited for a rank that may have died. */
static void what_is_held_for_a_gpu_that_is_lost_is_not_copied(void **state)
{
	struct gpu_tier *tier;
	struct gpu_pack *pack;
	uint32_t waiting;

	skip_without_stand_in();
	open_two_ranks();
	attach(2 * UNIT_BYTES);
	assert_int_equal(actor_await(&other, send_attach(&other, 0), 0)->status, 0);
	tier = tier_of(scene_job(NULL));
	pack = &tier->packs[tier->job->catalog.units[2].pack];
	tier->ranks[1]->draining = GPU_MAY_DIE;
	waiting = gpu_actor_send_gather(&actor, 2, 0);
	while (!pack->is_held)
		scene_wait(&scene);
	while (!tier->gpu->is_lost) {
		atomic_store(&tier->gpu->engine->at_work_since_ns, 1);
		gpu_check_engines(scene.node);
	}
	assert_int_equal(actor_await(&actor, waiting, 0)->status, -ENODEV);
	assert_false(residency_is_pinned(tier->job, gpu_pack_number(pack)));
	tier->ranks[1]->draining = GPU_STAYS;
	gpu_packs_resume(tier);
	assert_false(pack->is_held);
	assert_int_equal(pack->state, GPU_ABSENT);
}

static void begin_another(struct actor *second)
{
	const struct actor_job another = { .name = "other", .stage = 3 };

	assert_int_equal(actor_join(&scene, second, &another), 0);
	assert_int_equal(actor_define_units(second, 1, PLAY_ELEMENTS), 0);
	assert_int_equal(actor_ready(second), 0);
}

static void nobody_waits_for_a_gpu_that_is_opened_or_closed(void **state)
{
	static struct actor second;
	uint32_t waiting;

	actor_play(&scene, &actor);
	gpu_peer_block("cuDevicePrimaryCtxRetain,cuStreamDestroy_v2");
	waiting = send_attach(&actor, 2 * UNIT_BYTES);
	begin_another(&second);
	assert_int_equal(actor_outstanding(&actor), 1);
	actor_die(&second);
	gpu_peer_unblock();
	assert_int_equal(actor_await(&actor, waiting, 0)->status, 0);
	gpu_peer_block("cuDevicePrimaryCtxRetain,cuStreamDestroy_v2");
	actor_die(&actor);
	begin_another(&second);
	actor_die(&second);
	gpu_peer_unblock();
}

/* As if it had begun long ago. */
static void a_gpu_whose_opening_hangs_is_refused(void **state)
{
	struct gpu_helper *helper;
	const void *address;
	uint32_t waiting;

	actor_play(&scene, &actor);
	gpu_peer_block("cuDevicePrimaryCtxRetain");
	waiting = send_attach(&actor, 2 * UNIT_BYTES);
	helper = &scene.node->gpu->in_use[0].helper;
	while (atomic_load(&helper->since_ns) == 0)
		scene_wait(&scene);
	atomic_store(&helper->since_ns, 1);
	gpu_check_engines(scene.node);
	assert_non_null(strstr(refused(waiting, -ENODEV), "the opening of GPU 0 has not ended for 60 s"));
	assert_int_equal(actor_gather(&actor, 0, 0, &address), 0);
	gpu_peer_unblock();
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		TEST(a_tier_without_a_budget_keeps_all_units),
		TEST(a_decided_step_does_not_wait_for_a_driver_that_hangs),
		TEST(what_is_held_for_a_gpu_that_is_lost_is_not_copied),
		TEST(units_take_turns_in_the_slots_that_there_are),
		TEST(nothing_is_overwritten_before_what_reads_it_has_ended),
		TEST(a_step_brings_newer_values),
		TEST(values_of_a_step_are_waited_for),
		TEST(what_a_gather_there_waits_for_is_counted),
		TEST(a_gather_there_waits_for_a_step),
		TEST(a_rank_gets_the_values_that_it_needs_for_the_step),
		TEST(newer_values_come_when_the_older_ones_are_given_back),
		TEST(who_leaves_with_kernels_under_way_keeps_what_they_read),
		TEST(who_leaves_and_dies_holds_up_nobody),
		TEST(a_gpu_that_is_not_there_is_refused),
		TEST(a_budget_without_room_for_two_units_is_refused),
		TEST(a_gpu_that_cannot_be_opened_is_opened_later_and_closed),
		TEST(memory_that_a_gpu_does_not_have_is_not_waited_for),
		TEST(who_leases_all_slots_is_told),
		TEST(a_tier_goes_with_its_last_rank),
		TEST(a_job_that_is_dropped_outlives_its_tier),
		TEST(a_gpu_that_is_lost_takes_nothing_else_with_it),
		TEST(a_gpu_whose_driver_hangs_is_lost),
		TEST(nobody_waits_for_a_gpu_that_is_opened_or_closed),
		TEST(a_gpu_whose_opening_hangs_is_refused),
	};

	if (argc > 1)
		return gpu_peer_run(argc, argv);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
