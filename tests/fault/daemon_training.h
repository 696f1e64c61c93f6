/* A short training of one rank, through the daemon's handlers; any part of it may fail. */
#ifndef TIERD_TESTS_FAULT_DAEMON_TRAINING_H
#define TIERD_TESTS_FAULT_DAEMON_TRAINING_H

#include "tests/unit/daemon_support.h"

/* Where the job has room for it: of each step, bytes of 'a', 'b', … */
#define TRAINING_BLOB_BYTES 300000
#define TRAINING_ELEMENTS 1000 /* of each tensor */
#define TRAINING_VALUES (2 * TRAINING_ELEMENTS)

/* Enters, opens, defines two units (bf16 and fp32, one tensor frozen, one written), gets ready, and takes two
 * steps with gathers and pushes of all units and reads of the state; with the optimizer none it takes them
 * itself. The first error, or 0; the actor stays for the caller. */
int training_run(struct scene *scene, struct actor *actor, const struct actor_job *job);

/* Opens that job again, and takes those of the two steps that it has not. */
int training_resume(struct scene *scene, struct actor *actor, const struct actor_job *job);

/* Behind its two steps it writes masters of the first tensor and what the optimizer keeps of the last one. */
int training_write(struct actor *actor);

/* After both steps: the masters of the tensor that gradients have moved, and of the one that was written. A
 * training that succeeds always has the same. */
int training_read(struct actor *actor, float result[TRAINING_VALUES]);

#endif
