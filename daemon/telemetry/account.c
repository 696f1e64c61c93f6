/* The logical account of a job, as the ZeRO papers count: memory and communication of each rank, summed from
 * what is there and what was done, whatever the node shares physically. */
#include "daemon/model/model.h"
#include "daemon/telemetry/own.h"
#include "daemon/telemetry/telemetry.h"
#include "daemon/telemetry/trace.h"
#include "offload/store/store.h"

static uint64_t shard_elements(const struct job *job, const struct unit *unit, uint32_t rank)
{
	return unit_layout_shard(unit->trainable, rank + 1, job->options.world_size) -
	       unit_layout_shard(unit->trainable, rank, job->options.world_size);
}

/* Bytes of the trainable elements first … first + count - 1 of a unit: of parameters, or of the state beside
 * them. */
static uint64_t trainable_bytes(const struct job *job, const struct unit *unit, uint64_t first,
				uint64_t count, bool is_state)
{
	uint64_t bytes = 0;

	for (uint32_t i = 0; i < unit->part_count; i++) {
		const struct unit_part *part = &unit->parts[i];
		uint64_t from = part->first > first ? part->first : first;
		uint64_t end = part->first + part->elements;

		end = end < first + count ? end : first + count;
		if (from >= end || !section_is_trainable(part->section))
			continue;
		bytes += is_state ? state_all_bytes(&job->options, part->section, end - from)
				  : (end - from) * section_element_bytes(part->section);
	}
	return bytes;
}

static uint64_t frozen_bytes(const struct unit *unit)
{
	return unit_parameter_bytes(unit) - unit_trainable_bytes(unit);
}

/* Frozen values are partitioned like the others, evenly. */
static void add_unit(const struct job *job, const struct unit *unit, uint32_t rank,
		     struct unit_account *account)
{
	uint64_t all = unit->trainable;
	uint64_t first = unit_layout_shard(unit->trainable, rank, job->options.world_size);
	uint64_t count = shard_elements(job, unit, rank);
	uint32_t stage = job->options.stage;

	if (stage < 3)
		account->parameter_bytes += trainable_bytes(job, unit, 0, all, false) + frozen_bytes(unit);
	else
		account->parameter_bytes += trainable_bytes(job, unit, first, count, false) +
					    frozen_bytes(unit) / job->options.world_size;
	account->gradient_bytes += sums_are_as_pushed(job) ? unit_gradient_bytes(unit)
							   : sizeof(float) * (stage >= 2 ? count : all);
	account->optimizer_bytes += stage >= 1 ? trainable_bytes(job, unit, first, count, true)
					       : trainable_bytes(job, unit, 0, all, true);
}

static struct unit_account account_new(const struct job *job)
{
	return (struct unit_account){ .world_size = job->options.world_size,
				      .stage = job->options.stage,
				      .is_as_pushed = sums_are_as_pushed(job) };
}

/* With the units that are not in it yet. */
static void complete(const struct job *job, uint32_t rank, struct unit_account *account)
{
	struct unit_account fresh = account_new(job);

	if (account->world_size != fresh.world_size || account->stage != fresh.stage ||
	    account->is_as_pushed != fresh.is_as_pushed)
		*account = fresh;
	for (; account->units < job->catalog.unit_count; account->units++)
		add_unit(job, &job->catalog.units[account->units], rank, account);
}

void account_define(struct job *job, struct member *member)
{
	complete(job, 0, &job->telemetry->account);
	if (member)
		complete(job, member->rank, &member->account);
}

void account_statistics(struct job *job, struct member *member, Tierd__Wire__StatisticsReply *reply)
{
	const struct statistics_figures *figures = &job->telemetry->figures;
	const struct unit_account *account = member ? &member->account : &job->telemetry->account;

	account_define(job, member);
	reply->logical_parameter_bytes = account->parameter_bytes;
	reply->logical_gradient_bytes = account->gradient_bytes;
	reply->logical_optimizer_bytes = account->optimizer_bytes;
	reply->pushes = member ? member->pushes : 0;
	reply->communicated_elements = member ? member->communicated_elements : 0;
	reply->job_parameters = job->catalog.parameters;
	reply->job_gather_read_bytes = figures->bytes[STATISTICS_DEMAND][STATISTICS_READ] +
				       figures->bytes[STATISTICS_PREFETCH][STATISTICS_READ];
	reply->job_update_read_bytes = figures->bytes[STATISTICS_UPDATE][STATISTICS_READ];
	reply->job_update_written_bytes = figures->bytes[STATISTICS_UPDATE][STATISTICS_WRITTEN];
	reply->job_initialize_written_bytes = figures->bytes[STATISTICS_WRITE_BACK][STATISTICS_WRITTEN];
	reply->job_gradient_read_bytes = figures->bytes[STATISTICS_GRADIENT][STATISTICS_READ];
	reply->job_gradient_written_bytes = figures->bytes[STATISTICS_GRADIENT][STATISTICS_WRITTEN];
	reply->job_steps = job->step;
	reply->job_step_ns = figures->step_ns;
}

/* Stages 2 and 3 reduce every push to its owners at once: one reduce-scatter each. */
void account_push(struct job *job, struct member *member, uint32_t unit)
{
	job->telemetry->figures.pushes++;
	if (job->options.stage >= 2)
		member->communicated_elements += job->catalog.units[unit].trainable;
}

void account_transfer(struct job *job, enum statistics_kind kind, struct store_transfer *transfer)
{
	static const enum wire_trace traced[STATISTICS_KINDS][STATISTICS_DIRECTIONS] = {
		[STATISTICS_DEMAND] = { TRACE_DEMAND_READ, TRACE_WRITE_BACK },
		[STATISTICS_PREFETCH] = { TRACE_PREFETCH_READ, TRACE_WRITE_BACK },
		[STATISTICS_UPDATE] = { TRACE_UPDATE_READ, TRACE_UPDATE_WRITE },
		[STATISTICS_WRITE_BACK] = { TRACE_DEMAND_READ, TRACE_WRITE_BACK },
		[STATISTICS_GRADIENT] = { TRACE_SUMS_READ, TRACE_SUMS_WRITE },
	};
	unsigned direction = transfer->direction == TIER_READ ? STATISTICS_READ : STATISTICS_WRITTEN;

	trace_submitted(job, traced[kind][direction], transfer);
	job->telemetry->figures.bytes[kind][direction] += transfer->length;
	job->telemetry->figures.transfers[kind][direction]++;
}

/* What a step exchanges: stage 0 all-reduces gradients, stage 1 reduce-scatters them and all-gathers
 * parameters, stage 2 all-gathers parameters. In stage 3 nothing: gathers bring the parameters. */
void account_step(struct job *job)
{
	static const uint64_t volumes[] = { 2, 2, 1, 0 };
	uint64_t elements = 0;

	for (uint32_t i = 0; i < job->catalog.unit_count; i++)
		if (job->catalog.units[i].last_update == job->step)
			elements += volumes[job->options.stage] * job->catalog.units[i].trainable;
	for (uint32_t rank = 0; rank < job->options.world_size; rank++)
		if (job->members.ranks[rank])
			job->members.ranks[rank]->communicated_elements += elements;
}
