#include "client/tierctl/command.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "client/tierctl/plan_flags.h"
#include "client/tierctl/plan_source.h"
#include "common/plural.h"
#include "common/size.h"

/* What nobody knows the size of is larger than any job. */
#define PLENTY (UINT64_C(1) << 60)

/* ---- The node ---- */

static uint64_t left_of(uint64_t whole, uint64_t used)
{
	return whole > used ? whole - used : 0;
}

/* All paths are written alike, so the first one that is worn out ends it for all. */
static void look_at_endurance(const Tierd__Wire__NodeReply *node, struct plan_request *request)
{
	uint64_t least = UINT64_MAX;

	for (size_t i = 0; i < node->n_paths; i++) {
		uint64_t left = left_of(node->paths[i]->endurance_bytes, node->paths[i]->written_ever_bytes);

		if (node->paths[i]->endurance_bytes == 0)
			return;
		least = left < least ? left : least;
	}
	if (node->n_paths == 0 || request->has_endurance)
		return;
	request->has_endurance = true;
	request->endurance_bytes = least * node->n_paths;
}

static uint64_t least_of(uint64_t bytes, uint64_t maximum, uint64_t held)
{
	return maximum > 0 && left_of(maximum, held) < bytes ? left_of(maximum, held) : bytes;
}

/* Caches shrink for a job that needs the memory, and idle jobs give theirs up. */
static void look_at_room(const Tierd__Wire__NodeReply *node, struct plan_request *request)
{
	const Tierd__Wire__UserLimits none = TIERD__WIRE__USER_LIMITS__INIT;
	const Tierd__Wire__UserLimits *limits = node->limits ? node->limits : &none;
	uint64_t nvme = 0, used = left_of(left_of(node->host_used_bytes, node->host_cache_bytes),
					  node->host_idle_bytes);

	for (size_t i = 0; i < node->n_paths; i++)
		nvme += left_of(node->paths[i]->capacity_bytes, node->paths[i]->used_bytes);
	if (!request->has_host)
		request->host_bytes = least_of(left_of(node->host_budget_bytes, used), limits->host_maximum,
					       limits->host_held);
	if (!request->has_nvme)
		request->nvme_bytes = least_of(nvme, limits->nvme_maximum, limits->nvme_held);
	request->has_host = request->has_nvme = true;
}

/* Takes the place of what a daemon has said. */
static int set_path(Tierd__Wire__NodeReply *node, uint64_t capacity)
{
	for (size_t i = 0; i < node->n_paths; i++)
		tierd__wire__path__free_unpacked(node->paths[i], NULL);
	node->n_paths = 0;
	if (node->limits)
		node->limits->nvme_maximum = 0;
	if (capacity == 0)
		return 0;
	if (!node->paths)
		node->paths = malloc(sizeof(*node->paths));
	if (node->paths)
		node->paths[0] = malloc(sizeof(*node->paths[0]));
	if (!node->paths || !node->paths[0])
		return -ENOMEM;
	tierd__wire__path__init(node->paths[0]);
	node->paths[0]->path = strdup("NVMe");
	node->paths[0]->capacity_bytes = capacity;
	node->n_paths = 1;
	return node->paths[0]->path ? 0 : -ENOMEM;
}

static void set_host(Tierd__Wire__NodeReply *node, uint64_t bytes)
{
	node->host_budget_bytes = bytes;
	node->host_used_bytes = node->host_cache_bytes = node->host_idle_bytes = 0;
	if (node->limits)
		node->limits->host_maximum = 0;
}

