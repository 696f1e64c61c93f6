/* The accounts of a job, computed from the model alone: logical memory and communication by the ZeRO papers'
 * formulas, bytes of updates by the layout of packs and chunks. */
#include <math.h>
#include <string.h>

#include "rank.h"

#define PACK_ELEMENTS (UINT64_C(1) << 20)
#define CHUNK_ELEMENTS (UINT64_C(1) << 18)
#define PAGE_BYTES UINT64_C(4096)

static uint64_t smaller(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

static void expect(const struct rank *rank, const char *what, uint64_t actual, uint64_t expected)
{
	if (actual != expected)
		rank_fail(rank, "%s: %llu instead of %llu", what, (unsigned long long)actual,
			  (unsigned long long)expected);
}

static void expect_about(const struct rank *rank, const char *what, double actual, double expected)
{
	if (fabs(actual - expected) > 0.01 * expected)
		rank_fail(rank, "%s: %.0f is not about %.0f", what, actual, expected);
}

/* ---- Memory ---- */

/* What the optimizer keeps of an element. */
static uint64_t slot_bytes(const struct rank *rank)
{
	const char *names[2];

	return 4 * schedule_slots(&rank->configuration, names);
}

/* Of an element's parameter, and of what its master takes beside it. */
static const uint64_t parameter_bytes[] = { [MODEL_BF16] = 2, [MODEL_FP16] = 2, [MODEL_FP32] = 4 };
static const uint64_t master_bytes[] = { [MODEL_BF16] = 2, [MODEL_FP16] = 4, [MODEL_FP32] = 0 };

/* Bytes of the trainable elements first … end - 1 of a unit, of which each section has so many and more. */
static uint64_t bytes_of(const struct model_unit *unit, uint64_t first, uint64_t end, const uint64_t *bytes,
			 uint64_t more)
{
	uint64_t sum = 0, begin = 0;

	for (int section = MODEL_BF16; section <= MODEL_FP32; section++) {
		uint64_t from = begin > first ? begin : first;

		begin += unit->section[section];
		if (from < smaller(begin, end))
			sum += (smaller(begin, end) - from) * (bytes[section] + more);
	}
	return sum;
}

struct logical {
	uint64_t parameter, gradient, optimizer, frozen;
};

/* One contribution is all there is. */
static bool has_narrow_sums(const struct configuration *configuration)
{
	return configuration->micro_batches == 1 && configuration->ranks == 1 && !configuration->is_by_owner;
}

static bool has_wide_gradients(const struct model_unit *unit)
{
	bool is_wide = false;

	for (unsigned t = 0; t < unit->tensor_count; t++)
		is_wide |= unit->tensors[t].definition.gradient_format == TIERD_FP32;
	return is_wide;
}

static struct logical logical_memory(const struct rank *rank)
{
	unsigned ranks = rank->configuration.ranks, stage = rank->configuration.stage;
	uint64_t state = slot_bytes(rank);
	struct logical logical = { 0 };

	for (unsigned u = 0; u < rank->model.unit_count; u++) {
		const struct model_unit *unit = &rank->model.units[u];
		uint64_t all = model_trainable(unit), first = model_shard(unit, rank->rank, ranks);
		uint64_t end = model_shard(unit, rank->rank + 1, ranks);
		uint64_t frozen = model_frozen_bytes(unit);

		logical.parameter += stage < 3 ? bytes_of(unit, 0, all, parameter_bytes, 0)
					       : bytes_of(unit, first, end, parameter_bytes, 0);
		logical.gradient += has_narrow_sums(&rank->configuration) && !has_wide_gradients(unit)
					    ? bytes_of(unit, 0, all, parameter_bytes, 0)
					    : 4 * (stage < 2 ? all : end - first);
		logical.optimizer += stage < 1 ? bytes_of(unit, 0, all, master_bytes, state)
					       : bytes_of(unit, first, end, master_bytes, state);
		logical.frozen += stage < 3 ? frozen : frozen / ranks;
	}
	return logical;
}

static uint64_t trainable(const struct model *model)
{
	uint64_t elements = 0;

	for (unsigned u = 0; u < model->unit_count; u++)
		elements += model_trainable(&model->units[u]);
	return elements;
}

static enum model_section section_of_most(const struct rank *rank)
{
	static const enum model_section sections[] = {
		[TIERD_FP32] = MODEL_FP32, [TIERD_BF16] = MODEL_BF16, [TIERD_FP16] = MODEL_FP16
	};

	return sections[rank->configuration.format];
}

/* With Adam 16Ψ, 6Ψ + 10Ψ/N, 2Ψ + 14Ψ/N, 16Ψ/N of bf16 parameters; 16Ψ, 8Ψ + 8Ψ/N, 4Ψ + 12Ψ/N, 16Ψ/N of
 * fp32; 18Ψ, 6Ψ + 12Ψ/N, 2Ψ + 16Ψ/N, 18Ψ/N of fp16. Gradients take 4Ψ of that, or what parameters do. */
static double memory_formula(const struct rank *rank)
{
	enum model_section section = section_of_most(rank);
	double parameter = (double)parameter_bytes[section];
	double gradient = has_narrow_sums(&rank->configuration) ? parameter : 4;
	double all = parameter + (double)master_bytes[section] + gradient + (double)slot_bytes(rank);
	const double whole[] = { all, parameter + gradient, parameter, 0 };
	double bytes = whole[rank->configuration.stage];

	return (double)trainable(&rank->model) * (bytes + (all - bytes) / rank->configuration.ranks);
}

static void check_memory(const struct rank *rank, const struct tierd_statistics *statistics)
{
	struct logical logical = logical_memory(rank);
	uint64_t sum = statistics->logical_parameter_bytes + statistics->logical_gradient_bytes +
		       statistics->logical_optimizer_bytes - logical.frozen;

	expect(rank, "logical parameter bytes", statistics->logical_parameter_bytes,
	       logical.parameter + logical.frozen);
	expect(rank, "logical gradient bytes", statistics->logical_gradient_bytes, logical.gradient);
	expect(rank, "logical optimizer bytes", statistics->logical_optimizer_bytes, logical.optimizer);
	/* In a small model shards are cut too coarsely, and norms count too much. */
	if (rank->configuration.has_wide)
		expect_about(rank, "logical memory", (double)sum, memory_formula(rank));
}

/* ---- Communication ---- */

static bool is_pushed_by_any(const struct rank *rank, unsigned step, unsigned unit)
{
	for (unsigned i = 0; i < rank->configuration.ranks * rank->configuration.micro_batches; i++)
		if (schedule_is_pushed(&rank->configuration, &rank->model, step,
				       i / rank->configuration.ranks, i % rank->configuration.ranks, unit))
			return true;
	return false;
}

/* Elements that were updated, over all steps. */
static uint64_t updated_elements(const struct rank *rank)
{
	uint64_t elements = 0;

	for (unsigned step = 0; step < SCHEDULE_STEPS; step++)
		for (unsigned u = 0; u < rank->model.unit_count; u++)
			if (!reference_steps(&rank->reference)[step].is_skipped &&
			    is_pushed_by_any(rank, step, u))
				elements += model_trainable(&rank->model.units[u]);
	return elements;
}

/* Where nothing is skipped: 2Ψ, 2Ψ, (G + 1)Ψ, 3GΨ a step. Frozen values are gathered too; a rank that runs
 * ahead gathers a few units less. */
static void check_formula(const struct rank *rank, uint64_t actual)
{
	unsigned stage = rank->configuration.stage;
	uint64_t psi = trainable(&rank->model), micro_batches = rank->configuration.micro_batches;
	const uint64_t formulas[] = { 2 * psi, 2 * psi, (micro_batches + 1) * psi, 3 * micro_batches * psi };
	uint64_t elements = formulas[stage] * SCHEDULE_STEPS;

	for (unsigned u = 0; stage == 3 && u < rank->model.unit_count; u++)
		elements += 2 * micro_batches * SCHEDULE_STEPS * model_frozen(&rank->model.units[u]);
	if (stage < 3 || !rank_runs_ahead(rank))
		expect(rank, "communicated elements by the formula", actual, elements);
}

/* What was really done, where units and a step are skipped. */
static void check_communication(const struct rank *rank, const struct tierd_statistics *statistics)
{
	uint64_t updated = updated_elements(rank);
	const uint64_t done[] = { 2 * updated, 2 * updated, rank->pushed_elements + updated,
				  rank->gathered_elements + rank->pushed_elements };

	expect(rank, "communicated elements", statistics->communicated_elements,
	       done[rank->configuration.stage]);
	if (!rank->configuration.has_skips)
		check_formula(rank, statistics->communicated_elements);
}

/* ---- Updates ---- */

struct update_bytes {
	uint64_t read_least, read_most, written;
};

static uint64_t chunk_bytes(uint64_t elements, uint64_t element_bytes)
{
	return (elements * element_bytes + PAGE_BYTES - 1) / PAGE_BYTES * PAGE_BYTES;
}

static void add_section(const struct rank *rank, enum model_section section, uint64_t elements,
			struct update_bytes *sums)
{
	for (uint64_t at = 0; at < elements; at += CHUNK_ELEMENTS) {
		uint64_t count = smaller(elements - at, CHUNK_ELEMENTS);
		uint64_t state = slot_bytes(rank) / 4 * chunk_bytes(count, 4);
		uint64_t parameter = chunk_bytes(count, parameter_bytes[section]);

		state += chunk_bytes(count, master_bytes[section]);
		if (rank->configuration.has_nvme_optimizer) {
			sums->read_least += state;
			sums->read_most += state;
			sums->written += state;
		}
		if (rank->configuration.has_nvme_parameters)
			sums->read_most += parameter;
		if (rank->configuration.has_nvme_parameters || rank->configuration.has_nvme_optimizer)
			sums->written += parameter;
	}
}

/* Neighbouring units that stay within a pack's elements are read and written as one. */
static struct update_bytes update_bytes(const struct rank *rank)
{
	struct update_bytes sums = { 0 };
	uint64_t sections[MODEL_SECTIONS] = { 0 }, elements = 0;

	for (unsigned u = 0; u <= rank->model.unit_count; u++) {
		const struct model_unit *unit = &rank->model.units[u];
		uint64_t more = 0;

		for (int s = 0; u < rank->model.unit_count && s < MODEL_SECTIONS; s++)
			more += unit->section[s];
		if (u == rank->model.unit_count || (u > 0 && elements + more > PACK_ELEMENTS)) {
			for (int s = MODEL_BF16; s <= MODEL_FP32; s++)
				add_section(rank, (enum model_section)s, sections[s], &sums);
			memset(sections, 0, sizeof(sections));
			elements = 0;
		}
		elements += more;
		for (int s = 0; u < rank->model.unit_count && s < MODEL_SECTIONS; s++)
			sections[s] += unit->section[s];
	}
	return sums;
}

/* State that is read before its update, for a step: in buffers that others may want before that. */
#define AHEAD_MOST (13 * UINT64_C(3) << 20)

static void check_updates(const struct rank *rank, const struct tierd_statistics *statistics)
{
	struct update_bytes expected = update_bytes(rank);
	uint64_t read = statistics->job_update_read_bytes, written = statistics->job_update_written_bytes;
	bool is_all_nvme = rank->configuration.has_nvme_parameters && rank->configuration.has_nvme_optimizer;

	if (rank->configuration.has_skips)
		return;
	expect(rank, "bytes written by updates", written, SCHEDULE_STEPS * expected.written);
	/* What memory is left keeps some of the state; and some is read ahead for nothing. */
	if ((rank->configuration.is_tight && read < SCHEDULE_STEPS * expected.read_least) ||
	    read > SCHEDULE_STEPS * (expected.read_most + AHEAD_MOST))
		rank_fail(rank, "updates have read %llu bytes a step, not %llu to %llu",
			  (unsigned long long)read / SCHEDULE_STEPS, (unsigned long long)expected.read_least,
			  (unsigned long long)expected.read_most);
	if (!is_all_nvme || !rank->configuration.has_wide)
		return;
	/* More units of a size than slots: some stream past, with their parameters. */
	if (read == SCHEDULE_STEPS * expected.read_least || statistics->job_gather_read_bytes == 0)
		rank_fail(rank, "everything has stayed in host memory");
	expect_about(rank, "bytes written per step", (double)written / SCHEDULE_STEPS,
		     (double)(parameter_bytes[section_of_most(rank)] + master_bytes[section_of_most(rank)] +
			      slot_bytes(rank)) *
			     (double)trainable(&rank->model));
}

/* ---- Sums ---- */

/* In the least host memory sums have two buffers, and wide units are more than that. What is updated early
 * may have been in time. */
static void check_sums(const struct rank *rank, const struct tierd_statistics *statistics)
{
	const struct configuration *configuration = &rank->configuration;
	uint64_t read = statistics->job_gradient_read_bytes, written = statistics->job_gradient_written_bytes;

	if (configuration->gradient_placement == TIERD_PLACE_HOST || configuration->stage < 2) {
		expect(rank, "bytes of sums read", read, 0);
		expect(rank, "bytes of sums written", written, 0);
	} else if (configuration->is_tight && !configuration->is_announced &&
		   configuration->gradient_placement == TIERD_PLACE_NVME && (read == 0 || written == 0)) {
		rank_fail(rank, "sums have read %llu bytes and written %llu: they were not spilled",
			  (unsigned long long)read, (unsigned long long)written);
	}
}

void rank_check_account(const struct rank *rank, uint64_t host_budget)
{
	struct tierd_statistics statistics = TIERD_STATISTICS_INIT;

	rank_must(rank, tierd_statistics(rank->job, &statistics), "tierd_statistics");
	expect(rank, "gathers", statistics.gathers, rank->gathers);
	expect(rank, "pushes", statistics.pushes, rank->pushes);
	expect(rank, "job_parameters", statistics.job_parameters, rank->model.parameters);
	expect(rank, "job_steps", statistics.job_steps, SCHEDULE_STEPS);
	expect(rank, "job_host_budget", statistics.job_host_budget, host_budget);
	check_memory(rank, &statistics);
	check_communication(rank, &statistics);
	check_updates(rank, &statistics);
	check_sums(rank, &statistics);
}
