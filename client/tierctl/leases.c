#include "client/tierctl/choice.h"
#include "client/tierctl/fields.h"
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
	if (lease->has_gpu)
		table_add(table, "GPU %u", lease->gpu);
	else
		table_add(table, "host");
	table_add(table, "%u", lease->count);
	table_add(table, "%s%s", text_duration(lease->joined_ms, text), lease->has_left ? ", has left" : "");
	table_add(table, "%s", unit->name);
}

static cJSON *lease_json(const Tierd__Wire__JobEntry *job, const Tierd__Wire__LeasedUnit *unit,
			 const Tierd__Wire__Lease *lease)
{
	cJSON *json = fields_json(&job->base, "job=name uid");

	fields_add(json, &unit->base, "unit name");
	fields_add(json, &lease->base, "rank pid count joined_ms has_left");
	fields_add_known(json, &lease->base, lease->has_gpu, "gpu");
	return json;
}

static void add_leases(struct listing *listing, const Tierd__Wire__JobEntry *job,
		       const Tierd__Wire__LeasedUnit *unit)
{
	for (size_t i = 0; i < unit->n_leases; i++)
		if (listing->json)
			cJSON_AddItemToArray(listing->json, lease_json(job, unit, unit->leases[i]));
		else
			add_lease(listing->table, job, unit, unit->leases[i]);
}

/* The job is one of another connection's answer, which stays. */
static int read_job(struct ask *ask, const Tierd__Wire__JobEntry *job, struct listing *listing)
{
	Tierd__Wire__LeasesRead read = TIERD__WIRE__LEASES_READ__INIT;
	const Tierd__Wire__Reply *reply;
	uint32_t first;

	read.name = job->name;
	read.has_owner = true;
	read.owner = job->uid;
	do {
		int code = command_ask_for(ask, WIRE_REQUEST(LEASES_READ, leases_read, &read),
					   TIERD__WIRE__REPLY__BODY_LEASES, &reply);

		if (code != COMMAND_DONE)
			return code;
		for (size_t i = 0; i < reply->leases->n_units; i++)
			add_leases(listing, job, reply->leases->units[i]);
		first = read.first;
		read.first = reply->leases->next;
	} while (read.first > first && read.first < reply->leases->total);
	return COMMAND_DONE;
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
	static const char *const titles[] = { "~JOB",	  "2~USER",  ">UNIT",	">RANK", "1>PID",
					      "4~MEMORY", ">LEASES", "3JOINED", "~NAME", NULL };
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