/* What is free, from the daemon if there is one; flags win. */
static int look_at_node(const struct command_context *context, struct plan_request *request)
{
	bool says_host = request->has_host, says_nvme = request->has_nvme;
	_cleanup_(ask_freep) struct ask *ask = NULL;
	Tierd__Wire__NodeReply nobody = TIERD__WIRE__NODE_REPLY__INIT;
	const Tierd__Wire__NodeReply *node = &nobody;
	int r = 0;

	request->source = says_host || says_nvme ? "flags" : NULL;
	if (!says_host || !says_nvme || (request->step_ms > 0 && !request->has_endurance)) {
		if (ask_open(context->socket, ASK_TIMEOUT_MS, 0, &ask) < 0 ||
		    command_ask_node(ask, &node) != COMMAND_DONE)
			node = &nobody;
	}
	if (node != &nobody) {
		request->source = context->socket;
		request->connections = node->connections_per_user;
		look_at_endurance(node, request);
		look_at_room(node, request);
	}
	if (!request->has_host && !request->has_nvme)
		return COMMAND_DONE;
	request->node = plan_ask_copy(&node->base);
	if (!request->node)
		return command_fail_memory();
	if (says_host || !request->has_host)
		set_host(request->node, says_host ? request->host_bytes : PLENTY);
	if (says_nvme || !request->has_nvme)
		r = set_path(request->node, says_nvme ? request->nvme_bytes : PLENTY);
	return r < 0 ? command_fail_memory() : COMMAND_DONE;
}

/* ---- The job ---- */

#define GPT_BLOB_BYTES 16384 /* where its ranks are in the data: examples/gpt/tierd.c */

static int add_groups(Tierd__Wire__JobOpen *job, size_t count)
{
	job->groups = calloc(count, sizeof(*job->groups));
	for (size_t i = 0; i < count && job->groups; i++) {
		Tierd__Wire__Group *group = job->groups[i] = malloc(sizeof(*group));

		if (!group)
			return -ENOMEM;
		tierd__wire__group__init(group);
		group->learning_rate = 1.0f;
		group->beta1 = 0.9f;
		group->beta2 = 0.999f;
		group->epsilon = 1e-8f;
		job->n_groups = i + 1;
	}
	return job->groups ? 0 : -ENOMEM;
}

static size_t count_groups(const Tierd__Wire__PlanRequest *units)
{
	uint32_t most = 0;

	for (size_t i = 0; i < units->n_units; i++)
		for (size_t k = 0; k < units->units[i]->n_tensors; k++)
			if (units->units[i]->tensors[k]->group > most)
				most = units->units[i]->tensors[k]->group;
	return most + 1;
}

/* Unless it is the daemon's. */
static int new_job(struct plan_request *request)
{
	bool is_gpt = request->gpt.layers > 0;
	Tierd__Wire__JobOpen *job = request->job = malloc(sizeof(*job));
	size_t count;

	if (!job)
		return -ENOMEM;
	tierd__wire__job_open__init(job);
	job->name = strdup(is_gpt ? "gpt" : "plan");
	job->world_size = 1;
	job->blob_bytes = is_gpt ? GPT_BLOB_BYTES : 0;
	job->pushed_once = is_gpt && request->micro_batches <= 1;
	count = is_gpt ? 2 : count_groups(request->rows.requests[0]);
	return job->name ? add_groups(job, request->groups > count ? request->groups : count) : -ENOMEM;
}

static void set_optimizer(Tierd__Wire__JobOpen *job, const struct plan_optimizer *optimizer)
{
	job->optimizer = optimizer->kind;
	for (size_t i = 0; i < job->n_groups; i++)
		job->groups[i]->momentum = optimizer->has_momentum ? 0.9f : 0;
}

/* Sets what nobody has asked for as the daemon does: durability and snapshots. */
static void apply_limits(const struct plan_request *request, Tierd__Wire__JobOpen *job)
{
	const Tierd__Wire__UserLimits *limits = request->node ? request->node->limits : NULL;
	bool has_paths = !request->node || request->node->n_paths > 0;

	if (limits && job->durability == DURABILITY_DEFAULT)
		job->durability = limits->durability;
	if (!has_paths)
		job->durability = DURABILITY_NONE;
	if (limits && request->snapshots < 0 && !request->like)
		job->snapshots = limits->snapshots_default;
	if (job->durability == DURABILITY_NONE)
		job->snapshots = job->snapshot_every = job->snapshot_keep = 0;
}

