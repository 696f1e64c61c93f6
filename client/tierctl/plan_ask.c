#include "client/tierctl/plan_ask.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "client/tierctl/command.h"
#include "client/tierctl/program.h"
#include "proto/status.h"

/* ---- Changes ---- */

static bool push_one_by_one(Tierd__Wire__JobOpen *job)
{
	bool is_changed = job->gradient_buffers != 1 || job->gradient_bytes > 0;

	job->gradient_buffers = 1;
	job->gradient_bytes = 0;
	return is_changed;
}

static bool keep_as(Tierd__Wire__JobOpen *job, uint32_t moments)
{
	bool is_changed = false;

	for (size_t i = 0; i < job->n_groups && job->optimizer != OPTIMIZER_NONE; i++) {
		Tierd__Wire__Group *group = job->groups[i];

		if (group->moments >= moments || (job->optimizer == OPTIMIZER_SGD && group->momentum == 0))
			continue;
		group->moments = moments;
		is_changed = true;
	}
	return is_changed;
}

static bool keep_as_bf16(Tierd__Wire__JobOpen *job)
{
	return keep_as(job, MOMENTS_IN_BF16);
}

static bool keep_as_int8(Tierd__Wire__JobOpen *job)
{
	return keep_as(job, MOMENTS_IN_INT8);
}

static bool push_once(Tierd__Wire__JobOpen *job)
{
	bool is_changed = !job->pushed_once && job->world_size == 1 && job->optimizer != OPTIMIZER_NONE;

	job->pushed_once |= is_changed;
	return is_changed;
}

static bool keep_no_snapshots(Tierd__Wire__JobOpen *job)
{
	bool is_changed = job->snapshots > 0;

	job->snapshots = job->snapshot_keep = 0;
	job->snapshot_every = 0;
	return is_changed;
}

static bool end_with_the_daemon(Tierd__Wire__JobOpen *job)
{
	bool is_changed = job->durability != DURABILITY_NONE;

	keep_no_snapshots(job);
	job->durability = DURABILITY_NONE;
	return is_changed;
}

static bool all(Tierd__Wire__JobOpen *job);

const struct plan_change plan_changes[] = {
	{ "--gradient-buffers 1", push_one_by_one },
	{ "--moments bf16", keep_as_bf16 },
	{ "--moments int8", keep_as_int8 },
	{ "--pushed-once", push_once },
	{ "--snapshots 0", keep_no_snapshots },
	{ "--durability none", end_with_the_daemon },
	{ "all of these", all },
};
const unsigned plan_change_count = ARRAY_LENGTH(plan_changes);

static bool all(Tierd__Wire__JobOpen *job)
{
	unsigned changes = 0;

	for (unsigned i = 0; plan_changes[i].apply != all; i++)
		changes += plan_changes[i].apply(job);
	return changes > 1;
}

/* ---- Rows ---- */

void plan_rows_clear(struct plan_rows *rows)
{
	for (unsigned i = 0; i < PLAN_CUTS; i++) {
		if (rows->requests[i])
			tierd__wire__plan_request__free_unpacked(rows->requests[i], NULL);
		if (rows->answers[i])
			tierd__wire__job_plans__free_unpacked(rows->answers[i], NULL);
	}
	*rows = (struct plan_rows){ .count = 0 };
}

void *plan_ask_copy(const ProtobufCMessage *message)
{
	size_t length = protobuf_c_message_get_packed_size(message);
	_cleanup_free_ uint8_t *bytes = malloc(length + 1);

	if (!bytes)
		return NULL;
	protobuf_c_message_pack(message, bytes);
	return protobuf_c_message_unpack(message->descriptor, NULL, length, bytes);
}

static int add_job(Tierd__Wire__PlanRequest *request, const Tierd__Wire__JobOpen *job)
{
	if (!request->jobs)
		request->jobs = calloc(PLAN_MAX_ROWS, sizeof(*request->jobs));
	if (!request->jobs)
		return -ENOMEM;
	request->jobs[request->n_jobs] = plan_ask_copy(&job->base);
	if (!request->jobs[request->n_jobs])
		return -ENOMEM;
	request->n_jobs++;
	return 0;
}

int plan_rows_add(struct plan_rows *rows, const Tierd__Wire__JobOpen *job, const struct plan_row *row)
{
	Tierd__Wire__JobOpen *changed = plan_ask_copy(&job->base);
	int r = changed ? 0 : -ENOMEM;

	if (r < 0)
		return r;
	changed->stage = row->stage;
	changed->parameter_placement = row->parameters;
	changed->optimizer_placement = row->optimizer;
	if (row->stage < 2)
		changed->gradient_placement = PLACEMENT_DEFAULT;
	if (!row->change || row->change->apply(changed)) {
		for (unsigned i = 0; i < rows->cuts && r == 0; i++)
			r = add_job(rows->requests[i], changed);
		rows->rows[rows->count++] = *row;
	}
	tierd__wire__job_open__free_unpacked(changed, NULL);
	return r;
}

/* ---- The program ---- */

/* $TIERD is for those who have another one than the one beside tierctl, as tests do. */
static int run_tierd(const struct program_input *input, struct program_result *ret_result)
{
	char path[PATH_MAX];
	const char *chosen = getenv("TIERD");
	const char *program = chosen && *chosen ? chosen : program_tierd(path);
	const char *arguments[] = { program, "--plan", NULL };
	int r = program_run(arguments, NULL, input, ret_result);

	if (r < 0)
		return command_fail(COMMAND_FAILED, "tierd --plan: %s", strerror(-r));
	if (ret_result->status == PROGRAM_NOT_FOUND)
		return command_fail(
			COMMAND_FAILED,
			"tierd, which plans, is not at %s; install it, or say in $TIERD where it is",
			program);
	if (ret_result->status != 0)
		return command_fail(COMMAND_FAILED, "%s --plan has failed: %.500s", program,
				    ret_result->errors);
	return COMMAND_DONE;
}

