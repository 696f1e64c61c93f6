#include "daemon/catalog.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/cleanup.h"
#include "common/plural.h"
#include "common/size.h"
#include "daemon/names.h"
#include "daemon/refuse.h"
#include "proto/name.h"

static void unit_clear(struct unit *unit)
{
	for (uint32_t i = 0; i < unit->tensor_count; i++) {
		free(unit->tensors[i].name);
		free(unit->tensors[i].alias);
		free(unit->tensors[i].slice_of);
		free(unit->tensors[i].written);
	}
	free(unit->tensors);
	for (int section = 0; section < UNIT_TRAINABLE_SECTIONS; section++)
		free(unit->runs[section]);
	free(unit->name);
	*unit = (struct unit){ 0 };
}

/* ---- Definition ---- */

static int check_name(const struct catalog *catalog, const char *what, const char *name, char *message,
		      size_t size)
{
	int r = name_check(name, catalog->name_maximum);

	if (r == -EILSEQ)
		return refuse(message, size, -EINVAL,
			      "a %s has a name with a control character, or that is not UTF-8", what);
	if (r < 0)
		return refuse(message, size, -EINVAL,
			      "a %s has a name of %zu bytes; 1 to %u are allowed (name_length)", what,
			      strlen(name), catalog->name_maximum);
	return 0;
}

static int check_slice(const Tierd__Wire__Tensor *wire, char *message, size_t size)
{
	uint64_t end;

	if (wire->slice_of[0] == '\0')
		return 0;
	if (wire->n_shape == 0)
		return refuse(message, size, -EINVAL, "tensor \"%s\": a scalar cannot be a slice",
			      wire->name);
	if (!size_add(wire->slice_row, wire->shape[0], &end) || end > wire->slice_rows)
		return refuse(message, size, -EINVAL,
			      "tensor \"%s\": rows %llu + %llu go beyond the %llu rows of \"%s\"", wire->name,
			      (unsigned long long)wire->slice_row, (unsigned long long)wire->shape[0],
			      (unsigned long long)wire->slice_rows, wire->slice_of);
	return 0;
}

static int check_tensor(const struct catalog *catalog, const Tierd__Wire__Tensor *wire, uint32_t group_count,
			char *message, size_t size)
{
	int r = check_name(catalog, "tensor", wire->name, message, size);

	if (r == 0 && wire->alias[0])
		r = check_name(catalog, "tensor's alias", wire->alias, message, size);
	if (r == 0 && wire->slice_of[0])
		r = check_name(catalog, "tensor that is sliced", wire->slice_of, message, size);
	if (r < 0)
		return r;
	if (wire->n_shape > catalog->dimension_maximum)
		return refuse(
			message, size, -EINVAL,
			"tensor \"%s\" has %zu dimensions; at most %u are allowed (dimensions_per_tensor)",
			wire->name, wire->n_shape, catalog->dimension_maximum);
	if (wire->group >= group_count)
		return refuse(message, size, -EINVAL,
			      "tensor \"%s\" is in parameter group %u; the job has %u", wire->name,
			      wire->group, group_count);
	if (wire->initializer > INITIALIZE_UNIFORM)
		return refuse(message, size, -EINVAL, "tensor \"%s\": no initializer %u", wire->name,
			      wire->initializer);
	if (wire->format == FORMAT_BYTES && !wire->is_frozen)
		return refuse(message, size, -EINVAL, "tensor \"%s\" holds bytes, which cannot be trained",
			      wire->name);
	if (wire->format == FORMAT_BYTES && wire->initializer != INITIALIZE_NONE)
		return refuse(message, size, -EINVAL,
			      "tensor \"%s\" holds bytes, and initializers make numbers", wire->name);
	if (!isfinite(wire->a) || !isfinite(wire->b))
		return refuse(message, size, -EINVAL,
			      "tensor \"%s\": its initializer has a value that is not finite", wire->name);
	if (wire->initializer == INITIALIZE_NORMAL && wire->b < 0)
		return refuse(message, size, -EINVAL, "tensor \"%s\": its standard deviation is %g, below 0",
			      wire->name, wire->b);
	return check_slice(wire, message, size);
}

