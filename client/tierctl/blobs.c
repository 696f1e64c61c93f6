/* Blobs: what a job's trainers keep beside its state. */
#include <inttypes.h>

#include "client/tierctl/choice.h"
#include "client/tierctl/fields.h"
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
	cJSON *json = fields_json(&blob->base, "key is_shared");

	if (!blob->is_shared)
		fields_add(json, &blob->base, "rank");
	fields_add(json, &blob->base, "has_no_rank bytes=size step");
	return json;
}

static void add_blob(struct listing *listing, const Tierd__Wire__BlobEntry *blob)
{
	if (listing->json)
		cJSON_AddItemToArray(listing->json, blob_json(blob));
	else
		add_row(listing->table, blob);
}

static int ask_blobs(struct ask *ask, Tierd__Wire__BlobsRead *read, struct listing *listing)
{
	const Tierd__Wire__Reply *reply;
	size_t count;

	do {
		int code = command_ask_for(ask, WIRE_REQUEST(BLOBS_READ, blobs_read, read),
					   TIERD__WIRE__REPLY__BODY_BLOBS, &reply);

		if (code != COMMAND_DONE)
			return code;
		count = reply->blobs->n_blobs;
		for (size_t i = 0; i < count; i++)
			add_blob(listing, reply->blobs->blobs[i]);
		read->first += (uint32_t)count;
	} while (count > 0 && read->first < reply->blobs->total);
	return COMMAND_DONE;
}

int command_blobs(const struct command_context *context)
{
	static const char *const titles[] = { ">RANK", ">SIZE", "1>STEP", "~KEY", NULL };
	_cleanup_(ask_freep) struct ask *ask = NULL;
	Tierd__Wire__BlobsRead read = TIERD__WIRE__BLOBS_READ__INIT;
	struct listing listing;
	int code = listing_begin(&listing, context, titles);

	if (code == COMMAND_DONE)
		code = choice_ask_owner(context, &ask, &read.job, &read.has_owner, &read.owner);
	if (code == COMMAND_DONE)
		code = ask_blobs(ask, &read, &listing);
	return listing_end(&listing, code);
}
