/* Headers that are made. */
#include <endian.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "client/safetensors/check.h"
#include "client/safetensors/text.h"
#include "common/cleanup.h"
#include "common/size.h"

/* The data begins at a multiple of it. */
#define ALIGN_BYTES 8

/* By the size of their elements, then as they were added. */
static int compare(const void *a, const void *b)
{
	const struct safetensors_tensor *one = a, *other = b;
	unsigned bits = safetensors_dtype_bits(one->dtype), other_bits = safetensors_dtype_bits(other->dtype);

	if (bits != other_bits)
		return bits > other_bits ? -1 : 1;
	return (one->begin > other->begin) - (one->begin < other->begin);
}

static int place(struct safetensors_header *header, const char *file, struct safetensors_problem *problem)
{
	uint64_t at = 0, bytes;

	for (size_t i = 0; i < header->tensor_count; i++)
		header->tensors[i].begin = i;
	if (header->tensor_count > 0)
		qsort(header->tensors, header->tensor_count, sizeof(header->tensors[0]), compare);
	for (size_t i = 0; i < header->tensor_count; i++) {
		struct safetensors_tensor *tensor = &header->tensors[i];

		if (safetensors_dtype_bytes(tensor->dtype, tensor->shape, tensor->dimensions, &bytes) < 0 ||
		    !size_add(at, bytes, &tensor->end))
			return safetensors_fail(problem, -ERANGE,
						"%s: tensor \"%.128s\" is larger than a file can be", file,
						tensor->name);
		tensor->begin = at;
		at = tensor->end;
	}
	header->data_bytes = at;
	return 0;
}

static void write_tensor(FILE *stream, const struct safetensors_tensor *tensor)
{
	safetensors_text_write(stream, tensor->name);
	fprintf(stream, ":{\"dtype\":\"%s\",\"shape\":[", safetensors_dtype_name(tensor->dtype));
	for (uint32_t i = 0; i < tensor->dimensions; i++)
		fprintf(stream, "%s%" PRIu64, i ? "," : "", tensor->shape[i]);
	fprintf(stream, "],\"data_offsets\":[%" PRIu64 ",%" PRIu64 "]}", tensor->begin, tensor->end);
}

static void write_notes(FILE *stream, const struct safetensors_header *header)
{
	fputs("\"" SAFETENSORS_METADATA "\":{", stream);
	for (size_t i = 0; i < header->note_count; i++) {
		fputs(i ? "," : "", stream);
		safetensors_text_write(stream, header->notes[i].key);
		fputc(':', stream);
		safetensors_text_write(stream, header->notes[i].value);
	}
	fputc('}', stream);
}

/* With room for the length in front. */
static int write_all(const struct safetensors_header *header, char **ret_bytes, size_t *ret_length)
{
	char *bytes = NULL;
	size_t length = 0;
	FILE *stream = open_memstream(&bytes, &length);

	if (!stream)
		return -ENOMEM;
	fwrite((char[SAFETENSORS_LENGTH_BYTES]){ 0 }, 1, SAFETENSORS_LENGTH_BYTES, stream);
	fputc('{', stream);
	if (header->note_count > 0)
		write_notes(stream, header);
	for (size_t i = 0; i < header->tensor_count; i++) {
		fputs(i || header->note_count ? "," : "", stream);
		write_tensor(stream, &header->tensors[i]);
	}
	fputc('}', stream);
	while (ftello(stream) % ALIGN_BYTES != 0 && !ferror(stream))
		fputc(' ', stream);
	if (fclose(stream) != 0) {
		free(bytes);
		return -ENOMEM;
	}
	*ret_bytes = bytes;
	*ret_length = length;
	return 0;
}

static int check_own_names(const struct safetensors_header *header, const char *file,
			   struct safetensors_problem *problem)
{
	for (size_t i = 0; i < header->tensor_count; i++)
		if (strcmp(header->tensors[i].name, SAFETENSORS_METADATA) == 0)
			return safetensors_fail(problem, -EINVAL,
						"%s: no tensor can have the name " SAFETENSORS_METADATA
						", which has a meaning in files of tensors; give it another",
						file);
	return safetensors_check_names(header, file, problem);
}

int safetensors_header_write(struct safetensors_header *header, const char *file, char **ret_bytes,
			     size_t *ret_length, struct safetensors_problem *problem)
{
	_cleanup_free_ char *bytes = NULL;
	size_t length;
	uint64_t stated;
	int r = check_own_names(header, file, problem);

	if (r == 0)
		r = place(header, file, problem);
	if (r < 0)
		return r;
	if (write_all(header, &bytes, &length) < 0)
		return safetensors_fail_memory(problem);
	if (length - SAFETENSORS_LENGTH_BYTES > SAFETENSORS_MAX_HEADER)
		return safetensors_fail(problem, -E2BIG,
					"%s: a header for %zu tensors has %zu bytes, and %" PRIu64
					" are the most; write several files, with --shard-size",
					file, header->tensor_count, length - SAFETENSORS_LENGTH_BYTES,
					SAFETENSORS_MAX_HEADER);
	stated = htole64(length - SAFETENSORS_LENGTH_BYTES);
	memcpy(bytes, &stated, sizeof(stated));
	header->data_first = length;
	*ret_bytes = TAKE_PTR(bytes);
	*ret_length = length;
	return 0;
}
