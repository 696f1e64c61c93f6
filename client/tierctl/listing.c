#include "client/tierctl/listing.h"

int listing_begin(struct listing *listing, const struct command_context *context, const char *const *titles)
{
	*listing = (struct listing){ .table = context->is_json ? NULL : table_new(titles),
				     .json = context->is_json ? cJSON_CreateArray() : NULL };
	return listing->table || listing->json ? COMMAND_DONE : command_fail_memory();
}

int listing_ask(const struct listing *listing, struct ask *ask, const struct listing_pages *pages)
{
	uint32_t next = 0, total = 1;

	do {
		const Tierd__Wire__Reply *reply;
		int code;

		*pages->first = next;
		code = command_ask(ask, pages->request, &reply);
		if (code != COMMAND_DONE)
			return code;
		if (!pages->take(listing, reply, &next, &total) || next < *pages->first)
			return command_fail_reply();
	} while (next != *pages->first && next < total);
	return COMMAND_DONE;
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
