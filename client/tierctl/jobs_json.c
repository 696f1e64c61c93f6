#include "client/tierctl/jobs.h"

#include <string.h>

#include "proto/vocabulary.h"

/* ---- What is known ---- */

bool jobs_has_record(const Tierd__Wire__JobEntry *job)
{
	return !job->is_lost || job->is_record_read;
}

bool jobs_is_waited_for(const Tierd__Wire__JobEntry *job, uint32_t rank)
{
	for (size_t i = 0; i < job->n_waited_ranks; i++)
		if (job->waited_ranks[i] == rank)
			return true;
	return false;
}

/* What nobody knows is null. */
static void add_number(cJSON *json, const char *name, bool is_known, double number)
{
	if (is_known)
		cJSON_AddNumberToObject(json, name, number);
	else
		cJSON_AddNullToObject(json, name);
}

static void add_string(cJSON *json, const char *name, bool is_known, const char *text)
{
	if (is_known)
		cJSON_AddStringToObject(json, name, text);
	else
		cJSON_AddNullToObject(json, name);
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

/* ---- The job ---- */

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
		cJSON_AddBoolToObject(json, "is_waited_for", jobs_is_waited_for(job, member->rank));
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
	add_number(json, "host_budget", !job->is_lost, (double)job->host_budget);
	add_number(json, "nvme_budget", !job->is_lost, (double)job->nvme_budget);
	add_number(json, "nvme_bytes", !job->is_lost, (double)job->nvme_bytes);
	add_number(json, "own_bytes", !job->is_lost, (double)job->own_bytes);
	add_number(json, "shared_bytes", !job->is_lost, (double)job->shared_bytes);
}

static void add_durability(cJSON *json, const Tierd__Wire__JobEntry *job)
{
	char text[TEXT_SIZE];

	/* What its store has is. */
	cJSON_AddBoolToObject(json, "is_durable", job->is_durable || job->is_lost);
	add_string(json, "durability", !job->is_lost, durability(job, text));
	if (job->has_durable_step) {
		cJSON_AddNumberToObject(json, "durable_step", (double)job->durable_step);
		cJSON_AddNumberToObject(json, "durable_lag", (double)(job->step - job->durable_step));
		cJSON_AddNumberToObject(json, "durable_lag_seconds", (double)job->durable_lag_ms / 1e3);
	}
}

static void add_placements(cJSON *json, const Tierd__Wire__JobEntry *job)
{
	add_string(json, "parameter_placement", !job->is_lost, job->parameter_placement);
	add_string(json, "optimizer_placement", !job->is_lost, job->optimizer_placement);
	add_string(json, "gradient_placement", !job->is_lost, job->gradient_placement);
	cJSON_AddNumberToObject(json, "spill_bytes", (double)job->spill_bytes);
	cJSON_AddBoolToObject(json, "is_parameter_placement_auto", job->is_parameter_placement_auto);
	cJSON_AddBoolToObject(json, "is_optimizer_placement_auto", job->is_optimizer_placement_auto);
}

cJSON *jobs_json(const Tierd__Wire__JobEntry *job)
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
	if (*job->removed)
		cJSON_AddStringToObject(json, "removed", job->removed);
	if (*job->remedy)
		cJSON_AddStringToObject(json, "remedy", job->remedy);
	add_number(json, "world_size", jobs_has_record(job), job->world_size);
	add_number(json, "stage", jobs_has_record(job), job->stage);
	add_number(json, "epoch", jobs_has_record(job), job->epoch);
	add_number(json, "step", jobs_has_record(job), (double)job->step);
	add_durability(json, job);
	cJSON_AddNumberToObject(json, "damaged_blocks", job->damaged_blocks);
	cJSON_AddNumberToObject(json, "lost_snapshots", job->lost_snapshots);
	cJSON_AddItemToObject(json, "family", family_json(job->family));
	add_number(json, "units", jobs_has_record(job), (double)job->units);
	add_number(json, "parameters", jobs_has_record(job), (double)job->parameters);
	add_bytes(json, job);
	add_number(json, "io_weight", !job->is_lost, job->io_weight);
	add_number(json, "io_share", !job->is_lost, job->io_share);
	add_placements(json, job);
	add_string(json, "optimizer", jobs_has_record(job), job->optimizer);
	add_string(json, "moments", !job->is_lost, job->moments);
	add_number(json, "loss_scale", !job->is_lost, (double)job->loss_scale);
	cJSON_AddItemToObject(json, "members", members_json(job));
	cJSON_AddItemToObject(json, "waits", waits_json(job));
	cJSON_AddNumberToObject(json, "readers", job->readers);
	cJSON_AddNumberToObject(json, "reader_bytes", (double)job->reader_bytes);
	if (job->statistics)
		cJSON_AddItemToObject(json, "statistics", statistics_json(job->statistics));
	return json;
}
