/* Tensors: what a job's units are made of, and where that is. */
#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "client/tierctl/choice.h"
#include "client/tierctl/fields.h"
#include "client/tierctl/listing.h"
#include "common/cleanup.h"
#include "proto/vocabulary.h"

/* Where a unit is. */
struct place {
	char state[16], tiers[16];
};

struct tensors {
	struct listing listing;
	const char *job, *wanted; /* wanted: the unit; NULL: all */
	bool is_found;
	uint32_t first, end; /* the units that are listed */
	struct place *places;
	uint32_t count, capacity;
};

/* ---- Where the units are ---- */

static int add_place(void *context, const Tierd__Wire__UnitEntry *unit)
{
	struct tensors *tensors = context;
	struct place *place;

	if (tensors->count == tensors->capacity) {
		uint32_t capacity = tensors->capacity ? tensors->capacity * 2 : 256;
		struct place *places = realloc(tensors->places, capacity * sizeof(*places));

		if (!places)
			return command_fail_memory();
		tensors->places = places;
		tensors->capacity = capacity;
	}
	place = &tensors->places[tensors->count];
	snprintf(place->state, sizeof(place->state), "%s", unit->state);
	snprintf(place->tiers, sizeof(place->tiers), "%s", unit->tiers);
	if (tensors->wanted && strcmp(unit->name, tensors->wanted) == 0) {
		tensors->first = tensors->count;
		tensors->is_found = true;
	}
	tensors->count++;
	return COMMAND_DONE;
}

/* Finds the unit by its name, or, if no unit has that name, by its number. */
static int find_unit(struct tensors *tensors)
{
	uint64_t number;

	tensors->end = tensors->count;
	if (!tensors->wanted)
		return COMMAND_DONE;
	if (!tensors->is_found && command_read_number(tensors->wanted, UINT32_MAX, &number) &&
	    number < tensors->count) {
		tensors->first = (uint32_t)number;
		tensors->is_found = true;
	}
	if (!tensors->is_found)
		return command_fail_at(COMMAND_FAILED, -ENOENT,
				       "job %s has no unit '%s', neither by that name nor by that number; "
				       "see tierctl units %s",
				       tensors->job, tensors->wanted, tensors->job);
	tensors->end = tensors->first + 1;
	return COMMAND_DONE;
}

/* ---- A tensor ---- */

struct format {
	const char *name;
	uint64_t element_bytes;
};

static const struct format *format_of(const Tierd__Wire__Tensor *tensor)
{
	static const struct format formats[] = {
		{ "?", 0 },
		[FORMAT_FP32] = { "fp32", 4 },
		[FORMAT_BF16] = { "bf16", 2 },
		[FORMAT_FP16] = { "fp16", 2 },
		[FORMAT_BYTES] = { "bytes", 1 },
	};

	return &formats[tensor->format < ARRAY_LENGTH(formats) ? tensor->format : 0];
}

static uint64_t elements_of(const Tierd__Wire__Tensor *tensor)
{
	uint64_t elements = 1;

	for (size_t i = 0; i < tensor->n_shape; i++)
		elements *= tensor->shape[i];
	return elements;
}

/* Which rows it is of what. */
static void add_slice(struct table *table, const Tierd__Wire__Tensor *tensor)
{
	uint64_t rows = tensor->n_shape > 0 ? tensor->shape[0] : 0;

	if (*tensor->slice_of)
		table_add(table, "%" PRIu64 " to %" PRIu64 " of %" PRIu64 " of %s", tensor->slice_row,
			  tensor->slice_row + rows - (rows > 0), tensor->slice_rows, tensor->slice_of);
	else
		table_add(table, "-");
}

static void add_tensor(struct tensors *tensors, const Tierd__Wire__Tensor *tensor, const char *unit_name,
		       uint32_t unit)
{
	const struct place *place = &tensors->places[unit];
	struct table *table = tensors->listing.table;
	char shape[TEXT_SHAPE_SIZE];

	table_add(table, "%s", tensor->name);
	table_add(table, "%s", format_of(tensor)->name);
	table_add(table, "%s", text_shape(tensor->shape, tensor->n_shape, shape));
	table_add_bytes(table, elements_of(tensor) * format_of(tensor)->element_bytes);
	if (tensor->is_frozen)
		table_add(table, "frozen");
	else
		table_add(table, "%u", tensor->group);
	table_add(table, "%s", *place->tiers ? place->tiers : place->state);
	table_add(table, "%u", unit);
	table_add(table, "%s", unit_name);
	table_add(table, "%s", *tensor->alias ? tensor->alias : "-");
	add_slice(table, tensor);
}

