#include <inttypes.h>
#include <string.h>

#include "client/tierctl/top.h"

/* NULL: no job used it. */
static const struct statistics_gpu *find(const struct statistics_node *before,
					 const struct statistics_gpu *gpu)
{
	for (size_t i = 0; i < before->gpu_count; i++)
		if (memcmp(before->gpus[i].uuid, gpu->uuid, sizeof(gpu->uuid)) == 0)
			return &before->gpus[i];
	return NULL;
}

double top_joules_per_step(const struct statistics_job *now, const struct statistics_job *before)
{
	uint64_t steps = top_more(now->gpu_steps, before->gpu_steps);

	return steps > 0
		       ? (double)top_more(now->gpu_millijoules, before->gpu_millijoules) / 1e3 / (double)steps
		       : 0;
}

/* ---- For people ---- */

static void add_gpu(struct table *table, const struct statistics_gpu *now,
		    const struct statistics_gpu *before, double seconds)
{
	char text[TEXT_SIZE], uuid[VIEW_UUID_SIZE];

	table_add(table, "%" PRIu32, now->number);
	table_add_bytes(table, now->held);
	table_add_known(table, now->used != STATISTICS_UNKNOWN, "%s", text_bytes(now->used, text));
	table_add_bytes(table, now->bytes);
	for (unsigned direction = 0; direction < STATISTICS_DIRECTIONS; direction++)
		top_add_rate(table, now->moved[direction], before ? before->moved[direction] : 0,
			     before ? seconds : 0);
	table_add_known(table, now->busy_percent != STATISTICS_UNKNOWN, "%" PRIu64 " %%", now->busy_percent);
	table_add_known(table, now->celsius != STATISTICS_UNKNOWN, "%" PRIu64 " °C", now->celsius);
	table_add_known(table, now->milliwatts != STATISTICS_UNKNOWN, "%.0f W",
			(double)now->milliwatts / 1e3);
	table_add(table, "%s", view_gpu_uuid(now, uuid));
}

/* Of those that jobs use. */
int top_print_gpus(const struct statistics_node *now, const struct statistics_node *before, double seconds)
{
	static const char *const titles[] = { ">GPU",	      ">HELD",	    "2>IN USE", ">MEMORY",
					      ">FROM HOST/S", ">TO HOST/S", ">BUSY",	"3>TEMPERATURE",
					      "1>POWER",      "4~UUID",	    NULL };
	_cleanup_(table_freep) struct table *table = NULL;
	int code;

	if (now->gpu_count == 0)
		return COMMAND_DONE;
	table = table_new(titles);
	for (size_t i = 0; table && i < now->gpu_count; i++)
		add_gpu(table, &now->gpus[i], find(before, &now->gpus[i]), seconds);
	code = command_print_table(table);
	putchar('\n');
	return code;
}

/* ---- For programs ---- */

static void add_sensor(cJSON *json, const char *name, uint64_t value, double unit)
{
	if (value == STATISTICS_UNKNOWN)
		cJSON_AddNullToObject(json, name);
	else
		cJSON_AddNumberToObject(json, name, (double)value / unit);
}

static cJSON *gpu_json(const struct statistics_gpu *now, const struct statistics_gpu *before, double seconds)
{
	static const struct statistics_gpu nothing;
	cJSON *json = cJSON_CreateObject();
	char uuid[VIEW_UUID_SIZE];

	if (!before) {
		before = &nothing;
		seconds = 0;
	}
	cJSON_AddNumberToObject(json, "number", now->number);
	cJSON_AddStringToObject(json, "uuid", view_gpu_uuid(now, uuid));
	cJSON_AddNumberToObject(json, "bytes", (double)now->bytes);
	cJSON_AddNumberToObject(json, "held_bytes", (double)now->held);
	top_rate_json(json, "from_host_bytes_per_second", now->moved[STATISTICS_READ],
		      before->moved[STATISTICS_READ], seconds);
	top_rate_json(json, "to_host_bytes_per_second", now->moved[STATISTICS_WRITTEN],
		      before->moved[STATISTICS_WRITTEN], seconds);
	add_sensor(json, "used_bytes", now->used, 1);
	add_sensor(json, "busy_percent", now->busy_percent, 1);
	add_sensor(json, "temperature_celsius", now->celsius, 1);
	add_sensor(json, "power_watts", now->milliwatts, 1e3);
	add_sensor(json, "energy_joules", now->millijoules, 1e3);
	return json;
}

cJSON *top_gpus_json(const struct statistics_node *now, const struct statistics_node *before, double seconds)
{
	cJSON *json = cJSON_CreateArray();

	for (size_t i = 0; i < now->gpu_count; i++)
		cJSON_AddItemToArray(json, gpu_json(&now->gpus[i], find(before, &now->gpus[i]), seconds));
	return json;
}
