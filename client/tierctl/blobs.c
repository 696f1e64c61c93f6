/* Blobs: what a job's trainers keep beside its state. */
#include <inttypes.h>

#include "client/tierctl/choice.h"
#include "client/tierctl/command.h"

struct output {
	struct table *table;
	cJSON *json; /* NULL: the table */
};

static void add_row(struct table *table, const Tierd__Wire__BlobEntry *blob)
{
	if (blob->is_shared)
		table_add(table, "all");
	else
		table_add(table, "%u", blob->rank);
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
	cJSON_AddNumberToObject(json, "bytes", (double)blob->size);
	cJSON_AddNumberToObject(json, "step", (double)blob->step);
	return json;
}

static bool take_blobs(const struct command_pages *pages, const Tierd__Wire__Reply *reply, uint32_t *ret_next,
		       uint32_t *ret_total)
{
	const struct output *output = pages->argument;

	if (reply->body_case != TIERD__WIRE__REPLY__BODY_BLOBS)
		return false;
	for (size_t i = 0; i < reply->blobs->n_blobs; i++)
		if (output->json)
			cJSON_AddItemToArray(output->json, blob_json(reply->blobs->blobs[i]));
		else
			add_row(output->table, reply->blobs->blobs[i]);
	*ret_next = *pages->first + (uint32_t)reply->blobs->n_blobs;
	*ret_total = reply->blobs->total;
	return true;
}

static int read_blobs(struct ask *ask, char *job, uid_t owner, const struct output *output)
{
	Tierd__Wire__Request request = TIERD__WIRE__REQUEST__INIT;
	Tierd__Wire__BlobsRead read = TIERD__WIRE__BLOBS_READ__INIT;

	read.job = job;
	read.has_owner = true;
	read.owner = owner;
	request.body_case = TIERD__WIRE__REQUEST__BODY_BLOBS_READ;
	request.blobs_read = &read;
	return command_ask_pages(ask, &(struct command_pages){ &request, &read.first, take_blobs, output });
}

int command_blobs(const struct command_context *context)
{
	static const char *const titles[] = { ">RANK", ">SIZE", ">STEP", "KEY", NULL };
	_cleanup_(ask_freep) struct ask *ask = NULL;
	_cleanup_(table_freep) struct table *table = table_new(titles);
	struct output output = { .table = table };
	struct choice choice;
	uid_t owner = 0;
	int code = choice_read(context, &choice);

	if (code == COMMAND_DONE && !table)
		return command_print_table(NULL);
	if (code == COMMAND_DONE)
		code = command_connect(context, &ask);
	if (code == COMMAND_DONE)
		code = choice_find_owner(ask, &choice, &owner);
	if (code != COMMAND_DONE)
		return code;
	output.json = context->is_json ? cJSON_CreateArray() : NULL;
	code = read_blobs(ask, context->arguments[0], owner, &output);
	if (code == COMMAND_DONE)
		return output.json ? command_print_json(output.json) : command_print_table(table);
	cJSON_Delete(output.json);
	return code;
}
