/* The units of an import, by the names of its tensors. */
#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "client/safetensors/list.h"
#include "client/tierctl/command.h"
#include "client/tierctl/import_list.h"

/* The definition of a unit is one message, so a unit cannot have more. */
#define MAX_UNIT_TENSORS 2000

/* A layer is what has a number: "model.layers.7" of "model.layers.7.mlp.weight". What has none is a module:
 * "lm_head" of "lm_head.weight". */
static size_t unit_name_length(const char *name)
{
	const char *dot = strrchr(name, '.');

	for (const char *part = name; *part;) {
		size_t length = strcspn(part, "."), digits = 0;

		while (digits < length && isdigit((unsigned char)part[digits]))
			digits++;
		if (length > 0 && digits == length)
			return (size_t)(part - name) + length;
		part += length + (part[length] == '.');
	}
	return dot && dot > name ? (size_t)(dot - name) : strlen(name);
}

static int compare_unit_names(const struct import_tensor *one, const struct import_tensor *other)
{
	size_t length = unit_name_length(one->from->name), other_length = unit_name_length(other->from->name);
	int r = strncmp(one->from->name, other->from->name, length < other_length ? length : other_length);

	return r ? r : (length > other_length) - (length < other_length);
}

static int compare_by_unit(const void *a, const void *b)
{
	const struct import_tensor *one = *(struct import_tensor *const *)a,
				   *other = *(struct import_tensor *const *)b;
	int r = compare_unit_names(one, other);

	return r ? r : one->order < other->order ? -1 : 1;
}

static int compare_units(const void *a, const void *b)
{
	const struct import_unit *one = a, *other = b;

	return one->order < other->order ? -1 : 1;
}

static int add_unit(struct import_list *list, size_t first, uint32_t count, unsigned part)
{
	const char *name = list->by_unit[first]->from->name;
	struct import_unit *units = safetensors_list_grow(list->units, list->unit_count, &list->unit_capacity,
							  sizeof(*units)),
			   *unit;
	char number[16] = "";

	if (!units)
		return command_fail_memory();
	list->units = units;
	unit = &units[list->unit_count];
	*unit = (struct import_unit){ .first = first, .count = count, .order = list->by_unit[first]->order };
	if (part > 0)
		snprintf(number, sizeof(number), "#%u", part + 1);
	if (asprintf(&unit->name, "%.*s%s", (int)unit_name_length(name), name, number) < 0)
		return command_fail_memory();
	list->unit_count++;
	return COMMAND_DONE;
}

static int cut(struct import_list *list)
{
	int code = COMMAND_DONE;
	unsigned part = 0;

	for (size_t first = 0; first < list->job_count && code == COMMAND_DONE;) {
		struct import_tensor **tensors = &list->by_unit[first];
		uint32_t count = 1;

		while (first + count < list->job_count && count < MAX_UNIT_TENSORS &&
		       compare_unit_names(tensors[0], tensors[count]) == 0)
			count++;
		code = add_unit(list, first, count, part);
		first += count;
		part = first < list->job_count && compare_unit_names(tensors[0], list->by_unit[first]) == 0
			       ? part + 1
			       : 0;
	}
	return code;
}

int import_units_group(struct import_list *list)
{
	int code;

	qsort(list->by_unit, list->job_count, sizeof(struct import_tensor *), compare_by_unit);
	code = cut(list);
	if (code != COMMAND_DONE)
		return code;
	qsort(list->units, list->unit_count, sizeof(*list->units), compare_units);
	for (size_t i = 0; i < list->unit_count; i++)
		for (uint32_t k = 0; k < list->units[i].count; k++) {
			struct import_tensor *tensor = list->by_unit[list->units[i].first + k];

			tensor->unit = i;
			tensor->index = k;
		}
	return code;
}
