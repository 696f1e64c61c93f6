#include "client/tierctl/export_list.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "client/safetensors/list.h"
#include "common/size.h"

/* As many as a refresh takes. */
#define MAX_PIECES 10000

/* The states of tierd's optimizers, with PyTorch's names, which other programs look for. */
static const struct {
	const char *state, *suffix;
} slots[] = { { "m", "exp_avg" }, { "v", "exp_avg_sq" }, { "momentum", "momentum_buffer" } };

#define SLOTS ARRAY_LENGTH(slots)

struct listing {
	struct export_list *list;
	struct tierd_reader *reader;
	const struct export_options *options;
	bool has_looked, has_slot[SLOTS];
};

void export_list_clear(struct export_list *list)
{
	for (size_t i = 0; i < list->slice_count; i++)
		free(list->slices[i].name);
	free(list->slices);
	free(list->tensors);
	*list = (struct export_list){ NULL };
}

/* ---- Slices ---- */

static enum safetensors_dtype dtype_of(uint32_t format)
{
	switch (format) {
	case TIERD_FP32:
		return SAFETENSORS_F32;
	case TIERD_BF16:
		return SAFETENSORS_BF16;
	case TIERD_FP16:
		return SAFETENSORS_F16;
	default:
		return SAFETENSORS_U8;
	}
}

/* Masters and optimizers' states are fp32 already; parameters may have to be widened. */
static void set_state(struct export_slice *slice, const char *state, bool is_fp32)
{
	bool is_parameter = strcmp(state, "parameter") == 0;

	slice->state = state;
	slice->dtype = is_parameter ? dtype_of(slice->tensor.format) : SAFETENSORS_F32;
	if (is_parameter && is_fp32 && slice->tensor.format != TIERD_BYTES) {
		slice->is_widened = slice->dtype != SAFETENSORS_F32;
		slice->dtype = SAFETENSORS_F32;
	}
}

static int add_slice(struct listing *listing, const struct export_slice *from, const char *state,
		     const char *suffix)
{
	struct export_list *list = listing->list;
	const char *whole = from->tensor.slice_of ? from->tensor.slice_of : from->tensor.name;
	struct export_slice *slices = safetensors_list_grow(list->slices, list->slice_count,
							    &list->slice_capacity, sizeof(*slices)),
			    *slice;

	if (!slices)
		return command_fail_memory();
	list->slices = slices;
	slice = &slices[list->slice_count];
	*slice = *from;
	slice->order = list->slice_count;
	set_state(slice, state, listing->options->is_fp32);
	if (asprintf(&slice->name, "%s%s%s", whole, suffix ? "." : "", suffix ? suffix : "") < 0)
		return command_fail_memory();
	list->slice_count++;
	return COMMAND_DONE;
}

static int add_tensor(struct listing *listing, uint32_t unit, uint32_t index)
{
	struct export_slice slice = { .tensor = TIERD_TENSOR_INIT, .unit = unit, .index = index };
	int code, r = tierd_reader_tensor(listing->reader, unit, index, &slice.tensor);

	if (r < 0)
		return source_fail(r);
	slice.elements = source_elements(&slice.tensor);
	code = add_slice(listing, &slice,
			 listing->options->is_fp32 && !slice.tensor.is_frozen ? "master" : "parameter", NULL);
	for (size_t i = 0; i < SLOTS && code == COMMAND_DONE; i++)
		if (listing->has_slot[i] && !slice.tensor.is_frozen)
			code = add_slice(listing, &slice, slots[i].state, slots[i].suffix);
	return code;
}

typedef int visitor(struct listing *listing, uint32_t unit, uint32_t index);

static int visit_all(struct listing *listing, visitor *visit)
{
	struct tierd_reader_state state = TIERD_READER_STATE_INIT;
	int r = tierd_reader_state(listing->reader, &state);
	int code = r < 0 ? source_fail(r) : COMMAND_DONE;

	for (uint32_t unit = 0; unit < state.unit_count && code == COMMAND_DONE; unit++) {
		const char *name;
		uint32_t count;

		r = tierd_reader_unit(listing->reader, unit, &name, &count);
		if (r < 0)
			return source_fail(r);
		for (uint32_t i = 0; i < count && code == COMMAND_DONE; i++)
			code = visit(listing, unit, i);
	}
	return code;
}

/* Asks for an element of each slot, of the first tensor that would have it; what has changed already is
 * there. */
