/* The reference: the same training in one address space, one element after the other, by the words of
 * docs/numerics.md. What comes out lies in shared memory, for the ranks to compare with. */
#ifndef TIERD_TESTS_MATRIX_REFERENCE_H
#define TIERD_TESTS_MATRIX_REFERENCE_H

#include <stddef.h>

#include "schedule.h"

/* What a step is to report. */
struct reference_step {
	double norm;
	bool is_skipped, is_clipped;
	float loss_scale, next_loss_scale;
};

struct reference {
	const struct model *model;
	char *base;
	size_t length;
	size_t offsets[MODEL_MAX_UNITS][MODEL_MAX_TENSORS]; /* of the tensors' parts */
};

/* Lays the memory out; maps length bytes of the descriptor. Exits on failure. */
void reference_map(struct reference *reference, const struct model *model, int fd, bool is_writable);
void reference_unmap(struct reference *reference);
size_t reference_length(const struct model *model);

struct reference_step *reference_steps(const struct reference *reference);

/* The parameter after so many steps, in its format. */
void *reference_parameter(const struct reference *reference, unsigned unit, unsigned tensor, unsigned steps);

/* After the last step; NULL for a frozen tensor. */
float *reference_master(const struct reference *reference, unsigned unit, unsigned tensor);
float *reference_slot(const struct reference *reference, unsigned unit, unsigned tensor, unsigned slot);

/* Trains: fills the memory. initial: the masters that training begins with, by unit and tensor. */
void reference_train(const struct reference *reference, const struct configuration *configuration,
		     float *const initial[MODEL_MAX_UNITS][MODEL_MAX_TENSORS]);

#endif