static int ask(const Tierd__Wire__PlanRequest *request, Tierd__Wire__JobPlans **ret_plans)
{
	size_t length = tierd__wire__plan_request__get_packed_size(request);
	_cleanup_free_ uint8_t *bytes = malloc(length + 1);
	struct program_result result = PROGRAM_RESULT_INIT;
	Tierd__Wire__JobPlans *plans;
	int code;

	if (!bytes)
		return command_fail_memory();
	tierd__wire__plan_request__pack(request, bytes);
	code = run_tierd(&(struct program_input){ bytes, length }, &result);
	plans = code == COMMAND_DONE ? tierd__wire__job_plans__unpack(NULL, result.output_length,
								      (const uint8_t *)result.output)
				     : NULL;
	program_result_clear(&result);
	if (code != COMMAND_DONE)
		return code;
	*ret_plans = plans;
	return plans && plans->n_plans == request->n_jobs
		       ? COMMAND_DONE
		       : command_fail(COMMAND_FAILED,
				      "tierd --plan answers something else: it is of another version");
}

int plan_rows_ask(struct plan_rows *rows)
{
	int code = COMMAND_DONE;

	for (unsigned i = 0; i < rows->cuts && rows->count > 0 && code == COMMAND_DONE; i++) {
		code = ask(rows->requests[i], &rows->answers[i]);
		for (unsigned k = 0; k < rows->count && code == COMMAND_DONE; k++)
			rows->rows[k].plans[rows->rows[k].count++] = rows->answers[i]->plans[k];
	}
	return code;
}

/* ---- Bounds ---- */

const char *plan_row_problem(const struct plan_row *row)
{
	for (unsigned i = 0; i < row->count; i++)
		if (row->plans[i]->status)
			return row->plans[i]->status->message;
	return NULL;
}

/* The parts of host memory. */
enum { PARAMETERS, SUMS, BUFFERS, STATE, REST, PARTS };

static void split(const Tierd__Wire__PlanNeeds *needs, uint64_t parts[PARTS])
{
	parts[PARAMETERS] = needs->parameter_bytes;
	parts[SUMS] = needs->sum_bytes;
	parts[BUFFERS] = needs->buffer_bytes;
	parts[STATE] = needs->state_bytes;
	parts[REST] = needs->host_bytes - needs->parameter_bytes - needs->sum_bytes - needs->buffer_bytes -
		      needs->state_bytes;
}

static void join(const uint64_t parts[PARTS], Tierd__Wire__PlanNeeds *needs)
{
	needs->parameter_bytes = parts[PARAMETERS];
	needs->sum_bytes = parts[SUMS];
	needs->buffer_bytes = parts[BUFFERS];
	needs->state_bytes = parts[STATE];
	needs->host_bytes = 0;
	for (unsigned i = 0; i < PARTS; i++)
		needs->host_bytes += parts[i];
}

static void bound(uint64_t *low, uint64_t *high, uint64_t bytes)
{
	*low = bytes < *low ? bytes : *low;
	*high = bytes > *high ? bytes : *high;
}

/* Each part for itself: what is cut otherwise may have the least of one, and of another one that of that. */
static void bound_needs(struct plan_bounds *bounds, const Tierd__Wire__PlanNeeds *needs)
{
	Tierd__Wire__PlanNeeds *low = &bounds->low, *high = &bounds->high;
	uint64_t parts[PARTS], low_parts[PARTS], high_parts[PARTS];

	split(needs, parts);
	split(low, low_parts);
	split(high, high_parts);
	for (unsigned i = 0; i < PARTS; i++)
		bound(&low_parts[i], &high_parts[i], parts[i]);
	join(low_parts, low);
	join(high_parts, high);
	bound(&low->nvme_bytes, &high->nvme_bytes, needs->nvme_bytes);
	bound(&low->path_bytes, &high->path_bytes, needs->path_bytes);
	high->has_nvme_sums |= needs->has_nvme_sums;
}

/* Beside what the daemon takes for itself. */
static void bound_budget(struct plan_bounds *bounds, const Tierd__Wire__JobPlan *plan)
{
	uint64_t own = plan->host_budget - plan->least->host_bytes;

	bound(&bounds->low_own, &bounds->high_own, own);
}

static struct plan_bounds bounds_of(const struct plan_row *row,
				    const Tierd__Wire__PlanNeeds *needs_of(const Tierd__Wire__JobPlan *plan))
{
	const Tierd__Wire__JobPlan *first = row->plans[0];
	struct plan_bounds bounds = { .low = *needs_of(first),
				      .high = *needs_of(first),
				      .low_own = UINT64_MAX };

	bound_budget(&bounds, first);
	for (unsigned i = 1; i < row->count; i++) {
		bound_needs(&bounds, needs_of(row->plans[i]));
		bound_budget(&bounds, row->plans[i]);
	}
	return bounds;
}

static const Tierd__Wire__PlanNeeds *needs_here(const Tierd__Wire__JobPlan *plan)
{
	bool lacks_host = plan->here && status_to_errno(plan->here->code) == -ENOMEM;

	return plan->taken ? plan->taken : lacks_host ? plan->least : plan->most;
}

static const Tierd__Wire__PlanNeeds *needs_least(const Tierd__Wire__JobPlan *plan)
{
	return plan->least;
}

struct plan_bounds plan_row_bounds(const struct plan_row *row)
{
	return bounds_of(row, needs_here);
}

struct plan_bounds plan_row_least(const struct plan_row *row)
{
	return bounds_of(row, needs_least);
}
