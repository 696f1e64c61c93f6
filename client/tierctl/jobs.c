#include "client/tierctl/command.h"

#include <inttypes.h>
#include <string.h>
#include <unistd.h>

/* ---- Jobs ------------------------------------------------------------------------------------------------
 */

static cJSON *members_json(const Tierd__Wire__JobEntry *job)
{
	cJSON *members = cJSON_CreateArray();

	for (size_t i = 0; i < job->n_members; i++) {
		const Tierd__Wire__Member *member = job->members[i];
		cJSON *json = cJSON_CreateObject();

		cJSON_AddNumberToObject(json, "rank", member->rank);
		cJSON_AddNumberToObject(json, "pid", member->pid);
		cJSON_AddStringToObject(json, "activity", member->activity);
		cJSON_AddNumberToObject(json, "silent_ms", (double)member->silent_ms);
		cJSON_AddNumberToObject(json, "pushes", (double)member->pushes);
		cJSON_AddItemToArray(members, json);
	}
	return members;
}

/* Names of messages' fields are those of the JSON, so the descriptor knows them. */
static cJSON *statistics_json(const Tierd__Wire__StatisticsReply *statistics)
{
	const ProtobufCMessageDescriptor *descriptor = statistics->base.descriptor;
	cJSON *json = cJSON_CreateObject();

	for (unsigned i = 0; i < descriptor->n_fields; i++) {
		const ProtobufCFieldDescriptor *field = &descriptor->fields[i];

		if (field->type == PROTOBUF_C_TYPE_UINT64 && field->label != PROTOBUF_C_LABEL_REPEATED)
			cJSON_AddNumberToObject(
				json, field->name,
				(double)*(const uint64_t *)((const char *)statistics + field->offset));
	}
	return json;
}

static cJSON *job_json(const Tierd__Wire__JobEntry *job)
{
	cJSON *json = cJSON_CreateObject();

	cJSON_AddStringToObject(json, "name", job->name);
	cJSON_AddNumberToObject(json, "uid", job->uid);
	cJSON_AddStringToObject(json, "status", job->status);
	cJSON_AddNumberToObject(json, "idle_ms", (double)job->idle_ms);
	cJSON_AddStringToObject(json, "sharing", job->sharing);
	cJSON_AddNumberToObject(json, "share_group", job->share_group);
	cJSON_AddBoolToObject(json, "is_released", job->is_released);
	if (*job->reason)
		cJSON_AddStringToObject(json, "reason", job->reason);
	cJSON_AddNumberToObject(json, "world_size", job->world_size);
	cJSON_AddNumberToObject(json, "stage", job->stage);
	cJSON_AddNumberToObject(json, "epoch", job->epoch);
	cJSON_AddNumberToObject(json, "step", (double)job->step);
	cJSON_AddNumberToObject(json, "units", (double)job->units);
	cJSON_AddNumberToObject(json, "parameters", (double)job->parameters);
	cJSON_AddNumberToObject(json, "host_bytes", (double)job->host_bytes);
	cJSON_AddNumberToObject(json, "host_budget", (double)job->host_budget);
	cJSON_AddNumberToObject(json, "nvme_budget", (double)job->nvme_budget);
	cJSON_AddNumberToObject(json, "nvme_bytes", (double)job->nvme_bytes);
	cJSON_AddNumberToObject(json, "io_weight", job->io_weight);
	cJSON_AddStringToObject(json, "parameter_placement", job->parameter_placement);
	cJSON_AddStringToObject(json, "optimizer_placement", job->optimizer_placement);
	cJSON_AddStringToObject(json, "gradient_placement", job->gradient_placement);
	cJSON_AddNumberToObject(json, "spill_bytes", (double)job->spill_bytes);
	cJSON_AddStringToObject(json, "optimizer", job->optimizer);
	cJSON_AddNumberToObject(json, "loss_scale", (double)job->loss_scale);
	cJSON_AddItemToObject(json, "members", members_json(job));
	if (job->statistics)
		cJSON_AddItemToObject(json, "statistics", statistics_json(job->statistics));
	return json;
}

