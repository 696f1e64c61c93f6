#include "daemon/model/definition.h"

#include <errno.h>
#include <stdlib.h>

/* What takes the loop for a tenth of a millisecond; with names of full length a tensor packs to less than 768
 * bytes, a unit beside its tensors to less than 160, so that it fits in a frame. */
#define TENSORS_PER_REPLY 256
#define UNITS_PER_REPLY 256

struct definition {
	Tierd__Wire__ReaderUnit units[UNITS_PER_REPLY], *unit_pointers[UNITS_PER_REPLY];
	Tierd__Wire__Tensor tensors[TENSORS_PER_REPLY], *tensor_pointers[TENSORS_PER_REPLY];
	uint32_t unit_count, tensor_count;
};

void definition_fill_tensor(const struct tensor *tensor, Tierd__Wire__Tensor *wire)
{
	tierd__wire__tensor__init(wire);
	wire->name = tensor->name;
	wire->alias = tensor->alias ? tensor->alias : wire->alias;
	wire->format = tensor->format;
	wire->n_shape = tensor->dimensions;
	wire->shape = (uint64_t *)tensor->shape;
	wire->group = tensor->group;
	wire->is_frozen = tensor->is_frozen;
	wire->slice_of = tensor->slice_of ? tensor->slice_of : wire->slice_of;
	wire->slice_row = tensor->slice_row;
	wire->slice_rows = tensor->slice_rows;
	wire->dtype = tensor->dtype ? tensor->dtype : wire->dtype;
	wire->gradient_format = tensor->gradient_format;
}

/* The unit's tensors from the first on, as far as there is room. */
static void fill_unit(struct definition *definition, const struct unit *unit, uint32_t first)
{
	Tierd__Wire__ReaderUnit *wire = &definition->units[definition->unit_count];

	tierd__wire__reader_unit__init(wire);
	wire->name = unit->name;
	wire->tensor_count = unit->tensor_count;
	wire->tensors = &definition->tensor_pointers[definition->tensor_count];
	for (uint32_t i = first; i < unit->tensor_count && definition->tensor_count < TENSORS_PER_REPLY;
	     i++) {
		Tierd__Wire__Tensor *tensor = &definition->tensors[definition->tensor_count];

		definition_fill_tensor(&unit->tensors[i], tensor);
		definition->tensor_pointers[definition->tensor_count++] = tensor;
		wire->n_tensors++;
	}
	definition->unit_pointers[definition->unit_count++] = wire;
}

/* From this tensor of this unit on, as far as there is room. */
static void fill(struct definition *definition, const struct job *job, uint32_t unit, uint32_t tensor)
{
	definition->unit_count = definition->tensor_count = 0;
	for (uint32_t i = unit; i < job->catalog.unit_count && definition->unit_count < UNITS_PER_REPLY &&
				definition->tensor_count < TENSORS_PER_REPLY;
	     i++, tensor = 0)
		fill_unit(definition, &job->catalog.units[i], tensor);
}

static void report(struct pending *pending, const struct job *job, uint32_t unit, uint32_t tensor,
		   Tierd__Wire__JobOpen *options)
{
	_cleanup_free_ struct definition *definition = malloc(sizeof(*definition));
	Tierd__Wire__ReaderUnitsReply body = TIERD__WIRE__READER_UNITS_REPLY__INIT;

	if (!definition) {
		pending_error(pending, -ENOMEM, "out of memory");
		return;
	}
	fill(definition, job, unit, tensor);
	body.options = options;
	body.n_units = definition->unit_count;
	body.units = definition->unit_pointers;
	pending_reply(pending, WIRE_REPLY(READER_UNITS, reader_units, &body));
}

void definition_report(struct pending *pending, const struct job *job, uint32_t unit, uint32_t tensor)
{
	report(pending, job, unit, tensor, NULL);
}

void definition_report_all(struct pending *pending, const struct job *job, uint32_t unit, uint32_t tensor)
{
	struct options_groups groups;
	Tierd__Wire__JobOpen options;

	options_write(&job->options, &options, &groups);
	options.name = (char *)job->name;
	report(pending, job, unit, tensor, &options);
}
