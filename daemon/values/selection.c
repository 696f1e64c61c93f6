#include "daemon/values/selection.h"

#include <errno.h>
#include <stdlib.h>

#include "common/size.h"
#include "daemon/model/model.h"
#include "daemon/request/request.h"
#include "proto/name.h"

#define PIECE_ALIGN_BYTES 64
/* Tensors that one selection may look at, chosen or not. */
#define MOST_LOOKS (UINT64_C(1) << 20)

/* ---- Ranges ---- */

static struct copy_range range_of(const struct unit *unit, const struct tensor *tensor, int state,
				  uint64_t first, uint64_t count)
{
	const struct tensor_layout *layout = &tensor->layout;

	return (struct copy_range){ .pack = unit->pack,
				    .section = layout->section,
				    .state = state,
				    .first = tensor_part(unit, tensor)->pack_first + layout->first + first,
				    .count = count };
}

static int find_state(const struct job *job, bool may_read_all, const char *name, int *ret_state,
		      char *message, size_t size)
{
	int r = state_find(&job->options, name, ret_state, message, size);

	if (r == 0 && *ret_state != STATE_PARAMETER && !may_read_all)
		return refuse(message, size, -EPERM,
			      "it is shared for reading: its parameters can be read, its %s cannot", name);
	return r;
}

static int find_unit(const struct job *job, uint32_t unit, const struct unit **ret_unit, char *message,
		     size_t size)
{
	if (unit >= job->catalog.unit_count)
		return refuse(message, size, -EINVAL, "it has no unit %u; it has %u", unit,
			      job->catalog.unit_count);
	*ret_unit = &job->catalog.units[unit];
	return 0;
}

int selection_find(const struct job *job, bool may_read_all, uint32_t unit, uint32_t index,
		   const char *state_name, uint64_t first, uint64_t count, struct copy_range *ret_range,
		   char *message, size_t size)
{
	const struct unit *units = NULL;
	const struct tensor *tensor;
	int state, r = find_state(job, may_read_all, state_name, &state, message, size);
	uint64_t end;

	if (r == 0)
		r = find_unit(job, unit, &units, message, size);
	if (r < 0)
		return r;
	if (index >= units->tensor_count)
		return refuse(message, size, -EINVAL, "unit \"%s\" has no tensor %u; it has %u", units->name,
			      index, units->tensor_count);
	tensor = &units->tensors[index];
	if (tensor->is_frozen && state != STATE_PARAMETER)
		return refuse(message, size, -ENODATA, "tensor \"%s\" is frozen: it has no %s", tensor->name,
			      state_name);
	if (!size_add(first, count, &end) || end > tensor->layout.elements)
		return refuse(message, size, -ERANGE,
			      "tensor \"%s\" has %llu elements; %llu from %llu on are beyond", tensor->name,
			      (unsigned long long)tensor->layout.elements, (unsigned long long)count,
			      (unsigned long long)first);
	*ret_range = range_of(units, tensor, state, first, count);
	return 0;
}

/* ---- Pieces ---- */

static int grow(struct selection *selection)
{
	uint32_t capacity = selection->capacity ? 2 * selection->capacity : 16;
	struct piece *pieces;

	if (selection->count < selection->capacity)
		return 0;
	if (selection->count == SELECTION_MAX_PIECES)
		return -E2BIG;
	pieces = realloc(selection->pieces, capacity * sizeof(*pieces));
	if (!pieces)
		return -ENOMEM;
	selection->pieces = pieces;
	selection->capacity = capacity;
	return 0;
}

static int append(struct selection *selection, const struct copy_range *range)
{
	uint64_t bytes = size_product(range->count, copy_element_bytes(range->section, range->state));
	int r = range->count > 0 ? grow(selection) : 0;

	if (r < 0 || range->count == 0)
		return r;
	/* More than any memory. */
	if (bytes > UINT64_MAX / 4 - selection->bytes)
		return -E2BIG;
	selection->pieces[selection->count++] = (struct piece){ .range = *range, .offset = selection->bytes };
	selection->bytes = size_align(selection->bytes + bytes, PIECE_ALIGN_BYTES);
	return 0;
}

static int append_unit(struct selection *selection, const struct unit *unit, int state)
{
	int r = 0;

	for (uint32_t i = 0; i < unit->tensor_count && r == 0; i++) {
		const struct tensor *tensor = &unit->tensors[i];
		struct copy_range range = range_of(unit, tensor, state, 0, tensor->layout.elements);

		if (!tensor->is_frozen || state == STATE_PARAMETER)
			r = append(selection, &range);
	}
	return r;
}

static int refuse_more(int r, char *message, size_t size)
{
	if (r == -E2BIG)
		return refuse(message, size, r, "it is too much: at most %d tensors can be kept",
			      SELECTION_MAX_PIECES);
	return r < 0 ? refuse(message, size, r, "out of memory") : 0;
}

static int read_units(struct selection *selection, const struct job *job, bool may_read_all,
		      const Tierd__Wire__ReaderPiece *piece, uint64_t *looks, char *message, size_t size)
{
	const struct unit *unit = job->catalog.units, *end = unit + job->catalog.unit_count;
	int state, r = find_state(job, may_read_all, piece->state, &state, message, size);

	if (r == 0 && !piece->all_units)
		r = find_unit(job, piece->unit, &unit, message, size);
	if (r < 0)
		return r;
	if (!piece->all_units)
		end = unit + 1;
	for (; unit < end && r == 0; unit++) {
		*looks += unit->tensor_count;
		r = *looks > MOST_LOOKS ? -E2BIG : append_unit(selection, unit, state);
	}
	return refuse_more(r, message, size);
}

static int read_piece(struct selection *selection, const struct job *job, bool may_read_all,
		      const Tierd__Wire__ReaderPiece *piece, char *message, size_t size)
{
	struct copy_range range;
	int r = selection_find(job, may_read_all, piece->unit, piece->tensor, piece->state, piece->first,
			       piece->count, &range, message, size);

	if (r < 0)
		return r;
	return refuse_more(append(selection, &range), message, size);
}

static int compare(const void *a, const void *b)
{
	const struct piece *one = a, *other = b;

	return (one->range.pack > other->range.pack) - (one->range.pack < other->range.pack);
}

int selection_read(struct selection *selection, const struct job *job, bool may_read_all,
		   Tierd__Wire__ReaderPiece *const *pieces, size_t count, char *message, size_t size)
{
	uint64_t looks = 0;
	int r = 0;

	for (size_t i = 0; i < count && r == 0; i++)
		r = pieces[i]->all_tensors || pieces[i]->all_units
			    ? read_units(selection, job, may_read_all, pieces[i], &looks, message, size)
			    : read_piece(selection, job, may_read_all, pieces[i], message, size);
	if (r == 0 && selection->count > 0)
		qsort(selection->pieces, selection->count, sizeof(selection->pieces[0]), compare);
	return r;
}

struct piece *selection_first(const struct selection *selection, uint32_t pack)
{
	uint32_t from = 0, to = selection->count;

	while (from < to) {
		uint32_t middle = from + (to - from) / 2;

		if (selection->pieces[middle].range.pack < pack)
			from = middle + 1;
		else
			to = middle;
	}
	return from < selection->count ? selection->pieces + from : NULL;
}

uint64_t selection_bytes(const struct selection *selection)
{
	return selection->capacity * sizeof(selection->pieces[0]);
}

void selection_clear(struct selection *selection)
{
	free(selection->pieces);
	*selection = (struct selection){ NULL };
}