static void add_user(struct table *table, uid_t uid)
{
	char name[TEXT_SIZE];

	table_add(table, "%s", command_user_name(uid, name));
}

/* It keeps what it holds, however long it is idle. */
static bool is_in_host(const Tierd__Wire__JobEntry *job)
{
	return strcmp(job->parameter_placement, "nvme") != 0 || strcmp(job->optimizer_placement, "nvme") != 0;
}

static void add_status(struct table *table, const Tierd__Wire__JobEntry *job)
{
	char idle[TEXT_SIZE];

	if (job->idle_ms > 0)
		table_add(table, "%s for %s%s", job->status, text_duration(job->idle_ms, idle),
			  job->is_released  ? ", on NVMe only"
			  : is_in_host(job) ? ", state in host memory"
					    : "");
	else
		table_add(table, "%s", job->status);
}

static int print_jobs(const Tierd__Wire__JobsReply *jobs)
{
	static const char *const titles[] = { "JOB",	   "USER",     "STATUS",     ">RANKS",
					      ">STAGE",	   ">STEP",    ">UNITS",     ">PARAMETERS",
					      ">HOST",	   ">NVME",    ">IO WEIGHT", "PARAMETERS ON",
					      "OPTIMIZER", "STATE ON", "SUMS ON",    NULL };
	_cleanup_(table_freep) struct table *table = table_new(titles);

	for (size_t i = 0; table && i < jobs->n_jobs; i++) {
		const Tierd__Wire__JobEntry *job = jobs->jobs[i];

		table_add(table, "%s", job->name);
		add_user(table, job->uid);
		add_status(table, job);
		table_add(table, "%zu/%u", job->n_members, job->world_size);
		table_add(table, "%u", job->stage);
		table_add(table, "%" PRIu64, job->step);
		table_add(table, "%" PRIu64, job->units);
		table_add_count(table, job->parameters);
		table_add_bytes(table, job->host_bytes);
		table_add_bytes(table, job->nvme_bytes);
		table_add(table, "%u", job->io_weight);
		table_add(table, "%s", job->parameter_placement);
		table_add(table, "%s", job->optimizer);
		table_add(table, "%s", job->optimizer_placement);
		table_add(table, "%s", job->gradient_placement);
	}
	return command_print_table(table);
}

static const Tierd__Wire__Member *find_member(const Tierd__Wire__JobEntry *job, uint32_t rank)
{
	for (size_t i = 0; i < job->n_members; i++)
		if (job->members[i]->rank == rank)
			return job->members[i];
	return NULL;
}

/* Who keeps the others waiting has been silent for the longest time. */
static int print_ranks(const Tierd__Wire__JobEntry *job)
{
	static const char *const titles[] = { ">RANK", ">PID", ">PUSHES", ">LAST REQUEST", "ACTIVITY", NULL };
	_cleanup_(table_freep) struct table *table = table_new(titles);
	char text[TEXT_SIZE];

	for (uint32_t rank = 0; table && rank < job->world_size; rank++) {
		const Tierd__Wire__Member *member = find_member(job, rank);

		table_add(table, "%u", rank);
		if (!member) {
			for (unsigned i = 0; i < 3; i++)
				table_add(table, "-");
			table_add(table, "not here");
			continue;
		}
		table_add(table, "%u", member->pid);
		table_add(table, "%" PRIu64, member->pushes);
		table_add(table, "%s ago", text_duration(member->silent_ms, text));
		table_add(table, "%s", member->activity);
	}
	printf("%s: %s, step %" PRIu64 "%s%s\n\n", job->name, job->status, job->step,
	       *job->reason ? ": " : "", job->reason);
	return command_print_table(table);
}

