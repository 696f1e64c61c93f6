#include "client/tierctl/choice.h"
#include "client/tierctl/command.h"

#include <inttypes.h>
#include <string.h>

#include "common/plural.h"
#include "common/size.h"
#include "proto/vocabulary.h"

#define LINE_SIZE 160
/* Of those that others wait for; the lines of the ranks have them all. */
#define NAMED_RANKS 3
#define WORTH_TELLING_MS 1000

/* ---- What ranks wait for ---- */

static bool is_waited_for(const Tierd__Wire__JobEntry *job, uint32_t rank)
{
	for (size_t i = 0; i < job->n_waited_ranks; i++)
		if (job->waited_ranks[i] == rank)
			return true;
	return false;
}

static cJSON *waits_json(const Tierd__Wire__JobEntry *job)
{
	cJSON *json, *ranks;

	if (job->waited_count == 0)
		return cJSON_CreateNull();
	json = cJSON_CreateObject();
	cJSON_AddStringToObject(json, "for", job->waited_for);
	cJSON_AddNumberToObject(json, "seconds", (double)job->waited_ms / 1e3);
	cJSON_AddNumberToObject(json, "rank_count", job->waited_count);
	ranks = cJSON_AddArrayToObject(json, "ranks");
	for (size_t i = 0; i < job->n_waited_ranks; i++)
		cJSON_AddItemToArray(ranks, cJSON_CreateNumber(job->waited_ranks[i]));
	return json;
}

/* ", waits for ranks 2, 3 and 4 more for 14 s"; nothing, as long as that may be because one is a little
 * faster than another. */
static const char *text_waits(const Tierd__Wire__JobEntry *job, char text[static LINE_SIZE])
{
	char duration[TEXT_SIZE], more[TEXT_SIZE] = "";
	size_t named = job->n_waited_ranks < NAMED_RANKS ? job->n_waited_ranks : NAMED_RANKS, used;

	*text = '\0';
	if (named == 0 || job->waited_ms < WORTH_TELLING_MS)
		return text;
	used = (size_t)snprintf(text, LINE_SIZE, ", waits for rank%s", PLURAL(job->waited_count));
	for (size_t i = 0; i < named; i++)
		used += (size_t)snprintf(text + used, LINE_SIZE - used, "%s %u", i ? "," : "",
					 job->waited_ranks[i]);
	if (job->waited_count > named)
		snprintf(more, sizeof(more), " and %zu more", job->waited_count - named);
	snprintf(text + used, LINE_SIZE - used, "%s for %s", more, text_duration(job->waited_ms, duration));
	return text;
}

/* ---- As JSON ---- */

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
		cJSON_AddBoolToObject(json, "is_waited_for", is_waited_for(job, member->rank));
		cJSON_AddBoolToObject(json, "is_stopped", member->is_stopped);
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

/* How often its steps become durable. */
static const char *durability(const Tierd__Wire__JobEntry *job, char text[TEXT_SIZE])
{
	if (job->durability == DURABILITY_STEP)
		return "step";
	if (job->durability == DURABILITY_NONE)
		return "none";
	snprintf(text, TEXT_SIZE, "%u", job->durability);
	return text;
}

/* Names with ", " between them. */
static cJSON *family_json(const char *names)
{
	cJSON *family = cJSON_CreateArray();
	char name[WIRE_MAX_JOB_NAME + 1];

	while (*names) {
		size_t length = strcspn(names, ",");

		snprintf(name, sizeof(name), "%.*s", (int)length, names);
		cJSON_AddItemToArray(family, cJSON_CreateString(name));
		names += length;
		names += strspn(names, ", ");
	}
	return family;
}