static char *copy_or_null(const char *text)
{
	return text[0] ? strdup(text) : NULL;
}

static int tensor_set(struct tensor *tensor, const Tierd__Wire__Tensor *wire, struct unit_layout *layout,
		      char *message, size_t size)
{
	uint64_t elements;
	int r = unit_layout_elements(wire->shape, wire->n_shape, &elements);

	if (r == 0)
		r = unit_layout_append(layout, wire->format, wire->is_frozen, elements, &tensor->layout);
	if (r == -EINVAL)
		return refuse(message, size, r, "tensor \"%s\" has the unknown format %u", wire->name,
			      wire->format);
	if (r < 0)
		return refuse(message, size, r,
			      "tensor \"%s\" is too large: a unit has at most %llu elements", wire->name,
			      (unsigned long long)UNIT_MAX_ELEMENTS);
	tensor->format = wire->format;
	tensor->dimensions = (uint32_t)wire->n_shape;
	/* Of a scalar the wire has no array at all. */
	for (size_t i = 0; i < wire->n_shape; i++)
		tensor->shape[i] = wire->shape[i];
	tensor->group = wire->group;
	tensor->is_frozen = wire->is_frozen;
	tensor->initializer = wire->initializer;
	tensor->a = wire->a;
	tensor->b = wire->b;
	tensor->slice_row = wire->slice_row;
	tensor->slice_rows = wire->slice_rows;
	tensor->name = strdup(wire->name);
	tensor->alias = copy_or_null(wire->alias);
	tensor->slice_of = copy_or_null(wire->slice_of);
	if (!tensor->name || (wire->alias[0] && !tensor->alias) || (wire->slice_of[0] && !tensor->slice_of))
		return refuse(message, size, -ENOMEM, "out of memory");
	return 0;
}

/* Runs cover a section from its start to its end: padding belongs to the tensor before it. */
static int unit_set_runs(struct unit *unit, enum unit_section section)
{
	struct run *runs = calloc(unit->tensor_count + 1, sizeof(*runs));
	uint32_t count = 0;

	if (!runs)
		return -ENOMEM;
	for (uint32_t i = 0; i < unit->tensor_count; i++) {
		const struct tensor *tensor = &unit->tensors[i];

		if (tensor->layout.section != section || tensor->layout.elements == 0)
			continue;
		if (count > 0 && runs[count - 1].group == tensor->group)
			continue;
		uint64_t first = count == 0 ? 0 : tensor->layout.first;

		if (count > 0)
			runs[count - 1].count = first - runs[count - 1].first;
		runs[count++] = (struct run){ .first = first, .group = tensor->group };
	}
	if (count > 0)
		runs[count - 1].count = unit->layout.elements[section] - runs[count - 1].first;
	unit->runs[section] = runs;
	unit->run_count[section] = count;
	return 0;
}

static int unit_set(const struct catalog *catalog, struct unit *unit,
		    const Tierd__Wire__UnitDefine *definition, uint32_t group_count, char *message,
		    size_t size)
{
	int r;

	unit->name = strdup(definition->name);
	unit->tensors = calloc(definition->n_tensors, sizeof(*unit->tensors));
	if (!unit->name || !unit->tensors)
		return refuse(message, size, -ENOMEM, "out of memory");
	unit_layout_init(&unit->layout);
	for (size_t i = 0; i < definition->n_tensors; i++) {
		r = check_tensor(catalog, definition->tensors[i], group_count, message, size);
		if (r < 0)
			return r;
		unit->tensor_count++;
		r = tensor_set(&unit->tensors[i], definition->tensors[i], &unit->layout, message, size);
		if (r < 0)
			return r;
		unit->parameters += unit->tensors[i].layout.elements;
	}
	unit_layout_finish(&unit->layout);
	r = 0;
	for (int section = 0; section < UNIT_TRAINABLE_SECTIONS && r == 0; section++)
		r = unit_set_runs(unit, (enum unit_section)section);
	return r == 0 ? 0 : refuse(message, size, r, "out of memory");
}