/* Beside the table or the JSON: whoever reads only those must not take them for all. */
static void tell_missing(const Tierd__Wire__JobsReply *jobs)
{
	if (jobs->total > jobs->n_jobs)
		fprintf(stderr, "tierctl: %zu of %u jobs are shown; more do not fit into an answer\n",
			jobs->n_jobs, jobs->total);
}

static int show_jobs(const struct command_context *context, const Tierd__Wire__JobsReply *jobs)
{
	cJSON *json;

	if (!context->is_json)
		return print_jobs(jobs);
	json = cJSON_CreateArray();
	for (size_t i = 0; i < jobs->n_jobs; i++)
		cJSON_AddItemToArray(json, job_json(jobs->jobs[i]));
	return command_print_json(json);
}

/* Of several users' jobs of this name, one's own. */
static int show_job(const struct command_context *context, const Tierd__Wire__JobsReply *jobs,
		    const char *name)
{
	const Tierd__Wire__JobEntry *found = NULL;

	for (size_t i = 0; i < jobs->n_jobs; i++)
		if (strcmp(jobs->jobs[i]->name, name) == 0 && (!found || jobs->jobs[i]->uid == getuid()))
			found = jobs->jobs[i];
	if (!found)
		return command_fail(COMMAND_FAILED, "there is no job %s; see tierctl jobs", name);
	return context->is_json ? command_print_json(job_json(found)) : print_ranks(found);
}

int command_ask_jobs(struct ask *ask, const Tierd__Wire__JobsReply **ret_jobs)
{
	Tierd__Wire__Request request = TIERD__WIRE__REQUEST__INIT;
	Tierd__Wire__JobsRead read = TIERD__WIRE__JOBS_READ__INIT;
	const Tierd__Wire__Reply *reply;
	int code;

	request.body_case = TIERD__WIRE__REQUEST__BODY_JOBS_READ;
	request.jobs_read = &read;
	code = command_ask(ask, &request, &reply);
	if (code != COMMAND_DONE)
		return code;
	if (reply->body_case != TIERD__WIRE__REPLY__BODY_JOBS)
		return command_fail(COMMAND_FAILED, "tierd answered something else than was asked");
	tell_missing(reply->jobs);
	*ret_jobs = reply->jobs;
	return COMMAND_DONE;
}

int command_jobs(const struct command_context *context, int count, char *arguments[])
{
	_cleanup_(ask_freep) struct ask *ask = NULL;
	const Tierd__Wire__JobsReply *jobs;
	int code;

	if (count > 2)
		return command_fail(COMMAND_USAGE, "jobs takes the name of one job at most");
	code = command_connect(context, &ask);
	if (code == COMMAND_DONE)
		code = command_ask_jobs(ask, &jobs);
	if (code != COMMAND_DONE)
		return code;
	return count > 1 ? show_job(context, jobs, arguments[1]) : show_jobs(context, jobs);
}

/* ---- Units -----------------------------------------------------------------------------------------------
 */

static cJSON *unit_json(const Tierd__Wire__UnitEntry *unit)
{
	cJSON *json = cJSON_CreateObject(), *shards;

	cJSON_AddNumberToObject(json, "unit", unit->unit);
	cJSON_AddStringToObject(json, "name", unit->name);
	cJSON_AddNumberToObject(json, "elements", (double)unit->elements);
	cJSON_AddNumberToObject(json, "bytes", (double)unit->bytes);
	cJSON_AddStringToObject(json, "state", unit->state);
	cJSON_AddStringToObject(json, "tiers", unit->tiers);
	cJSON_AddNumberToObject(json, "leases", unit->leases);
	cJSON_AddNumberToObject(json, "version", (double)unit->version);
	cJSON_AddBoolToObject(json, "is_dirty", unit->is_dirty);
	cJSON_AddBoolToObject(json, "is_frozen", unit->is_frozen);
	cJSON_AddNumberToObject(json, "pack", unit->pack);
	shards = cJSON_AddArrayToObject(json, "shard_elements");
	for (size_t i = 0; i < unit->n_shard_elements; i++)
		cJSON_AddItemToArray(shards, cJSON_CreateNumber((double)unit->shard_elements[i]));
	return json;
}

