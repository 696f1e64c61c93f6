/* A model with tensors of every kind, for jobs whose values are looked at from outside. */
#ifndef TIERD_TESTS_MODEL_H
#define TIERD_TESTS_MODEL_H

#include <stdbool.h>
#include <stdint.h>

#include "client/tierd.h"

#define MODEL_TENSORS 16

struct kind {
	const char *unit, *name;
	uint32_t format, dimensions;
	uint64_t shape[2];
	uint32_t initializer;
	bool is_frozen;
	uint64_t row, rows; /* rows > 0: a slice of "whole" */
	const char *alias;
	uint32_t group;
	uint32_t gradient_format; /* 0: as tierd has it */
};

/* Tensors of a unit follow each other. */
struct model {
	unsigned count;
	struct kind kinds[MODEL_TENSORS];
};

/* The last is a pack of its own, whose pieces are many. */
extern const struct model model_base;
#define MODEL_CODES 70001 /* elements of its bytes, which no initializer gives */

uint64_t kind_elements(const struct kind *kind);
/* Of its values, in its format. */
uint64_t kind_bytes(const struct kind *kind);

/* Where one of them is in a job that has the model. */
struct place {
	uint32_t unit, tensor;
};
struct place model_place(const struct model *model, unsigned kind);

/* Of the unit that begins with this one. */
unsigned model_unit_tensors(const struct model *model, unsigned first);
void model_define(struct tierd_job *job, const struct model *model);
void model_write_codes(struct tierd_job *job, const struct model *model);
/* Gradients of the first units, so many, that are others at each step. */
void model_push(struct tierd_job *job, const struct model *model, unsigned units, uint64_t step);

#endif