static int look_for_slots(struct listing *listing, uint32_t unit, uint32_t index)
{
	struct tierd_tensor tensor = TIERD_TENSOR_INIT;
	float value;
	int r = tierd_reader_tensor(listing->reader, unit, index, &tensor);

	if (r < 0)
		return source_fail(r);
	if (listing->has_looked || tensor.is_frozen || source_elements(&tensor) == 0)
		return COMMAND_DONE;
	listing->has_looked = true;
	for (size_t i = 0; i < SLOTS; i++) {
		r = tierd_reader_read(listing->reader, unit, index, slots[i].state, 0, 1, &value);

		if (r < 0 && r != -ENODATA && r != -ESTALE)
			return source_fail(r);
		listing->has_slot[i] = r != -ENODATA;
	}
	return COMMAND_DONE;
}

/* ---- Tensors ---- */

static int compare_slices(const void *a, const void *b)
{
	const struct export_slice *one = a, *other = b;
	int names = strcmp(one->name, other->name);

	if (names)
		return names;
	if (one->tensor.slice_row != other->tensor.slice_row)
		return one->tensor.slice_row < other->tensor.slice_row ? -1 : 1;
	return one->order < other->order ? -1 : 1;
}

static int compare_tensors(const void *a, const void *b)
{
	const struct export_tensor *one = a, *other = b;
	size_t order = one->slices[0].order, other_order = other->slices[0].order;

	return (order > other_order) - (order < other_order);
}

static bool are_alike(const struct export_slice *one, const struct export_slice *other)
{
	return one->dtype == other->dtype && one->tensor.slice_rows == other->tensor.slice_rows &&
	       one->tensor.dimensions == other->tensor.dimensions &&
	       memcmp(one->tensor.shape + 1, other->tensor.shape + 1,
		      (one->tensor.dimensions - 1) * sizeof(one->tensor.shape[0])) == 0;
}

static int fail_rows(const struct export_slice *slice, uint64_t row)
{
	if (slice->tensor.slice_row < row)
		return command_fail(COMMAND_FAILED,
				    "tensor \"%s\" of the job has rows of \"%s\" that another one has, too; "
				    "it cannot be joined",
				    slice->tensor.name, slice->name);
	return command_fail(COMMAND_FAILED,
			    "\"%s\" has %" PRIu64 " rows, and no tensor of the job has those from %" PRIu64
			    " on; it cannot be joined",
			    slice->name, slice->tensor.slice_rows, row);
}

/* The slices of a larger tensor, in the order of their rows. */
static int join(struct export_tensor *tensor)
{
	const struct export_slice *first = tensor->slices;
	uint64_t row = 0;

	for (size_t i = 0; i < tensor->slice_count; i++) {
		const struct export_slice *slice = &tensor->slices[i];

		if (!slice->tensor.slice_of || !are_alike(first, slice))
			return command_fail(
				COMMAND_FAILED,
				"tensors \"%s\" and \"%s\" of the job are both (of) \"%s\", and not "
				"alike; they cannot be joined",
				first->tensor.name, slice->tensor.name, slice->name);
		if (slice->tensor.slice_row != row)
			return fail_rows(slice, row);
		row += slice->tensor.shape[0];
	}
	if (row != first->tensor.slice_rows)
		return fail_rows(&(struct export_slice){ .name = first->name,
							 .tensor = { .slice_rows = first->tensor.slice_rows,
								     .slice_row = UINT64_MAX } },
				 row);
	tensor->shape[0] = row;
	return COMMAND_DONE;
}

/* Bytes get the dtype that their definition names, if it fits them. */
static void set_dtype(struct export_tensor *tensor, const struct export_slice *slice)
{
	struct export_tensor told = *tensor;
	uint64_t bytes;

	if (slice->tensor.format == TIERD_BYTES && slice->tensor.dtype && !slice->tensor.slice_of &&
	    safetensors_dtype_parse(slice->tensor.dtype, &told.dtype, told.shape, TIERD_MAX_DIMENSIONS,
				    &told.dimensions) == 0 &&
	    safetensors_dtype_bytes(told.dtype, told.shape, told.dimensions, &bytes) == 0 &&
	    bytes == slice->elements)
		*tensor = told;
}

