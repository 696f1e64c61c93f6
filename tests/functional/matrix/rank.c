#include "rank.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "bits.h"
#include "gpu.h"

#define PATIENCE_MS 30000

void configuration_print(const struct configuration *configuration, char *text, size_t size)
{
	static const char *const formats[] = {
		[TIERD_FP32] = "fp32", [TIERD_BF16] = "bf16", [TIERD_FP16] = "fp16"
	};
	static const char *const rules[] = { [RULE_ADAMW] = "AdamW",
					     [RULE_ADAM] = "Adam",
					     [RULE_SGD] = "SGD",
					     [RULE_MOMENTUM] = "momentum",
					     [RULE_LION] = "Lion" };

	static const char *const sums[] = { "auto", "host", "nvme" };

	snprintf(text, size,
		 "stage %u, %s/%s/%s, %u ranks, %s, %s%s, %u micro-batches, %s, %s, %s, %u buffers%s",
		 configuration->stage, configuration->has_nvme_parameters ? "nvme" : "host",
		 configuration->has_nvme_optimizer ? "nvme" : "host", sums[configuration->gradient_placement],
		 configuration->ranks, formats[configuration->format], rules[configuration->rule],
		 configuration->is_by_owner ? " by owners" : "", configuration->micro_batches,
		 configuration->has_skips ? "skips" : "no skips", configuration->has_wide ? "wide" : "small",
		 configuration->has_dynamic_scale ? "dynamic" : "static", configuration->gradient_buffers,
		 configuration->is_announced ? ", announced" : "");
}

void rank_fail(const struct rank *rank, const char *format, ...)
{
	va_list arguments;
	char text[512];

	va_start(arguments, format);
	vsnprintf(text, sizeof(text), format, arguments);
	va_end(arguments);
	fprintf(stderr, "FAILED: %s: rank %u: %s\n", rank->label, rank->rank, text);
	exit(1);
}

void rank_must(const struct rank *rank, int r, const char *what)
{
	if (r < 0)
		rank_fail(rank, "%s: %s (%s)", what, tierd_message(), strerror(-r));
}

void rank_equal(const struct rank *rank, const char *state, unsigned unit, unsigned tensor, uint64_t first,
		uint64_t count, uint64_t bytes, const void *actual, const void *expected)
{
	uint64_t differences = 0, at = 0;
	uint32_t is = 0, should = 0;

	if (memcmp(actual, expected, count * bytes) == 0)
		return;
	for (uint64_t i = count; i-- > 0;)
		if (memcmp((const char *)actual + i * bytes, (const char *)expected + i * bytes, bytes) !=
		    0) {
			differences++;
			at = i;
		}
	memcpy(&is, (const char *)actual + at * bytes, bytes);
	memcpy(&should, (const char *)expected + at * bytes, bytes);
	rank_fail(rank, "%s of %s, element %llu: 0x%0*x instead of 0x%0*x (%llu of %llu differ)", state,
		  rank->model.units[unit].tensors[tensor].name, (unsigned long long)(first + at),
		  (int)bytes * 2, is, (int)bytes * 2, should, (unsigned long long)differences,
		  (unsigned long long)count);
}

/* ---- Joining ---- */

static void define(const struct rank *rank)
{
	for (unsigned u = 0; u < rank->model.unit_count; u++) {
		const struct model_unit *unit = &rank->model.units[u];
		struct tierd_tensor tensors[MODEL_MAX_TENSORS];
		uint32_t index;

		for (unsigned t = 0; t < unit->tensor_count; t++)
			tensors[t] = unit->tensors[t].definition;
		rank_must(rank, tierd_unit_define(rank->job, unit->name, tensors, unit->tensor_count, &index),
			  "tierd_unit_define");
		if (index != u)
			rank_fail(rank, "unit %u is counted as %u", u, index);
	}
}

void rank_join(struct rank *rank, uint64_t host_budget)
{
	const struct configuration *configuration = &rank->configuration;
	struct tierd_job_options options = TIERD_JOB_OPTIONS_INIT;
	struct tierd_group groups[MODEL_GROUPS];

	rank_must(rank, tierd_connect(NULL, &rank->node), "tierd_connect");
	rank_must(rank, tierd_set_timeout(rank->node, PATIENCE_MS), "tierd_set_timeout");
	schedule_groups(configuration, 0, groups);
	options.name = "matrix";
	options.rank = rank->rank;
	options.world_size = configuration->ranks;
	options.stage = configuration->stage;
	options.mode = TIERD_REPLACE;
	schedule_options(configuration, &options);
	options.parameter_placement =
		configuration->has_nvme_parameters ? TIERD_PLACE_NVME : TIERD_PLACE_HOST;
	options.optimizer_placement = configuration->has_nvme_optimizer ? TIERD_PLACE_NVME : TIERD_PLACE_HOST;
	options.gradient_placement = configuration->gradient_placement;
	options.host_budget = host_budget;
	options.gradient_buffers = configuration->gradient_buffers;
	options.gradient_bytes = configuration->gradient_buffers == 0;
	options.pushed_once = configuration->micro_batches == 1;
	options.seed = rank->model.seed;
	options.gpu = gpu_of_rank(rank);
	options.gpu_budget = rank->gpu_budget;
	options.group_count = MODEL_GROUPS;
	options.groups = groups;
	rank_must(rank, tierd_job_open(rank->node, &options, &rank->job), "tierd_job_open");
	define(rank);
}

