#include "tests/unit/update/gpu_training.h"

#include <string.h>
#include <xxhash.h>

#include "offload/cuda/gpus.h"
#include "tests/lib/gpu/script.h"
#include "tests/unit/gpu/gpu_actor.h"
#include "tests/unit/scene_test.h"
#include "tests/unit/test.h"

struct actor actor;

static struct gpu_peer peer;
static uint8_t uuid[GPU_UUID_BYTES];

int gpu_training_setup(void **state)
{
	struct gpus gpus;

	standin_tell("STANDIN_GPUS", "1");
	standin_tell("STANDIN_BYTES", "1073741824");
	standin_tell("STANDIN_FAILURES", NULL);
	gpus_find(&gpus);
	memcpy(uuid, &gpus.gpus[0].uuid, sizeof(uuid));
	return scene_setup(state);
}

static void end_peer(void)
{
	if (peer.pid > 0)
		gpu_peer_end(&peer);
	peer.pid = 0;
}

int gpu_training_teardown(void **state)
{
	int r;

	standin_tell("STANDIN_FAILURES", NULL);
	r = scene_teardown(state);
	end_peer();
	return r;
}

struct actor_job gpu_training_options(uint32_t parameters_on, uint32_t optimizer_on)
{
	return (struct actor_job){ .stage = parameters_on == PLACEMENT_NVME ? 3 : 2,
				   .parameter_placement = parameters_on,
				   .optimizer_placement = optimizer_on,
				   .gradient_placement = PLACEMENT_HOST };
}

int gpu_training_ask(float fraction, uint64_t budget)
{
	if (peer.pid == 0)
		gpu_peer_start(&peer);
	/* Its death is seen at once. */
	scene_job("play")->members.ranks[actor.rank]->pid = peer.pid;
	return actor_await(&actor, gpu_actor_send_attach_for(&peer, &actor, uuid, budget, fraction), 0)
		->status;
}

void gpu_training_step(uint64_t step)
{
	training_push_all(&actor, step);
	training_step(&actor);
	scene_settle(&scene);
}

static uint64_t add_state(uint64_t hash, uint32_t unit, const char *state, uint64_t version)
{
	bool is_narrow = unit % 2 == 0 && strcmp(state, "parameter") == 0;

	for (uint64_t first = 0; first < actor.elements[unit]; first += WINDOW_BYTES / sizeof(float)) {
		uint64_t left = actor.elements[unit] - first, most = WINDOW_BYTES / sizeof(float);
		uint64_t count = left < most ? left : most;

		assert_int_equal(actor_read(&actor, unit, 0, state, first, count, version), 0);
		hash = XXH3_64bits_withSeed(actor.window.base, count * (is_narrow ? 2 : 4), hash);
	}
	return hash;
}

uint64_t gpu_training_hash(const struct job *job, uint64_t version)
{
	uint64_t hash = 0;

	for (uint32_t unit = 0; unit < actor.defined; unit++) {
		hash = add_state(hash, unit, "parameter", version);
		hash = add_state(hash, unit, "master", version);
		for (unsigned slot = 0; slot < job->options.slot_count; slot++)
			hash = add_state(hash, unit, job->options.optimizer->slots[slot], version);
	}
	return hash;
}

void gpu_training_end(struct job *job)
{
	end_peer();
	training_end(&actor, job);
}

int gpu_training_main(int argc, char **argv)
{
	return gpu_peer_run(argc, argv);
}
