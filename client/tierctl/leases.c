#include "client/tierctl/choice.h"
#include "client/tierctl/listing.h"

#include <inttypes.h>

static void add_lease(struct table *table, const Tierd__Wire__JobEntry *job,
		      const Tierd__Wire__LeasedUnit *unit, const Tierd__Wire__Lease *lease)
{
	char text[TEXT_SIZE];

	table_add(table, "%s", job->name);
	table_add(table, "%s", command_user_name(job->uid, text));
	table_add(table, "%u", unit->unit);
	table_add(table, "%u", lease->rank);
	table_add(table, "%u", lease->pid);
	table_add(table, "%u", lease->count);
	table_add(table, "%s%s", text_duration(lease->joined_ms, text), lease->has_left ? ", has left" : "");
	table_add(table, "%s", unit->name);
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

static void add_leases(const struct listing *listing, const Tierd__Wire__LeasedUnit *unit)
{
	for (size_t i = 0; i < unit->n_leases; i++)
		if (listing->json)
			cJSON_AddItemToArray(listing->json, lease_json(listing->of, unit, unit->leases[i]));
		else
			add_lease(listing->table, listing->of, unit, unit->leases[i]);
}

static bool take_leases(const struct listing *listing, const Tierd__Wire__Reply *reply, uint32_t *next,
			uint32_t *ret_total)
{
	if (reply->body_case != TIERD__WIRE__REPLY__BODY_LEASES)
		return false;
	for (size_t i = 0; i < reply->leases->n_units; i++)
		add_leases(listing, reply->leases->units[i]);
	*next = reply->leases->next;
	*ret_total = reply->leases->total;
	return true;
}

/* The job is one of another connection's answer, which stays. */
static int read_job(struct ask *ask, const Tierd__Wire__JobEntry *job, struct listing *listing)
{
	Tierd__Wire__LeasesRead read = TIERD__WIRE__LEASES_READ__INIT;

	read.name = job->name;
	read.has_owner = true;
	read.owner = job->uid;
	listing->of = job;
	return listing_ask(listing, ask,
			   &(struct listing_pages){ WIRE_REQUEST(LEASES_READ, leases_read, &read),
						    &read.first, take_leases });
}

static int read_jobs(const struct command_context *context, const struct choice *choice,
		     struct listing *listing)
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
		code = choice_find(list, choice, jobs, &job);
		return code == COMMAND_DONE ? read_job(ask, job, listing) : code;
	}
	for (size_t i = 0; code == COMMAND_DONE && i < jobs->n_jobs; i++)
		code = read_job(ask, jobs->jobs[i], listing);
	return code;
}

int command_leases(const struct command_context *context)
{
	static const char *const titles[] = { "~JOB",	 "2~USER",  ">UNIT", ">RANK", "1>PID",
					      ">LEASES", "3JOINED", "~NAME", NULL };
	struct listing listing;
	struct choice choice;
	int code = choice_read(context, &choice);

	if (code != COMMAND_DONE)
		return code;
	code = listing_begin(&listing, context, titles);
	if (code == COMMAND_DONE)
		code = read_jobs(context, &choice, &listing);
	return listing_end(&listing, code);
}
