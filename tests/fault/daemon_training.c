#include "tests/fault/daemon_training.h"

static int define_units(struct actor *actor)
{
	static const struct actor_tensor one[] = { { "w", FORMAT_BF16, INITIALIZE_ONES, TRAINING_ELEMENTS,
						     false } };
	static const struct actor_tensor two[] = {
		{ "f", FORMAT_FP32, INITIALIZE_ONES, TRAINING_ELEMENTS, true },
		{ "h", FORMAT_FP32, INITIALIZE_NONE, TRAINING_ELEMENTS, false }
	};
	int r = actor_define(actor, "one", one, 1);

	return r < 0 ? r : actor_define(actor, "two", two, 2);
}

static int prepare(struct scene *scene, struct actor *actor, const struct actor_job *job)
{
	int r = actor_enter(scene, actor);

	if (r == 0)
		r = actor_open(actor, job);
	return r < 0 ? r : define_units(actor);
}

static int write_head(struct actor *actor)
{
	for (unsigned i = 0; i < TRAINING_ELEMENTS; i++)
		((float *)actor->window.base)[i] = 1.0f;
	return actor_write(actor, 1, 1, 0, TRAINING_ELEMENTS);
}

static int push_all(struct actor *actor)
{
	uint32_t numbers[2];
	int r = 0;

	actor_fill(actor, FORMAT_FP32, TRAINING_ELEMENTS, 1.0f);
	for (uint32_t unit = 0; unit < 2; unit++)
		numbers[unit] = actor_send_push(actor, unit, unit);
	for (uint32_t unit = 0; unit < 2; unit++) {
		const struct answer *answer = actor_await(actor, numbers[unit], 0);

		if (answer->status < 0)
			r = answer->status;
	}
	return r;
}

static int gather_all(struct actor *actor, uint64_t version)
{
	int r = 0;

	for (uint32_t unit = 0; unit < 2 && r == 0; unit++) {
		r = actor_gather(actor, unit, version, NULL);
		if (r == 0)
			actor_release(actor, unit);
	}
	return r;
}

static int train(struct actor *actor, uint64_t version)
{
	int r = gather_all(actor, version);

	if (r == 0)
		r = push_all(actor);
	if (r == 0)
		r = actor_await(actor, actor_send_step(actor, 0.1f), 0)->status;
	if (r == 0)
		r = gather_all(actor, version + 1);
	return r < 0 ? r : actor_read(actor, 0, 0, "m", 0, TRAINING_ELEMENTS, version + 1);
}

int training_run(struct scene *scene, struct actor *actor, const struct actor_job *job)
{
	int r = prepare(scene, actor, job);

	if (r == 0)
		r = write_head(actor);
	if (r == 0)
		r = actor_ready(actor);
	if (r == 0)
		r = train(actor, 0);
	return r < 0 ? r : train(actor, 1);
}
