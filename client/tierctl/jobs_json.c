#include "client/tierctl/jobs.h"

#include <string.h>

#include "client/tierctl/fields.h"
#include "client/tierctl/gpus.h"
#include "common/size.h"
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

static cJSON *waits_json(const Tierd__Wire__JobEntry *job)
{
	cJSON *json;

	if (job->waited_count == 0)
		return cJSON_CreateNull();
	json = fields_json(&job->base, "for=waited_for");
	cJSON_AddNumberToObject(json, "seconds", (double)job->waited_ms / 1e3);
	fields_add(json, &job->base, "rank_count=waited_count ranks=waited_ranks");
	return json;
}

/* ---- The job ---- */

static cJSON *members_json(const Tierd__Wire__JobEntry *job)
{
	cJSON *members = cJSON_CreateArray();

	for (size_t i = 0; i < job->n_members; i++) {
		const Tierd__Wire__Member *member = job->members[i];
		cJSON *json = fields_json(&member->base, "rank pid activity silent_ms pushes");

		cJSON_AddBoolToObject(json, "is_waited_for", jobs_is_waited_for(job, member->rank));
		fields_add(json, &member->base, "is_stopped");
		cJSON_AddItemToArray(members, json);
	}
	return members;
}

static cJSON *statistics_json(const Tierd__Wire__StatisticsReply *statistics)
{
	const ProtobufCMessageDescriptor *descriptor = statistics->base.descriptor;
	cJSON *json = cJSON_CreateObject();

	for (unsigned i = 0; i < descriptor->n_fields; i++) {
		const ProtobufCFieldDescriptor *field = &descriptor->fields[i];

		if (field->type == PROTOBUF_C_TYPE_UINT64 && field->label != PROTOBUF_C_LABEL_REPEATED)
			fields_add(json, &statistics->base, field->name);
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

static void add_durability(cJSON *json, const Tierd__Wire__JobEntry *job)
{
	char text[TEXT_SIZE];

	/* The state of a lost job is in its store. */
	cJSON_AddBoolToObject(json, "is_durable", job->is_durable || job->is_lost);
	if (job->is_lost)
		cJSON_AddNullToObject(json, "durability");
	else
		cJSON_AddStringToObject(json, "durability", durability(job, text));
	if (job->has_durable_step) {
		cJSON_AddNumberToObject(json, "durable_step", (double)job->durable_step);
		cJSON_AddNumberToObject(json, "durable_lag", (double)(job->step - job->durable_step));
		cJSON_AddNumberToObject(json, "durable_lag_seconds", (double)job->durable_lag_ms / 1e3);
	}
}

cJSON *jobs_json(const Tierd__Wire__JobEntry *job)
{
	cJSON *json = fields_json(&job->base, "name uid status idle_ms sharing share_group is_released "
					      "?reason ?removed ?remedy");
	bool has_record = jobs_has_record(job);

	fields_add_known(json, &job->base, has_record, "world_size stage epoch step");
	add_durability(json, job);
	fields_add(json, &job->base, "damaged_blocks lost_snapshots");
	cJSON_AddItemToObject(json, "family", family_json(job->family));
	fields_add_known(json, &job->base, has_record, "units parameters");
	fields_add(json, &job->base, "host_bytes");
	cJSON_AddNumberToObject(json, "promised_bytes", (double)(job->host_bytes - job->cache_bytes));
	fields_add(json, &job->base, "cache_bytes warm_bytes");
	cJSON_AddNumberToObject(json, "kept_fraction", size_fraction(job->warm_bytes, job->warm_most_bytes));
	fields_add_known(json, &job->base, !job->is_lost,
			 "host_budget nvme_budget nvme_bytes own_bytes shared_bytes io_weight io_share "
			 "parameter_placement optimizer_placement gradient_placement");
	fields_add(json, &job->base, "spill_bytes is_parameter_placement_auto is_optimizer_placement_auto");
	fields_add_known(json, &job->base, has_record, "optimizer");
	fields_add_known(json, &job->base, !job->is_lost, "moments loss_scale");
	cJSON_AddItemToObject(json, "members", members_json(job));
	cJSON_AddItemToObject(json, "waits", waits_json(job));
	fields_add(json, &job->base, "readers reader_bytes");
	cJSON_AddItemToObject(json, "gpus", gpus_job_json(job));
	cJSON_AddNumberToObject(json, "gpu_energy_joules", (double)job->gpu_energy_millijoules / 1e3);
	fields_add(json, &job->base,
		   "gpu_energy_steps gpu_exchanged_bytes gpu_exchange_problem "
		   "gpu_summed_bytes updated_by_gpus updated_by_processors update_to_gpu_bytes "
		   "update_from_gpu_bytes update_spared_bytes");
	if (job->statistics)
		cJSON_AddItemToObject(json, "statistics", statistics_json(job->statistics));
	return json;
}