static int make_tensor(struct export_tensor *tensor, const struct export_slice *slices, size_t count)
{
	const struct tierd_tensor *shape = &slices[0].tensor;
	int code = COMMAND_DONE;

	*tensor = (struct export_tensor){ .name = slices[0].name,
					  .dtype = slices[0].dtype,
					  .dimensions = shape->dimensions,
					  .slices = slices,
					  .slice_count = count };
	memcpy(tensor->shape, shape->shape, sizeof(tensor->shape));
	/* Another name of a slice is none of the whole; and moments are not what is tied. */
	if (!shape->slice_of &&
	    (strcmp(slices[0].state, "parameter") == 0 || strcmp(slices[0].state, "master") == 0))
		tensor->alias = shape->alias;
	if (shape->slice_of || count > 1)
		code = join(tensor);
	set_dtype(tensor, &slices[0]);
	if (code == COMMAND_DONE &&
	    safetensors_dtype_bytes(tensor->dtype, tensor->shape, tensor->dimensions, &tensor->bytes) < 0)
		return command_fail(COMMAND_FAILED, "tensor \"%s\" is larger than a file can be",
				    tensor->name);
	return code;
}

static int make_tensors(struct export_list *list)
{
	struct export_slice *slices = list->slices, *end = slices + list->slice_count;
	int code = COMMAND_DONE;

	list->tensors = calloc(list->slice_count + 1, sizeof(*list->tensors));
	if (!list->tensors)
		return command_fail_memory();
	qsort(slices, list->slice_count, sizeof(*slices), compare_slices);
	while (slices < end && code == COMMAND_DONE) {
		size_t count = 1;

		while (slices + count < end && strcmp(slices[count].name, slices->name) == 0)
			count++;
		code = make_tensor(&list->tensors[list->tensor_count++], slices, count);
		list->bytes = size_sum(list->bytes, list->tensors[list->tensor_count - 1].bytes);
		slices += count;
	}
	qsort(list->tensors, list->tensor_count, sizeof(list->tensors[0]), compare_tensors);
	return code;
}

int export_list_read(struct export_list *list, struct tierd_reader *reader,
		     const struct export_options *options)
{
	struct listing listing = { .list = list, .reader = reader, .options = options };
	int code = options->with_optimizer ? visit_all(&listing, look_for_slots) : COMMAND_DONE;

	*list = (struct export_list){ NULL };
	if (code == COMMAND_DONE)
		code = visit_all(&listing, add_tensor);
	if (code == COMMAND_DONE && list->slice_count == 0)
		code = command_fail(COMMAND_FAILED, "the job has no tensors");
	return code == COMMAND_DONE ? make_tensors(list) : code;
}

/* ---- Keeping ---- */

/* Frozen ones are the same at every step. */
static size_t choose(const struct export_list *list, struct tierd_piece *pieces)
{
	size_t count = 0;

	for (size_t i = 0; i < list->slice_count; i++) {
		const struct export_slice *slice = &list->slices[i];

		if (slice->tensor.is_frozen)
			continue;
		if (pieces) {
			pieces[count] = (struct tierd_piece)TIERD_PIECE_INIT;
			pieces[count].state = slice->state;
			pieces[count].unit = slice->unit;
			pieces[count].tensor = slice->index;
			pieces[count].count = slice->elements;
		}
		count++;
	}
	return count;
}

/* All tensors of each state, frozen ones included: few words for many tensors. */
static size_t choose_states(const struct export_list *list, struct tierd_piece *pieces)
{
	size_t count = 0;

	for (size_t i = 0; i < list->slice_count; i++) {
		const struct export_slice *slice = &list->slices[i];
		bool is_there = slice->tensor.is_frozen;

		for (size_t k = 0; k < count; k++)
			is_there |= strcmp(pieces[k].state, slice->state) == 0;
		if (is_there)
			continue;
		pieces[count] = (struct tierd_piece)TIERD_PIECE_INIT;
		pieces[count++].state = slice->state;
	}
	return count;
}

int export_list_keep(const struct export_list *list, struct tierd_reader *reader)
{
	size_t count = choose(list, NULL);
	_cleanup_free_ struct tierd_piece *pieces = calloc(count + 1, sizeof(*pieces));

	if (!pieces)
		return -ENOMEM;
	if (count > MAX_PIECES)
		count = choose_states(list, pieces);
	else
		choose(list, pieces);
	return tierd_reader_refresh(reader, pieces, count, NULL);
}
