#include "daemon/values/source_map.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/request/request.h"

#define SHAPE_TEXT 128

/* ---- What a tensor is a part of ---- */

static const char *whole_name(const struct tensor *tensor)
{
	return tensor->slice_of ? tensor->slice_of : tensor->name;
}

/* Where it begins in that. */
static uint64_t whole_first(const struct tensor *tensor)
{
	return tensor->slice_of && tensor->layout.elements > 0
		       ? tensor->slice_row * (tensor->layout.elements / tensor->shape[0])
		       : 0;
}

static void whole_shape(const struct tensor *tensor, uint64_t shape[WIRE_MAX_DIMENSIONS])
{
	for (uint32_t i = 0; i < tensor->dimensions; i++)
		shape[i] = tensor->shape[i];
	if (tensor->slice_of)
		shape[0] = tensor->slice_rows;
}

/* ---- Making it ---- */

static int compare(const void *a, const void *b)
{
	const struct source_entry *one = a, *other = b;
	int order = strcmp(one->name, other->name);

	return order != 0 ? order : (one->first > other->first) - (one->first < other->first);
}

static void add(struct source_map *map, const char *name, uint32_t unit, uint32_t index)
{
	const struct tensor *tensor = &map->catalog->units[unit].tensors[index];
	uint64_t first = whole_first(tensor);

	map->entries[map->count++] =
		(struct source_entry){ name, first, first + tensor->layout.elements, unit, index };
}

uint64_t source_map_bytes(const struct catalog *catalog)
{
	return 2 * catalog->tensor_count * sizeof(struct source_entry);
}

int source_map_new(const struct catalog *catalog, const char *job_name, struct source_map *ret_map)
{
	struct source_map map = { .catalog = catalog, .job_name = job_name };

	/* Each may have an alias. */
	map.entries = malloc(source_map_bytes(catalog));
	if (!map.entries)
		return -ENOMEM;
	for (uint32_t u = 0; u < catalog->unit_count; u++)
		for (uint32_t i = 0; i < catalog->units[u].tensor_count; i++) {
			const struct tensor *tensor = &catalog->units[u].tensors[i];

			add(&map, whole_name(tensor), u, i);
			if (tensor->alias && !tensor->slice_of)
				add(&map, tensor->alias, u, i);
		}
	qsort(map.entries, map.count, sizeof(map.entries[0]), compare);
	*ret_map = map;
	return 0;
}

void source_map_clear(struct source_map *map)
{
	free(map->entries);
	*map = (struct source_map){ NULL };
}

/* ---- Finding ---- */

/* The last entry of the name that begins at the element or before it, or NULL. */
static const struct source_entry *find(const struct source_map *map, const char *name, uint64_t element)
{
	const struct source_entry wanted = { .name = name, .first = element };
	uint64_t from = 0, to = map->count;

	while (from < to) {
		uint64_t middle = from + (to - from) / 2;

		if (compare(&map->entries[middle], &wanted) <= 0)
			from = middle + 1;
		else
			to = middle;
	}
	return from > 0 && strcmp(map->entries[from - 1].name, name) == 0 ? &map->entries[from - 1] : NULL;
}

/* Under its name, or under the one that it is tied with. */
static const char *found_name(const struct source_map *map, const struct tensor *tensor)
{
	const char *name = whole_name(tensor);

	if (find(map, name, UINT64_MAX))
		return name;
	return tensor->alias && !tensor->slice_of && find(map, tensor->alias, UINT64_MAX) ? tensor->alias
											  : NULL;
}

const struct source_entry *source_map_find(const struct source_map *map, const struct tensor *tensor,
					   uint64_t element, uint64_t *ret_at)
{
	uint64_t wanted = whole_first(tensor) + element;
	const char *name = found_name(map, tensor);
	const struct source_entry *entry = name ? find(map, name, wanted) : NULL;

	if (!entry || wanted >= entry->end)
		return NULL;
	*ret_at = wanted - entry->first;
	return entry;
}

/* ---- Matching ---- */

static int compare_shapes(const struct source_map *map, const struct tensor *here, const struct tensor *there,
			  char *message, size_t size)
{
	uint64_t here_shape[WIRE_MAX_DIMENSIONS], there_shape[WIRE_MAX_DIMENSIONS];
	char here_text[SHAPE_TEXT], there_text[SHAPE_TEXT];
	bool is_equal = here->dimensions == there->dimensions;

	whole_shape(here, here_shape);
	whole_shape(there, there_shape);
	for (uint32_t i = 0; i < here->dimensions && is_equal; i++)
		is_equal = here_shape[i] == there_shape[i];
	if (is_equal)
		return 0;
	catalog_print_shape(here_shape, here->dimensions, here_text, sizeof(here_text));
	catalog_print_shape(there_shape, there->dimensions, there_text, sizeof(there_text));
	return refuse(message, size, -EINVAL, "tensor \"%s\": %s has shape %s here, and %s in job %s",
		      here->name, here->slice_of ? "what it is a slice of" : "it", here_text, there_text,
		      map->job_name);
}

static int compare_kinds(const struct source_map *map, const struct tensor *here, const struct tensor *there,
			 char *message, size_t size)
{
	bool is_bytes = here->format == FORMAT_BYTES;

	if (is_bytes == (there->format == FORMAT_BYTES))
		return 0;
	return refuse(message, size, -EINVAL, "tensor \"%s\" holds %s here, and %s in job %s", here->name,
		      is_bytes ? "bytes" : "numbers", is_bytes ? "numbers" : "bytes", map->job_name);
}

static const struct tensor *tensor_of(const struct source_map *map, const struct source_entry *entry)
{
	return &map->catalog->units[entry->unit].tensors[entry->tensor];
}

/* Rows of it may lie in several tensors, one after the other. */
static int check_elements(const struct source_map *map, const struct tensor *tensor, char *message,
			  size_t size)
{
	for (uint64_t element = 0, at; element < tensor->layout.elements;) {
		const struct source_entry *entry = source_map_find(map, tensor, element, &at);
		int r;

		if (!entry)
			return refuse(message, size, -EINVAL,
				      "tensor \"%s\": job %s has not all rows of \"%s\"", tensor->name,
				      map->job_name, whole_name(tensor));
		r = compare_shapes(map, tensor, tensor_of(map, entry), message, size);
		if (r == 0)
			r = compare_kinds(map, tensor, tensor_of(map, entry), message, size);
		if (r < 0)
			return r;
		element += entry->end - entry->first - at;
	}
	return 1;
}

int source_map_match(const struct source_map *map, const struct tensor *tensor, char *message, size_t size)
{
	const char *name = found_name(map, tensor);
	int r;

	if (!name)
		return 0;
	r = compare_shapes(map, tensor, tensor_of(map, find(map, name, UINT64_MAX)), message, size);
	return r < 0 ? r : check_elements(map, tensor, message, size);
}
