#include "client/tierctl/listing.h"

int listing_begin(struct listing *listing, const struct command_context *context, const char *const *titles)
{
	*listing = (struct listing){ .table = context->is_json ? NULL : table_new(titles),
				     .json = context->is_json ? cJSON_CreateArray() : NULL };
	return listing->table || listing->json ? COMMAND_DONE : command_fail_memory();
}

int listing_end(struct listing *listing, int code)
{
	if (code == COMMAND_DONE && listing->json)
		return command_print_json(listing->json);
	if (code == COMMAND_DONE)
		code = command_print_table(listing->table);
	cJSON_Delete(listing->json);
	table_free(listing->table);
	return code;
}

int listing_units(struct ask *ask, char *job, uint32_t owner, listing_unit *take, void *context)
{
	Tierd__Wire__UnitsRead read = TIERD__WIRE__UNITS_READ__INIT;
	const Tierd__Wire__Reply *reply;
	size_t count;
	int code;

	read.job = job;
	read.has_owner = true;
	read.owner = owner;
	do {
		code = command_ask_for(ask, WIRE_REQUEST(UNITS_READ, units_read, &read),
				       TIERD__WIRE__REPLY__BODY_UNITS, &reply);
		count = code == COMMAND_DONE ? reply->units->n_units : 0;
		for (size_t i = 0; i < count && code == COMMAND_DONE; i++)
			code = take(context, reply->units->units[i]);
		read.first += (uint32_t)count;
	} while (code == COMMAND_DONE && count > 0 && read.first < reply->units->total);
	return code;
}
