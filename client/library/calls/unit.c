#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "client/library/calls/calls.h"
#include "client/library/connection/structure.h"
#include "proto/name.h"

/* ---- Checks ---- */

static int fail_unprintable(const char *what, const char *name)
{
	char shown[TIERD_MAX_NAME + 1];

	snprintf(shown, sizeof(shown), "%s", name);
	name_make_printable(shown);
	return message_fail(-EINVAL,
			    "the name of %s, \"%s\", has a character that is not printable (a control, a "
			    "formatting character, one that is not assigned), or bytes that are not UTF-8",
			    what, shown);
}

/* An older version may have taken a name that is refused now: of a job that is resumed it is accepted, and
 * the daemon compares it. */
static int check_name(const struct tierd_job *job, const char *what, const char *name)
{
	int r = job->state.status == TIERD_RESUMED ? name_check_kept(name, TIERD_MAX_NAME)
						   : name_check(name, TIERD_MAX_NAME);

	if (r == -ENODATA)
		return message_fail(-EINVAL, "%s has no name", what);
	if (r == -ENAMETOOLONG)
		return message_fail(r, "the name of %s is longer than %d bytes: %.32s…", what, TIERD_MAX_NAME,
				    name);
	return r < 0 ? fail_unprintable(what, name) : 0;
}

static int check_shape(const struct tierd_tensor *tensor, uint64_t *ret_elements)
{
	uint64_t elements;

	if (tensor->dimensions > TIERD_MAX_DIMENSIONS)
		return message_fail(-EINVAL, "tensor \"%s\" has %u dimensions, more than %d", tensor->name,
				    tensor->dimensions, TIERD_MAX_DIMENSIONS);
	if (unit_layout_elements(tensor->shape, tensor->dimensions, &elements) < 0)
		return message_fail(-EOVERFLOW, "tensor \"%s\" has more than 2^44 elements", tensor->name);
	*ret_elements = elements;
	return 0;
}

static int check_slice(const struct tierd_job *job, const struct tierd_tensor *tensor)
{
	if (!tensor->slice_of)
		return 0;
	if (tensor->dimensions == 0)
		return message_fail(-EINVAL, "tensor \"%s\" is a slice, but a scalar has no rows",
				    tensor->name);
	if (tensor->shape[0] > tensor->slice_rows ||
	    tensor->slice_row > tensor->slice_rows - tensor->shape[0])
		return message_fail(-ERANGE,
				    "tensor \"%s\" has %lu rows from row %lu on, but \"%s\" has only %lu",
				    tensor->name, tensor->shape[0], tensor->slice_row, tensor->slice_of,
				    tensor->slice_rows);
	return check_name(job, "a larger tensor", tensor->slice_of);
}

static int check_tensor(const struct tierd_job *job, const struct tierd_tensor *tensor,
			uint64_t *ret_elements)
{
	bool is_wide;
	int r = check_name(job, "a tensor", tensor->name);

	if (r == 0 && tensor->alias)
		r = check_name(job, "a tensor's alias", tensor->alias);
	if (r == 0 && tensor->dtype)
		r = check_name(job, "a tensor's dtype", tensor->dtype);
	if (r == 0)
		r = check_shape(tensor, ret_elements);
	if (r == 0)
		r = check_slice(job, tensor);
	if (r < 0)
		return r;
	if (tensor->format < TIERD_FP32 || tensor->format > TIERD_BYTES)
		return message_fail(-EINVAL, "tensor \"%s\": %u is no number format", tensor->name,
				    tensor->format);
	if (tensor->format == TIERD_BYTES && !tensor->is_frozen)
		return message_fail(-EINVAL,
				    "tensor \"%s\" holds bytes, which cannot be trained; set is_frozen, or "
				    "choose a number format",
				    tensor->name);
	if (tensor->format == TIERD_BYTES && tensor->initializer != TIERD_INITIALIZE_NONE)
		return message_fail(-EINVAL,
				    "tensor \"%s\" holds bytes, and initializers make numbers; write it with "
				    "tierd_tensor_write",
				    tensor->name);
	if (tensor->format != TIERD_BYTES && tensor->dtype)
		return message_fail(-EINVAL,
				    "tensor \"%s\" has the dtype \"%.32s\", and its own number format; only "
				    "bytes (TIERD_BYTES) have a dtype",
				    tensor->name, tensor->dtype);
	if (!tensor->is_frozen && unit_layout_is_wide(tensor->format, tensor->gradient_format, &is_wide) < 0)
		return message_fail(
			-EINVAL,
			"tensor \"%s\": gradients of format %u; they are in the tensor's own format, or "
			"in fp32 (TIERD_FP32)",
			tensor->name, tensor->gradient_format);
	if (tensor->initializer > TIERD_INITIALIZE_UNIFORM)
		return message_fail(-EINVAL, "tensor \"%s\": %u is no initializer", tensor->name,
				    tensor->initializer);
	if (tensor->group >= job->group_count)
		return message_fail(-EINVAL, "tensor \"%s\" is of group %u, but the job has %u", tensor->name,
				    tensor->group, job->group_count);
	return 0;
}

