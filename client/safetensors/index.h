/* An index: which of several files has which tensor, as Hugging Face's libraries write and read it. */
#ifndef TIERD_CLIENT_SAFETENSORS_INDEX_H
#define TIERD_CLIENT_SAFETENSORS_INDEX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "client/safetensors/problem.h"

struct safetensors_index_entry {
	const char *tensor;
	const char *file; /* beside the index; without a folder */
};

struct safetensors_index {
	struct safetensors_index_entry *entries; /* by file, then by tensor, once they are read */
	size_t count, capacity;
	bool has_total;
	uint64_t total_bytes; /* of all tensors, as whoever wrote it says */
	char *text;	      /* of an index that was read */
};

#define SAFETENSORS_INDEX_INIT                                                                               \
	{                                                                                                    \
		NULL                                                                                         \
	}

void safetensors_index_clear(struct safetensors_index *index);

/* Takes over the text of so many bytes and a zero byte behind them, also after an error. -EEXIST: a tensor is
 * named twice; -EINVAL: it is no index, or names a file elsewhere. */
int safetensors_index_parse(char *text, size_t length, const char *file, struct safetensors_index *ret_index,
			    struct safetensors_problem *problem);

/* Strings are borrowed for as long as the index lives. */
int safetensors_index_add(struct safetensors_index *index, const char *tensor, const char *file,
			  struct safetensors_problem *problem);

/* Its text, which is the caller's. */
int safetensors_index_write(const struct safetensors_index *index, char **ret_text, size_t *ret_length,
			    struct safetensors_problem *problem);

#endif
