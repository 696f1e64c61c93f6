#include "daemon/model/catalog.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/plural.h"
#include "common/cleanup.h"
#include "common/size.h"
#include "daemon/model/options.h"
#include "daemon/request/request.h"
#include "proto/name.h"

/* What a record says, an older version took. */
static int check_text(const struct catalog *catalog, const char *text, size_t maximum)
{
	return catalog->is_kept ? name_check_kept(text, maximum) : name_check(text, maximum);
}

static int check_name(const struct catalog *catalog, const char *what, const char *name, char *message,
		      size_t size)
{
	int r = check_text(catalog, name, catalog->name_maximum);

	if (r == -EILSEQ)
		return refuse(message, size, -EINVAL,
			      "a %s has a name with a character that is not printable, or that is not UTF-8",
			      what);
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

static int check_tensor(const struct catalog *catalog, const Tierd__Wire__Tensor *wire,
			const struct job_options *options, char *message, size_t size)
{
	bool is_wide;
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
	if (wire->group >= options->group_count)
		return refuse(message, size, -EINVAL,
			      "tensor \"%s\" is in parameter group %u; the job has %u", wire->name,
			      wire->group, options->group_count);
	if (wire->initializer > INITIALIZE_UNIFORM)
		return refuse(message, size, -EINVAL, "tensor \"%s\": no initializer %u", wire->name,
			      wire->initializer);
	if (wire->format == FORMAT_BYTES && !wire->is_frozen)
		return refuse(message, size, -EINVAL, "tensor \"%s\" holds bytes, which cannot be trained",
			      wire->name);
	if (wire->format == FORMAT_BYTES && wire->initializer != INITIALIZE_NONE)
		return refuse(message, size, -EINVAL,
			      "tensor \"%s\" holds bytes, and initializers make numbers", wire->name);
	if (wire->dtype[0] &&
	    (wire->format != FORMAT_BYTES || check_text(catalog, wire->dtype, WIRE_MAX_NAME) < 0))
		return refuse(message, size, -EINVAL,
			      "tensor \"%s\": a dtype is told of bytes alone, in 1 to %d bytes of text",
			      wire->name, WIRE_MAX_NAME);
	if (!isfinite(wire->a) || !isfinite(wire->b))
		return refuse(message, size, -EINVAL,
			      "tensor \"%s\": its initializer has a value that is not finite", wire->name);
	if (wire->initializer == INITIALIZE_NORMAL && wire->b < 0)
		return refuse(message, size, -EINVAL, "tensor \"%s\": its standard deviation is %g, below 0",
			      wire->name, wire->b);
	if (!wire->is_frozen && unit_layout_is_wide(wire->format, wire->gradient_format, &is_wide) < 0)
		return refuse(
			message, size, -EINVAL,
			"tensor \"%s\" cannot have gradients of format %u: they are in its own, or in fp32",
			wire->name, wire->gradient_format);
	return check_slice(wire, message, size);
}

/* True: it is there, or there is none. */
static bool copy_text(struct region *region, const char *text, char **ret_copy)
{
	*ret_copy = text[0] ? region_copy_text(region, text) : NULL;
	return *ret_copy || !text[0];
}

static int copy_texts(struct region *region, struct tensor *tensor, const Tierd__Wire__Tensor *wire)
{
	if (copy_text(region, wire->name, &tensor->name) && copy_text(region, wire->alias, &tensor->alias) &&
	    copy_text(region, wire->slice_of, &tensor->slice_of) &&
	    copy_text(region, wire->dtype, &tensor->dtype))
		return 0;
	return -ENOMEM;
}

static int copy_shape(struct region *region, struct tensor *tensor, const Tierd__Wire__Tensor *wire)
{
	tensor->dimensions = (uint8_t)wire->n_shape;
	/* Of a scalar the wire has no array at all. */
	if (wire->n_shape == 0)
		return 0;
	tensor->shape = region_alloc(region, wire->n_shape * sizeof(*tensor->shape));
	if (!tensor->shape)
		return -ENOMEM;
	memcpy(tensor->shape, wire->shape, wire->n_shape * sizeof(*tensor->shape));
	return 0;
}

static int tensor_set(struct region *region, struct tensor *tensor, const Tierd__Wire__Tensor *wire,
		      const struct job_options *options, struct unit_layout *layout, char *message,
		      size_t size)
{
	uint32_t moments = wire->is_frozen ? UNIT_FROZEN : options->groups[wire->group].moments;
	uint64_t elements;
	int r = unit_layout_elements(wire->shape, wire->n_shape, &elements);

	if (r == 0)
		r = unit_layout_append(layout, wire->format, moments, elements, &tensor->layout);
	if (r == -EINVAL)
		return refuse(message, size, r, "tensor \"%s\" has the unknown format %u", wire->name,
			      wire->format);
	if (r < 0)
		return refuse(message, size, r,
			      "tensor \"%s\" is too large: a unit has at most %llu elements", wire->name,
			      (unsigned long long)UNIT_MAX_ELEMENTS);
	tensor->format = (uint8_t)wire->format;
	tensor->group = tensor->defined_group = (uint16_t)wire->group;
	tensor->is_frozen = wire->is_frozen;
	tensor->initializer = (uint8_t)wire->initializer;
	tensor->gradient_format =
		wire->is_frozen || wire->gradient_format == wire->format ? 0 : (uint8_t)wire->gradient_format;
	if (tensor->gradient_format)
		unit_layout_widen(layout, tensor->layout.section);
	tensor->a = wire->a;
	tensor->b = wire->b;
	tensor->slice_row = wire->slice_row;
	tensor->slice_rows = wire->slice_rows;
	r = copy_texts(region, tensor, wire);
	if (r == 0)
		r = copy_shape(region, tensor, wire);
	return r == 0 ? 0 : refuse(message, size, r, "out of memory");
}

static int set_tensors(struct catalog *catalog, struct unit *unit, const Tierd__Wire__UnitDefine *definition,
		       const struct job_options *options, struct unit_layout *layout, char *message,
		       size_t size)
{
	int r = 0;

	for (size_t i = 0; i < definition->n_tensors && r == 0; i++) {
		r = check_tensor(catalog, definition->tensors[i], options, message, size);
		if (r < 0)
			return r;
		unit->tensor_count++;
		r = tensor_set(&catalog->definitions, &unit->tensors[i], definition->tensors[i], options,
			       layout, message, size);
		unit->parameters += unit->tensors[i].layout.elements;
	}
	return r;
}

/* They lie in one piece, which has one format. */
static int check_gradients(const struct unit *unit, const struct unit_layout *layout, char *message,
			   size_t size)
{
	for (uint32_t i = 0; i < unit->tensor_count; i++) {
		const struct tensor *tensor = &unit->tensors[i];

		if (tensor->gradient_format == 0 && unit_layout_has_wide(layout, tensor->layout.section))
			return refuse(
				message, size, -EINVAL,
				"unit \"%s\": tensor \"%s\" has gradients in its own format, and others of "
				"that format have them in fp32; give them the same, or put them in two units",
				unit->name, tensor->name);
	}
	return 0;
}

static int unit_set(struct catalog *catalog, struct unit *unit, const Tierd__Wire__UnitDefine *definition,
		    const struct job_options *options, char *message, size_t size)
{
	struct region *region = &catalog->definitions;
	struct unit_layout layout;
	int r;

	unit->name = region_copy_text(region, definition->name);
	unit->tensors = region_alloc(region, definition->n_tensors * sizeof(*unit->tensors));
	if (!unit->name || !unit->tensors)
		return refuse(message, size, -ENOMEM, "out of memory");
	unit_layout_init(&layout);
	r = set_tensors(catalog, unit, definition, options, &layout, message, size);
	if (r < 0)
		return r;
	r = check_gradients(unit, &layout, message, size);
	if (r < 0)
		return r;
	unit_layout_finish(&layout);
	r = unit_set_parts(unit, region, &layout);
	return r == 0 ? 0 : refuse(message, size, r, "out of memory");
}

void catalog_free(struct catalog *catalog)
{
	names_clear(&catalog->unit_names);
	names_clear(&catalog->tensor_names);
	for (uint32_t i = 0; i < catalog->unit_count; i++)
		for (uint32_t t = 0; t < catalog->units[i].tensor_count; t++)
			free(catalog->units[i].tensors[t].written);
	region_clear(&catalog->definitions);
	free(catalog->units);
	free(catalog->packs);
	*catalog = (struct catalog){ 0 };
}

/* The unit's and its tensors' names become the job's; the first that exists already is the error. */
static int add_names(struct catalog *catalog, const struct unit *unit, char *message, size_t size)
{
	for (uint32_t i = 0; i < unit->tensor_count; i++) {
		if (names_have(&catalog->tensor_names, unit->tensors[i].name))
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

static void count_gradients(struct catalog *catalog, uint64_t bytes)
{
	uint64_t *largest[] = { &catalog->gradient_bytes_maximum, &catalog->gradient_bytes_next[0],
				&catalog->gradient_bytes_next[1] };

	catalog->trained_units += bytes > 0;
	for (size_t i = 0; i < ARRAY_LENGTH(largest); i++)
		if (bytes > *largest[i]) {
			uint64_t smaller = *largest[i];

			*largest[i] = bytes;
			bytes = smaller;
		}
}

/* What a job has of one is what its units have. */
static void count_in(struct catalog *catalog, const struct unit *unit)
{
	catalog->tensor_count += unit->tensor_count;
	if (unit->tensor_count > catalog->unit_tensors)
		catalog->unit_tensors = unit->tensor_count;
	catalog->parameters += unit->parameters;
	catalog->trainable += unit->trainable;
	for (uint32_t i = 0; i < unit->part_count; i++)
		catalog->section_count += unit->parts[i].elements > 0;
	count_gradients(catalog, size_align(unit_gradient_bytes(unit), 4096));
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
	if (names_have(&catalog->unit_names, definition->name))
		return refuse(message, size, -EEXIST, "there is already a unit \"%s\"", definition->name);
	return 0;
}

int catalog_define(struct catalog *catalog, const Tierd__Wire__UnitDefine *definition,
		   const struct job_options *options, char *message, size_t message_size)
{
	struct region before = catalog->definitions;
	struct unit unit = { 0 };
	int r = check_definition(catalog, definition, message, message_size);

	if (r < 0)
		return r;
	if (grow(catalog) < 0)
		return refuse(message, message_size, -ENOMEM, "out of memory");
	r = unit_set(catalog, &unit, definition, options, message, message_size);
	if (r == 0)
		r = add_names(catalog, &unit, message, message_size);
	if (r < 0) {
		remove_names(catalog, &unit);
		region_rewind(&catalog->definitions, before);
		return r;
	}
	unit.first_tensor = (uint32_t)catalog->tensor_count;
	catalog->units[catalog->unit_count++] = unit;
	count_in(catalog, &unit);
	return 0;
}

/* Of a tensor, in the region: a section may be its own. */
#define TENSOR_BYTES (sizeof(struct tensor) + sizeof(struct unit_part))
/* A tensor that is written as a whole: the allocator's least. */
#define WRITTEN_BYTES (2 * sizeof(struct span))

/* With what may be left before the next number. */
static uint64_t text_bytes(const char *text)
{
	return text[0] ? strlen(text) + sizeof(uint64_t) : 0;
}

uint64_t catalog_definition_bytes(const Tierd__Wire__UnitDefine *definition)
{
	uint64_t bytes = sizeof(struct unit) + text_bytes(definition->name);

	for (size_t i = 0; i < definition->n_tensors; i++) {
		const Tierd__Wire__Tensor *tensor = definition->tensors[i];

		bytes += TENSOR_BYTES + text_bytes(tensor->name) + text_bytes(tensor->alias) +
			 text_bytes(tensor->slice_of) + text_bytes(tensor->dtype) +
			 tensor->n_shape * sizeof(uint64_t);
	}
	/* Twice: the array of units grows by doubling, and where a piece did not fit into a block of the
	 * region less than the piece is left. */
	return 2 * bytes + NAMES_BYTES + definition->n_tensors * (NAMES_BYTES + WRITTEN_BYTES);
}
