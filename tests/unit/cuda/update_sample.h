/* States to update, of all optimizers, masters and moments, and what the processor makes of them. */
#ifndef TIERD_TESTS_UNIT_CUDA_UPDATE_SAMPLE_H
#define TIERD_TESTS_UNIT_CUDA_UPDATE_SAMPLE_H

#include "offload/optimizer/optimizer.h"

enum { PARAMETER, MASTER, SLOTS, GRADIENT = SLOTS + OPTIMIZER_MAX_SLOTS, ARRAYS };

/* All of it exactly as long as it has to be, so that a sanitizer sees an access beyond. */
struct state {
	void *arrays[ARRAYS]; /* NULL: not kept */
};

struct sample {
	const struct optimizer *optimizer, *best;
	enum master_kind kind;
	enum moment_format format;
	size_t count;
	struct moment_noise noise;
	struct optimizer_constants constants;
	size_t bytes[ARRAYS]; /* 0: not kept */
	struct state before;
};

#define SAMPLE_OPTIMIZERS 5
extern const char *const sample_optimizers[SAMPLE_OPTIMIZERS];

/* The number chooses a group, and what lies in the arrays. */
struct sample sample_new(const char *name, enum master_kind kind, enum moment_format format, size_t count,
			 unsigned number);
void sample_free(struct sample *sample);

/* As it was before the update. */
void state_new(const struct sample *sample, struct state *ret_state);
void state_free(struct state *state);
struct optimizer_arrays arrays_of(const struct sample *sample, const struct state *state);

/* By the scalars, or by this processor's best level. */
void update_here(const struct sample *sample, const struct optimizer *optimizer, struct state *ret_after);
/* That both are equal, by their bits. */
void assert_same(const struct sample *sample, const struct state *a, const struct state *b);

#endif