/* A shard per rank, about equally large. */
static void add_shards(struct table *table, const Tierd__Wire__UnitEntry *unit)
{
	uint64_t largest = 0;
	char text[TEXT_SIZE];

	for (size_t i = 0; i < unit->n_shard_elements; i++)
		if (unit->shard_elements[i] > largest)
			largest = unit->shard_elements[i];
	if (unit->n_shard_elements == 0)
		table_add(table, "-");
	else
		table_add(table, "%zu x %s", unit->n_shard_elements, text_count(largest, text));
}

static void add_unit_row(struct table *table, const Tierd__Wire__UnitEntry *unit)
{
	table_add(table, "%u", unit->unit);
	table_add_count(table, unit->elements);
	table_add_bytes(table, unit->bytes);
	add_shards(table, unit);
	table_add(table, "%s", unit->tiers);
	table_add(table, "%s", unit->state);
	table_add(table, "%u", unit->leases);
	table_add(table, "%" PRIu64, unit->version);
	table_add(table, unit->is_dirty ? "yes" : "no");
	table_add(table, unit->is_frozen ? "yes" : "no");
	table_add(table, "%u", unit->pack);
	table_add(table, "%s", unit->name);
}

/* Asks until all are there: a reply has as many as fit in a frame. */
static int read_units(struct ask *ask, char *job, struct table *table, cJSON *json)
{
	uint32_t first = 0, total = 1;

	while (first < total) {
		Tierd__Wire__Request request = TIERD__WIRE__REQUEST__INIT;
		Tierd__Wire__UnitsRead read = TIERD__WIRE__UNITS_READ__INIT;
		const Tierd__Wire__Reply *reply;
		int code;

		read.job = job;
		read.first = first;
		request.body_case = TIERD__WIRE__REQUEST__BODY_UNITS_READ;
		request.units_read = &read;
		code = command_ask(ask, &request, &reply);
		if (code != COMMAND_DONE)
			return code;
		if (reply->body_case != TIERD__WIRE__REPLY__BODY_UNITS)
			return command_fail(COMMAND_FAILED, "tierd answered something else than was asked");
		for (size_t i = 0; i < reply->units->n_units; i++)
			if (json)
				cJSON_AddItemToArray(json, unit_json(reply->units->units[i]));
			else
				add_unit_row(table, reply->units->units[i]);
		if (reply->units->n_units == 0)
			return COMMAND_DONE;
		total = reply->units->total;
		first += (uint32_t)reply->units->n_units;
	}
	return COMMAND_DONE;
}

int command_units(const struct command_context *context, int count, char *arguments[])
{
	static const char *const titles[] = { ">UNIT", ">ELEMENTS", ">BYTES",	">SHARDS", "TIERS",
					      "STATE", ">LEASES",   ">VERSION", "DIRTY",   "FROZEN",
					      ">PACK", "NAME",	    NULL };
	_cleanup_(ask_freep) struct ask *ask = NULL;
	_cleanup_(table_freep) struct table *table = table_new(titles);
	cJSON *json = NULL;
	int code;

	if (count != 2)
		return command_fail(COMMAND_USAGE, "units takes the name of one job; see tierctl jobs");
	if (!table)
		return command_print_table(NULL);
	code = command_connect(context, &ask);
	if (code != COMMAND_DONE)
		return code;
	if (context->is_json)
		json = cJSON_CreateArray();
	code = read_units(ask, arguments[1], table, json);
	if (code == COMMAND_DONE)
		return json ? command_print_json(json) : command_print_table(table);
	cJSON_Delete(json);
	return code;
}
