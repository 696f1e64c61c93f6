/* What a rank defines, beside what the job has. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "common/cleanup.h"
#include "common/plural.h"
#include "daemon/catalog.h"
#include "daemon/refuse.h"

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
	/* It changes nothing here: who tells none trains on with what was imported. */
	else if (tensor->dtype && wire->dtype[0] && strcmp(tensor->dtype, wire->dtype) != 0)
		what = "dtype";
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
