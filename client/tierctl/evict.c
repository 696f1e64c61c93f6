#include "client/tierctl/choice.h"
#include "client/tierctl/fields.h"
#include "client/tierctl/listing.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "common/plural.h"

#define NO_UNIT UINT32_MAX

/* The units that are meant, by the arguments that say so. */
struct naming {
	char **arguments;
	uint32_t *units;
	size_t count;
	bool has_names;
};

/* A number is never taken for a name: each unit has a number. */
static void read_numbers(struct naming *naming)
{
	for (size_t i = 0; i < naming->count; i++) {
		uint64_t number;
		bool is_number = command_read_number(naming->arguments[i], NO_UNIT - 1, &number);

		naming->units[i] = is_number ? (uint32_t)number : NO_UNIT;
		naming->has_names |= !is_number;
	}
}

static int take_name(void *context, const Tierd__Wire__UnitEntry *unit)
{
	struct naming *naming = context;

	for (size_t i = 0; i < naming->count; i++)
		if (naming->units[i] == NO_UNIT && strcmp(naming->arguments[i], unit->name) == 0)
			naming->units[i] = unit->unit;
	return COMMAND_DONE;
}

static int find_names(struct naming *naming, struct ask *ask, const Tierd__Wire__JobEvict *evict)
{
	int code = listing_units(ask, evict->name, evict->owner, take_name, naming);

	for (size_t i = 0; i < naming->count && code == COMMAND_DONE; i++)
		if (naming->units[i] == NO_UNIT)
			return command_fail_at(COMMAND_FAILED, -ENOENT,
					       "job %s has no unit %s; see tierctl units %s", evict->name,
					       naming->arguments[i], evict->name);
	return code;
}

static int print(const struct command_context *context, const Tierd__Wire__JobEvictReply *result)
{
	char text[TEXT_SIZE];

	if (context->is_json)
		return command_print_json(fields_json(&result->base, "units bytes leased_units busy_units"));
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

int command_evict(const struct command_context *context)
{
	size_t count = (size_t)context->count - 1;
	_cleanup_free_ uint32_t *units = calloc(count + 1, sizeof(*units));
	struct naming naming = { .arguments = context->arguments + 1, .units = units, .count = count };
	_cleanup_(ask_freep) struct ask *ask = NULL;
	Tierd__Wire__JobEvict evict = TIERD__WIRE__JOB_EVICT__INIT;
	const Tierd__Wire__Reply *reply;
	int code;

	if (!units)
		return command_fail_memory();
	read_numbers(&naming);
	code = choice_ask_owner(context, &ask, &evict.name, &evict.has_owner, &evict.owner);
	if (code == COMMAND_DONE && naming.has_names)
		code = find_names(&naming, ask, &evict);
	evict.units = units;
	evict.n_units = count;
	if (code == COMMAND_DONE)
		code = command_ask_for(ask, WIRE_REQUEST(JOB_EVICT, job_evict, &evict),
				       TIERD__WIRE__REPLY__BODY_JOB_EVICT, &reply);
	return code == COMMAND_DONE ? print(context, reply->job_evict) : code;
}
