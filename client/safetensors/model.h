/* A model: the tensors of one file, or of all the files that an index names, checked. */
#ifndef TIERD_CLIENT_SAFETENSORS_MODEL_H
#define TIERD_CLIENT_SAFETENSORS_MODEL_H

#include "client/safetensors/header.h"
#include "client/safetensors/index.h"
#include "common/cleanup.h"

struct safetensors_file {
	char *path;
	struct safetensors_header header; /* a tensor begins at header.data_first + its begin */
};

struct safetensors_model {
	struct safetensors_file *files;
	size_t file_count;
	bool has_index;
	struct safetensors_index index; /* of a model that has one */
	uint64_t tensor_count, tensor_bytes;
};

/* Of an index alone, whether its files are there or not; an index that holds nothing. -ENOMEM, and what
 * safetensors_model_open() returns. Cleared by the caller, also after an error. */
int safetensors_model_read_index(const char *path, struct safetensors_index *ret_index,
				 struct safetensors_problem *problem);

/* A file whose name ends in ".json" is an index; the files that it names lie beside it, and have the tensors
 * that it says, and no others. Reads headers only. Of wrong files -EINVAL, -ERANGE or -EEXIST, else an error
 * of reading. */
int safetensors_model_open(const char *path, struct safetensors_model **ret_model,
			   struct safetensors_problem *problem);
struct safetensors_model *safetensors_model_free(struct safetensors_model *model);
DEFINE_FREEP(struct safetensors_model *, safetensors_model_free)

#endif