/* ---- Layout ---- */

static int unit_new(const char *name, uint32_t tensor_count, struct unit **ret_unit)
{
	_cleanup_(unit_freep) struct unit *unit = calloc(1, sizeof(*unit));

	if (!unit)
		return message_fail_memory();
	unit->name = strdup(name);
	unit->tensors = calloc(tensor_count, sizeof(*unit->tensors));
	unit->offsets = calloc(tensor_count, sizeof(*unit->offsets));
	unit->gradient_offsets = calloc(tensor_count, sizeof(*unit->gradient_offsets));
	if (!unit->name || !unit->tensors || !unit->offsets || !unit->gradient_offsets)
		return message_fail_memory();
	unit->tensor_count = tensor_count;
	unit_layout_init(&unit->layout);
	*ret_unit = TAKE_PTR(unit);
	return 0;
}

static void encode_tensor(const struct tierd_tensor *tensor, Tierd__Wire__Tensor *ret_wire)
{
	tierd__wire__tensor__init(ret_wire);
	ret_wire->name = (char *)tensor->name;
	ret_wire->alias = (char *)(tensor->alias ? tensor->alias : "");
	ret_wire->format = tensor->format;
	ret_wire->n_shape = tensor->dimensions;
	ret_wire->group = tensor->group;
	ret_wire->is_frozen = tensor->is_frozen;
	ret_wire->initializer = tensor->initializer;
	ret_wire->a = tensor->a;
	ret_wire->b = tensor->b;
	ret_wire->slice_of = (char *)(tensor->slice_of ? tensor->slice_of : "");
	ret_wire->slice_row = tensor->slice_row;
	ret_wire->slice_rows = tensor->slice_rows;
	ret_wire->dtype = (char *)(tensor->dtype ? tensor->dtype : "");
	ret_wire->gradient_format = tensor->gradient_format;
}

/* The unit's tensors, copied to this version's size, and encoded for the request. */
struct definition {
	struct tierd_tensor *tensors;
	Tierd__Wire__Tensor *wire;
	Tierd__Wire__Tensor **pointers;
};

static void definition_free(struct definition *definition)
{
	free(definition->tensors);
	free(definition->wire);
	free(definition->pointers);
}

static int definition_init(const struct tierd_tensor *tensors, size_t count, struct definition *definition)
{
	definition->tensors = calloc(count, sizeof(*definition->tensors));
	definition->wire = calloc(count, sizeof(*definition->wire));
	definition->pointers = calloc(count, sizeof(*definition->pointers));
	if (!definition->tensors || !definition->wire || !definition->pointers)
		return message_fail_memory();
	for (size_t i = 0; i < count; i++) {
		int r = STRUCTURE_TAKE_NTH(&definition->tensors[i], tensors, i, "tensor", TIERD_TENSOR_INIT);

		if (r < 0)
			return r;
	}
	return 0;
}

static int lay_out(const struct tierd_job *job, struct definition *definition, struct unit *unit)
{
	for (uint32_t i = 0; i < unit->tensor_count; i++) {
		const struct tierd_tensor *tensor = &definition->tensors[i];
		uint64_t elements = 0;
		bool is_wide = false;
		int r = check_tensor(job, tensor, &elements);

		if (r < 0)
			return r;
		r = unit_layout_append(&unit->layout, tensor->format,
				       tensor->is_frozen ? UNIT_FROZEN : job->moments[tensor->group],
				       elements, &unit->tensors[i]);
		if (r < 0)
			return message_fail(r, "unit \"%s\" has more than 2^44 elements", unit->name);
		/* The daemon checks that all tensors of a section agree. */
		if (!tensor->is_frozen)
			unit_layout_is_wide(tensor->format, tensor->gradient_format, &is_wide);
		if (is_wide)
			unit_layout_widen(&unit->layout, unit->tensors[i].section);
		encode_tensor(tensor, &definition->wire[i]);
		definition->wire[i].shape = definition->tensors[i].shape;
		definition->pointers[i] = &definition->wire[i];
	}
	unit_layout_finish(&unit->layout);
	for (uint32_t i = 0; i < unit->tensor_count; i++)
		unit->gradient_offsets[i] = unit_layout_gradient_offset(&unit->layout, &unit->tensors[i]);
	return 0;
}

/* Zeros elements of a trainable section that belong to no tensor. */
static int clear_gap(const struct unit *unit, const struct buffer_writer *writer, char *gradients,
		     enum unit_section section, uint64_t first, uint64_t end)
{
	uint64_t bytes = unit_layout_gradient_element(&unit->layout, section);

	return buffer_fill(
		writer, gradients + unit_layout_gradient_first(&unit->layout, (int)section) + first * bytes,
		0, (end - first) * bytes);
}