static void apply_flags(const struct plan_request *request, Tierd__Wire__JobOpen *job)
{
	if (request->world_size > 0)
		job->world_size = request->world_size;
	if (request->optimizer)
		set_optimizer(job, request->optimizer);
	for (size_t i = 0; i < job->n_groups && request->moments >= 0; i++)
		job->groups[i]->moments = (uint32_t)request->moments;
	if (request->gradients != PLACEMENT_DEFAULT)
		job->gradient_placement = request->gradients;
	if (request->gradient_buffers > 0) {
		job->gradient_buffers = request->gradient_buffers;
		job->gradient_bytes = 0;
	}
	if (request->gradient_bytes > 0) {
		job->gradient_buffers = request->gradient_buffers;
		job->gradient_bytes = request->gradient_bytes;
	}
	if (request->durability != DURABILITY_DEFAULT)
		job->durability = request->durability;
	if (request->snapshots >= 0)
		job->snapshots = (uint32_t)request->snapshots;
	if (request->has_blobs)
		job->blob_bytes = request->blob_bytes;
	if (request->host_budget > 0)
		job->host_budget = request->host_budget;
	if (request->nvme_budget > 0)
		job->nvme_budget = request->nvme_budget;
	job->pushed_once |= request->is_pushed_once;
	apply_limits(request, job);
}

static void describe_model(struct plan_request *request)
{
	const Tierd__Wire__JobOpen *job = request->job;
	struct plan_model *model = &request->model;
	bool has_momentum = false;

	for (size_t i = 0; i < job->n_groups; i++)
		has_momentum |= job->groups[i]->momentum != 0;
	model->world_size = job->world_size;
	model->micro_batches = request->micro_batches > 0 ? request->micro_batches : 1;
	model->is_pushed_once = job->pushed_once;
	model->is_durable = job->durability != DURABILITY_NONE;
	model->commit_ms = plan_commit_ms(job->durability);
	model->optimizer = plan_optimizer_of(job->optimizer, has_momentum);
	plan_units_count(request->rows.requests[0], job, model);
}

static int look_at_gpus(struct plan_request *request)
{
	struct plan_gpus *gpus = &request->gpus;
	unsigned ranks = plan_local_ranks(request), count;

	if (gpus->bytes == 0)
		return COMMAND_DONE;
	if (plan_gpus_spread(gpus, ranks, &count) < 0)
		return command_fail(COMMAND_USAGE,
				    "--gpu says %u GPUs, over which %u rank%s cannot be spread evenly: %u "
				    "GPU%s would do, or another %s",
				    gpus->count, ranks, PLURAL(ranks), count, PLURAL(count),
				    request->local_ranks > 0 ? "--local-ranks" : "--world-size");
	return plan_gpu_bounds(gpus, request->rows.requests, request->rows.cuts, request->model.micro_batches,
			       &request->gpu) < 0
		       ? command_fail_memory()
		       : COMMAND_DONE;
}

/* ---- The units ---- */

static int read_files(const struct plan_request *request, Tierd__Wire__PlanRequest *units)
{
	const struct plan_optimizer *optimizer =
		request->optimizer ? request->optimizer : plan_find_optimizer("adamw");
	struct import_options options = { .is_trainable = true,
					  .optimizer = optimizer->kind,
					  .has_momentum = optimizer->has_momentum,
					  .format = request->has_format ? request->size.format : 0 };

	return plan_source_files(request->file, &options, units);
}

static Tierd__Wire__PlanRequest *add_request(struct plan_rows *rows)
{
	Tierd__Wire__PlanRequest *request = malloc(sizeof(*request));

	if (!request)
		return NULL;
	tierd__wire__plan_request__init(request);
	rows->requests[rows->cuts++] = request;
	return request;
}

static int cut(struct plan_request *request)
{
	int r = 0;

	for (unsigned i = 0; i < PLAN_CUTS && r == 0; i++) {
		Tierd__Wire__PlanRequest *units =
			i == 0 ? request->rows.requests[0] : add_request(&request->rows);

		r = units ? plan_units_cut(units, &request->size, i) : -ENOMEM;
	}
	return r;
}

