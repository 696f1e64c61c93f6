/* Trainings whose updates a GPU takes a part of: a scene with a GPU, which the stand-in plays, or a real one,
 * and a rank that asks for it. */
#ifndef TIERD_TESTS_UNIT_UPDATE_GPU_TRAINING_H
#define TIERD_TESTS_UNIT_UPDATE_GPU_TRAINING_H

#include "tests/unit/training.h"

extern struct actor actor;

int gpu_training_setup(void **state);
int gpu_training_teardown(void **state);
/* In main(), before anything else: the process of the rank's part on the GPU. */
int gpu_training_main(int argc, char **argv);

struct actor_job gpu_training_options(uint32_t parameters_on, uint32_t optimizer_on);
/* The actor's rank asks for the GPU, for that part of the updates. */
int gpu_training_ask(float fraction, uint64_t budget);
/* What is pinned for the coming steps is pinned after the first one. */
void gpu_training_step(uint64_t step);
/* The rank's process has died, so nobody waits whether its GPU still works for it. */
void gpu_training_end(struct job *job);
/* Of all values, masters, and what the optimizer keeps. */
uint64_t gpu_training_hash(const struct job *job, uint64_t version);

#endif
