/* One unit of the reference: its memory, the sum of its gradients and its update, as docs/numerics.md orders
 * them. It shares no code with tierd, so that equal results mean something. */
#ifndef GPT_PLAIN_UNIT_H
#define GPT_PLAIN_UNIT_H

#include "kernels.h"
#include "model.h"
#include "options.h"
#include "team.h"

/* The gradients of one micro-batch of one rank, in the formats of the parameters. */
struct plain_gradients {
	struct plain_gradients *next; /* of the same rank */
	uint16_t *narrow;
	float *fp32;
};

/* What a rank has pushed since the last step. */
struct plain_rank {
	struct plain_gradients *first, *last; /* stages 2 and 3: not summed yet, for want of other ranks' */
	float *sum;			      /* stages 0 and 1: all of them; NULL: none */
};

struct plain_unit {
	const struct unit *unit;
	unsigned rank_count;
	bool sums_ranks_first; /* stages 2 and 3: each micro-batch over the ranks; else each rank over its own
				*/

	/* Elements are numbered through the 16-bit section, then the fp32 section. */
	enum number_format narrow_format;
	uint64_t elements, narrow_elements;
	uint64_t offset[MODEL_MAX_TENSORS];
	uint16_t *narrow; /* the parameters of the 16-bit section */
	float *master;	  /* an fp32 parameter is its own master */
	float *slots[KERNEL_SLOTS];
	uint64_t updates;

	float *sum;
	bool has_sum;
	struct plain_rank *ranks;
};

int plain_unit_open(const struct unit *unit, unsigned rank_count, unsigned stage,
		    struct plain_unit *ret_unit);
void plain_unit_close(struct plain_unit *unit);

struct unit_view plain_unit_parameters(const struct plain_unit *unit);
struct unit_view plain_unit_gradients(const struct plain_unit *unit, const struct plain_gradients *gradients);

/* Zeros; NULL: no memory. */
struct plain_gradients *plain_gradients_new(const struct plain_unit *unit);
struct plain_gradients *plain_gradients_free(struct plain_gradients *gradients);

/* Takes the gradients over as the rank's next micro-batch. */
int plain_unit_push(struct plain_unit *unit, struct team *team, unsigned rank,
		    struct plain_gradients *gradients);

/* Completes the sum of the step, and adds the sum of its squares to *sum. */
int plain_unit_finish_sum(struct plain_unit *unit, struct team *team, double *sum);

/* The options' optimizer, with the constants of each group, over a unit that somebody pushed. */
void plain_unit_update(struct plain_unit *unit, struct team *team, const struct options *options,
		       const struct update_constants constants[GROUP_COUNT]);

/* Forgets the sum: the next push begins a new step. */
void plain_unit_next_step(struct plain_unit *unit);

/* Sets the master value of elements, and the parameters from it. */
void plain_unit_write(struct plain_unit *unit, unsigned tensor, uint64_t first, uint64_t count,
		      const float *values);

#endif
