/* The model that the matrix trains: units of every kind that a trainer may define, and where their elements
 * lie by docs/numerics.md. */
#ifndef TIERD_TESTS_MATRIX_MODEL_H
#define TIERD_TESTS_MATRIX_MODEL_H

#include <stdbool.h>
#include <stdint.h>

#include "client/tierd.h"

#define MODEL_MAX_UNITS 64
#define MODEL_MAX_TENSORS 8
#define MODEL_GROUPS 4

enum model_section {
	MODEL_BF16,
	MODEL_FP16,
	MODEL_FP32,
	MODEL_FROZEN_BF16,
	MODEL_FROZEN_FP16,
	MODEL_FROZEN_FP32,
	MODEL_FROZEN_BYTES,
	MODEL_SECTIONS
};

struct model_tensor {
	struct tierd_tensor definition; /* its strings are those below */
	char name[32];
	uint64_t elements;
	enum model_section section;
	uint64_t first; /* element of the section */
};

struct model_unit {
	char name[32];
	struct model_tensor tensors[MODEL_MAX_TENSORS];
	unsigned tensor_count;
	uint64_t section[MODEL_SECTIONS]; /* elements, padded */
};

struct model {
	struct model_unit units[MODEL_MAX_UNITS];
	unsigned unit_count;
	uint64_t parameters; /* elements of all tensors, without padding */
	uint64_t seed;
};

/* weight_format: of all but norms. With wide units it has 5 million parameters, else a quarter of a
 * million beside the frozen ones. */
void model_make(struct model *model, uint32_t weight_format, bool has_wide);

static inline uint64_t model_trainable(const struct model_unit *unit)
{
	return unit->section[MODEL_BF16] + unit->section[MODEL_FP16] + unit->section[MODEL_FP32];
}

/* Where a trainable tensor begins in the numbering through all sections. */
static inline uint64_t model_first(const struct model_unit *unit, const struct model_tensor *tensor)
{
	return tensor->first + (tensor->section >= MODEL_FP16 ? unit->section[MODEL_BF16] : 0) +
	       (tensor->section >= MODEL_FP32 ? unit->section[MODEL_FP16] : 0);
}

/* First element of a rank's shard; of rank ranks: the end. */
static inline uint64_t model_shard(const struct model_unit *unit, unsigned rank, unsigned ranks)
{
	return 256 * (model_trainable(unit) / 256 * rank / ranks);
}

/* Of its gradients. */
static inline uint32_t model_gradient_format(const struct model_tensor *tensor)
{
	return tensor->definition.gradient_format ? tensor->definition.gradient_format
						  : tensor->definition.format;
}

static inline uint64_t model_frozen_bytes(const struct model_unit *unit)
{
	return 2 * (unit->section[MODEL_FROZEN_BF16] + unit->section[MODEL_FROZEN_FP16]) +
	       4 * unit->section[MODEL_FROZEN_FP32] + unit->section[MODEL_FROZEN_BYTES];
}

static inline uint64_t model_frozen(const struct model_unit *unit)
{
	return unit->section[MODEL_FROZEN_BF16] + unit->section[MODEL_FROZEN_FP16] +
	       unit->section[MODEL_FROZEN_FP32] + unit->section[MODEL_FROZEN_BYTES];
}

static inline uint64_t model_element_bytes(const struct model_tensor *tensor)
{
	if (tensor->definition.format == TIERD_BYTES)
		return 1;
	return tensor->definition.format == TIERD_FP32 ? 4 : 2;
}

/* A tensor that ranks write is written in pieces: piece by rank piece % ranks; masters of 16-bit ones in
 * every other one. */
uint64_t model_piece_elements(const struct model_tensor *tensor);
static inline bool model_piece_is_master(const struct model_tensor *tensor, uint64_t piece)
{
	return !tensor->definition.is_frozen && piece % 2 == 0;
}

/* What a rank writes into an element, before a rounding to the tensor's format. */
float model_written_value(uint32_t unit, uint32_t tensor, uint64_t element);

/* Fills values with the masters (of frozen tensors: the values) that training begins with. */
void model_initial_values(const struct model *model, uint32_t unit, uint32_t tensor, float *values);

#endif
