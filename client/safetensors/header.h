/* A header: what a file in the format safetensors has at its beginning, which says what its tensors are and
 * where they lie. In the file: 8 bytes of length, little-endian; so many bytes of JSON, padded with blanks;
 * then the data, without holes. */
#ifndef TIERD_CLIENT_SAFETENSORS_HEADER_H
#define TIERD_CLIENT_SAFETENSORS_HEADER_H

#include <stddef.h>

#include "client/safetensors/dtype.h"
#include "client/safetensors/problem.h"

/* As the reference has it. */
#define SAFETENSORS_MAX_HEADER UINT64_C(100000000)
#define SAFETENSORS_LENGTH_BYTES 8
/* The one member of the JSON that is no tensor. */
#define SAFETENSORS_METADATA "__metadata__"

struct safetensors_tensor {
	const char *name;
	const uint64_t *shape;
	uint32_t dimensions;
	enum safetensors_dtype dtype;
	uint64_t begin, end; /* of the data, in bytes from its start */
	size_t tag;	     /* for the code that writes the file */
};

/* Of __metadata__. */
struct safetensors_note {
	const char *key, *value;
};

struct safetensors_header {
	struct safetensors_tensor *tensors; /* in the order of their data */
	size_t tensor_count, tensor_capacity;
	struct safetensors_note *notes;
	size_t note_count, note_capacity;
	uint64_t *shapes;		 /* of a header that was read; the tensors point into it */
	char *text;			 /* in the same way, for names */
	uint64_t data_first, data_bytes; /* in the file */
};

#define SAFETENSORS_HEADER_INIT                                                                              \
	{                                                                                                    \
		NULL                                                                                         \
	}

void safetensors_header_clear(struct safetensors_header *header);

/* ---- Reading ---- */

/* Takes over the text of so many bytes and a zero byte behind them, also after an error. The file has that
 * many bytes of data. -EINVAL and -ERANGE: it is no header, or not one of that file. */
int safetensors_header_parse(char *text, size_t length, uint64_t data_bytes, const char *file,
			     struct safetensors_header *ret_header, struct safetensors_problem *problem);

/* From the file's beginning; the descriptor's position does not matter. */
int safetensors_header_read(int fd, const char *file, struct safetensors_header *ret_header,
			    struct safetensors_problem *problem);

/* ---- Writing ---- */

/* Strings and shapes are borrowed for as long as the header lives. */
int safetensors_header_add(struct safetensors_header *header, const struct safetensors_tensor *tensor,
			   struct safetensors_problem *problem);
int safetensors_header_note(struct safetensors_header *header, const char *key, const char *value,
			    struct safetensors_problem *problem);

/* Puts tensors in the order in which the file has them (larger elements first, so that each is aligned), says
 * where they lie, and gives the bytes that the file begins with, which are the caller's. -EEXIST: two have
 * one name; -E2BIG: the header would be too long. */
int safetensors_header_write(struct safetensors_header *header, const char *file, char **ret_bytes,
			     size_t *ret_length, struct safetensors_problem *problem);

#endif
