/* Fuzzes the headers and indexes of files of tensors: any text gives one, or an error that names the file;
 * one that was read is the same when it is written and read again. The first byte says which, the next two
 * how much data there is. */
#include <assert.h>
#include <endian.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "client/safetensors/header.h"
#include "client/safetensors/index.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length);

static char *copy_text(const uint8_t *bytes, size_t length)
{
	char *text = malloc(length + 1);

	assert(text);
	memcpy(text, bytes, length);
	text[length] = '\0';
	return text;
}

static void check_error(int r, const struct safetensors_problem *problem)
{
	assert(r == -EINVAL || r == -ERANGE || r == -EEXIST);
	assert(strncmp(problem->text, "fuzz", 4) == 0);
}

static const struct safetensors_tensor *find(const struct safetensors_header *header, const char *name)
{
	for (size_t i = 0; i < header->tensor_count; i++)
		if (strcmp(header->tensors[i].name, name) == 0)
			return &header->tensors[i];
	abort();
}

static void compare(const struct safetensors_header *one, const struct safetensors_header *other)
{
	assert(one->tensor_count == other->tensor_count && one->note_count == other->note_count);
	assert(one->data_bytes == other->data_bytes);
	for (size_t i = 0; i < one->tensor_count; i++) {
		const struct safetensors_tensor *a = &one->tensors[i], *b = find(other, a->name);

		assert(a->dtype == b->dtype && a->dimensions == b->dimensions);
		assert(a->end - a->begin == b->end - b->begin);
		for (uint32_t k = 0; k < a->dimensions; k++)
			assert(a->shape[k] == b->shape[k]);
	}
	for (size_t i = 0; i < one->note_count; i++)
		assert(strcmp(one->notes[i].value, other->notes[i].value) == 0);
}

/* Tensors move to where the writer wants them. */
static void write_and_read(struct safetensors_header *header)
{
	struct safetensors_header again = SAFETENSORS_HEADER_INIT;
	struct safetensors_problem problem;
	uint64_t stated;
	size_t length;
	char *bytes;

	assert(safetensors_header_write(header, "fuzz", &bytes, &length, &problem) == 0);
	memcpy(&stated, bytes, sizeof(stated));
	assert(le64toh(stated) == length - 8 && length % 8 == 0);
	assert(safetensors_header_parse(copy_text((uint8_t *)bytes + 8, length - 8), length - 8,
					header->data_bytes, "fuzz", &again, &problem) == 0);
	compare(header, &again);
	safetensors_header_clear(&again);
	free(bytes);
}

static void fuzz_header(const uint8_t *bytes, size_t length, uint64_t data_bytes)
{
	struct safetensors_header header = SAFETENSORS_HEADER_INIT;
	struct safetensors_problem problem;
	int r = safetensors_header_parse(copy_text(bytes, length), length, data_bytes, "fuzz", &header,
					 &problem);
	uint64_t sum = 0;

	if (r < 0) {
		check_error(r, &problem);
		return;
	}
	for (size_t i = 0; i < header.tensor_count; i++) {
		assert(header.tensors[i].begin == sum);
		sum = header.tensors[i].end;
	}
	assert(sum == data_bytes);
	write_and_read(&header);
	safetensors_header_clear(&header);
}

static void fuzz_index(const uint8_t *bytes, size_t length)
{
	struct safetensors_index index = SAFETENSORS_INDEX_INIT, again = SAFETENSORS_INDEX_INIT;
	struct safetensors_problem problem;
	int r = safetensors_index_parse(copy_text(bytes, length), length, "fuzz", &index, &problem);
	size_t written;
	char *text;

	if (r < 0) {
		check_error(r, &problem);
		return;
	}
	assert(safetensors_index_write(&index, &text, &written, &problem) == 0);
	assert(safetensors_index_parse(text, written, "fuzz", &again, &problem) == 0);
	assert(again.count == index.count && again.total_bytes == index.total_bytes);
	for (size_t i = 0; i < index.count; i++) {
		assert(strcmp(index.entries[i].tensor, again.entries[i].tensor) == 0);
		assert(!strchr(index.entries[i].file, '/'));
	}
	safetensors_index_clear(&again);
	safetensors_index_clear(&index);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length)
{
	if (length < 3)
		return 0;
	if (bytes[0] % 2 == 0)
		fuzz_header(bytes + 3, length - 3, bytes[1] + 256u * bytes[2]);
	else
		fuzz_index(bytes + 3, length - 3);
	return 0;
}
