/* The units of a job, as its ranks have defined them. */
#include <errno.h>
#include <string.h>

#include "client/library/calls/calls.h"
#include "client/library/calls/reader.h"
#include "client/library/connection/structure.h"

/* ---- Learning ---- */

static void tensor_clear(struct tierd_tensor *tensor)
{
	free((char *)tensor->name);
	free((char *)tensor->alias);
	free((char *)tensor->slice_of);
	free((char *)tensor->dtype);
}

static void unit_clear(struct reader_unit *unit)
{
	for (uint32_t i = 0; i < unit->known_tensors; i++)
		tensor_clear(&unit->tensors[i]);
	free(unit->tensors);
	free(unit->name);
}

void reader_forget(struct tierd_reader *reader)
{
	for (uint32_t i = 0; reader->units && i < reader->unit_count; i++)
		unit_clear(&reader->units[i]);
	free(reader->units);
	reader->units = NULL;
}

/* An empty text becomes NULL. False: out of memory. */
static bool copy_text(const char *wire, const char **ret_text)
{
	*ret_text = *wire ? strdup(wire) : NULL;
	return !*wire || *ret_text;
}

static int take_tensor(const Tierd__Wire__Tensor *wire, struct tierd_tensor *tensor)
{
	bool is_complete;

	if (wire->n_shape > TIERD_MAX_DIMENSIONS)
		return -EPROTO;
	*tensor = (struct tierd_tensor)TIERD_TENSOR_INIT;
	is_complete = copy_text(wire->name, &tensor->name);
	is_complete &= copy_text(wire->alias, &tensor->alias);
	is_complete &= copy_text(wire->slice_of, &tensor->slice_of);
	is_complete &= copy_text(wire->dtype, &tensor->dtype);
	tensor->gradient_format = wire->gradient_format;
	tensor->format = wire->format;
	tensor->dimensions = (uint32_t)wire->n_shape;
	for (size_t i = 0; i < wire->n_shape; i++)
		tensor->shape[i] = wire->shape[i];
	tensor->group = wire->group;
	tensor->is_frozen = wire->is_frozen;
	tensor->slice_row = wire->slice_row;
	tensor->slice_rows = wire->slice_rows;
	return is_complete ? 0 : -ENOMEM;
}

static int begin_unit(const Tierd__Wire__ReaderUnit *wire, struct reader_unit *unit)
{
	if (wire->tensor_count == 0 || wire->tensor_count > TIERD_MAX_TENSORS)
		return -EPROTO;
	unit->name = strdup(wire->name);
	unit->tensors = calloc(wire->tensor_count, sizeof(*unit->tensors));
	unit->tensor_count = wire->tensor_count;
	return unit->name && unit->tensors ? 0 : -ENOMEM;
}

static int take_unit(const Tierd__Wire__ReaderUnit *wire, struct reader_unit *unit)
{
	int r = unit->name ? 0 : begin_unit(wire, unit);

	if (r == 0 && wire->n_tensors > unit->tensor_count - unit->known_tensors)
		r = -EPROTO;
	for (size_t i = 0; r == 0 && i < wire->n_tensors; i++)
		r = take_tensor(wire->tensors[i], &unit->tensors[unit->known_tensors++]);
	return r;
}

/* The unit with which the next reply begins. */
static uint32_t first_incomplete(const struct tierd_reader *reader)
{
	uint32_t unit = 0;

	while (unit < reader->unit_count && reader->units[unit].name &&
	       reader->units[unit].known_tensors == reader->units[unit].tensor_count)
		unit++;
	return unit;
}

static void units_answer(struct tierd_ticket *ticket, const struct answer *answer)
{
	const Tierd__Wire__ReaderUnitsReply *reply = answer->reply->reader_units;
	struct tierd_reader *reader = ticket->reader;
	int r = answer->status;

	if (r == 0 && reply->n_units == 0) {
		ticket_violation(ticket, "another reply");
		return;
	}
	uint32_t first = r == 0 && !ticket->is_orphan ? first_incomplete(reader) : 0;

	for (size_t i = 0; r == 0 && !ticket->is_orphan && i < reply->n_units; i++)
		r = first + i < reader->unit_count ? take_unit(reply->units[i], &reader->units[first + i])
						   : -EPROTO;
	if (r == -EPROTO && answer->status == 0)
		ticket_violation(ticket, "units that cannot be");
	else
		ticket_complete(ticket, TIERD_DONE, r, answer->status < 0 ? answer->text : NULL);
}

