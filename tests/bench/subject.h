/* A subject is an optimizer with its formats of parameters and moments, and arrays far larger than any cache
 * that it is at work on. */
#ifndef TIERD_TESTS_BENCH_SUBJECT_H
#define TIERD_TESTS_BENCH_SUBJECT_H

#include "offload/optimizer/optimizer.h"
#include "tests/bench/passes.h"
#include "tests/bench/stream.h"

/* What does the same, but for the computing; and the same in the first-level cache. */
enum subject_rival { SUBJECT_STREAM, SUBJECT_NEAR, SUBJECT_RIVALS };

struct subject_choice {
	const char *name, *optimizer;
	float momentum;
	unsigned slots;
};

/* Its memory is the same for all. */
struct subject {
	const struct subject_choice *choice;
	enum master_kind kind;
	enum moment_format format;
	struct optimizer_constants constants;
	optimizer_kernel *kernel;
	stream_update *stream;
	struct optimizer_arrays arrays;
	struct pass ours, rivals[SUBJECT_RIVALS];
};

struct subject_memory {
	char *parameter, *master, *slots[OPTIMIZER_MAX_SLOTS];
	float *gradient;
};

struct subject_memory subject_memory_make(void);
void subject_memory_free(struct subject_memory *memory);

/* Fills the memory, which is the subject's until the next one is made. */
struct subject subject_make(const struct subject_choice *choice, enum master_kind kind,
			    enum moment_format format, const struct subject_memory *memory);

#endif