static int make_units(const struct command_context *context, struct plan_request *request)
{
	Tierd__Wire__PlanRequest *units = add_request(&request->rows);
	int r;

	if (!units)
		return command_fail_memory();
	if (request->like)
		return plan_source_job(context, request->like, units, &request->job);
	if (request->file)
		return read_files(request, units);
	if (request->units)
		return plan_source_list(request->units, units);
	r = request->gpt.layers > 0 ? plan_units_of_gpt(units, &request->gpt) : cut(request);
	return r < 0 ? command_fail_memory() : COMMAND_DONE;
}

/* ---- The rows ---- */

static int add_stage(struct plan_request *request, unsigned stage)
{
	int r = 0;

	for (unsigned choice = 0; choice < (stage < 3 ? 2 : 4) && r == 0; choice++)
		r = plan_rows_add(&request->rows, request->job,
				  &(struct plan_row){
					  .stage = stage,
					  .parameters = choice & 2 ? PLACEMENT_NVME : PLACEMENT_HOST,
					  .optimizer = choice & 1 ? PLACEMENT_NVME : PLACEMENT_HOST,
				  });
	return r < 0 ? r
		     : plan_rows_add(&request->rows, request->job,
				     &(struct plan_row){ .stage = stage,
							 .parameters = PLACEMENT_AUTO,
							 .optimizer = PLACEMENT_AUTO });
}

static int add_changes(struct plan_request *request, unsigned stage)
{
	int r = 0;

	for (unsigned i = 0; i < plan_change_count && r == 0; i++)
		r = plan_rows_add(&request->rows, request->job,
				  &(struct plan_row){ .stage = stage,
						      .parameters = PLACEMENT_AUTO,
						      .optimizer = PLACEMENT_AUTO,
						      .change = &plan_changes[i] });
	return r;
}

static int describe_node(struct plan_request *request)
{
	for (unsigned i = 0; i < request->rows.cuts && request->node; i++) {
		request->rows.requests[i]->node = plan_ask_copy(&request->node->base);
		if (!request->rows.requests[i]->node)
			return -ENOMEM;
	}
	return 0;
}

/* tierd trains on one node: of a part of the ranks there is nothing to be planned. */
static int make_rows(struct plan_request *request)
{
	int r = describe_node(request);

	if (request->local_ranks > 0 && request->local_ranks < request->job->world_size)
		return COMMAND_DONE;
	for (unsigned stage = 0; stage < PLAN_STAGES && r == 0; stage++)
		if (request->stage < 0 || request->stage == (int)stage)
			r = add_stage(request, stage);
	if (r == 0)
		r = add_changes(request, plan_stage(request));
	return r < 0 ? command_fail_memory() : plan_rows_ask(&request->rows);
}

static int plan(const struct command_context *context, struct plan_request *request)
{
	int code = plan_flags_read(context, request);

	if (code == COMMAND_DONE)
		code = look_at_node(context, request);
	if (code == COMMAND_DONE)
		code = make_units(context, request);
	if (code != COMMAND_DONE)
		return code;
	if (!request->job && new_job(request) < 0)
		return command_fail_memory();
	apply_flags(request, request->job);
	describe_model(request);
	code = look_at_gpus(request);
	if (code == COMMAND_DONE)
		code = make_rows(request);
	if (code != COMMAND_DONE)
		return code;
	return context->is_json ? plan_print_json(request) : plan_print_tables(request);
}

int command_plan(const struct command_context *context)
{
	struct plan_request request = { .stage = -1,
					.snapshots = -1,
					.moments = -1,
					.size = { .format = TIERD_BF16 },
					.gpt = { .format = TIERD_BF16 } };
	int code = plan(context, &request);

	plan_rows_clear(&request.rows);
	if (request.node)
		tierd__wire__node_reply__free_unpacked(request.node, NULL);
	if (request.job)
		tierd__wire__job_open__free_unpacked(request.job, NULL);
	return code;
}
