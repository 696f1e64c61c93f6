#include "tests/unit/library/gpu_scene.h"

#include <assert.h>
#include <errno.h>
#include <semaphore.h>
#include <stdio.h>
#include <string.h>

#include "common/cleanup.h"
#include "tests/lib/gpu/cuda_calls.h"
#include "tests/lib/gpu/script.h"

#define BYTES 4096

#define did(call) assert((call) == DRIVER_DONE)

static char host[STREAMS][BYTES] __attribute__((aligned(4096)));
static sem_t going;

static bool answer(struct fake_peer *peer, uint32_t number, const Tierd__Wire__Request *request)
{
	struct gpu_scene *scene = container_of(peer, struct gpu_scene, peer);

	return (scene->hook && scene->hook(scene, number, request)) ||
	       fake_gpu_answer(&scene->gpu, peer, number, request);
}

static void open_streams(struct gpu_scene *scene)
{
	struct dynamic_library library = { .is_found = false };

	assert(driver_open(&scene->driver, &library));
	did(scene->driver.context_retain(&scene->context, 0));
	did(scene->driver.context_enter(scene->context));
	did(scene->driver.host_register(host, sizeof(host), DRIVER_PORTABLE));
	for (unsigned i = 0; i < STREAMS; i++)
		did(scene->driver.stream_create(&scene->streams[i], DRIVER_NO_STREAM_0));
}

static void define(struct gpu_scene *scene, const char *name, bool is_frozen)
{
	struct tierd_tensor tensor = TIERD_TENSOR_INIT;
	char text[32];

	snprintf(text, sizeof(text), "%s.w", name);
	tensor.name = text;
	tensor.dimensions = 1;
	tensor.shape[0] = BYTES;
	tensor.is_frozen = is_frozen;
	assert(tierd_unit_define(scene->job, name, &tensor, 1, NULL) == 0);
}

unsigned gpu_scene_mappings(void)
{
	FILE *maps = fopen("/proc/self/maps", "re");
	unsigned count = 0;
	char line[512];

	assert(maps);
	while (fgets(line, sizeof(line), maps))
		count += strstr(line, "stand-in GPU memory") && strstr(line, "rw-s 00000000");
	fclose(maps);
	return count;
}

/* Who opens a GPU unmaps what is not used any more. */
static void collect(struct gpu_scene *scene)
{
	struct tierd_job_options options = TIERD_JOB_OPTIONS_INIT;
	struct tierd_job *job;

	options.name = "other";
	options.gpu = 0;
	assert(tierd_job_open(scene->node, &options, &job) == 0);
	tierd_job_detach(job);
}

void gpu_scene_await_mappings(struct gpu_scene *scene, unsigned count)
{
	do
		collect(scene);
	while (gpu_scene_mappings() > count);
	assert(gpu_scene_mappings() == count);
}

void gpu_scene_job(struct gpu_scene *scene)
{
	struct tierd_job_options options = TIERD_JOB_OPTIONS_INIT;

	options.name = "test";
	options.gpu = 0;
	options.gpu_budget = 12345;
	options.gpu_update = 0.25f;
	scene->job = NULL;
	scene->peer.unit_count = 0;
	if (tierd_job_open(scene->node, &options, &scene->job) < 0)
		return;
	define(scene, "first", false);
	define(scene, "second", false);
	define(scene, "frozen", true);
}

void gpu_scene_open(struct gpu_scene *scene)
{
	struct tierd_connect_options connect = TIERD_CONNECT_OPTIONS_INIT;

	sem_init(&going, 0, 0);
	fake_gpu_start(&scene->gpu);
	scene->peer.hook = answer;
	fake_peer_start(&scene->peer);
	open_streams(scene);
	connect.socket_path = scene->peer.path;
	connect.reconnect_ms = scene->reconnect_ms;
	assert(tierd_connect_with(&connect, &scene->node) == 0);
	/* Those of the test before. */
	gpu_scene_await_mappings(scene, 0);
	gpu_scene_job(scene);
	assert(scene->job);
}

void gpu_scene_start(struct gpu_scene *scene)
{
	gpu_scene_open(scene);
	assert(tierd_job_ready(scene->job, -1, &scene->state) == 0);
}

static void release_all(struct gpu_scene *scene)
{
	for (uint32_t unit = 0; unit < UNITS; unit++)
		while (tierd_release_on(scene->job, unit, scene->streams[0]) == 0)
			;
}

void gpu_scene_end(struct gpu_scene *scene)
{
	if (scene->job)
		release_all(scene);
	tierd_disconnect(scene->node);
	did(scene->driver.context_enter(scene->context));
	/* They may wait for copies. */
	for (unsigned i = 0; i < STREAMS; i++)
		did(scene->driver.stream_synchronize(scene->streams[i]));
	fake_peer_stop(&scene->peer);
	fake_gpu_stop(&scene->gpu);
	for (unsigned i = 0; i < STREAMS; i++)
		did(scene->driver.stream_destroy(scene->streams[i]));
	did(scene->driver.host_unregister(host));
	did(scene->driver.context_enter(NULL));
	did(scene->driver.context_release(0));
	sem_destroy(&going);
}

void gpu_scene_read_from(struct gpu_scene *scene, const char *address, unsigned stream)
{
	did(scene->driver.context_enter(scene->context));
	did(scene->driver.copy((uintptr_t)host[stream], (uintptr_t)address, BYTES, scene->streams[stream]));
}

void gpu_scene_fill(struct gpu_scene *scene, const char *address, unsigned char byte, unsigned stream)
{
	did(scene->driver.context_enter(scene->context));
	did(scene->driver.fill((uintptr_t)address, byte, BYTES, scene->streams[stream]));
}

void gpu_scene_read(struct gpu_scene *scene, uint32_t unit, unsigned stream)
{
	struct tierd_view view;

	assert(tierd_gather_on(scene->job, unit, scene->streams[stream], &view) == 0);
	gpu_scene_read_from(scene, tierd_at(&view, 0), stream);
}

int gpu_scene_byte(struct gpu_scene *scene, unsigned stream)
{
	did(scene->driver.stream_synchronize(scene->streams[stream]));
	for (unsigned i = 1; i < BYTES; i++)
		if (host[stream][i] != host[stream][0])
			return -1;
	return (unsigned char)host[stream][0];
}

static void wait_to_go_on(void *argument)
{
	while (sem_wait(&going) < 0)
		assert(errno == EINTR);
}

void gpu_scene_hold(struct gpu_scene *scene, unsigned stream)
{
	did(cuLaunchHostFunc(scene->streams[stream], wait_to_go_on, NULL));
}

void gpu_scene_go_on(struct gpu_scene *scene)
{
	sem_post(&going);
}

void gpu_scene_fail(struct gpu_scene *scene, const char *failures)
{
	if (!failures) {
		standin_tell("STANDIN_FAILURES", NULL);
		return;
	}
	did(scene->driver.context_enter(scene->context));
	for (unsigned i = 0; i < STREAMS; i++)
		did(scene->driver.stream_synchronize(scene->streams[i]));
	did(scene->driver.context_enter(NULL));
	standin_tell("STANDIN_FAILURES", failures);
}

int gpu_scene_step(struct gpu_scene *scene)
{
	const struct tierd_rates rates = { sizeof(rates), .gradient_scale = 1 };

	return tierd_step(scene->job, &rates, NULL);
}
