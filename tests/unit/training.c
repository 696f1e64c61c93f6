#include "tests/unit/training.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>
#include <xxhash.h>

#include "daemon/life/life.h"
#include "daemon/model/job.h"
#include "daemon/resources/resources.h"

#define RATE 0.1f
#define WINDOW_VALUES (WINDOW_BYTES / sizeof(float))

static uint32_t format_of(uint32_t unit)
{
	return unit % 2 ? FORMAT_FP32 : FORMAT_BF16;
}

void training_open(struct actor *actor, const struct actor_job *options, const uint64_t *elements,
		   unsigned units)
{
	assert(actor_enter(&scene, actor) == 0);
	assert(actor_open(actor, options) == 0);
	for (unsigned i = 0; i < units; i++) {
		char name[16];
		const struct actor_tensor tensor = { name, format_of(i), INITIALIZE_ONES, elements[i],
						     false };

		snprintf(name, sizeof(name), "u%u", i);
		assert(actor_define(actor, name, &tensor, 1) == 0);
	}
}

struct job *training_start(struct actor *actor, const struct actor_job *options, const uint64_t *elements,
			   unsigned units)
{
	training_open(actor, options, elements, units);
	assert(actor_ready(actor) == 0);
	return scene_job(options->name);
}

void training_fill(struct actor *actor, uint32_t unit, float value)
{
	actor_fill(actor, format_of(unit), actor->elements[unit], value);
}

void training_push(struct actor *actor, uint32_t unit, float value)
{
	training_fill(actor, unit, value);
	assert(actor_await(actor, actor_send_push(actor, unit, 0), 0)->status == 0);
}

float training_gradient(uint32_t unit, uint64_t step)
{
	return (float)unit + 1.0f / (float)(step + 2);
}

void training_push_all(struct actor *actor, uint64_t step)
{
	for (uint32_t unit = actor->defined; unit-- > 0;)
		training_push(actor, unit, training_gradient(unit, step));
}

void training_begin_step(struct actor *actor)
{
	assert(actor_begin_step(actor, RATE, 1) == 0);
}

double training_step(struct actor *actor)
{
	const struct answer *answer = actor_await(actor, actor_send_step(actor, RATE), 0);

	assert(answer->status == 0);
	return answer->reply->step->gradient_norm;
}

static uint64_t add_state(uint64_t hash, struct actor *actor, uint32_t unit, const char *state,
			  uint64_t version)
{
	bool is_narrow = format_of(unit) == FORMAT_BF16 && state[0] == 'p';
	uint64_t all = actor->elements[unit];

	for (uint64_t first = 0; first < all; first += WINDOW_VALUES) {
		uint64_t count = all - first < WINDOW_VALUES ? all - first : WINDOW_VALUES;

		assert(actor_read(actor, unit, 0, state, first, count, version) == 0);
		hash = XXH3_64bits_withSeed(actor->window.base, count * (is_narrow ? 2 : 4), hash);
	}
	return hash;
}

uint64_t training_hash(struct actor *actor, uint64_t version)
{
	static const char *const states[] = { "parameter", "master", "m", "v" };
	uint64_t hash = 0;

	for (uint32_t unit = 0; unit < actor->defined; unit++)
		for (unsigned i = 0; i < ARRAY_LENGTH(states); i++)
			hash = add_state(hash, actor, unit, states[i], version);
	return hash;
}

#define ENDS_BYTES sizeof(((struct training_ends *)0)->values[0])
#define ENDS_COUNT (ENDS_BYTES / sizeof(float))

void training_note_ends(struct actor *rank, const char *state, uint64_t version,
			struct training_ends *ret_ends)
{
	ret_ends->state = state;
	ret_ends->units = rank->defined;
	for (uint32_t unit = 0; unit < rank->defined; unit++) {
		ret_ends->first[unit] = rank->elements[unit] - ENDS_COUNT;
		assert(actor_read(rank, unit, 0, state, ret_ends->first[unit], ENDS_COUNT, version) == 0);
		memcpy(ret_ends->values[unit], rank->window.base, ENDS_BYTES);
	}
}

uint32_t training_send_refresh(struct actor *reader, const char *state, uint32_t *ret_number)
{
	Tierd__Wire__ReaderPiece piece = TIERD__WIRE__READER_PIECE__INIT;

	piece.state = (char *)state;
	piece.all_units = true;
	assert(actor_enter(&scene, reader) == 0);
	assert(actor_open_reader(reader, "play", ret_number) == 0);
	return actor_send_refresh(reader, *ret_number, &piece, 1);
}

void training_expect_ends(struct actor *reader, uint32_t number, uint64_t step,
			  const struct training_ends *ends)
{
	Tierd__Wire__ReaderRead read = TIERD__WIRE__READER_READ__INIT;

	read.state = (char *)ends->state;
	read.step = step;
	read.count = ENDS_COUNT;
	for (read.unit = 0; read.unit < ends->units; read.unit++) {
		read.first = ends->first[read.unit];
		assert(actor_await(reader, actor_send_reader_read(reader, number, &read), 0)->status == 0);
		assert(memcmp(reader->reader_window.base, ends->values[read.unit], ENDS_BYTES) == 0);
	}
}

void training_end(struct actor *actor, struct job *job)
{
	actor_die(actor);
	job_drop(job);
	scene_settle(&scene);
	scene_await_disposals(&scene);
	assert(scene.node->staging->lent == 0);
}

void training_drop(struct actor *actor)
{
	assert(actor_drop(actor, true) == 0);
	scene_hear_of_devices(&scene);
	actor_die(actor);
	scene_settle(&scene);
	assert(!scene_job("play") && queue_is_empty(&scene.node->jobs.dying));
}