void catalog_free(struct catalog *catalog)
{
	names_clear(&catalog->unit_names);
	names_clear(&catalog->tensor_names);
	for (uint32_t i = 0; i < catalog->unit_count; i++)
		unit_clear(&catalog->units[i]);
	free(catalog->units);
	free(catalog->packs);
	*catalog = (struct catalog){ 0 };
}

/* The unit's and its tensors' names become the job's; the first that exists already is the error. */
static int add_names(struct catalog *catalog, const struct unit *unit, char *message, size_t size)
{
	for (uint32_t i = 0; i < unit->tensor_count; i++) {
		if (names_have(catalog->tensor_names, unit->tensors[i].name))
			return refuse(message, size, -EEXIST, "unit \"%s\": there is already a tensor \"%s\"",
				      unit->name, unit->tensors[i].name);
		if (names_add(&catalog->tensor_names, unit->tensors[i].name) < 0)
			return refuse(message, size, -ENOMEM, "out of memory");
	}
	if (names_add(&catalog->unit_names, unit->name) < 0)
		return refuse(message, size, -ENOMEM, "out of memory");
	return 0;
}

static void remove_names(struct catalog *catalog, const struct unit *unit)
{
	names_remove(&catalog->unit_names, unit->name);
	for (uint32_t i = 0; i < unit->tensor_count; i++)
		names_remove(&catalog->tensor_names, unit->tensors[i].name);
}

static int grow(struct catalog *catalog)
{
	if (catalog->unit_count < catalog->unit_capacity)
		return 0;
	uint32_t capacity = catalog->unit_capacity ? 2 * catalog->unit_capacity : 32;
	struct unit *units = realloc(catalog->units, capacity * sizeof(*units));

	if (!units)
		return -ENOMEM;
	catalog->units = units;
	catalog->unit_capacity = capacity;
	return 0;
}

static int check_definition(const struct catalog *catalog, const Tierd__Wire__UnitDefine *definition,
			    char *message, size_t size)
{
	int r = check_name(catalog, "unit", definition->name, message, size);

	if (r < 0)
		return r;
	if (definition->n_tensors == 0)
		return refuse(message, size, -EINVAL, "unit \"%s\" has no tensors", definition->name);
	if (catalog->unit_count == catalog->unit_maximum ||
	    catalog->tensor_count + definition->n_tensors > catalog->tensor_maximum)
		return refuse(message, size, -E2BIG,
			      "unit \"%s\" is too many: a job has at most %u unit%s and %llu tensor%s here "
			      "(units_per_job, tensors_per_job)",
			      definition->name, catalog->unit_maximum, PLURAL(catalog->unit_maximum),
			      (unsigned long long)catalog->tensor_maximum, PLURAL(catalog->tensor_maximum));
	if (names_have(catalog->unit_names, definition->name))
		return refuse(message, size, -EEXIST, "there is already a unit \"%s\"", definition->name);
	return 0;
}

int catalog_define(struct catalog *catalog, const Tierd__Wire__UnitDefine *definition, uint32_t group_count,
		   char *message, size_t message_size)
{
	struct unit unit = { 0 };
	int r = check_definition(catalog, definition, message, message_size);

	if (r < 0)
		return r;
	if (grow(catalog) < 0)
		return refuse(message, message_size, -ENOMEM, "out of memory");
	r = unit_set(catalog, &unit, definition, group_count, message, message_size);
	if (r == 0)
		r = add_names(catalog, &unit, message, message_size);
	if (r < 0) {
		remove_names(catalog, &unit);
		unit_clear(&unit);
		return r;
	}
	catalog->units[catalog->unit_count++] = unit;
	catalog->tensor_count += unit.tensor_count;
	catalog->parameters += unit.parameters;
	catalog->trainable += unit_layout_trainable(&unit.layout);
	uint64_t bytes = size_align(unit_layout_gradient_bytes(&unit.layout), 4096);

	if (bytes > catalog->gradient_bytes_maximum)
		catalog->gradient_bytes_maximum = bytes;
	return 0;
}

