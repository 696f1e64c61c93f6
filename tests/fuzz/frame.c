/* Fuzzes what reads frames: any bytes give a header or an error, a message or an error; a message that was
 * read can be written, and says the same when it is read again. */
#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "proto/frame.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length);

static const ProtobufCMessageDescriptor *descriptor_of(enum frame_type type)
{
	switch (type) {
	case FRAME_HELLO:
		return &tierd__wire__hello__descriptor;
	case FRAME_HELLO_REPLY:
		return &tierd__wire__hello_reply__descriptor;
	case FRAME_REQUEST:
		return &tierd__wire__request__descriptor;
	case FRAME_REPLY:
		return &tierd__wire__reply__descriptor;
	default:
		return &tierd__wire__event__descriptor;
	}
}

static void forget_unknown(ProtobufCMessage *message);

static void forget_in_field(ProtobufCMessage *message, const ProtobufCFieldDescriptor *field)
{
	char *value = (char *)message + field->offset;
	uint32_t quantity = 0;

	if (field->type != PROTOBUF_C_TYPE_MESSAGE)
		return;
	if (field->label == PROTOBUF_C_LABEL_REPEATED) {
		size_t count = *(size_t *)((char *)message + field->quantifier_offset);

		for (size_t i = 0; i < count; i++)
			forget_unknown((*(ProtobufCMessage ***)value)[i]);
		return;
	}
	if (field->flags & PROTOBUF_C_FIELD_FLAG_ONEOF)
		memcpy(&quantity, (char *)message + field->quantifier_offset, sizeof(quantity));
	else
		quantity = field->id;
	if (quantity == field->id && *(ProtobufCMessage **)value)
		forget_unknown(*(ProtobufCMessage **)value);
}

/* protobuf-c reads an unknown field of number 0 if its tag is long enough, and writes what it then refuses.
 */
static void forget_unknown(ProtobufCMessage *message)
{
	message->n_unknown_fields = 0;
	for (unsigned i = 0; i < message->descriptor->n_fields; i++)
		forget_in_field(message, &message->descriptor->fields[i]);
}

static void write_and_read_again(const struct frame_header *header, ProtobufCMessage *message)
{
	struct frame_arena *arena;
	ProtobufCMessage *copy;
	uint8_t *frame, *again;
	size_t length, length_again;
	int r;

	forget_unknown(message);
	r = frame_encode(1, header->type, header->request, message, &frame, &length);
	/* What was read from its shortest form may be longer than a frame when it is written. */
	if (r == -EMSGSIZE)
		return;
	assert(r == 0 && frame_arena_new(&arena) == 0);
	r = frame_decode(arena, message->descriptor, frame + FRAME_HEADER_BYTES, length - FRAME_HEADER_BYTES,
			 &copy);
	assert(r == 0 || r == -ENOMEM);
	if (r == 0) {
		assert(frame_encode(1, header->type, header->request, copy, &again, &length_again) == 0);
		assert(length == length_again && memcmp(frame, again, length) == 0);
		free(again);
	}
	frame_arena_free(arena);
	free(frame);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length)
{
	static struct frame_arena *arena;
	struct frame_header header;
	ProtobufCMessage *message;

	if (!arena)
		assert(frame_arena_new(&arena) == 0);
	if (length < FRAME_HEADER_BYTES || frame_header_decode(bytes, &header) < 0)
		return 0;
	length -= FRAME_HEADER_BYTES;
	if (length > header.length)
		length = header.length;
	if (frame_decode(arena, descriptor_of(header.type), bytes + FRAME_HEADER_BYTES, length, &message) ==
	    0)
		write_and_read_again(&header, message);
	return 0;
}
