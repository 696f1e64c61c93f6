#include "client/tierctl/choice.h"
#include "client/tierctl/listing.h"

#include <inttypes.h>

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

static bool take_units(const struct listing *listing, const Tierd__Wire__Reply *reply, uint32_t *next,
		       uint32_t *ret_total)
{
	if (reply->body_case != TIERD__WIRE__REPLY__BODY_UNITS)
		return false;
	for (size_t i = 0; i < reply->units->n_units; i++)
		if (listing->json)
			cJSON_AddItemToArray(listing->json, unit_json(reply->units->units[i]));
		else
			add_unit_row(listing->table, reply->units->units[i]);
	*next += (uint32_t)reply->units->n_units;
	*ret_total = reply->units->total;
	return true;
}

int command_units(const struct command_context *context)
{
	static const char *const titles[] = { ">UNIT",	"2>ELEMENTS", "1>BYTES",   "4>SHARDS", "TIERS",
					      "STATE",	"1>LEASES",   "1>VERSION", "3DIRTY",   "3FROZEN",
					      "4>PACK", "~NAME",      NULL };
	_cleanup_(ask_freep) struct ask *ask = NULL;
	Tierd__Wire__UnitsRead read = TIERD__WIRE__UNITS_READ__INIT;
	const struct listing_pages pages = { WIRE_REQUEST(UNITS_READ, units_read, &read), &read.first,
					     take_units };
	struct listing listing;
	int code = listing_begin(&listing, context, titles);

	if (code == COMMAND_DONE)
		code = choice_ask_owner(context, &ask, &read.job, &read.has_owner, &read.owner);
	if (code == COMMAND_DONE)
		code = listing_ask(&listing, ask, &pages);
	return listing_end(&listing, code);
}