static cJSON *tensor_json(const struct tensors *tensors, const Tierd__Wire__Tensor *tensor,
			  const char *unit_name, uint32_t unit)
{
	cJSON *json = fields_json(&tensor->base, "name ?alias");

	cJSON_AddNumberToObject(json, "unit", unit);
	cJSON_AddStringToObject(json, "unit_name", unit_name);
	cJSON_AddStringToObject(json, "format", format_of(tensor)->name);
	fields_add(json, &tensor->base, "shape");
	cJSON_AddNumberToObject(json, "elements", (double)elements_of(tensor));
	cJSON_AddNumberToObject(json, "bytes",
				(double)(elements_of(tensor) * format_of(tensor)->element_bytes));
	fields_add(json, &tensor->base, "group is_frozen");
	if (tensor->gradient_format == FORMAT_FP32)
		cJSON_AddStringToObject(json, "gradient_format", "fp32");
	if (*tensor->slice_of)
		fields_add(json, &tensor->base, "slice_of slice_row slice_rows");
	cJSON_AddStringToObject(json, "state", tensors->places[unit].state);
	cJSON_AddStringToObject(json, "tiers", tensors->places[unit].tiers);
	return json;
}

/* ---- Pages of them ---- */

/* The page may begin, and end, in the middle of a unit. */
static void take_page(struct tensors *tensors, const Tierd__Wire__ReaderUnitsReply *page,
		      Tierd__Wire__TensorsRead *read)
{
	for (size_t i = 0; i < page->n_units && read->unit < tensors->end; i++) {
		const Tierd__Wire__ReaderUnit *unit = page->units[i];

		for (size_t k = 0; k < unit->n_tensors; k++)
			if (tensors->listing.json)
				cJSON_AddItemToArray(
					tensors->listing.json,
					tensor_json(tensors, unit->tensors[k], unit->name, read->unit));
			else
				add_tensor(tensors, unit->tensors[k], unit->name, read->unit);
		read->tensor += (uint32_t)unit->n_tensors;
		if (read->tensor < unit->tensor_count)
			return;
		read->unit++;
		read->tensor = 0;
	}
}

static int ask_tensors(struct tensors *tensors, struct ask *ask, Tierd__Wire__TensorsRead *read)
{
	const Tierd__Wire__Reply *reply;

	read->unit = tensors->first;
	while (read->unit < tensors->end) {
		uint32_t unit = read->unit, tensor = read->tensor;
		int code = command_ask_for(ask, WIRE_REQUEST(TENSORS_READ, tensors_read, read),
					   TIERD__WIRE__REPLY__BODY_READER_UNITS, &reply);

		if (code != COMMAND_DONE)
			return code;
		take_page(tensors, reply->reader_units, read);
		/* It has been replaced meanwhile, by one that has fewer. */
		if (read->unit == unit && read->tensor == tensor)
			return command_fail_reply();
	}
	return COMMAND_DONE;
}

int command_tensors(const struct command_context *context)
{
	static const char *const titles[] = { "~TENSOR", "FORMAT", "SHAPE",  "1>BYTES",
					      "3GROUP",	 "2TIERS", "5>UNIT", "4~IN UNIT",
					      "6~ALIAS", "7~ROWS", NULL };
	_cleanup_(ask_freep) struct ask *ask = NULL;
	Tierd__Wire__TensorsRead read = TIERD__WIRE__TENSORS_READ__INIT;
	struct tensors tensors = { .job = context->arguments[0], .wanted = context->arguments[1] };
	int code = listing_begin(&tensors.listing, context, titles);

	if (code == COMMAND_DONE)
		code = choice_ask_owner(context, &ask, &read.job, &read.has_owner, &read.owner);
	if (code == COMMAND_DONE)
		code = listing_units(ask, read.job, read.owner, add_place, &tensors);
	if (code == COMMAND_DONE)
		code = find_unit(&tensors);
	if (code == COMMAND_DONE)
		code = ask_tensors(&tensors, ask, &read);
	free(tensors.places);
	return listing_end(&tensors.listing, code);
}
