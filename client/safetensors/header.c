#include "client/safetensors/header.h"

#include <endian.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "client/safetensors/check.h"
#include "client/safetensors/json.h"
#include "client/safetensors/list.h"
#include "common/cleanup.h"
#include "common/size.h"
#include "proto/name.h"

void safetensors_header_clear(struct safetensors_header *header)
{
	free(header->tensors);
	free(header->notes);
	free(header->shapes);
	free(header->text);
	*header = (struct safetensors_header)SAFETENSORS_HEADER_INIT;
}

/* ---- Lists that grow ---- */

int safetensors_header_add(struct safetensors_header *header, const struct safetensors_tensor *tensor,
			   struct safetensors_problem *problem)
{
	struct safetensors_tensor *tensors = safetensors_list_grow(
		header->tensors, header->tensor_count, &header->tensor_capacity, sizeof(*tensors));

	if (!tensors)
		return safetensors_fail_memory(problem);
	header->tensors = tensors;
	header->tensors[header->tensor_count++] = *tensor;
	return 0;
}

int safetensors_header_note(struct safetensors_header *header, const char *key, const char *value,
			    struct safetensors_problem *problem)
{
	struct safetensors_note *notes = safetensors_list_grow(header->notes, header->note_count,
							       &header->note_capacity, sizeof(*notes));

	if (!notes)
		return safetensors_fail_memory(problem);
	header->notes = notes;
	header->notes[header->note_count++] = (struct safetensors_note){ .key = key, .value = value };
	return 0;
}

/* ---- Parsing ---- */

/* Shapes move while they grow: until the end a tensor knows the number of its first dimension. */
struct parsing {
	struct json json;
	struct safetensors_header header;
	size_t shape_count, shape_capacity;
	bool has_notes;

	/* Of the tensor that is read. */
	struct safetensors_tensor tensor;
	bool has_dtype, has_shape, has_offsets;
};

static int read_offsets(struct json *json, struct safetensors_tensor *tensor)
{
	int r = json_expect(json, '[');

	if (r == 0)
		r = json_number(json, &tensor->begin);
	if (r == 0)
		r = json_expect(json, ',');
	if (r == 0)
		r = json_number(json, &tensor->end);
	return r < 0 ? r : json_expect(json, ']');
}

static int read_dimension(struct json *json, const char *name, void *context)
{
	struct parsing *parsing = context;
	struct safetensors_header *header = &parsing->header;
	uint64_t *shapes = safetensors_list_grow(header->shapes, parsing->shape_count,
						 &parsing->shape_capacity, sizeof(*shapes));

	if (!shapes)
		return safetensors_fail_memory(json->problem);
	header->shapes = shapes;
	parsing->tensor.dimensions++;
	return json_number(json, &header->shapes[parsing->shape_count++]);
}

static int read_dtype(struct json *json, struct safetensors_tensor *tensor)
{
	const char *name;
	int r = json_string(json, &name);

	if (r < 0 || safetensors_dtype_find(name, &tensor->dtype) == 0)
		return r;
	return safetensors_fail(json->problem, -EINVAL,
				"%s: tensor \"%.128s\" has the unknown dtype \"%.32s\"; a later version of "
				"tierd may know it",
				json->file, tensor->name, name);
}

static int read_once(struct json *json, bool *has, const char *what)
{
	if (*has)
		return json_fail(json, what);
	*has = true;
	return 0;
}

static int read_field(struct json *json, const char *name, void *context)
{
	struct parsing *parsing = context;
	int r;

	if (strcmp(name, "dtype") == 0) {
		r = read_once(json, &parsing->has_dtype, "a tensor has two dtypes");
		return r < 0 ? r : read_dtype(json, &parsing->tensor);
	}
	if (strcmp(name, "shape") == 0) {
		r = read_once(json, &parsing->has_shape, "a tensor has two shapes");
		return r < 0 ? r : json_array(json, read_dimension, parsing);
	}
	if (strcmp(name, "data_offsets") != 0)
		return json_skip(json);
	r = read_once(json, &parsing->has_offsets, "a tensor has data_offsets twice");
	return r < 0 ? r : read_offsets(json, &parsing->tensor);
}

static int read_tensor(struct parsing *parsing, const char *name)
{
	struct json *json = &parsing->json;
	int r;

	parsing->tensor = (struct safetensors_tensor){ .name = name, .tag = parsing->shape_count };
	parsing->has_dtype = parsing->has_shape = parsing->has_offsets = false;
	r = json_object(json, read_field, parsing);
	if (r < 0)
		return r;
	if (!parsing->has_dtype || !parsing->has_shape || !parsing->has_offsets)
		return json_fail(json, "a tensor lacks its dtype, shape or data_offsets");
	return safetensors_header_add(&parsing->header, &parsing->tensor, json->problem);
}

