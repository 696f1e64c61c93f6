#include "client/tierctl/choice.h"
#include "client/tierctl/command.h"

#include <inttypes.h>

struct output {
	struct table *table;
	cJSON *json;			  /* NULL: the table */
	const Tierd__Wire__JobEntry *job; /* of which it is */
};

static void add_lease(const struct output *output, const Tierd__Wire__JobEntry *job,
		      const Tierd__Wire__LeasedUnit *unit, const Tierd__Wire__Lease *lease)
{
	char text[TEXT_SIZE];

	table_add(output->table, "%s", job->name);
	table_add(output->table, "%s", command_user_name(job->uid, text));
	table_add(output->table, "%u", unit->unit);
	table_add(output->table, "%u", lease->rank);
	table_add(output->table, "%u", lease->pid);
	table_add(output->table, "%u", lease->count);
	table_add(output->table, "%s%s", text_duration(lease->joined_ms, text),
		  lease->has_left ? ", has left" : "");
	table_add(output->table, "%s", unit->name);
}

static cJSON *lease_json(const Tierd__Wire__JobEntry *job, const Tierd__Wire__LeasedUnit *unit,
			 const Tierd__Wire__Lease *lease)
{
	cJSON *json = cJSON_CreateObject();

	cJSON_AddStringToObject(json, "job", job->name);
	cJSON_AddNumberToObject(json, "uid", job->uid);
	cJSON_AddNumberToObject(json, "unit", unit->unit);
	cJSON_AddStringToObject(json, "name", unit->name);
	cJSON_AddNumberToObject(json, "rank", lease->rank);
	cJSON_AddNumberToObject(json, "pid", lease->pid);
	cJSON_AddNumberToObject(json, "count", lease->count);
	cJSON_AddNumberToObject(json, "joined_ms", (double)lease->joined_ms);
	cJSON_AddBoolToObject(json, "has_left", lease->has_left);
	return json;
}

static void add_leases(const struct output *output, const Tierd__Wire__LeasedUnit *unit)
{
	for (size_t i = 0; i < unit->n_leases; i++)
		if (output->json)
			cJSON_AddItemToArray(output->json, lease_json(output->job, unit, unit->leases[i]));
		else
			add_lease(output, output->job, unit, unit->leases[i]);
}

static bool take_leases(const struct command_pages *pages, const Tierd__Wire__Reply *reply,
			uint32_t *ret_next, uint32_t *ret_total)
{
	if (reply->body_case != TIERD__WIRE__REPLY__BODY_LEASES)
		return false;
	for (size_t i = 0; i < reply->leases->n_units; i++)
		add_leases(pages->argument, reply->leases->units[i]);
	*ret_next = reply->leases->next;
	*ret_total = reply->leases->total;
	return true;
}

/* The job is one of another connection's answer, which stays. */
static int read_job(struct ask *ask, const Tierd__Wire__JobEntry *job, struct output *output)
{
	Tierd__Wire__Request request = TIERD__WIRE__REQUEST__INIT;
	Tierd__Wire__LeasesRead read = TIERD__WIRE__LEASES_READ__INIT;

	read.name = job->name;
	read.has_owner = true;
	read.owner = job->uid;
	request.body_case = TIERD__WIRE__REQUEST__BODY_LEASES_READ;
	request.leases_read = &read;
	output->job = job;
	return command_ask_pages(ask, &(struct command_pages){ &request, &read.first, take_leases, output });
}

static int read_jobs(const struct command_context *context, const struct choice *choice,
		     struct output *output)
{
	_cleanup_(ask_freep) struct ask *list = NULL, *ask = NULL;
	const Tierd__Wire__JobEntry *job;
	const Tierd__Wire__JobsReply *jobs;
	int code = command_connect(context, &list);

	if (code == COMMAND_DONE)
		code = command_ask_jobs(list, &jobs);
	if (code == COMMAND_DONE)
		code = command_connect(context, &ask);
	if (code == COMMAND_DONE && choice->job) {
		code = choice_find(choice, jobs, &job);
		return code == COMMAND_DONE ? read_job(ask, job, output) : code;
	}
	for (size_t i = 0; code == COMMAND_DONE && i < jobs->n_jobs; i++)
		code = read_job(ask, jobs->jobs[i], output);
	return code;
}

int command_leases(const struct command_context *context)
{
	static const char *const titles[] = { "JOB",	 "USER",   ">UNIT", ">RANK", ">PID",
					      ">LEASES", "JOINED", "NAME",  NULL };
	_cleanup_(table_freep) struct table *table = table_new(titles);
	struct output output = { .table = table };
	struct choice choice;
	int code = choice_read(context, &choice);

	if (code != COMMAND_DONE)
		return code;
	if (!table)
		return command_print_table(NULL);
	output.json = context->is_json ? cJSON_CreateArray() : NULL;
	code = read_jobs(context, &choice, &output);
	if (code == COMMAND_DONE)
		return output.json ? command_print_json(output.json) : command_print_table(table);
	cJSON_Delete(output.json);
	return code;
}
