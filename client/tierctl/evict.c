#include "client/tierctl/choice.h"
#include "client/tierctl/command.h"

#include <stdio.h>

#include "common/plural.h"

static int read_units(size_t count, char *arguments[], uint32_t *units)
{
	for (size_t i = 0; i < count; i++) {
		uint64_t number;

		if (!command_read_number(arguments[i], UINT32_MAX, &number))
			return command_fail(COMMAND_USAGE,
					    "'%s' is not the number of a unit; see tierctl units",
					    arguments[i]);
		units[i] = (uint32_t)number;
	}
	return COMMAND_DONE;
}

static int print(const struct command_context *context, const Tierd__Wire__JobEvictReply *result)
{
	char text[TEXT_SIZE];
	cJSON *json;

	if (!context->is_json) {
		if (result->units > 0)
			printf("%u unit%s left host memory, %s", result->units, PLURAL(result->units),
			       text_bytes(result->bytes, text));
		else
			printf("no unit left host memory");
		if (result->leased_units > 0)
			printf("; held, see tierctl leases: %u", result->leased_units);
		if (result->busy_units > 0)
			printf("; being moved or updated: %u", result->busy_units);
		putchar('\n');
		return COMMAND_DONE;
	}
	json = cJSON_CreateObject();
	cJSON_AddNumberToObject(json, "units", result->units);
	cJSON_AddNumberToObject(json, "bytes", (double)result->bytes);
	cJSON_AddNumberToObject(json, "leased_units", result->leased_units);
	cJSON_AddNumberToObject(json, "busy_units", result->busy_units);
	return command_print_json(json);
}

int command_evict(const struct command_context *context)
{
	size_t count = (size_t)context->count - 1;
	_cleanup_free_ uint32_t *units = calloc(count + 1, sizeof(*units));
	_cleanup_(ask_freep) struct ask *ask = NULL;
	Tierd__Wire__Request request = TIERD__WIRE__REQUEST__INIT;
	Tierd__Wire__JobEvict evict = TIERD__WIRE__JOB_EVICT__INIT;
	const Tierd__Wire__Reply *reply;
	int code = units ? read_units(count, context->arguments + 1, units) : command_fail_memory();

	if (code == COMMAND_DONE)
		code = choice_ask_owner(context, &ask, &evict.name, &evict.has_owner, &evict.owner);
	evict.units = units;
	evict.n_units = count;
	request.body_case = TIERD__WIRE__REQUEST__BODY_JOB_EVICT;
	request.job_evict = &evict;
	if (code == COMMAND_DONE)
		code = command_ask_for(ask, &request, TIERD__WIRE__REPLY__BODY_JOB_EVICT, &reply);
	return code == COMMAND_DONE ? print(context, reply->job_evict) : code;
}
