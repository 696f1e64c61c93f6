#include "proto/frame.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>

#include "common/little_endian.h"

/* Unpacked, a message is larger than its bytes: pointers, padding, and the scanner's notes. */
#define ARENA_BYTES (4 * (size_t)FRAME_MAX_BYTES)
#define ARENA_ALIGN 16

/* Nothing is freed before the next message, so allocating is adding. How deep a message nests is bounded by
 * the schema: protobuf-c descends only into the submessages that a descriptor names, none of which contains
 * itself (the deepest is Reply, JobsReply, JobEntry, Member), and it refuses groups. */
struct frame_arena {
	ProtobufCAllocator allocator;
	size_t used;
	bool is_exhausted;
	_Alignas(ARENA_ALIGN) uint8_t bytes[]; /* the kernel gives only the pages that are touched */
};

int frame_header_decode(const uint8_t bytes[FRAME_HEADER_BYTES], struct frame_header *ret_header)
{
	uint16_t type = get16(bytes + 6);
	uint32_t length = get32(bytes + 8);

	if (get32(bytes) != FRAME_MAGIC || type < FRAME_HELLO || type > FRAME_EVENT)
		return -EPROTO;
	if (length > FRAME_MAX_BYTES - FRAME_HEADER_BYTES)
		return -EMSGSIZE;
	*ret_header = (struct frame_header){
		.version = get16(bytes + 4),
		.type = (enum frame_type)type,
		.length = length,
		.request = get32(bytes + 12),
	};
	return 0;
}

static void header_encode(uint32_t version, enum frame_type type, uint32_t length, uint32_t request,
			  uint8_t *bytes)
{
	bool is_hello = type == FRAME_HELLO || type == FRAME_HELLO_REPLY;

	put32(bytes, FRAME_MAGIC);
	put16(bytes + 4, is_hello ? FRAME_VERSION_HELLO : (uint16_t)version);
	put16(bytes + 6, (uint16_t)type);
	put32(bytes + 8, length);
	put32(bytes + 12, request);
}

int frame_encode(uint32_t version, enum frame_type type, uint32_t request, const ProtobufCMessage *message,
		 uint8_t **ret_frame, size_t *ret_length)
{
	size_t length = protobuf_c_message_get_packed_size(message);
	uint8_t *frame;

	if (length > FRAME_MAX_BYTES - FRAME_HEADER_BYTES)
		return -EMSGSIZE;
	frame = malloc(FRAME_HEADER_BYTES + length);
	if (!frame)
		return -ENOMEM;
	header_encode(version, type, (uint32_t)length, request, frame);
	protobuf_c_message_pack(message, frame + FRAME_HEADER_BYTES);
	*ret_frame = frame;
	*ret_length = FRAME_HEADER_BYTES + length;
	return 0;
}

static void *arena_take(void *data, size_t size)
{
	struct frame_arena *arena = data;

	if (size > ARENA_BYTES - arena->used) {
		arena->is_exhausted = true;
		return NULL;
	}
	void *memory = arena->bytes + arena->used;

	/* ARENA_BYTES is a multiple of the alignment, so this stays within it. */
	arena->used += (size + ARENA_ALIGN - 1) / ARENA_ALIGN * ARENA_ALIGN;
	return memory;
}

static void arena_give(void *data, void *memory)
{
}

int frame_arena_new(struct frame_arena **ret_arena)
{
	struct frame_arena *arena = aligned_alloc(ARENA_ALIGN, sizeof(*arena) + ARENA_BYTES);

	if (!arena)
		return -ENOMEM;
	arena->allocator = (ProtobufCAllocator){ arena_take, arena_give, arena };
	arena->used = 0;
	arena->is_exhausted = false;
	*ret_arena = arena;
	return 0;
}

struct frame_arena *frame_arena_free(struct frame_arena *arena)
{
	free(arena);
	return NULL;
}

int frame_decode(struct frame_arena *arena, const ProtobufCMessageDescriptor *descriptor,
		 const uint8_t *bytes, size_t length, ProtobufCMessage **ret_message)
{
	ProtobufCMessage *message;

	if (length > FRAME_MAX_BYTES - FRAME_HEADER_BYTES)
		return -EPROTO;
	arena->used = 0;
	arena->is_exhausted = false;
	message = protobuf_c_message_unpack(descriptor, &arena->allocator, length, bytes);
	if (!message)
		return arena->is_exhausted ? -ENOMEM : -EPROTO;
	*ret_message = message;
	return 0;
}
