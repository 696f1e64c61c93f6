/* What the daemon says of GPUs that jobs use, where stand-ins play GPU, driver and NVML. */
#include <string.h>

#include "daemon/gpu/own.h"
#include "daemon/resources/own.h"
#include "tests/lib/gpu/script.h"
#include "tests/unit/gpu/gpu_actor.h"
#include "tests/unit/scene_test.h"
#include "tests/unit/test.h"
#include "tests/unit/training.h"

#define TIER_BYTES ((uint64_t)2 * PLAY_ELEMENTS * 2)

static struct actor actor;
static struct gpu_peer peer;

static int setup(void **state)
{
	standin_tell("STANDIN_GPUS", "2");
	standin_tell("STANDIN_BYTES", "67108864");
	standin_tell("STANDIN_MILLIJOULES", "5000000");
	standin_tell("STANDIN_FAILURES", NULL);
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

/* The job asks for two units' room on GPU 1, which the actor does not look at. */
static void attach(void)
{
	struct gpus gpus;

	gpus_find(&gpus);
	assert_int_equal(gpus.count, 2);
	assert_int_equal(actor_await(&actor,
				     gpu_actor_send_attach(&peer, &actor, (uint8_t *)gpus.gpus[1].uuid.bytes,
							   TIER_BYTES),
				     0)
				 ->status,
			 0);
}

static void gather(uint32_t unit, int status)
{
	assert_int_equal(actor_await(&actor, gpu_actor_send_gather(&actor, unit, 0), 0)->status, status);
}

static void look(void)
{
	struct gpu_sensing *sensing = scene.node->gpu->sensing;

	for (unsigned i = 0; i < 2; i++) {
		gpu_sensing_look(sensing);
		while (!gpu_sensing_is_quiet(sensing))
			scene_wait(&scene);
	}
}

/* From now on nobody looks but look(): where no GPU is wanted, the timer ends. */
static void stop_timer(void)
{
	struct gpu_in_use *gpu = &scene.node->gpu->in_use[1];

	look();
	gpu->is_lost = true;
	look();
	gpu->is_lost = false;
}

/* And its GPU is let go of. */
static void die(void)
{
	actor_die(&actor);
	while (scene.node->gpu->in_use[1].tiers > 0)
		scene_wait(&scene);
}

static const Tierd__Wire__NodeReply *ask_node(void)
{
	Tierd__Wire__NodeRead read = TIERD__WIRE__NODE_READ__INIT;
	const Tierd__Wire__Reply *reply;

	assert_int_equal(actor_ask(&actor, WIRE_REQUEST(NODE_READ, node_read, &read), &reply), 0);
	return reply->node;
}

static const Tierd__Wire__JobEntry *ask_job(void)
{
	Tierd__Wire__JobsRead read = TIERD__WIRE__JOBS_READ__INIT;
	const Tierd__Wire__Reply *reply;

	assert_int_equal(actor_ask(&actor, WIRE_REQUEST(JOBS_READ, jobs_read, &read), &reply), 0);
	assert_int_equal(reply->jobs->n_jobs, 1);
	return reply->jobs->jobs[0];
}

static const Tierd__Wire__Gpu *ask_gpu(void)
{
	const Tierd__Wire__NodeReply *node = ask_node();

	assert_int_equal(node->n_gpus, 1);
	return node->gpus[0];
}

static void expect_no_sensors(const Tierd__Wire__Gpu *gpu)
{
	assert_false(gpu->has_busy_percent || gpu->has_used_bytes || gpu->has_temperature_celsius ||
		     gpu->has_power_milliwatts || gpu->has_energy_millijoules);
	assert_true(gpu->busy_percent == 0 && gpu->power_milliwatts == 0);
}

/* ---- Tests ---- */

static void a_gpu_is_shown_while_a_job_uses_it(void **state)
{
	const Tierd__Wire__Gpu *gpu;

	actor_play(&scene, &actor);
	assert_int_equal(ask_node()->n_gpus, 0);
	assert_int_equal(ask_job()->n_gpus, 0);
	attach();
	look();
	gpu = ask_gpu();
	assert_int_equal(gpu->number, 1);
	assert_string_equal(gpu->name, "stand-in");
	assert_string_equal(gpu->bus, "0000:18:00.0");
	assert_string_equal(gpu->uuid, "GPU-7374616e-642d-696e-2047-505500000001");
	assert_int_equal(gpu->bytes, 67108864);
	assert_int_equal(gpu->held_bytes, TIER_BYTES);
	assert_true(gpu->has_busy_percent && gpu->busy_percent == 37);
	assert_true(gpu->has_used_bytes && gpu->used_bytes == 2UL << 30);
	assert_true(gpu->has_temperature_celsius && gpu->temperature_celsius == 51);
	assert_true(gpu->has_power_milliwatts && gpu->power_milliwatts == 123456);
	assert_true(gpu->has_energy_millijoules && gpu->energy_millijoules == 5000000);
	die();
	assert_int_equal(actor_enter(&scene, &actor), 0);
	assert_int_equal(ask_node()->n_gpus, 0);
}

static void a_job_says_how_much_it_has_where(void **state)
{
	const Tierd__Wire__JobEntry *job;

	actor_play(&scene, &actor);
	attach();
	job = ask_job();
	assert_int_equal(job->n_gpus, 1);
	assert_int_equal(job->gpus[0]->number, 1);
	assert_string_equal(job->gpus[0]->uuid, "GPU-7374616e-642d-696e-2047-505500000001");
	assert_int_equal(job->gpus[0]->parameter_bytes, TIER_BYTES);
	assert_int_equal(job->statistics->job_gpu_parameter_bytes, TIER_BYTES);
	assert_int_equal(job->statistics->job_gpu_gradient_bytes, 0);
	assert_int_equal(job->statistics->job_gpu_update_bytes, 0);
	assert_int_equal(job->statistics->job_gpu_state_bytes, 0);
}

static void copies_are_counted(void **state)
{
	actor_play(&scene, &actor);
	attach();
	assert_int_equal(ask_gpu()->from_host_bytes, 0);
	gather(0, 0);
	gather(1, 0);
	while (ask_gpu()->from_host_bytes < TIER_BYTES)
		scene_wait(&scene);
	assert_int_equal(ask_gpu()->from_host_bytes, TIER_BYTES);
	assert_true(ask_gpu()->from_host_ns > 0);
	assert_int_equal(ask_gpu()->to_host_bytes, 0);
}

static void without_nvml_a_gpu_has_no_sensors(void **state)
{
	actor_play(&scene, &actor);
	attach();
	look();
	standin_tell("STANDIN_FAILURES", "nvmlInit_v2=9");
	die();
	/* Until nobody has a GPU any more it stays open. */
	look();
	actor_play(&scene, &actor);
	attach();
	look();
	expect_no_sensors(ask_gpu());
	assert_int_equal(ask_gpu()->held_bytes, TIER_BYTES);
}

static void a_sensor_that_fails_is_not_known(void **state)
{
	actor_play(&scene, &actor);
	attach();
	look();
	assert_true(ask_gpu()->has_power_milliwatts);
	standin_tell("STANDIN_FAILURES", "nvmlDeviceGetPowerUsage=15");
	look();
	assert_false(ask_gpu()->has_power_milliwatts);
	assert_int_equal(ask_gpu()->power_milliwatts, 0);
	assert_true(ask_gpu()->has_temperature_celsius);
	standin_tell("STANDIN_FAILURES", NULL);
	look();
	assert_true(ask_gpu()->has_power_milliwatts);
}

static void a_gpu_that_is_lost_is_shown_as_that(void **state)
{
	actor_play(&scene, &actor);
	attach();
	look();
	standin_tell("STANDIN_FAILURES", "cuMemcpyAsync=719!");
	gather(0, -ENODEV);
	assert_true(ask_gpu()->is_lost);
	expect_no_sensors(ask_gpu());
	look();
	expect_no_sensors(ask_gpu());
}

static void take_step(void)
{
	for (uint32_t unit = 0; unit < PLAY_UNITS; unit++)
		training_push(&actor, unit, 1);
	assert_int_equal(actor_take_step(&actor), 0);
}

static void energy_is_counted_with_the_steps_of_the_same_time(void **state)
{
	actor_play(&scene, &actor);
	take_step();
	attach();
	stop_timer();
	look();
	assert_int_equal(ask_job()->gpu_energy_steps, 0);
	standin_tell("STANDIN_MILLIJOULES", "5009000");
	take_step();
	take_step();
	take_step();
	/* Neither is shown without the other. */
	assert_int_equal(ask_job()->gpu_energy_steps, 0);
	look();
	assert_int_equal(ask_job()->gpu_energy_steps, 3);
	assert_int_equal(ask_job()->gpu_energy_millijoules, 9000);
	/* A driver that was loaded again has begun at 0. */
	standin_tell("STANDIN_MILLIJOULES", "100");
	take_step();
	look();
	standin_tell("STANDIN_MILLIJOULES", "300");
	take_step();
	look();
	assert_int_equal(ask_job()->gpu_energy_steps, 4);
	assert_int_equal(ask_job()->gpu_energy_millijoules, 9200);
}

/* ---- NVML that blocks ---- */

static void block_nvml(void)
{
	gpu_peer_block("nvmlShutdown,nvmlDeviceGetHandleByUUID");
}

static void let_go(evutil_socket_t fd, short events, void *argument)
{
	gpu_peer_unblock();
}

static void nobody_waits_for_nvml(void **state)
{
	actor_play(&scene, &actor);
	attach();
	look();
	block_nvml();
	gpu_sensing_look(scene.node->gpu->sensing);
	gather(0, 0);
	/* What was seen before. */
	assert_true(ask_gpu()->has_power_milliwatts);
	/* What takes long in the kernel does not wait behind it, nor does a GPU that is closed. */
	die();
	while (scene.node->resources->works > 1)
		scene_wait(&scene);
	assert_false(gpu_sensing_is_quiet(scene.node->gpu->sensing));
	let_go(-1, 0, NULL);
	assert_int_equal(actor_enter(&scene, &actor), 0);
}

/* The worker would write to what is not there any more. */
static void the_daemon_ends_when_nvml_has_returned(void **state)
{
	static const struct timeval later = { .tv_usec = 100000 };

	actor_play(&scene, &actor);
	attach();
	look();
	block_nvml();
	/* The last one, with which NVML shuts down. */
	gpu_sensing_look(scene.node->gpu->sensing);
	assert_false(gpu_sensing_is_quiet(scene.node->gpu->sensing));
	/* The loop turns while the daemon waits for it: a daemon that does not stays here for ever. */
	assert_int_equal(event_base_once(scene.loop, -1, EV_TIMEOUT, let_go, NULL, &later), 0);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		TEST(a_gpu_is_shown_while_a_job_uses_it),
		TEST(a_job_says_how_much_it_has_where),
		TEST(copies_are_counted),
		TEST(without_nvml_a_gpu_has_no_sensors),
		TEST(a_sensor_that_fails_is_not_known),
		TEST(a_gpu_that_is_lost_is_shown_as_that),
		TEST(energy_is_counted_with_the_steps_of_the_same_time),
		TEST(nobody_waits_for_nvml),
		TEST(the_daemon_ends_when_nvml_has_returned),
	};

	if (argc > 1)
		return gpu_peer_run(argc, argv);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
