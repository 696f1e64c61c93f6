/* The model's shape, the units that are gathered together and their tensors, and the values they start from.
 */
#ifndef GPT_MODEL_H
#define GPT_MODEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/cleanup.h"
#include "number.h"

#define MODEL_VOCABULARY 256 /* bytes */
#define MODEL_MAX_TENSORS 12
#define MODEL_MAX_LAYERS 4096
#define MODEL_NAME_BYTES 48

/* What the step does with a tensor: matrices decay, the rest does not. */
enum tensor_group { GROUP_DECAYS, GROUP_CONSTANT, GROUP_COUNT };

struct tensor {
	char name[MODEL_NAME_BYTES];
	enum number_format format;
	enum tensor_group group;
	unsigned dimensions;
	uint64_t shape[2];
	float mean, deviation; /* of the values that it starts from */
};

struct unit {
	char name[MODEL_NAME_BYTES];
	unsigned tensor_count;
	struct tensor tensors[MODEL_MAX_TENSORS];
};

/* Where a gathered unit's tensors lie, or those of its gradients. */
struct unit_view {
	void *tensor[MODEL_MAX_TENSORS];
};

/* The tensors of the units, by their index. */
enum { EMBEDDING_TOKEN, EMBEDDING_POSITION };
enum {
	LAYER_NORM1_WEIGHT,
	LAYER_NORM1_BIAS,
	LAYER_QKV_WEIGHT, /* [3 · width][width]: the rows of queries, then keys, then values */
	LAYER_QKV_BIAS,
	LAYER_PROJECTION_WEIGHT,
	LAYER_PROJECTION_BIAS,
	LAYER_NORM2_WEIGHT,
	LAYER_NORM2_BIAS,
	LAYER_UP_WEIGHT, /* [4 · width][width] */
	LAYER_UP_BIAS,
	LAYER_DOWN_WEIGHT, /* [width][4 · width] */
	LAYER_DOWN_BIAS,
};
enum { FINAL_NORM_WEIGHT, FINAL_NORM_BIAS };

struct model_shape {
	uint64_t layers, width, heads, context;
	enum number_format format; /* of everything but the norms, which are fp32 */
};

struct model {
	struct model_shape shape;
	uint64_t seed; /* of the values to start from */
	unsigned unit_count;
	struct unit units[]; /* embedding, the layers, final */
};

/* -EINVAL if the shape is impossible: the width must be a multiple of 16 and of the heads. */
int model_new(const struct model_shape *shape, uint64_t seed, struct model **ret_model);
struct model *model_free(struct model *model);
DEFINE_FREEP(struct model *, model_free)

static inline unsigned model_embedding(const struct model *model)
{
	return 0;
}

static inline unsigned model_layer(const struct model *model, unsigned layer)
{
	return 1 + layer;
}

static inline unsigned model_final(const struct model *model)
{
	return model->unit_count - 1;
}

uint64_t tensor_elements(const struct tensor *tensor);
uint64_t model_parameters(const struct model *model);

/* The values that elements first … first + count − 1 of a tensor start from, whoever asks. */
void model_initial_values(const struct model *model, unsigned unit, unsigned tensor, uint64_t first,
			  size_t count, float *ret_values);

#endif
