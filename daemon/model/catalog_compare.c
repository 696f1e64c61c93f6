/* What a rank defines, beside what the job has. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "common/cleanup.h"
#include "common/plural.h"
#include "daemon/model/catalog.h"
#include "daemon/request/request.h"

void catalog_print_shape(const uint64_t *shape, size_t dimensions, char *text, size_t size)
{
	size_t used = (size_t)snprintf(text, size, "[");

	for (size_t i = 0; i < dimensions && used < size; i++)
		used += (size_t)snprintf(text + used, size - used, i ? ", %llu" : "%llu",
					 (unsigned long long)shape[i]);
	if (used < size)
		snprintf(text + used, size - used, "]");
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

/* What a tensor has here, or in the job, beside its shape and format. */
struct traits {
	const char *alias, *slice_of; /* "": none */
	uint64_t slice_row, slice_rows;
	double a, b;
	uint32_t initializer;
	const char *dtype; /* of files; "": not told */
	bool is_frozen, has_wide_gradients;
};

#define TRAIT_TEXT 256

static void print_frozen(const struct traits *traits, char text[TRAIT_TEXT])
{
	snprintf(text, TRAIT_TEXT, "%s", traits->is_frozen ? "frozen" : "trained");
}

static void print_alias(const struct traits *traits, char text[TRAIT_TEXT])
{
	snprintf(text, TRAIT_TEXT, *traits->alias ? "alias \"%s\"" : "no alias", traits->alias);
}

static void print_slice(const struct traits *traits, char text[TRAIT_TEXT])
{
	snprintf(text, TRAIT_TEXT, *traits->slice_of ? "slice from row %llu of %llu of \"%s\"" : "no slice",
		 (unsigned long long)traits->slice_row, (unsigned long long)traits->slice_rows,
		 traits->slice_of);
}

static void print_initializer(const struct traits *traits, char text[TRAIT_TEXT])
{
	static const char *const names[] = { [INITIALIZE_NONE] = "none",
					     [INITIALIZE_ZEROS] = "zeros",
					     [INITIALIZE_ONES] = "ones",
					     [INITIALIZE_NORMAL] = "normal",
					     [INITIALIZE_UNIFORM] = "uniform" };
	const char *name = traits->initializer < ARRAY_LENGTH(names) ? names[traits->initializer] : "?";

	snprintf(text, TRAIT_TEXT, "initializer %s with a %.9g and b %.9g", name, traits->a, traits->b);
}

static void print_dtype(const struct traits *traits, char text[TRAIT_TEXT])
{
	snprintf(text, TRAIT_TEXT, "dtype %s", traits->dtype);
}

static void print_gradients(const struct traits *traits, char text[TRAIT_TEXT])
{
	snprintf(text, TRAIT_TEXT, "gradients in %s", traits->has_wide_gradients ? "fp32" : "its own format");
}

static int compare_traits(const struct unit *unit, const struct tensor *tensor, const struct traits *here,
			  const struct traits *job, char *message, size_t size)
{
	const struct {
		bool differs;
		void (*print)(const struct traits *traits, char text[TRAIT_TEXT]);
	} all[] = {
		{ here->is_frozen != job->is_frozen, print_frozen },
		{ here->has_wide_gradients != job->has_wide_gradients, print_gradients },
		{ strcmp(here->alias, job->alias) != 0, print_alias },
		{ strcmp(here->slice_of, job->slice_of) != 0 || here->slice_row != job->slice_row ||
			  here->slice_rows != job->slice_rows,
		  print_slice },
		{ here->initializer != job->initializer || here->a != job->a || here->b != job->b,
		  print_initializer },
		/* It changes nothing here: who tells none trains on with what was imported. */
		{ *here->dtype && *job->dtype && strcmp(here->dtype, job->dtype) != 0, print_dtype },
	};
	char text[TRAIT_TEXT], there[TRAIT_TEXT];

	for (size_t i = 0; i < ARRAY_LENGTH(all); i++) {
		if (!all[i].differs)
			continue;
		all[i].print(here, text);
		all[i].print(job, there);
		return refuse(message, size, -EINVAL, "unit \"%s\", tensor \"%s\": %s here, %s in the job",
			      unit->name, tensor->name, text, there);
	}
	return 0;
}

static const char *text_of(const char *text)
{
	return text ? text : "";
}

static int compare_tensor(const struct unit *unit, const struct tensor *tensor,
			  const Tierd__Wire__Tensor *wire, char *message, size_t size)
{
	const struct traits here = {
		.alias = wire->alias,
		.slice_of = wire->slice_of,
		.slice_row = wire->slice_row,
		.slice_rows = wire->slice_rows,
		.a = wire->a,
		.b = wire->b,
		.initializer = wire->initializer,
		.dtype = wire->dtype,
		.is_frozen = wire->is_frozen,
		.has_wide_gradients = !wire->is_frozen && wire->gradient_format != 0 &&
				      wire->gradient_format != wire->format,
	};
	const struct traits job = {
		.alias = text_of(tensor->alias),
		.slice_of = text_of(tensor->slice_of),
		.slice_row = tensor->slice_row,
		.slice_rows = tensor->slice_rows,
		.a = tensor->a,
		.b = tensor->b,
		.initializer = tensor->initializer,
		.dtype = text_of(tensor->dtype),
		.is_frozen = tensor->is_frozen,
		.has_wide_gradients = tensor->gradient_format != 0,
	};
	int r;

	if (strcmp(tensor->name, wire->name) != 0)
		return refuse(message, size, -EINVAL, "unit \"%s\": tensor \"%s\" here, \"%s\" in the job",
			      unit->name, wire->name, tensor->name);
	if (tensor->format != wire->format)
		return refuse(message, size, -EINVAL,
			      "unit \"%s\", tensor \"%s\": format %s here, %s in the job", unit->name,
			      tensor->name, format_name(wire->format), format_name(tensor->format));
	/* Wherever it is now: who opens the job again says what it was made of. */
	if (tensor->defined_group != wire->group)
		return refuse(message, size, -EINVAL,
			      "unit \"%s\", tensor \"%s\": group %u here, %u in the job", unit->name,
			      tensor->name, wire->group, tensor->defined_group);
	r = compare_traits(unit, tensor, &here, &job, message, size);
	return r < 0 ? r : compare_shape(unit, tensor, wire, message, size);
}

static int find_difference(const struct catalog *catalog, uint32_t index,
			   const Tierd__Wire__UnitDefine *definition, char *message, size_t message_size)
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

int catalog_compare(const struct catalog *catalog, uint32_t index, const Tierd__Wire__UnitDefine *definition,
		    char *message, size_t message_size)
{
	int r = find_difference(catalog, index, definition, message, message_size);
	size_t used;

	if (r == 0)
		return 0;
	used = strlen(message);
	snprintf(message + used, message_size - used,
		 "; a job keeps its units: open it with the model that it was made of, or give this one "
		 "another job");
	return r;
}