/* What the allocator adds to each piece. */
#define ALLOCATION_BYTES 32

static uint64_t text_bytes(const char *text)
{
	return text[0] ? strlen(text) + ALLOCATION_BYTES : 0;
}

uint64_t catalog_definition_bytes(const Tierd__Wire__UnitDefine *definition)
{
	/* Twice: the array of units grows by doubling. Runs: of two sections, one more than tensors each. */
	uint64_t bytes = 2 * sizeof(struct unit) + NAMES_BYTES + text_bytes(definition->name) +
			 2 * (sizeof(struct run) + ALLOCATION_BYTES);

	for (size_t i = 0; i < definition->n_tensors; i++) {
		const Tierd__Wire__Tensor *tensor = definition->tensors[i];

		bytes += sizeof(struct tensor) + 2 * sizeof(struct run) + NAMES_BYTES +
			 text_bytes(tensor->name) + text_bytes(tensor->alias) + text_bytes(tensor->slice_of);
	}
	return bytes;
}

/* ---- Comparison ---- */

void catalog_print_shape(const uint64_t *shape, size_t dimensions, char *text, size_t size)
{
	size_t used = (size_t)snprintf(text, size, "[");

	for (size_t i = 0; i < dimensions && used < size; i++)
		used += (size_t)snprintf(text + used, size - used, i ? ", %llu" : "%llu",
					 (unsigned long long)shape[i]);
	if (used < size)
		snprintf(text + used, size - used, "]");
}

static bool is_equal(const char *own, const char *wire)
{
	return strcmp(own ? own : "", wire) == 0;
}

static bool has_shape(const struct tensor *tensor, const Tierd__Wire__Tensor *wire)
{
	if (tensor->dimensions != wire->n_shape)
		return false;
	for (size_t i = 0; i < wire->n_shape; i++)
		if (tensor->shape[i] != wire->shape[i])
			return false;
	return true;
}

static int compare_shape(const struct unit *unit, const struct tensor *tensor,
			 const Tierd__Wire__Tensor *wire, char *message, size_t size)
{
	char here[128], there[128];

	if (has_shape(tensor, wire))
		return 0;
	catalog_print_shape(wire->shape, wire->n_shape, here, sizeof(here));
	catalog_print_shape(tensor->shape, tensor->dimensions, there, sizeof(there));
	return refuse(message, size, -EINVAL, "unit \"%s\", tensor \"%s\": shape %s here, %s in the job",
		      unit->name, tensor->name, here, there);
}

static const char *format_name(uint32_t format)
{
	static const char *const names[] = { [FORMAT_FP32] = "fp32",
					     [FORMAT_BF16] = "bf16",
					     [FORMAT_FP16] = "fp16",
					     [FORMAT_BYTES] = "bytes" };

	return format > 0 && format < ARRAY_LENGTH(names) ? names[format] : "?";
}

static int compare_tensor(const struct unit *unit, const struct tensor *tensor,
			  const Tierd__Wire__Tensor *wire, char *message, size_t size)
{
	const char *what = NULL;

	if (strcmp(tensor->name, wire->name) != 0)
		return refuse(message, size, -EINVAL, "unit \"%s\": tensor \"%s\" here, \"%s\" in the job",
			      unit->name, wire->name, tensor->name);
	if (tensor->format != wire->format)
		return refuse(message, size, -EINVAL,
			      "unit \"%s\", tensor \"%s\": format %s here, %s in the job", unit->name,
			      tensor->name, format_name(wire->format), format_name(tensor->format));
	if (tensor->group != wire->group)
		return refuse(message, size, -EINVAL,
			      "unit \"%s\", tensor \"%s\": group %u here, %u in the job", unit->name,
			      tensor->name, wire->group, tensor->group);
	if (tensor->is_frozen != wire->is_frozen)
		what = "frozen or not";
	else if (!is_equal(tensor->alias, wire->alias))
		what = "alias";
	else if (!is_equal(tensor->slice_of, wire->slice_of) || tensor->slice_row != wire->slice_row ||
		 tensor->slice_rows != wire->slice_rows)
		what = "slice";
	else if (tensor->initializer != wire->initializer || tensor->a != wire->a || tensor->b != wire->b)
		what = "initializer";
	if (what)
		return refuse(message, size, -EINVAL,
			      "unit \"%s\", tensor \"%s\": another %s here than in the job", unit->name,
			      tensor->name, what);
	return compare_shape(unit, tensor, wire, message, size);
}