static const struct ticket_kind units_kind = {
	.name = "tierd_reader_open",
	.body = TIERD__WIRE__REPLY__BODY_READER_UNITS,
	.answer = units_answer,
	.is_jobless = true,
};

int reader_learn(struct tierd_reader *reader, uint64_t deadline)
{
	Tierd__Wire__ReaderUnits units = TIERD__WIRE__READER_UNITS__INIT;
	int r = 0;

	reader->units = calloc(reader->unit_count + 1, sizeof(*reader->units));
	if (!reader->units)
		return message_fail_memory();
	units.reader = reader->number;
	for (units.unit = 0; r == 0 && units.unit < reader->unit_count;
	     units.unit = first_incomplete(reader)) {
		units.tensor = reader->units[units.unit].known_tensors;
		r = reader_call(reader, &units_kind, WIRE_REQUEST(READER_UNITS, reader_units, &units),
				deadline);
	}
	return r;
}

/* ---- Telling ---- */

static int check_unit(const struct tierd_reader *reader, uint32_t unit)
{
	if (unit < reader->unit_count)
		return 0;
	return message_fail(-EINVAL, "job \"%s\" has no unit %u: it has %u", reader->name, unit,
			    reader->unit_count);
}

static int check_tensor(const struct tierd_reader *reader, uint32_t unit, uint32_t tensor)
{
	int r = check_unit(reader, unit);

	if (r == 0 && tensor >= reader->units[unit].tensor_count)
		return message_fail(-EINVAL, "unit \"%s\" has no tensor %u: it has %u",
				    reader->units[unit].name, tensor, reader->units[unit].tensor_count);
	return r;
}

int reader_check_range(const struct tierd_reader *reader, uint32_t unit, uint32_t tensor, uint64_t first,
		       uint64_t count)
{
	const struct tierd_tensor *shape;
	uint64_t elements = 0;
	int r = check_tensor(reader, unit, tensor);

	if (r < 0)
		return r;
	shape = &reader->units[unit].tensors[tensor];
	r = unit_layout_elements(shape->shape, shape->dimensions, &elements);
	if (r == 0 && first <= elements && count <= elements - first)
		return 0;
	return message_fail(-EINVAL, "elements %lu to %lu are not within tensor \"%s\", which has %lu", first,
			    first + count, shape->name, elements);
}

uint64_t reader_element_bytes(const struct tierd_tensor *tensor, const char *state)
{
	if (strcmp(state, "parameter") != 0 || tensor->format == TIERD_FP32)
		return 4;
	return tensor->format == TIERD_BYTES ? 1 : 2;
}

/* The units never change: the calls below need no lock. */

int tierd_reader_unit(struct tierd_reader *reader, uint32_t unit, const char **ret_name,
		      uint32_t *ret_tensor_count)
{
	int r = CHECK_GIVEN(reader, ret_name, ret_tensor_count);

	if (r == 0)
		r = check_unit(reader, unit);
	if (r < 0)
		return r;
	*ret_name = reader->units[unit].name;
	*ret_tensor_count = reader->units[unit].tensor_count;
	return 0;
}

int tierd_reader_tensor(struct tierd_reader *reader, uint32_t unit, uint32_t tensor,
			struct tierd_tensor *ret_tensor)
{
	int r = CHECK_GIVEN(reader, ret_tensor);

	if (r == 0)
		r = check_tensor(reader, unit, tensor);
	return r < 0 ? r
		     : STRUCTURE_GIVE(ret_tensor, &reader->units[unit].tensors[tensor], "the tensor has",
				      TIERD_TENSOR_INIT);
}

static bool is_named(const struct tierd_tensor *tensor, const char *name)
{
	return strcmp(tensor->name, name) == 0 || (tensor->alias && strcmp(tensor->alias, name) == 0);
}

int tierd_reader_find(struct tierd_reader *reader, const char *name, uint32_t *ret_unit, uint32_t *ret_tensor)
{
	int r = CHECK_GIVEN(reader, name, ret_unit, ret_tensor);

	if (r < 0)
		return r;
	for (uint32_t unit = 0; unit < reader->unit_count; unit++)
		for (uint32_t i = 0; i < reader->units[unit].tensor_count; i++)
			if (is_named(&reader->units[unit].tensors[i], name)) {
				*ret_unit = unit;
				*ret_tensor = i;
				return 0;
			}
	return message_fail(-ENOENT, "job \"%s\" has no tensor \"%.128s\"", reader->name, name);
}