static int read_note(struct json *json, const char *name, void *context)
{
	struct safetensors_header *header = context;
	const char *value;
	int r = json_string(json, &value);

	return r < 0 ? r : safetensors_header_note(header, name, value, json->problem);
}

static int read_member(struct json *json, const char *name, void *context)
{
	struct parsing *parsing = context;
	int r;

	if (strcmp(name, SAFETENSORS_METADATA) == 0) {
		r = read_once(json, &parsing->has_notes, "its metadata come twice");
		if (r < 0 || json_take_null(json))
			return r;
		return json_object(json, read_note, &parsing->header);
	}
	if (name_check_kept(name, SIZE_MAX - 1) < 0)
		return json_fail(json, "the name of a tensor is empty, or has a control character");
	return read_tensor(parsing, name);
}

/* ---- All of it ---- */

static void point_to_shapes(struct safetensors_header *header)
{
	for (size_t i = 0; i < header->tensor_count; i++) {
		struct safetensors_tensor *tensor = &header->tensors[i];

		tensor->shape = tensor->dimensions > 0 ? header->shapes + tensor->tag : NULL;
		tensor->tag = 0;
	}
}

int safetensors_header_parse(char *text, size_t length, uint64_t data_bytes, const char *file,
			     struct safetensors_header *ret_header, struct safetensors_problem *problem)
{
	struct parsing parsing = { .header = { .text = text, .data_bytes = data_bytes } };
	int r;

	parsing.header.data_first = SAFETENSORS_LENGTH_BYTES + length;
	json_begin(&parsing.json, text, length, file, problem);
	r = json_object(&parsing.json, read_member, &parsing);
	if (r == 0)
		r = json_end(&parsing.json);
	if (r == 0) {
		point_to_shapes(&parsing.header);
		r = safetensors_check_names(&parsing.header, file, problem);
	}
	if (r == 0)
		r = safetensors_check_places(&parsing.header, file, problem);
	if (r < 0)
		safetensors_header_clear(&parsing.header);
	else
		*ret_header = parsing.header;
	return r;
}

/* ---- From a file ---- */

static int read_bytes(int fd, void *target, size_t length, off_t offset, const char *file,
		      struct safetensors_problem *problem)
{
	for (size_t done = 0; done < length;) {
		ssize_t got = pread(fd, (char *)target + done, length - done, offset + (off_t)done);

		if (got < 0 && errno == EINTR)
			continue;
		if (got <= 0)
			return safetensors_fail(problem, got < 0 ? -errno : -EIO,
						"%s: reading its header: %s", file,
						got < 0 ? strerror(errno) : "it has become shorter");
		done += (size_t)got;
	}
	return 0;
}

static int read_length(int fd, const char *file, uint64_t *ret_length, uint64_t *ret_data_bytes,
		       struct safetensors_problem *problem)
{
	struct stat status;
	uint64_t length, bytes;
	int r;

	if (fstat(fd, &status) < 0)
		return safetensors_fail(problem, -errno, "%s: %s", file, strerror(errno));
	bytes = (uint64_t)status.st_size;
	if (bytes < SAFETENSORS_LENGTH_BYTES)
		return safetensors_fail(problem, -EINVAL,
					"%s has %" PRIu64
					" bytes, too few for a file of tensors: it is none, or was cut off",
					file, bytes);
	r = read_bytes(fd, &length, sizeof(length), 0, file, problem);
	if (r < 0)
		return r;
	length = le64toh(length);
	if (length > SAFETENSORS_MAX_HEADER)
		return safetensors_fail(problem, -EINVAL,
					"%s says that its header has %" PRIu64 " bytes, and %" PRIu64
					" are the most; it is no file of tensors (safetensors), or damaged",
					file, length, SAFETENSORS_MAX_HEADER);
	if (length > bytes - SAFETENSORS_LENGTH_BYTES)
		return safetensors_fail(problem, -EINVAL,
					"%s says that its header has %" PRIu64 " bytes, and %" PRIu64
					" are behind that; it was cut off, or is no file of tensors "
					"(safetensors)",
					file, length, bytes - SAFETENSORS_LENGTH_BYTES);
	*ret_length = length;
	*ret_data_bytes = bytes - SAFETENSORS_LENGTH_BYTES - length;
	return 0;
}

int safetensors_header_read(int fd, const char *file, struct safetensors_header *ret_header,
			    struct safetensors_problem *problem)
{
	_cleanup_free_ char *text = NULL;
	uint64_t length = 0, data_bytes = 0;
	int r = read_length(fd, file, &length, &data_bytes, problem);

	if (r < 0)
		return r;
	text = malloc(length + 1);
	if (!text)
		return safetensors_fail_memory(problem);
	text[length] = '\0';
	r = read_bytes(fd, text, length, SAFETENSORS_LENGTH_BYTES, file, problem);
	if (r < 0)
		return r;
	return safetensors_header_parse(TAKE_PTR(text), length, data_bytes, file, ret_header, problem);
}