int catalog_compare(const struct catalog *catalog, uint32_t index, const Tierd__Wire__UnitDefine *definition,
		    char *message, size_t message_size)
{
	const struct unit *unit = &catalog->units[index];

	if (strcmp(unit->name, definition->name) != 0)
		return refuse(message, message_size, -EINVAL, "unit %u is \"%s\" here, \"%s\" in the job",
			      index, definition->name, unit->name);
	for (uint32_t i = 0; i < unit->tensor_count && i < definition->n_tensors; i++) {
		int r = compare_tensor(unit, &unit->tensors[i], definition->tensors[i], message,
				       message_size);

		if (r < 0)
			return r;
	}
	if (unit->tensor_count != definition->n_tensors)
		return refuse(message, message_size, -EINVAL,
			      "unit \"%s\" has %zu tensor%s here, %u in the job", unit->name,
			      definition->n_tensors, PLURAL(definition->n_tensors), unit->tensor_count);
	return 0;
}

/* ---- Packs ---- */

static void pack_append(struct pack *pack, uint32_t index, struct unit *unit)
{
	unit->pack = index;
	for (int section = 0; section < UNIT_SECTIONS; section++) {
		unit->pack_first[section] = pack->elements[section];
		pack->elements[section] += unit->layout.elements[section];
	}
	pack->unit_count++;
}

/* Sections of a slot begin at pages, so that reads can land there. */
#define SLOT_ALIGN_BYTES 4096

static void pack_finish(struct pack *pack)
{
	for (int section = 0; section < UNIT_SECTIONS; section++) {
		pack->slot_offset[section] = pack->slot_bytes;
		pack->slot_bytes += size_align(pack->elements[section] *
						       section_element_bytes((enum unit_section)section),
					       SLOT_ALIGN_BYTES);
	}
	/* A unit of empty tensors has an address too. */
	if (pack->slot_bytes == 0)
		pack->slot_bytes = SLOT_ALIGN_BYTES;
}

int catalog_pack(struct catalog *catalog)
{
	uint64_t elements = 0;

	catalog->packs = calloc(catalog->unit_count ? catalog->unit_count : 1, sizeof(*catalog->packs));
	if (!catalog->packs)
		return -ENOMEM;
	for (uint32_t i = 0; i < catalog->unit_count; i++) {
		uint64_t more = unit_layout_total(&catalog->units[i].layout);

		if (i == 0 || elements + more > PACK_ELEMENTS) {
			catalog->packs[catalog->pack_count++].first_unit = i;
			elements = 0;
		}
		elements += more;
		pack_append(&catalog->packs[catalog->pack_count - 1], catalog->pack_count - 1,
			    &catalog->units[i]);
	}
	for (uint32_t i = 0; i < catalog->pack_count; i++)
		pack_finish(&catalog->packs[i]);
	return 0;
}

void catalog_unpack(struct catalog *catalog)
{
	free(catalog->packs);
	catalog->packs = NULL;
	catalog->pack_count = 0;
}

bool pack_is_frozen(const struct pack *pack)
{
	for (int section = 0; section < UNIT_TRAINABLE_SECTIONS; section++)
		if (pack->elements[section] > 0)
			return false;
	return true;
}

static void clear_up_to(char *section, uint64_t *at, uint64_t end)
{
	memset(section + *at, 0, end - *at);
	*at = end;
}