/* What it has, and what it may. */
static void add_bytes(cJSON *json, const Tierd__Wire__JobEntry *job)
{
	cJSON_AddNumberToObject(json, "host_bytes", (double)job->host_bytes);
	cJSON_AddNumberToObject(json, "promised_bytes", (double)(job->host_bytes - job->cache_bytes));
	cJSON_AddNumberToObject(json, "cache_bytes", (double)job->cache_bytes);
	cJSON_AddNumberToObject(json, "warm_bytes", (double)job->warm_bytes);
	cJSON_AddNumberToObject(
		json, "kept_fraction",
		job->warm_most_bytes > 0 ? (double)job->warm_bytes / (double)job->warm_most_bytes : 0);
	cJSON_AddNumberToObject(json, "host_budget", (double)job->host_budget);
	cJSON_AddNumberToObject(json, "nvme_budget", (double)job->nvme_budget);
	cJSON_AddNumberToObject(json, "nvme_bytes", (double)job->nvme_bytes);
	cJSON_AddNumberToObject(json, "own_bytes", (double)job->own_bytes);
	cJSON_AddNumberToObject(json, "shared_bytes", (double)job->shared_bytes);
}

static void add_durability(cJSON *json, const Tierd__Wire__JobEntry *job)
{
	char text[TEXT_SIZE];

	cJSON_AddBoolToObject(json, "is_durable", job->is_durable);
	cJSON_AddStringToObject(json, "durability", durability(job, text));
	if (job->has_durable_step) {
		cJSON_AddNumberToObject(json, "durable_step", (double)job->durable_step);
		cJSON_AddNumberToObject(json, "durable_lag", (double)(job->step - job->durable_step));
		cJSON_AddNumberToObject(json, "durable_lag_seconds", (double)job->durable_lag_ms / 1e3);
	}
}

static void add_placements(cJSON *json, const Tierd__Wire__JobEntry *job)
{
	cJSON_AddStringToObject(json, "parameter_placement", job->parameter_placement);
	cJSON_AddStringToObject(json, "optimizer_placement", job->optimizer_placement);
	cJSON_AddStringToObject(json, "gradient_placement", job->gradient_placement);
	cJSON_AddNumberToObject(json, "spill_bytes", (double)job->spill_bytes);
	cJSON_AddBoolToObject(json, "is_parameter_placement_auto", job->is_parameter_placement_auto);
	cJSON_AddBoolToObject(json, "is_optimizer_placement_auto", job->is_optimizer_placement_auto);
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
	add_durability(json, job);
	cJSON_AddNumberToObject(json, "damaged_blocks", job->damaged_blocks);
	cJSON_AddNumberToObject(json, "lost_snapshots", job->lost_snapshots);
	cJSON_AddItemToObject(json, "family", family_json(job->family));
	cJSON_AddNumberToObject(json, "units", (double)job->units);
	cJSON_AddNumberToObject(json, "parameters", (double)job->parameters);
	add_bytes(json, job);
	cJSON_AddNumberToObject(json, "io_weight", job->io_weight);
	add_placements(json, job);
	cJSON_AddStringToObject(json, "optimizer", job->optimizer);
	cJSON_AddStringToObject(json, "moments", job->moments);
	cJSON_AddNumberToObject(json, "loss_scale", (double)job->loss_scale);
	cJSON_AddItemToObject(json, "members", members_json(job));
	cJSON_AddItemToObject(json, "waits", waits_json(job));
	cJSON_AddNumberToObject(json, "readers", job->readers);
	cJSON_AddNumberToObject(json, "reader_bytes", (double)job->reader_bytes);
	if (job->statistics)
		cJSON_AddItemToObject(json, "statistics", statistics_json(job->statistics));
	return json;
}

/* ---- For people ---- */

static void add_user(struct table *table, uid_t uid)
{
	char name[TEXT_SIZE];

	table_add(table, "%s", command_user_name(uid, name));
}

/* It keeps what it holds, however long it is idle. */
static bool is_in_host(const Tierd__Wire__JobEntry *job)
{
	return !job->is_durable && strcmp(job->status, "broken") != 0 &&
	       (strcmp(job->parameter_placement, "nvme") != 0 ||
		strcmp(job->optimizer_placement, "nvme") != 0);
}

/* What is wrong with it, behind its status; or nothing. */
static const char *text_damage(const Tierd__Wire__JobEntry *job, char text[static 2 * TEXT_SIZE])
{
	size_t used = 0;

	*text = '\0';
	if (job->damaged_blocks > 0)
		used = (size_t)snprintf(text, TEXT_SIZE, ", %u damaged block%s", job->damaged_blocks,
					PLURAL(job->damaged_blocks));
	if (job->lost_snapshots > 0)
		snprintf(text + used, TEXT_SIZE, ", %u lost snapshot%s", job->lost_snapshots,
			 PLURAL(job->lost_snapshots));
	return text;
}

