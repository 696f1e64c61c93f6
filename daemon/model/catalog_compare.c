/* What a rank defines, beside what the job has. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "common/cleanup.h"
#include "common/plural.h"
#include "daemon/model/catalog.h"
#include "daemon/model/definition.h"
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

static bool has_shape(const Tierd__Wire__Tensor *here, const Tierd__Wire__Tensor *job)
{
	return here->n_shape == job->n_shape &&
	       (here->n_shape == 0 ||
		memcmp(here->shape, job->shape, here->n_shape * sizeof(*here->shape)) == 0);
}

static bool has_slice(const Tierd__Wire__Tensor *here, const Tierd__Wire__Tensor *job)
{
	return strcmp(here->slice_of, job->slice_of) == 0 && here->slice_row == job->slice_row &&
	       here->slice_rows == job->slice_rows;
}

static bool has_wide_gradients(const Tierd__Wire__Tensor *tensor)
{
	return !tensor->is_frozen && tensor->gradient_format != 0 &&
	       tensor->gradient_format != tensor->format;
}

#define TRAIT_TEXT 256

static void print_format(const Tierd__Wire__Tensor *tensor, char text[TRAIT_TEXT])
{
	static const char *const names[] = { [FORMAT_FP32] = "fp32",
					     [FORMAT_BF16] = "bf16",
					     [FORMAT_FP16] = "fp16",
					     [FORMAT_BYTES] = "bytes" };
	bool is_known = tensor->format > 0 && tensor->format < ARRAY_LENGTH(names);

	snprintf(text, TRAIT_TEXT, "%s", is_known ? names[tensor->format] : "?");
}

static void print_group(const Tierd__Wire__Tensor *tensor, char text[TRAIT_TEXT])
{
	snprintf(text, TRAIT_TEXT, "%u", tensor->group);
}

static void print_shape(const Tierd__Wire__Tensor *tensor, char text[TRAIT_TEXT])
{
	catalog_print_shape(tensor->shape, tensor->n_shape, text, TRAIT_TEXT);
}

static void print_frozen(const Tierd__Wire__Tensor *tensor, char text[TRAIT_TEXT])
{
	snprintf(text, TRAIT_TEXT, "%s", tensor->is_frozen ? "frozen" : "trained");
}

static void print_alias(const Tierd__Wire__Tensor *tensor, char text[TRAIT_TEXT])
{
	snprintf(text, TRAIT_TEXT, *tensor->alias ? "alias \"%s\"" : "no alias", tensor->alias);
}

static void print_slice(const Tierd__Wire__Tensor *tensor, char text[TRAIT_TEXT])
{
	snprintf(text, TRAIT_TEXT, *tensor->slice_of ? "slice from row %llu of %llu of \"%s\"" : "no slice",
		 (unsigned long long)tensor->slice_row, (unsigned long long)tensor->slice_rows,
		 tensor->slice_of);
}

static void print_initializer(const Tierd__Wire__Tensor *tensor, char text[TRAIT_TEXT])
{
	static const char *const names[] = { [INITIALIZE_NONE] = "none",
					     [INITIALIZE_ZEROS] = "zeros",
					     [INITIALIZE_ONES] = "ones",
					     [INITIALIZE_NORMAL] = "normal",
					     [INITIALIZE_UNIFORM] = "uniform" };
	const char *name = tensor->initializer < ARRAY_LENGTH(names) ? names[tensor->initializer] : "?";

	snprintf(text, TRAIT_TEXT, "initializer %s with a %.9g and b %.9g", name, tensor->a, tensor->b);
}

static void print_dtype(const Tierd__Wire__Tensor *tensor, char text[TRAIT_TEXT])
{
	snprintf(text, TRAIT_TEXT, "dtype %s", tensor->dtype);
}

static void print_gradients(const Tierd__Wire__Tensor *tensor, char text[TRAIT_TEXT])
{
	snprintf(text, TRAIT_TEXT, "gradients in %s", has_wide_gradients(tensor) ? "fp32" : "its own format");
}

/* The first thing in which two tensors of one name differ. */
static int compare_traits(const char *unit, const Tierd__Wire__Tensor *here, const Tierd__Wire__Tensor *job,
			  char *message, size_t size)
{
	const struct {
		bool differs;
		const char *what; /* before what is printed */
		void (*print)(const Tierd__Wire__Tensor *tensor, char text[TRAIT_TEXT]);
	} traits[] = {
		{ here->format != job->format, "format ", print_format },
		{ here->group != job->group, "group ", print_group },
		{ here->is_frozen != job->is_frozen, "", print_frozen },
		{ has_wide_gradients(here) != has_wide_gradients(job), "", print_gradients },
		{ strcmp(here->alias, job->alias) != 0, "", print_alias },
		{ !has_slice(here, job), "", print_slice },
		{ here->initializer != job->initializer || here->a != job->a || here->b != job->b, "",
		  print_initializer },
		/* It changes nothing here: who tells none trains on with what was imported. */
		{ *here->dtype && *job->dtype && strcmp(here->dtype, job->dtype) != 0, "", print_dtype },
		{ !has_shape(here, job), "shape ", print_shape },
	};
	char text[TRAIT_TEXT], there[TRAIT_TEXT];

	for (size_t i = 0; i < ARRAY_LENGTH(traits); i++) {
		if (!traits[i].differs)
			continue;
		traits[i].print(here, text);
		traits[i].print(job, there);
		return refuse(message, size, -EINVAL, "unit \"%s\", tensor \"%s\": %s%s here, %s in the job",
			      unit, job->name, traits[i].what, text, there);
	}
	return 0;
}

static int compare_tensor(const struct unit *unit, const struct tensor *tensor,
			  const Tierd__Wire__Tensor *here, char *message, size_t size)
{
	Tierd__Wire__Tensor job;

	if (strcmp(tensor->name, here->name) != 0)
		return refuse(message, size, -EINVAL, "unit \"%s\": tensor \"%s\" here, \"%s\" in the job",
			      unit->name, here->name, tensor->name);
	definition_fill_tensor(tensor, &job);
	job.initializer = tensor->initializer;
	job.a = tensor->a;
	job.b = tensor->b;
	/* Wherever it is now: who opens the job again says what it was made of. */
	job.group = tensor->defined_group;
	return compare_traits(unit->name, here, &job, message, size);
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