/* ---- Values ---- */

static void write_piece(const struct rank *rank, unsigned unit, unsigned index, uint64_t piece)
{
	const struct model_tensor *tensor = &rank->model.units[unit].tensors[index];
	uint64_t size = model_piece_elements(tensor), first = piece * size;
	uint64_t count = tensor->elements - first < size ? tensor->elements - first : size;
	bool is_master = model_piece_is_master(tensor, piece);
	float *values = calloc(count, sizeof(*values));

	if (!values)
		rank_fail(rank, "no memory");
	for (uint64_t i = 0; i < count; i++)
		bits_put(is_master ? TIERD_FP32 : tensor->definition.format, values, i,
			 model_written_value(unit, index, first + i));
	rank_must(rank, tierd_tensor_write(rank->job, unit, index, first, count, values, is_master),
		  "tierd_tensor_write");
	free(values);
}

/* Backwards, so that pieces do not come in order. */
void rank_write(const struct rank *rank)
{
	for (unsigned u = 0; u < rank->model.unit_count; u++)
		for (unsigned t = 0; t < rank->model.units[u].tensor_count; t++) {
			const struct model_tensor *tensor = &rank->model.units[u].tensors[t];
			uint64_t size = model_piece_elements(tensor);

			if (tensor->definition.initializer != TIERD_INITIALIZE_NONE)
				continue;
			for (uint64_t piece = (tensor->elements + size - 1) / size; piece-- > 0;)
				if (piece % rank->configuration.ranks == rank->rank)
					write_piece(rank, u, t, piece);
		}
}

/* ---- Reading ---- */

static void compare_state(const struct rank *rank, unsigned unit, unsigned index, const char *state,
			  const void *expected, uint64_t first, uint64_t count)
{
	const struct model_tensor *tensor = &rank->model.units[unit].tensors[index];
	uint64_t bytes = strcmp(state, "parameter") == 0 ? model_element_bytes(tensor) : sizeof(float);
	void *values = malloc(count * bytes + 1);

	if (!values)
		rank_fail(rank, "no memory");
	rank_must(rank, tierd_tensor_read(rank->job, unit, index, state, first, count, values),
		  "tierd_tensor_read");
	rank_equal(rank, state, unit, index, first, count, bytes, values,
		   (const char *)expected + first * bytes);
	free(values);
}

static void compare_tensor(const struct rank *rank, unsigned unit, unsigned index, uint64_t first)
{
	const char *names[2];
	unsigned slots = schedule_slots(&rank->configuration, names);
	uint64_t count = rank->model.units[unit].tensors[index].elements - first;
	float value;

	compare_state(rank, unit, index, "parameter",
		      reference_parameter(&rank->reference, unit, index, SCHEDULE_STEPS), first, count);
	if (rank->model.units[unit].tensors[index].definition.is_frozen) {
		if (tierd_tensor_read(rank->job, unit, index, "master", 0, 1, &value) != -ENODATA)
			rank_fail(rank, "a frozen tensor has a master");
		return;
	}
	compare_state(rank, unit, index, "master", reference_master(&rank->reference, unit, index), first,
		      count);
	for (unsigned slot = 0; slot < slots; slot++)
		compare_state(rank, unit, index, names[slot],
			      reference_slot(&rank->reference, unit, index, slot), first, count);
	if (slots < 2 && count > 0 &&
	    tierd_tensor_read(rank->job, unit, index, "v", first, 1, &value) != -ENODATA)
		rank_fail(rank, "there is state that the optimizer does not keep");
}

/* The part of a tensor that lies in this rank's shard of its unit. */
static void compare_shard(const struct rank *rank, unsigned unit, unsigned index)
{
	const struct model_unit *of = &rank->model.units[unit];
	const struct model_tensor *tensor = &of->tensors[index];
	uint64_t begin = model_first(of, tensor), first, count;
	uint64_t from = model_shard(of, rank->rank, rank->configuration.ranks);
	uint64_t to = model_shard(of, rank->rank + 1, rank->configuration.ranks);

	if (tensor->definition.is_frozen)
		return;
	rank_must(rank, tierd_tensor_shard(rank->job, unit, index, &first, &count), "tierd_tensor_shard");
	from = from > begin ? from : begin;
	to = to < begin + tensor->elements ? to : begin + tensor->elements;
	if (from < to ? begin + first != from || count != to - from : count != 0)
		rank_fail(rank, "%s: the shard has %llu elements from %llu on", tensor->name,
			  (unsigned long long)count, (unsigned long long)first);
	compare_state(rank, unit, index, "master", reference_master(&rank->reference, unit, index), first,
		      count);
}

/* Rank 0 everything, the others a part of it, from odd places on, and of some units their shard. */
void rank_compare(const struct rank *rank)
{
	for (unsigned u = 0; u < rank->model.unit_count; u++)
		for (unsigned t = 0; t < rank->model.units[u].tensor_count; t++) {
			uint64_t elements = rank->model.units[u].tensors[t].elements;

			if (rank->rank == 0)
				compare_tensor(rank, u, t, 0);
			else if ((u + rank->rank) % 6 == 0)
				compare_tensor(rank, u, t, elements / (rank->rank + 1));
			else if ((u + rank->rank) % 6 < 3)
				compare_shard(rank, u, t);
		}
}
