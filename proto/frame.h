/* Frames: a 16-byte header and a packed message. Bytes only; sockets are the callers'. */
#ifndef TIERD_PROTO_FRAME_H
#define TIERD_PROTO_FRAME_H

#include <stddef.h>
#include <stdint.h>

#include "proto/tierd.pb-c.h"
#include "proto/versions.h"

#define FRAME_MAGIC 0x31726974 /* "tir1", little-endian like all fields */
#define FRAME_HEADER_BYTES 16
#define FRAME_MAX_BYTES (1u << 20) /* with the header */

/* Versions of the protocol that this code speaks; docs/protocol.md says when there has to be another one. */
#define FRAME_VERSIONS ((struct versions){ 1, 1 })

/* Hellos have this one for ever: they come before any other is agreed on. */
#define FRAME_VERSION_HELLO 1

enum frame_type { FRAME_HELLO = 1, FRAME_HELLO_REPLY, FRAME_REQUEST, FRAME_REPLY, FRAME_EVENT };

struct frame_header {
	uint16_t version; /* of the protocol: 1 in hellos, then the one that was negotiated */
	enum frame_type type;
	uint32_t length;  /* of the message that follows */
	uint32_t request; /* number that the client gave the request; 0: none */
};

/* Reads a header. -EPROTO: wrong magic or unknown type; -EMSGSIZE: the frame is over the limit. */
int frame_header_decode(const uint8_t bytes[FRAME_HEADER_BYTES], struct frame_header *ret_header);

/* A packed message with its header; the caller frees it. The version is the one that was negotiated; hellos
 * have their own. -EMSGSIZE: over the limit; -ENOMEM. */
int frame_encode(uint32_t version, enum frame_type type, uint32_t request, const ProtobufCMessage *message,
		 uint8_t **ret_frame, size_t *ret_length);

/* A request with this body, for a call: WIRE_REQUEST(PHASE, phase, &phase). */
#define WIRE_REQUEST(CASE, member, value)                                                                    \
	(&(Tierd__Wire__Request){ .base = PROTOBUF_C_MESSAGE_INIT(&tierd__wire__request__descriptor),        \
				  .body_case = TIERD__WIRE__REQUEST__BODY_##CASE,                            \
				  .member = (value) })

/* An answer with this body, in the same way. */
#define WIRE_REPLY(CASE, member, value)                                                                      \
	(&(Tierd__Wire__Reply){ .base = PROTOBUF_C_MESSAGE_INIT(&tierd__wire__reply__descriptor),            \
				.body_case = TIERD__WIRE__REPLY__BODY_##CASE,                                \
				.member = (value) })

/* Unpacks into memory of the arena, which bounds what a message can make us allocate; how deep it nests is
 * bounded by the schema. */
struct frame_arena;
int frame_arena_new(struct frame_arena **ret_arena);
struct frame_arena *frame_arena_free(struct frame_arena *arena);

/* The message is valid until the next decode with this arena. -EPROTO: malformed; -ENOMEM: it unpacks to more
 * than the arena holds. */
int frame_decode(struct frame_arena *arena, const ProtobufCMessageDescriptor *descriptor,
		 const uint8_t *bytes, size_t length, ProtobufCMessage **ret_message);

#endif