static void clear_section_padding(const struct catalog *catalog, const struct pack *pack, int section,
				  char *base)
{
	uint64_t bytes = section_element_bytes((enum unit_section)section), at = 0;

	for (uint32_t u = pack->first_unit; u < pack->first_unit + pack->unit_count; u++)
		for (uint32_t i = 0; i < catalog->units[u].tensor_count; i++) {
			const struct tensor_layout *tensor = &catalog->units[u].tensors[i].layout;

			if ((int)tensor->section != section)
				continue;
			clear_up_to(base, &at,
				    (catalog->units[u].pack_first[section] + tensor->first) * bytes);
			at += tensor->elements * bytes;
		}
	clear_up_to(base, &at, size_align(pack->elements[section] * bytes, SLOT_ALIGN_BYTES));
}

void catalog_clear_padding(const struct catalog *catalog, uint32_t index, char *slot)
{
	const struct pack *pack = &catalog->packs[index];

	for (int section = UNIT_TRAINABLE_SECTIONS; section < UNIT_SECTIONS; section++)
		if (pack->elements[section] > 0)
			clear_section_padding(catalog, pack, section, slot + pack->slot_offset[section]);
}

/* ---- Values ---- */

int tensor_reserve_written(struct tensor *tensor, unsigned pieces)
{
	unsigned needed = tensor->written_count + pieces, capacity = 2 * tensor->written_capacity + 4;
	struct span *spans;

	if (needed > CATALOG_MAX_SPANS)
		return -E2BIG;
	if (needed <= tensor->written_capacity)
		return 0;
	capacity = capacity > needed ? capacity : needed;
	spans = realloc(tensor->written, capacity * sizeof(*spans));
	if (!spans)
		return -ENOMEM;
	tensor->written = spans;
	tensor->written_capacity = capacity;
	return 0;
}

int tensor_mark_written(struct tensor *tensor, uint64_t first, uint64_t count)
{
	struct span span = { first, first + count }, *spans;
	unsigned from = 0, end;
	int r = count > 0 ? tensor_reserve_written(tensor, 1) : 0;

	if (r < 0 || count == 0)
		return r;
	spans = tensor->written;
	while (from < tensor->written_count && spans[from].end < span.first)
		from++;
	/* Those that it touches, or overlaps, become one with it. */
	for (end = from; end < tensor->written_count && spans[end].first <= span.end; end++) {
		span.first = spans[end].first < span.first ? spans[end].first : span.first;
		span.end = spans[end].end > span.end ? spans[end].end : span.end;
	}
	memmove(spans + from + 1, spans + end, (tensor->written_count - end) * sizeof(*spans));
	spans[from] = span;
	tensor->written_count += 1 + from - end;
	return 0;
}

bool tensor_has_written(const struct tensor *tensor, uint64_t first, uint64_t count)
{
	for (unsigned i = 0; i < tensor->written_count; i++)
		if (tensor->written[i].first < first + count && first < tensor->written[i].end)
			return true;
	return false;
}

bool tensor_is_written(const struct tensor *tensor)
{
	return tensor->layout.elements == 0 || (tensor->written_count == 1 && tensor->written[0].first == 0 &&
						tensor->written[0].end == tensor->layout.elements);
}

unsigned catalog_unwritten(const struct catalog *catalog, char *text, size_t size)
{
	unsigned count = 0;
	size_t used = 0;

	text[0] = '\0';
	for (uint32_t u = 0; u < catalog->unit_count; u++)
		for (uint32_t t = 0; t < catalog->units[u].tensor_count; t++) {
			const struct tensor *tensor = &catalog->units[u].tensors[t];

			if (tensor->initializer != INITIALIZE_NONE || tensor_is_written(tensor))
				continue;
			if (count < 4 && used < size)
				used += (size_t)snprintf(text + used, size - used, "%s\"%s\"",
							 count ? ", " : "", tensor->name);
			count++;
		}
	return count;
}
