#include "client/safetensors/index.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "client/safetensors/json.h"
#include "client/safetensors/list.h"
#include "client/safetensors/text.h"
#include "proto/name.h"

void safetensors_index_clear(struct safetensors_index *index)
{
	free(index->entries);
	free(index->text);
	*index = (struct safetensors_index)SAFETENSORS_INDEX_INIT;
}

int safetensors_index_add(struct safetensors_index *index, const char *tensor, const char *file,
			  struct safetensors_problem *problem)
{
	struct safetensors_index_entry *entries =
		safetensors_list_grow(index->entries, index->count, &index->capacity, sizeof(*entries));

	if (!entries)
		return safetensors_fail_memory(problem);
	index->entries = entries;
	entries[index->count++] = (struct safetensors_index_entry){ .tensor = tensor, .file = file };
	return 0;
}

/* ---- Reading ---- */

struct parsing {
	struct safetensors_index index;
	bool has_map;
};

static int read_entry(struct json *json, const char *tensor, void *index)
{
	const char *file;
	int r = json_string(json, &file);

	if (r < 0)
		return r;
	if (name_check_kept(tensor, SIZE_MAX - 1) < 0)
		return json_fail(json, "the name of a tensor is empty, or has a control character");
	/* The index may come from elsewhere, and the files that it names are opened. */
	if (name_check_kept(file, 255) < 0 || strchr(file, '/') || strcmp(file, ".") == 0 ||
	    strcmp(file, "..") == 0)
		return safetensors_fail(
			json->problem, -EINVAL,
			"%s: tensor \"%.128s\" is said to lie in \"%.128s\"; files of an index "
			"lie beside it, and have names of 1 to 255 bytes without a folder",
			json->file, tensor, file);
	return safetensors_index_add(index, tensor, file, json->problem);
}

/* Other metadata of the model does not matter here. */
static int read_metadata(struct json *json, const char *name, void *context)
{
	struct safetensors_index *index = context;

	if (strcmp(name, "total_size") != 0)
		return json_skip(json);
	index->has_total = true;
	return json_number(json, &index->total_bytes);
}

static int read_member(struct json *json, const char *name, void *context)
{
	struct parsing *parsing = context;

	if (strcmp(name, "metadata") == 0)
		return json_object(json, read_metadata, &parsing->index);
	if (strcmp(name, "weight_map") != 0)
		return json_skip(json);
	if (parsing->has_map)
		return json_fail(json, "weight_map comes twice");
	parsing->has_map = true;
	return json_object(json, read_entry, &parsing->index);
}

static int compare_tensors(const void *a, const void *b)
{
	const struct safetensors_index_entry *one = a, *other = b;

	return strcmp(one->tensor, other->tensor);
}

static int compare_entries(const void *a, const void *b)
{
	const struct safetensors_index_entry *one = a, *other = b;
	int files = strcmp(one->file, other->file);

	return files ? files : strcmp(one->tensor, other->tensor);
}

static int check_and_sort(struct safetensors_index *index, const char *file,
			  struct safetensors_problem *problem)
{
	if (index->count == 0)
		return 0;
	qsort(index->entries, index->count, sizeof(index->entries[0]), compare_tensors);
	for (size_t i = 1; i < index->count; i++)
		if (strcmp(index->entries[i - 1].tensor, index->entries[i].tensor) == 0)
			return safetensors_fail(problem, -EEXIST,
						"%s: tensor \"%.128s\" is named twice; the index is damaged",
						file, index->entries[i].tensor);
	qsort(index->entries, index->count, sizeof(index->entries[0]), compare_entries);
	return 0;
}

int safetensors_index_parse(char *text, size_t length, const char *file, struct safetensors_index *ret_index,
			    struct safetensors_problem *problem)
{
	struct parsing parsing = { .index.text = text };
	struct json json;
	int r;

	json_begin(&json, text, length, file, problem);
	r = json_object(&json, read_member, &parsing);
	if (r == 0 && !parsing.has_map)
		r = json_fail(&json, "weight_map, which says where tensors are, is missing");
	if (r == 0)
		r = json_end(&json);
	if (r == 0)
		r = check_and_sort(&parsing.index, file, problem);
	if (r < 0)
		safetensors_index_clear(&parsing.index);
	else
		*ret_index = parsing.index;
	return r;
}

/* ---- Writing ---- */

int safetensors_index_write(const struct safetensors_index *index, char **ret_text, size_t *ret_length,
			    struct safetensors_problem *problem)
{
	char *text = NULL;
	size_t length = 0;
	FILE *stream = open_memstream(&text, &length);

	if (!stream)
		return safetensors_fail_memory(problem);
	fprintf(stream, "{\n  \"metadata\": {\n    \"total_size\": %" PRIu64 "\n  },\n  \"weight_map\": {",
		index->total_bytes);
	for (size_t i = 0; i < index->count; i++) {
		fputs(i ? ",\n    " : "\n    ", stream);
		safetensors_text_write(stream, index->entries[i].tensor);
		fputs(": ", stream);
		safetensors_text_write(stream, index->entries[i].file);
	}
	fputs(index->count ? "\n  }\n}\n" : "}\n}\n", stream);
	if (fclose(stream) != 0) {
		free(text);
		return safetensors_fail_memory(problem);
	}
	*ret_text = text;
	*ret_length = length;
	return 0;
}