int unit_clear_gradient_padding(const struct unit *unit, const struct buffer_writer *writer, char *gradients)
{
	uint64_t ends[UNIT_TRAINABLE_SECTIONS] = { 0 };
	int r = 0;

	for (uint32_t i = 0; i < unit->tensor_count && r == 0; i++) {
		const struct tensor_layout *tensor = &unit->tensors[i];

		if (!section_is_trainable(tensor->section))
			continue;
		r = clear_gap(unit, writer, gradients, tensor->section, ends[tensor->section], tensor->first);
		ends[tensor->section] = tensor->first + tensor->elements;
	}
	for (int section = 0; section < UNIT_TRAINABLE_SECTIONS && r == 0; section++)
		r = clear_gap(unit, writer, gradients, (enum unit_section)section, ends[section],
			      unit->layout.elements[section]);
	return r;
}

/* ---- Define ---- */

static int grow_units(struct tierd_job *job)
{
	uint32_t capacity = job->unit_capacity ? 2 * job->unit_capacity : 64;
	struct unit **units;

	if (job->unit_count < job->unit_capacity)
		return 0;
	units = realloc(job->units, capacity * sizeof(struct unit *));
	if (!units)
		return -ENOMEM;
	job->units = units;
	job->unit_capacity = capacity;
	return 0;
}

/* Numbers the units in the order of the replies, which is that of the daemon. Threads that wait may wake up
 * in another order. */
static void define_answer(struct tierd_ticket *ticket, const struct answer *answer)
{
	struct tierd_job *job = ticket->job;
	int r;

	if (ticket_is_refused(ticket, answer))
		return;
	if (answer->reply->unit_define->unit != job->unit_count) {
		ticket_violation(ticket, "a unit out of order");
		return;
	}
	r = grow_units(job);
	if (r < 0) {
		ticket_violation(ticket, "a unit for which this process has no memory");
		return;
	}
	ticket->define.index = job->unit_count;
	job->units[job->unit_count++] = TAKE_PTR(ticket->define.unit);
	ticket_complete(ticket, TIERD_DONE, 0, NULL);
}

static void define_dispose(struct tierd_ticket *ticket)
{
	unit_free(ticket->define.unit);
}

static const struct ticket_kind define_kind = {
	.name = "tierd_unit_define",
	.body = TIERD__WIRE__REPLY__BODY_UNIT_DEFINE,
	.answer = define_answer,
	.dispose = define_dispose,
};

static int define_locked(struct tierd_job *job, struct unit **unit, const Tierd__Wire__Request *request,
			 uint32_t *ret_unit)
{
	struct tierd_ticket *ticket = NULL;
	int r = 0;

	if (job->ready_units > 0)
		r = message_fail(-EBUSY, "job \"%s\" is ready: no unit can be defined any more", job->name);
	if (r == 0)
		r = ticket_new(job->node, job, &define_kind, &ticket);
	if (r < 0)
		return r;
	ticket->define.unit = TAKE_PTR(*unit);
	r = ticket_ask(ticket, request, connection_deadline(job->node, -1));
	if (r < 0)
		return r;
	if (ret_unit)
		*ret_unit = ticket->define.index;
	ticket_abandon(ticket);
	return 0;
}

static int define_once(struct tierd_job *job, const char *name, const struct tierd_tensor *tensors,
		       size_t tensor_count, uint32_t *ret_unit)
{
	_cleanup_(definition_free) struct definition definition = { NULL };
	_cleanup_(unit_freep) struct unit *unit = NULL;
	Tierd__Wire__UnitDefine body = TIERD__WIRE__UNIT_DEFINE__INIT;
	int r = check_name(job, "the unit", name);

	if (r < 0)
		return r;
	if (tensor_count == 0 || tensor_count > TIERD_MAX_TENSORS)
		return message_fail(-EINVAL, "unit \"%s\" has %zu tensors; a unit has 1 to %d", name,
				    tensor_count, TIERD_MAX_TENSORS);
	r = definition_init(tensors, tensor_count, &definition);
	if (r == 0)
		r = unit_new(name, (uint32_t)tensor_count, &unit);
	if (r == 0)
		r = job_enter(job, JOB_LIVE);
	if (r < 0)
		return r;
	body.job = job->number;
	body.name = (char *)name;
	body.n_tensors = tensor_count;
	body.tensors = definition.pointers;
	r = lay_out(job, &definition, unit);
	if (r == 0)
		r = reopen_remember(job->node, &body.base, &unit->definition);
	if (r == 0)
		r = define_locked(job, &unit, WIRE_REQUEST(UNIT_DEFINE, unit_define, &body), ret_unit);
	return job_finish(job, r);
}

int tierd_unit_define(struct tierd_job *job, const char *name, const struct tierd_tensor *tensors,
		      size_t tensor_count, uint32_t *ret_unit)
{
	int r = CHECK_GIVEN(job, name, tensors);

	return r < 0 ? r : JOB_REPEAT(define_once(job, name, tensors, tensor_count, ret_unit));
}
