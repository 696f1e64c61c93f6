#include "client/library/calls/pieces.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "client/library/connection/message.h"
#include "client/library/connection/structure.h"
#include "common/cleanup.h"
#include "common/size.h"

/* Where the values of a piece begin in the window. */
#define ALIGN_BYTES 64

static int check(const struct pieces *pieces, size_t index)
{
	struct tierd_read read;
	int r = STRUCTURE_TAKE_NTH(&read, pieces->reads, index, "read", TIERD_READ_INIT);

	if (r < 0)
		return r;
	if (!read.state)
		return message_fail(-EINVAL,
				    "read %zu names no state; it is \"parameter\", \"master\" or a slot of "
				    "the optimizer, such as \"m\"",
				    index);
	if (read.count > 0 && !read.ret_data)
		return message_fail(-EINVAL, "read %zu: ret_data is NULL", index);
	return 0;
}

int pieces_new(const struct tierd_read *reads, size_t count, struct pieces **ret_pieces)
{
	_cleanup_free_ struct pieces *pieces = malloc(sizeof(*pieces));
	int r = 0;

	if (!pieces)
		return message_fail_memory();
	pieces->reads = (const char *)reads;
	pieces->count = count;
	pieces->stride = count > 0 ? reads->size : 0;
	pieces->next = pieces->done = 0;
	for (size_t i = 0; i < count && r == 0; i++)
		r = check(pieces, i);
	if (r == 0)
		*ret_pieces = TAKE_PTR(pieces);
	return r;
}

/* Adds as many elements of the read as fit, if they go where the others of the request go. False: none was
 * added. */
static bool add(struct pieces *pieces, const struct tierd_read *read, uint64_t bytes, uint64_t limit,
		const struct mapping *memory, uint64_t *used)
{
	bool to_memory = memory && mapping_has(memory, read->ret_data, read->count * bytes);
	char *place = (char *)read->ret_data + pieces->done * bytes;
	uint64_t at = to_memory ? 0 : size_align(*used, ALIGN_BYTES), left = read->count - pieces->done;
	uint64_t fits = at < limit ? (limit - at) / bytes : 0, count = left < fits ? left : fits;
	Tierd__Wire__TensorPiece *wire = &pieces->wire[pieces->filled];

	if (count == 0 || (pieces->filled > 0 && to_memory != pieces->to_memory))
		return false;
	pieces->to_memory = to_memory;
	tierd__wire__tensor_piece__init(wire);
	wire->unit = read->unit;
	wire->tensor = read->tensor;
	wire->state = (char *)read->state;
	wire->first = read->first + pieces->done;
	wire->count = count;
	wire->at = to_memory ? (uint64_t)(place - (char *)memory->address) : at;
	pieces->pointers[pieces->filled] = wire;
	pieces->places[pieces->filled] = place;
	pieces->bytes[pieces->filled++] = count * bytes;
	pieces->done += count;
	*used = at + count * bytes;
	return true;
}

int pieces_fill(struct pieces *pieces, const struct mapping *window, const struct mapping *memory,
		int (*find)(const void *owner, const struct tierd_read *read, uint64_t *ret_bytes),
		const void *owner)
{
	uint64_t used = 0, bytes = 0;
	bool has_room = true;

	pieces->filled = 0;
	while (has_room && pieces->next < pieces->count && pieces->filled < WIRE_MAX_PIECES) {
		struct tierd_read read;
		int r;

		/* It was checked. */
		memcpy(&read, pieces->reads + pieces->next * pieces->stride, sizeof(read));
		r = find(owner, &read, &bytes);
		if (r < 0)
			return r;
		if (pieces->done < read.count)
			has_room = add(pieces, &read, bytes, window->bytes, memory, &used);
		if (pieces->done < read.count)
			continue;
		pieces->next++;
		pieces->done = 0;
	}
	return 0;
}

void pieces_land(const struct pieces *pieces, const struct mapping *window)
{
	for (unsigned i = 0; i < pieces->filled && !pieces->to_memory; i++)
		memcpy(pieces->places[i], (char *)window->address + pieces->wire[i].at, pieces->bytes[i]);
}
