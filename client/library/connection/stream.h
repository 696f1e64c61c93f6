/* A stream is the socket's bytes: frames go out whole, and come in whole with their descriptors. No locks, no
 * waiting. */
#ifndef TIERD_CLIENT_STREAM_H
#define TIERD_CLIENT_STREAM_H

#include <stdbool.h>

#include "common/cleanup.h"
#include "proto/frame.h"

#define STREAM_MAX_FDS 8
#define STREAM_MAX_OUTPUT (4 * (size_t)FRAME_MAX_BYTES)

struct stream;

/* The socket is the stream's afterwards; on failure it is closed. */
int stream_new(int fd, struct stream **ret_stream);
struct stream *stream_free(struct stream *stream);
DEFINE_FREEP(struct stream *, stream_free)

int stream_fd(const struct stream *stream);

/* Queues a frame. -EMSGSIZE: too large for one; -ENOBUFS: too much is waiting to be sent. */
int stream_queue(struct stream *stream, uint32_t version, enum frame_type type, uint32_t request,
		 const ProtobufCMessage *message);

/* Sends what the socket takes. -ECONNRESET, or another error of the socket. */
int stream_flush(struct stream *stream);
bool stream_has_output(const struct stream *stream);

/* Reads from the socket once. -EAGAIN: there is nothing; -ECONNRESET: the other side has closed it; -EPROTO:
 * it has sent too many descriptors. */
int stream_fill(struct stream *stream);

/* The next whole frame: 1, and 0 if there is none yet. The payload is valid until the next stream_fill().
 * -EPROTO, or -EMSGSIZE: not a frame. */
int stream_next(struct stream *stream, struct frame_header *ret_header, const uint8_t **ret_payload);

/* The oldest descriptor that came and was not taken, now the caller's; -1: there is none. */
int stream_take_fd(struct stream *stream);

/* Whether descriptors are left although every byte was read: they belong to no message. */
bool stream_has_stray_fds(const struct stream *stream);

#endif