static void add_status(struct table *table, const Tierd__Wire__JobEntry *job)
{
	char idle[TEXT_SIZE], damage[2 * TEXT_SIZE], waits[LINE_SIZE];

	text_damage(job, damage);
	if (job->idle_ms > 0)
		table_add(table, "%s for %s%s%s", job->status, text_duration(job->idle_ms, idle),
			  job->is_released  ? ", on NVMe only"
			  : is_in_host(job) ? ", state in host memory"
					    : "",
			  damage);
	else
		table_add(table, "%s%s%s", job->status, text_waits(job, waits), damage);
}

/* The last step that would survive, how many would not, and since when. */
static void add_durable(struct table *table, const Tierd__Wire__JobEntry *job)
{
	char text[TEXT_SIZE];

	if (!job->is_durable)
		table_add(table, "no");
	else if (!job->has_durable_step)
		table_add(table, "not yet");
	else if (job->durable_step < job->step)
		table_add(table, "%" PRIu64 " (-%" PRIu64 ", %s)", job->durable_step,
			  job->step - job->durable_step, text_duration(job->durable_lag_ms, text));
	else
		table_add(table, "%" PRIu64, job->durable_step);
}

static void add_placement(struct table *table, const char *placement, bool is_auto)
{
	bool is_chosen = is_auto && strcmp(placement, "auto") != 0;

	table_add(table, "%s%s", placement, is_chosen ? " (auto)" : "");
}

/* fp32 moments are what everybody expects. */
static void add_optimizer(struct table *table, const Tierd__Wire__JobEntry *job)
{
	if (strstr(job->moments, "bf16") || strstr(job->moments, "int8"))
		table_add(table, "%s (%s)", job->optimizer, job->moments);
	else
		table_add(table, "%s", job->optimizer);
}

