#include "client/tierctl/choice.h"
#include "client/tierctl/fields.h"
#include "client/tierctl/listing.h"

#include <inttypes.h>

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

static int add_unit(void *context, const Tierd__Wire__UnitEntry *unit)
{
	struct listing *listing = context;

	if (listing->json)
		cJSON_AddItemToArray(listing->json,
				     fields_json(&unit->base,
						 "unit name elements bytes state tiers leases version "
						 "is_dirty is_frozen pack shard_elements"));
	else
		add_unit_row(listing->table, unit);
	return COMMAND_DONE;
}

int command_units(const struct command_context *context)
{
	static const char *const titles[] = { ">UNIT",	"2>ELEMENTS", "1>BYTES",   "4>SHARDS", "TIERS",
					      "STATE",	"1>LEASES",   "1>VERSION", "3DIRTY",   "3FROZEN",
					      "4>PACK", "~NAME",      NULL };
	_cleanup_(ask_freep) struct ask *ask = NULL;
	const Tierd__Wire__JobEntry *job;
	struct listing listing;
	int code = listing_begin(&listing, context, titles);

	if (code == COMMAND_DONE)
		code = choice_ask_job(context, &ask, &job);
	if (code == COMMAND_DONE)
		code = listing_units(ask, context->arguments[0], job->uid, add_unit, &listing);
	return listing_end(&listing, code);
}
