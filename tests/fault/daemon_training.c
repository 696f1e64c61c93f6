#include "tests/fault/daemon_training.h"

#include <string.h>

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

/* In the window: a step of size 0.1 against the gradients, from the masters. */
static int update_by_owner(struct actor *actor, uint32_t unit, uint32_t tensor, uint64_t version)
{
	float *window = (float *)actor->window.base, gradients[TRAINING_ELEMENTS];
	int r = actor_read(actor, unit, tensor, "gradient", 0, TRAINING_ELEMENTS, version);

	if (r < 0)
		return r;
	memcpy(gradients, window, sizeof(gradients));
	r = actor_read(actor, unit, tensor, "master", 0, TRAINING_ELEMENTS, version + 1);
	for (unsigned i = 0; r == 0 && i < TRAINING_ELEMENTS; i++)
		window[i] -= 0.1f * gradients[i];
	/* In two pieces: the second one takes place in the notes of what is written. */
	if (r == 0)
		r = actor_await(actor, actor_send_masters(actor, unit, tensor, 0, 100), 0)->status;
	return r < 0 ? r
		     : actor_await(actor, actor_send_masters(actor, unit, tensor, 0, TRAINING_ELEMENTS), 0)
			       ->status;
}

static int take_step_by_owner(struct actor *actor, uint64_t version)
{
	uint32_t number = actor_send_step(actor, 0.1f);
	int r = actor_await(actor, number, 0)->status;

	if (r == 0)
		r = update_by_owner(actor, 0, 0, version);
	if (r == 0)
		r = update_by_owner(actor, 1, 1, version);
	if (r == 0)
		r = actor_finish(actor);
	return r < 0 ? r : actor_await(actor, number, 1)->status;
}

static int read_some(struct actor *actor, const char *state, uint64_t version)
{
	Tierd__Wire__TensorPiece pieces[2] = { TIERD__WIRE__TENSOR_PIECE__INIT,
					       TIERD__WIRE__TENSOR_PIECE__INIT };

	for (unsigned i = 0; i < 2; i++) {
		pieces[i].unit = pieces[i].tensor = i;
		pieces[i].state = (char *)state;
		pieces[i].count = TRAINING_ELEMENTS;
		pieces[i].at = i * TRAINING_ELEMENTS * sizeof(float);
	}
	return actor_await(actor, actor_send_read_many(actor, pieces, 2, version), 0)->status;
}

static int train(struct actor *actor, const struct actor_job *job, uint64_t version)
{
	bool is_by_owner = job->optimizer == OPTIMIZER_NONE;
	const Tierd__Wire__GroupsReply *groups;
	int r = gather_all(actor, version);

	if (r == 0)
		r = actor_get_groups(actor, 1, &groups);
	/* So that some of it is updated before the step, if there is time. */
	if (r == 0)
		r = actor_begin_step(actor, 0.1f, 1);
	if (r == 0)
		r = push_all(actor);
	if (r == 0 && job->blob_bytes > 0)
		r = actor_set_blob(actor, "place", TRAINING_BLOB_BYTES, 'a' + (char)version);
	if (r == 0)
		r = is_by_owner ? take_step_by_owner(actor, version) : actor_take_step(actor);
	if (r == 0)
		r = gather_all(actor, version + 1);
	return r < 0 ? r : read_some(actor, is_by_owner ? "master" : "m", version + 1);
}

int training_run(struct scene *scene, struct actor *actor, const struct actor_job *job)
{
	int r = prepare(scene, actor, job);

	if (r == 0)
		r = write_head(actor);
	if (r == 0)
		r = actor_ready(actor);
	if (r == 0)
		r = train(actor, job, 0);
	return r < 0 ? r : train(actor, job, 1);
}

int training_resume(struct scene *scene, struct actor *actor, const struct actor_job *job)
{
	int r = prepare(scene, actor, job);
	uint64_t step = actor->step;

	if (r == 0)
		r = actor_ready(actor);
	for (; r == 0 && step < 2; step++)
		r = train(actor, job, step);
	return r;
}

int training_read(struct actor *actor, float result[TRAINING_VALUES])
{
	int r = 0;

	for (uint32_t unit = 0; r == 0 && unit < 2; unit++) {
		r = actor_read(actor, unit, unit, "master", 0, TRAINING_ELEMENTS, 2);
		if (r == 0)
			memcpy(result + unit * TRAINING_ELEMENTS, actor->window.base,
			       TRAINING_ELEMENTS * sizeof(*result));
	}
	return r;
}

static void put(struct actor *actor, float value)
{
	for (unsigned i = 0; i < TRAINING_ELEMENTS; i++)
		((float *)actor->window.base)[i] = value;
}

int training_write(struct actor *actor)
{
	uint32_t number = actor_send_write_begin(actor);
	int r = actor_await(actor, number, 0)->status;

	put(actor, 3.0f);
	if (r == 0)
		r = actor_await(actor, actor_send_masters(actor, 0, 0, 0, TRAINING_ELEMENTS), 0)->status;
	put(actor, 5.0f);
	if (r == 0)
		r = actor_await(actor, actor_send_unit_state(actor, 1, 1, "m", 9, 0, TRAINING_ELEMENTS), 0)
			    ->status;
	if (r == 0)
		r = actor_end_write(actor, false);
	return r < 0 ? r : actor_await(actor, number, 1)->status;
}