static int print_jobs(const Tierd__Wire__JobsReply *jobs)
{
	static const char *const titles[] = { "~JOB",	      "3~USER",	   "STATUS",	    ">RANKS",
					      "5>STAGE",      ">STEP",	   "1>DURABLE",	    "6>UNITS",
					      "4>PARAMETERS", "2>HOST",	   "6>OF IT CACHE", "2>NVME",
					      "8>OWN STATE",  "8>SHARED",  "9>IO WEIGHT",   "7PARAMETERS ON",
					      "5OPTIMIZER",   "7STATE ON", "7SUMS ON",	    NULL };
	_cleanup_(table_freep) struct table *table = table_new(titles);

	for (size_t i = 0; table && i < jobs->n_jobs; i++) {
		const Tierd__Wire__JobEntry *job = jobs->jobs[i];

		table_add(table, "%s", job->name);
		add_user(table, job->uid);
		add_status(table, job);
		table_add(table, "%zu/%u", job->n_members, job->world_size);
		table_add(table, "%u", job->stage);
		table_add(table, "%" PRIu64, job->step);
		add_durable(table, job);
		table_add(table, "%" PRIu64, job->units);
		table_add_count(table, job->parameters);
		table_add_bytes(table, job->host_bytes);
		table_add_bytes(table, job->cache_bytes);
		table_add_bytes(table, job->nvme_bytes);
		table_add_bytes(table, job->own_bytes);
		table_add_bytes(table, job->shared_bytes);
		table_add(table, "%u", job->io_weight);
		add_placement(table, job->parameter_placement, job->is_parameter_placement_auto);
		add_optimizer(table, job);
		add_placement(table, job->optimizer_placement, job->is_optimizer_placement_auto);
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

/* Readers have no ranks, and memory of their own. */
static const char *text_readers(const Tierd__Wire__JobEntry *job, char text[static LINE_SIZE])
{
	char bytes[TEXT_SIZE];

	*text = '\0';
	if (job->readers > 0)
		snprintf(text, LINE_SIZE, ", %u reader%s with %s", job->readers, PLURAL(job->readers),
			 text_bytes(job->reader_bytes, bytes));
	return text;
}

/* Of what the optimizer has on NVMe. */
static const char *text_kept(const Tierd__Wire__JobEntry *job, char text[static LINE_SIZE])
{
	char kept[TEXT_SIZE], most[TEXT_SIZE];

	*text = '\0';
	if (job->warm_most_bytes > 0)
		snprintf(text, LINE_SIZE, ", %.0f %% of its optimizer's state kept in memory (%s of %s)",
			 100.0 * size_fraction(job->warm_bytes, job->warm_most_bytes),
			 text_bytes(job->warm_bytes, kept), text_bytes(job->warm_most_bytes, most));
	return text;
}

static void print_head(const Tierd__Wire__JobEntry *job)
{
	char damage[2 * TEXT_SIZE], waits[LINE_SIZE], kept[LINE_SIZE], readers[LINE_SIZE];

	text_say(2, "%s: %s%s, step %" PRIu64 "%s%s%s%s%s", job->name, job->status, text_damage(job, damage),
		 job->step, text_waits(job, waits), text_kept(job, kept), text_readers(job, readers),
		 *job->reason ? ": " : "", job->reason);
	putchar('\n');
}

static void add_rank(struct table *table, const Tierd__Wire__JobEntry *job, uint32_t rank)
{
	const Tierd__Wire__Member *member = find_member(job, rank);
	const char *waits = is_waited_for(job, rank) ? "; others wait for it" : "";
	char text[TEXT_SIZE];

	table_add(table, "%u", rank);
	if (!member) {
		for (unsigned i = 0; i < 3; i++)
			table_add(table, "-");
		table_add(table, "not here%s", waits);
		return;
	}
	table_add(table, "%u", member->pid);
	table_add(table, "%" PRIu64, member->pushes);
	table_add(table, "%s ago", text_duration(member->silent_ms, text));
	table_add(table, "%s%s%s", member->activity, member->is_stopped ? ", stopped by a signal" : "",
		  waits);
}

static int print_ranks(const Tierd__Wire__JobEntry *job)
{
	static const char *const titles[] = { ">RANK",	       "1>PID",	     "1>PUSHES",
					      ">LAST REQUEST", "\"ACTIVITY", NULL };
	_cleanup_(table_freep) struct table *table = table_new(titles);

	for (uint32_t rank = 0; table && rank < job->world_size; rank++)
		add_rank(table, job, rank);
	print_head(job);
	return command_print_table(table);
}

/* Beside the table or the JSON: whoever reads only those must not take them for all. */
static void tell_missing(const Tierd__Wire__JobsReply *jobs)
{
	if (jobs->total > jobs->n_jobs)
		command_warn("%zu of %u jobs are shown; more do not fit into an answer", jobs->n_jobs,
			     jobs->total);
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

static int show_job(const struct command_context *context, const struct choice *choice,
		    const Tierd__Wire__JobsReply *jobs)
{
	const Tierd__Wire__JobEntry *job;
	int code = choice_find(choice, jobs, &job);

	if (code != COMMAND_DONE)
		return code;
	return context->is_json ? command_print_json(job_json(job)) : print_ranks(job);
}

int command_ask_jobs(struct ask *ask, const Tierd__Wire__JobsReply **ret_jobs)
{
	Tierd__Wire__Request request = TIERD__WIRE__REQUEST__INIT;
	Tierd__Wire__JobsRead read = TIERD__WIRE__JOBS_READ__INIT;
	const Tierd__Wire__Reply *reply;
	int code;

	request.body_case = TIERD__WIRE__REQUEST__BODY_JOBS_READ;
	request.jobs_read = &read;
	code = command_ask_for(ask, &request, TIERD__WIRE__REPLY__BODY_JOBS, &reply);
	if (code != COMMAND_DONE)
		return code;
	tell_missing(reply->jobs);
	*ret_jobs = reply->jobs;
	return COMMAND_DONE;
}

int command_jobs(const struct command_context *context)
{
	_cleanup_(ask_freep) struct ask *ask = NULL;
	const Tierd__Wire__JobsReply *jobs;
	struct choice choice;
	int code = choice_read(context, &choice);

	if (code == COMMAND_DONE)
		code = command_connect(context, &ask);
	if (code == COMMAND_DONE)
		code = command_ask_jobs(ask, &jobs);
	if (code != COMMAND_DONE)
		return code;
	return choice.job ? show_job(context, &choice, jobs) : show_jobs(context, jobs);
}
