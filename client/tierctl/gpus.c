#include "client/tierctl/gpus.h"

#include <inttypes.h>

#include "client/tierctl/fields.h"

/* ---- For people ---- */

/* Of copies, as long as there were any. */
static void add_bandwidth(struct table *table, uint64_t bytes, uint64_t ns)
{
	char text[TEXT_SIZE];

	table_add_known(table, ns > 0, "%s/s", ns > 0 ? text_rate(bytes, (double)ns / 1e9, text) : "");
}

static void add_gpu(struct table *table, const Tierd__Wire__Gpu *gpu)
{
	char text[TEXT_SIZE];

	table_add(table, "%u", gpu->number);
	table_add_bytes(table, gpu->held_bytes);
	table_add_known(table, gpu->has_used_bytes, "%s", text_bytes(gpu->used_bytes, text));
	table_add_bytes(table, gpu->bytes);
	table_add_bytes(table, gpu->from_host_bytes);
	add_bandwidth(table, gpu->from_host_bytes, gpu->from_host_ns);
	table_add_bytes(table, gpu->to_host_bytes);
	add_bandwidth(table, gpu->to_host_bytes, gpu->to_host_ns);
	table_add_known(table, gpu->has_busy_percent, "%" PRIu64 " %%", gpu->busy_percent);
	table_add_known(table, gpu->has_temperature_celsius, "%" PRIu64 " °C", gpu->temperature_celsius);
	table_add_known(table, gpu->has_power_milliwatts, "%.0f W", (double)gpu->power_milliwatts / 1e3);
	table_add(table, "%s at %s%s", gpu->name, gpu->bus, gpu->is_lost ? " (lost)" : "");
}

int gpus_print(const Tierd__Wire__NodeReply *node)
{
	static const char *const titles[] = { ">GPU",	     ">HELD",	       "3>IN USE",  ">MEMORY",
					      "5>FROM HOST", "1>FROM HOST AT", "5>TO HOST", "2>TO HOST AT",
					      ">BUSY",	     "4>TEMPERATURE",  "4>POWER",   "~NAME",
					      NULL };
	_cleanup_(table_freep) struct table *table = NULL;

	if (node->n_gpus == 0)
		return COMMAND_DONE;
	table = table_new(titles);
	for (size_t i = 0; table && i < node->n_gpus; i++)
		add_gpu(table, node->gpus[i]);
	putchar('\n');
	return command_print_table(table);
}

const char *gpus_text_energy(double joules, char text[TEXT_SIZE])
{
	snprintf(text, TEXT_SIZE, joules < 10 ? "%.2f" : "%.0f", joules);
	return text;
}

static double joules_per_step(const Tierd__Wire__JobEntry *job)
{
	return (double)job->gpu_energy_millijoules / 1e3 / (double)job->gpu_energy_steps;
}

uint64_t gpus_job_bytes(const Tierd__Wire__JobEntry *job)
{
	uint64_t bytes = 0;

	for (size_t i = 0; i < job->n_gpus; i++)
		bytes += job->gpus[i]->parameter_bytes + job->gpus[i]->gradient_bytes +
			 job->gpus[i]->update_bytes + job->gpus[i]->state_bytes;
	return bytes;
}

static double percent_by_gpus(const Tierd__Wire__JobEntry *job)
{
	double by_gpus = (double)job->updated_by_gpus;

	return 100 * by_gpus / (by_gpus + (double)job->updated_by_processors);
}

int gpus_print_job(const Tierd__Wire__JobEntry *job)
{
	static const char *const titles[] = { ">GPU",	">PARAMETERS", ">GRADIENTS", ">UPDATES",
					      ">STATE", "~UUID",       NULL };
	_cleanup_(table_freep) struct table *table = NULL;
	char text[TEXT_SIZE];

	if (job->n_gpus == 0)
		return COMMAND_DONE;
	if (job->gpu_energy_steps > 0)
		text_say(2, "its GPUs, with all who use them: %s J for each of its steps",
			 gpus_text_energy(joules_per_step(job), text));
	if (job->gpu_exchanged_bytes > 0)
		text_say(2, "its GPUs have got %s of packs from one another, not from host memory",
			 text_bytes(job->gpu_exchanged_bytes, text));
	if (*job->gpu_exchange_problem)
		text_say(2, "its GPUs get all packs from host memory: %s", job->gpu_exchange_problem);
	if (job->gpu_summed_bytes > 0)
		text_say(2, "its GPUs have summed %s of gradients, which were not copied for each rank",
			 text_bytes(job->gpu_summed_bytes, text));
	if (job->updated_by_gpus > 0)
		text_say(2, "of its updates they made %.0f%%", percent_by_gpus(job));
	table = table_new(titles);
	for (size_t i = 0; table && i < job->n_gpus; i++) {
		table_add(table, "%u", job->gpus[i]->number);
		table_add_bytes(table, job->gpus[i]->parameter_bytes);
		table_add_bytes(table, job->gpus[i]->gradient_bytes);
		table_add_bytes(table, job->gpus[i]->update_bytes);
		table_add_bytes(table, job->gpus[i]->state_bytes);
		table_add(table, "%s", job->gpus[i]->uuid);
	}
	return command_print_table(table);
}

/* ---- For programs ---- */

static void add_thousandths(cJSON *json, const char *key, bool is_known, uint64_t value)
{
	if (is_known)
		cJSON_AddNumberToObject(json, key, (double)value / 1e3);
	else
		cJSON_AddNullToObject(json, key);
}

static cJSON *gpu_json(const Tierd__Wire__Gpu *gpu)
{
	cJSON *json =
		fields_json(&gpu->base, "number name bus uuid is_lost bytes held_bytes from_host_bytes");

	cJSON_AddNumberToObject(json, "from_host_seconds", (double)gpu->from_host_ns / 1e9);
	fields_add(json, &gpu->base, "to_host_bytes");
	cJSON_AddNumberToObject(json, "to_host_seconds", (double)gpu->to_host_ns / 1e9);
	fields_add_known(json, &gpu->base, gpu->has_used_bytes, "used_bytes");
	fields_add_known(json, &gpu->base, gpu->has_busy_percent, "busy_percent");
	fields_add_known(json, &gpu->base, gpu->has_temperature_celsius, "temperature_celsius");
	add_thousandths(json, "power_watts", gpu->has_power_milliwatts, gpu->power_milliwatts);
	add_thousandths(json, "energy_joules", gpu->has_energy_millijoules, gpu->energy_millijoules);
	return json;
}

cJSON *gpus_json(const Tierd__Wire__NodeReply *node)
{
	cJSON *json = cJSON_CreateArray();

	for (size_t i = 0; i < node->n_gpus; i++)
		cJSON_AddItemToArray(json, gpu_json(node->gpus[i]));
	return json;
}

cJSON *gpus_job_json(const Tierd__Wire__JobEntry *job)
{
	cJSON *json = cJSON_CreateArray();

	for (size_t i = 0; i < job->n_gpus; i++)
		cJSON_AddItemToArray(
			json,
			fields_json(&job->gpus[i]->base,
				    "number uuid parameter_bytes gradient_bytes update_bytes state_bytes"));
	return json;
}
