/* An inbox holds the bytes that a socket has delivered, and finds the frames in them. */
#ifndef TIERD_DAEMON_INBOX_H
#define TIERD_DAEMON_INBOX_H

#include <stdbool.h>

#include "proto/frame.h"

#define INBOX_SMALL 4096

struct inbox {
	uint8_t *bytes; /* small, or from malloc */
	size_t start, end, size;
	uint8_t small[INBOX_SMALL];
};

void inbox_init(struct inbox *inbox);
void inbox_clear(struct inbox *inbox);

/* Reads once, after inbox_init() or inbox_settle(). Descriptors that come along are dropped by the kernel,
 * since nobody asks for them. -EAGAIN: nothing is there; -EPIPE: the end of the stream. */
int inbox_read(struct inbox *inbox, int socket);

/* 1: a frame, whose bytes stay until inbox_settle(); 0: none is complete; or what frame_header_decode() says;
 * -EMSGSIZE: one of more than maximum bytes, header included, as soon as its header is here. */
int inbox_next(struct inbox *inbox, size_t maximum, struct frame_header *ret_header,
	       const uint8_t **ret_bytes);

/* Length of the next frame, by its header, complete or not; 0: no header is here, or a wrong one. */
size_t inbox_length(const struct inbox *inbox);

/* Makes room for more of the frame that has begun, and gives back what large ones needed. -ENOMEM. */
int inbox_settle(struct inbox *inbox);

static inline bool inbox_is_empty(const struct inbox *inbox)
{
	return inbox->start == inbox->end;
}

#endif
