/* Blobs: what a job's trainers keep beside its state. */
#include <inttypes.h>

#include "client/tierctl/choice.h"
#include "client/tierctl/listing.h"

static void add_row(struct table *table, const Tierd__Wire__BlobEntry *blob)
{
	if (blob->is_shared)
		table_add(table, "all");
	else
		table_add(table, "%s%u", blob->has_no_rank ? "no rank " : "", blob->rank);
	table_add_bytes(table, blob->size);
	table_add(table, "%" PRIu64, blob->step);
	table_add(table, "%s", blob->key);
}

static cJSON *blob_json(const Tierd__Wire__BlobEntry *blob)
{
	cJSON *json = cJSON_CreateObject();

	cJSON_AddStringToObject(json, "key", blob->key);
	cJSON_AddBoolToObject(json, "is_shared", blob->is_shared);
	if (!blob->is_shared)
		cJSON_AddNumberToObject(json, "rank", blob->rank);
	cJSON_AddBoolToObject(json, "has_no_rank", blob->has_no_rank);
	cJSON_AddNumberToObject(json, "bytes", (double)blob->size);
	cJSON_AddNumberToObject(json, "step", (double)blob->step);
	return json;
}

static bool take_blobs(const struct listing *listing, const Tierd__Wire__Reply *reply, uint32_t *next,
		       uint32_t *ret_total)
{
	if (reply->body_case != TIERD__WIRE__REPLY__BODY_BLOBS)
		return false;
	for (size_t i = 0; i < reply->blobs->n_blobs; i++)
		if (listing->json)
			cJSON_AddItemToArray(listing->json, blob_json(reply->blobs->blobs[i]));
		else
			add_row(listing->table, reply->blobs->blobs[i]);
	*next += (uint32_t)reply->blobs->n_blobs;
	*ret_total = reply->blobs->total;
	return true;
}

int command_blobs(const struct command_context *context)
{
	static const char *const titles[] = { ">RANK", ">SIZE", "1>STEP", "~KEY", NULL };
	_cleanup_(ask_freep) struct ask *ask = NULL;
	Tierd__Wire__BlobsRead read = TIERD__WIRE__BLOBS_READ__INIT;
	const struct listing_pages pages = { WIRE_REQUEST(BLOBS_READ, blobs_read, &read), &read.first,
					     take_blobs };
	struct listing listing;
	int code = listing_begin(&listing, context, titles);

	if (code == COMMAND_DONE)
		code = choice_ask_owner(context, &ask, &read.job, &read.has_owner, &read.owner);
	if (code == COMMAND_DONE)
		code = listing_ask(&listing, ask, &pages);
	return listing_end(&listing, code);
}
