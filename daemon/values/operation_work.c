/* What of an operation a worker does: it moves and converts values. */
#include <errno.h>
#include <math.h>
#include <string.h>

#include "daemon/gradients/gradients.h"
#include "daemon/model/model.h"
#include "daemon/residency/residency.h"
#include "daemon/update/update.h"
#include "daemon/values/copy.h"
#include "daemon/values/operation.h"
#include "offload/optimizer/moments.h"

static void *slot_address(const struct tensor_operation *operation)
{
	return residency_element(operation->job, operation_pack(operation), operation_section(operation),
				 operation_pack_element(operation));
}

/* Where the sums of gradients are, or, instead of them, first values. */
static void *sums_address(const struct tensor_operation *operation)
{
	const struct job *job = operation->job;

	return sum_element(job, &job->catalog.units[operation->unit], gradient_sum(job, operation->unit),
			   operation_section(operation), operation->tensor->layout.first + operation->first);
}

static bool are_finite(const float *values, uint64_t count)
{
	bool has_other = false;

	for (uint64_t i = 0; i < count; i++)
		has_other |= !isfinite(values[i]);
	return !has_other;
}

/* Through fp32, a piece at a time. */
static void convert_frozen(const struct tensor_operation *operation)
{
	enum master_kind kind = state_master_kind(operation_section(operation));
	const char *from = operation->values;
	char *to = slot_address(operation);
	float values[4096];

	for (uint64_t at = 0; at < operation->count; at += ARRAY_LENGTH(values)) {
		uint64_t left = operation->count - at;
		size_t count = left < ARRAY_LENGTH(values) ? left : ARRAY_LENGTH(values);

		format_widen(operation->format, from + at * master_parameter_bytes(operation->format), count,
			     values);
		format_narrow(kind, values, count, to + at * master_parameter_bytes(kind));
	}
}

static void write_frozen(const struct tensor_operation *operation)
{
	if (operation->is_same_format)
		memcpy(slot_address(operation), operation->values,
		       operation->count * section_element_bytes(operation_section(operation)));
	else
		convert_frozen(operation);
}

/* Who changes the window after this look harms the model that he trains, and nothing else. */
static int write_sums(const struct tensor_operation *operation)
{
	const struct unit *unit = &operation->job->catalog.units[operation->unit];

	if (operation->is_of_shard && !are_finite(operation->values, operation->count))
		return -EDOM;
	if (operation->is_same_format &&
	    sums_are_as_parameters(operation->job, unit, operation_section(operation)))
		memcpy(sums_address(operation), operation->values,
		       operation->count * section_element_bytes(operation_section(operation)));
	else
		format_widen(operation->format, operation->values, operation->count, sums_address(operation));
	return 0;
}

/* To the sums, and to what its masters are beside those. */
static void split_masters(const struct tensor_operation *operation)
{
	enum master_kind kind = state_master_kind(operation_section(operation));
	char *parameters = sums_address(operation), *masters = operation->source;
	float values[SUM_TILE];

	for (uint64_t at = 0; at < operation->count; at += SUM_TILE) {
		uint64_t left = operation->count - at, count = left < SUM_TILE ? left : SUM_TILE;

		format_widen(operation->format,
			     (const char *)operation->values + at * master_parameter_bytes(operation->format),
			     count, values);
		format_keep(kind, values, count, parameters + at * master_parameter_bytes(kind),
			    masters + at * master_bytes(kind));
	}
}

static int write_values(const struct tensor_operation *operation)
{
	if (operation->tensor->is_frozen)
		write_frozen(operation);
	else if (operation->is_split)
		split_masters(operation);
	else if (operation_is_of_state(operation))
		moments_keep(state_moments(operation_section(operation)),
			     (unsigned)operation->state - STATE_SLOTS, operation->values,
			     operation_pack_element(operation), operation->count, operation->source);
	else
		return write_sums(operation);
	return 0;
}

/* As an optimizer's kernel takes them. */
static void read_gradients(const struct tensor_operation *operation)
{
	float *window = (float *)(operation->member->window.base + operation->window_at);
	const float *sums = sums_address(operation), factor = step_factor(operation->job);

	for (uint64_t i = 0; i < operation->count; i++)
		window[i] = sums[i] * factor;
}

/* As the optimizers of PyTorch keep it. */
static void read_updates(const struct tensor_operation *operation)
{
	float *window = (float *)(operation->member->window.base + operation->window_at);

	for (uint64_t i = 0; i < operation->count; i++)
		window[i] = (float)operation->updates;
}

static void read_values(const struct tensor_operation *operation)
{
	void *window = operation->member->window.base + operation->window_at;

	if (operation->state == READ_GRADIENT)
		read_gradients(operation);
	else if (operation->state == READ_UPDATES)
		read_updates(operation);
	else
		copy_values(&(struct copy_range){ .section = operation_section(operation),
						  .state = operation->state,
						  .first = operation_pack_element(operation),
						  .count = operation->count },
			    slot_address(operation), operation->source, window);
}

/* Frozen tensors that the daemon initializes: a piece at a time, through fp32. */
static void initialize_values(const struct tensor_operation *operation)
{
	float values[4096];
	char *slot = slot_address(operation);

	for (uint64_t at = 0; at < operation->count; at += ARRAY_LENGTH(values)) {
		uint64_t left = operation->count - at;
		size_t count = left < ARRAY_LENGTH(values) ? left : ARRAY_LENGTH(values);

		sweep_fill_tensor(operation->job, operation->tensor, at, count, values);
		format_narrow(state_master_kind(operation_section(operation)), values, count,
			      slot + at * section_element_bytes(operation_section(operation)));
	}
}

static int compare_values(const struct tensor_operation *operation)
{
	uint64_t bytes = operation->count * section_element_bytes(operation_section(operation));

	return memcmp(slot_address(operation), operation->values, bytes) == 0 ? 0 : -EOPNOTSUPP;
}

int operation_work(const struct tensor_operation *operation)
{
	if (operation->kind == OPERATION_WRITE)
		return write_values(operation);
	else if (operation->kind == OPERATION_COMPARE)
		return compare_values(operation);
	else if (operation->kind == OPERATION_READ)
		read_values(operation);
	else
		initialize_values(operation);
	return 0;
}
