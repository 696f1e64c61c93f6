/* Trainings whose bits tests compare, in the scene of scene_test.h: units of both formats, gradients of one
 * value for each, steps, and a hash of all that the job has. */
#ifndef TIERD_TESTS_UNIT_TRAINING_H
#define TIERD_TESTS_UNIT_TRAINING_H

#include "tests/unit/scene_test.h"

/* A rank enters, and defines units "u0", "u1", … of as many elements, of ones: bf16 and fp32 in turns. */
void training_open(struct actor *actor, const struct actor_job *options, const uint64_t *elements,
		   unsigned units);
/* And is ready, alone. */
struct job *training_start(struct actor *actor, const struct actor_job *options, const uint64_t *elements,
			   unsigned units);

/* All gradients of the unit are that value; they are summed, or put aside. */
void training_fill(struct actor *actor, uint32_t unit, float value);
void training_push(struct actor *actor, uint32_t unit, float value);
/* A value for each unit and step. */
float training_gradient(uint32_t unit, uint64_t step);
/* From the last unit on, as a backward does. */
void training_push_all(struct actor *actor, uint64_t step);

/* Announces the coming step, of one micro-batch. */
void training_begin_step(struct actor *actor);
/* Takes a step, and returns its norm. */
double training_step(struct actor *actor);

/* Of the values and the state of each unit at that version. */
uint64_t training_hash(struct actor *actor, uint64_t version);

/* The last elements of each unit, of a state. */
struct training_ends {
	const char *state;
	uint32_t units;
	uint64_t first[ACTOR_UNITS];
	float values[ACTOR_UNITS][100];
};
void training_note_ends(struct actor *rank, const char *state, uint64_t version,
			struct training_ends *ret_ends);
/* A reader enters, and asks for a copy of that state of all units, as they are now. */
uint32_t training_send_refresh(struct actor *reader, const char *state, uint32_t *ret_number);
/* What it has got is that. */
void training_expect_ends(struct actor *reader, uint32_t number, uint64_t step,
			  const struct training_ends *ends);

/* The rank dies, and the job is dropped; all that was theirs is given back. */
void training_end(struct actor *actor, struct job *job);
/* The rank asks for that in the middle of something, of whose devices nobody may have heard yet, and dies. */
void training_drop(struct actor *actor);

#endif
