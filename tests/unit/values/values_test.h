/* What tests of written values share: ranks of a job "play" that write values of all bits, and pictures of
 * what is read back. */
#ifndef TIERD_TESTS_UNIT_VALUES_TEST_H
#define TIERD_TESTS_UNIT_VALUES_TEST_H

#include "tests/unit/scene_test.h"

/* Elements of fp32 that a window holds. */
#define PIECE (UINT64_C(1) << 18)

struct job *play(void);
/* Unit "uN" of tensors "uN.0", "uN.1", …, which are as these but for their names. */
int define_unit(struct actor *actor, unsigned unit, const struct actor_tensor *tensors, unsigned count);
/* All ranks of a job of two are ready: 0, or why not. */
int make_two_ready(struct actor *one, struct actor *other);
void expect_error(const struct actor *actor, int status, int expected, const char *text);

/* The next of a sequence that the seed decides. */
extern uint64_t value_seed;
float next_value(void);
/* Into the window. */
void put_values(const struct actor *actor, uint64_t count);
/* The next values, as masters, and as parameters of bf16; the status of the answer. */
int write_masters(struct actor *actor, uint32_t unit, uint32_t tensor, uint64_t first, uint64_t count);
int write_narrow(struct actor *actor, uint32_t unit, uint32_t tensor, uint64_t first, uint64_t count);

/* Values that were read, one tensor after the other. */
struct picture {
	char *values;
	size_t size;
};

/* All of it at once: with sanitizers each growth would be a copy. */
struct picture picture_new(size_t bytes);
/* Elements of a tensor, as they are at the job's step. */
void picture_add(struct picture *picture, struct actor *actor, uint32_t unit, uint32_t tensor,
		 uint64_t elements, const char *state);
/* Frees both. */
bool pictures_are_equal(struct picture one, struct picture other);

#endif
