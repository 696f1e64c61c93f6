#include "client/safetensors/check.h"

#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "common/cleanup.h"
#include "common/plural.h"

/* ---- Names ---- */

static int compare_names(const void *a, const void *b)
{
	return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* Tensors by name, or notes by key. */
static int check_twice(const char **names, size_t count, const char *what, const char *file,
		       struct safetensors_problem *problem)
{
	if (count > 0)
		qsort(names, count, sizeof(*names), compare_names);
	for (size_t i = 1; i < count; i++)
		if (strcmp(names[i - 1], names[i]) == 0)
			return safetensors_fail(
				problem, -EEXIST,
				"%s: two %s have the name \"%.128s\"; give one of them another", file, what,
				names[i]);
	return 0;
}

int safetensors_check_names(const struct safetensors_header *header, const char *file,
			    struct safetensors_problem *problem)
{
	size_t count = header->tensor_count > header->note_count ? header->tensor_count : header->note_count;
	_cleanup_free_ const char **names = calloc(count + 1, sizeof(*names));
	int r;

	if (!names)
		return safetensors_fail_memory(problem);
	for (size_t i = 0; i < header->tensor_count; i++)
		names[i] = header->tensors[i].name;
	r = check_twice(names, header->tensor_count, "tensors", file, problem);
	for (size_t i = 0; i < header->note_count; i++)
		names[i] = header->notes[i].key;
	return r < 0 ? r : check_twice(names, header->note_count, "metadata", file, problem);
}

/* ---- Places ---- */

static int check_size(const struct safetensors_tensor *tensor, const char *file,
		      struct safetensors_problem *problem)
{
	uint64_t bytes;
	int r = safetensors_dtype_bytes(tensor->dtype, tensor->shape, tensor->dimensions, &bytes);

	if (r == -ERANGE)
		return safetensors_fail(problem, r,
					"%s: tensor \"%.128s\" has a shape of more bytes than 64 bits count; "
					"the file is damaged, or hostile",
					file, tensor->name);
	if (r < 0)
		return safetensors_fail(problem, -EINVAL,
					"%s: tensor \"%.128s\" of %s does not end with a whole byte", file,
					tensor->name, safetensors_dtype_name(tensor->dtype));
	if (bytes == tensor->end - tensor->begin)
		return 0;
	return safetensors_fail(problem, -EINVAL,
				"%s: tensor \"%.128s\" has %" PRIu64
				" bytes by its shape and dtype (%s), and %" PRIu64
				" by its data_offsets; the file is damaged",
				file, tensor->name, bytes, safetensors_dtype_name(tensor->dtype),
				tensor->end - tensor->begin);
}

/* The tensor lies where the one before ends. */
static int check_place(const struct safetensors_tensor *tensor, uint64_t place, const char *file,
		       struct safetensors_problem *problem)
{
	if (tensor->begin == place && tensor->end >= tensor->begin)
		return 0;
	if (tensor->end < tensor->begin)
		return safetensors_fail(problem, -EINVAL,
					"%s: tensor \"%.128s\" ends at %" PRIu64
					", before it begins at %" PRIu64 "; the file is damaged",
					file, tensor->name, tensor->end, tensor->begin);
	return safetensors_fail(problem, -EINVAL,
				"%s: tensor \"%.128s\" begins at byte %" PRIu64
				" of the data, and what is before it ends at "
				"%" PRIu64 ": that %s, which the format forbids; the file is damaged",
				file, tensor->name, tensor->begin, place,
				tensor->begin < place ? "is an overlap" : "leaves a hole");
}

/* Of the file: its tensors end here. */
static int check_length(const struct safetensors_header *header, uint64_t end, const char *file,
			struct safetensors_problem *problem)
{
	bool is_longer = header->data_bytes > end;
	uint64_t difference = is_longer ? header->data_bytes - end : end - header->data_bytes;

	if (difference == 0)
		return 0;
	return safetensors_fail(problem, -EINVAL,
				"%s is %" PRIu64 " byte%s %s than its header says: %s; fetch it again", file,
				difference, PLURAL(difference), is_longer ? "longer" : "shorter",
				is_longer ? "something was added behind its end, or its header is damaged"
					  : "it was cut off, or is not complete yet");
}

static int compare_places(const void *a, const void *b)
{
	const struct safetensors_tensor *one = a, *other = b;

	if (one->begin != other->begin)
		return one->begin < other->begin ? -1 : 1;
	return (one->end > other->end) - (one->end < other->end);
}

int safetensors_check_places(struct safetensors_header *header, const char *file,
			     struct safetensors_problem *problem)
{
	uint64_t place = 0;
	int r = 0;

	if (header->tensor_count > 0)
		qsort(header->tensors, header->tensor_count, sizeof(header->tensors[0]), compare_places);
	for (size_t i = 0; i < header->tensor_count && r == 0; i++) {
		struct safetensors_tensor *tensor = &header->tensors[i];

		r = check_place(tensor, place, file, problem);
		if (r == 0)
			r = check_size(tensor, file, problem);
		place = tensor->end;
	}
	return r < 0 ? r : check_length(header, place, file, problem);
}
