/* An outbox holds the frames that wait for a socket, and the descriptors that go with them. */
#ifndef TIERD_DAEMON_OUTBOX_H
#define TIERD_DAEMON_OUTBOX_H

#include <stdint.h>

#include "common/queue.h"

struct outbox {
	struct queue frames;
	size_t bytes; /* that wait */
};

void outbox_init(struct outbox *outbox);
void outbox_clear(struct outbox *outbox);

/* Takes the frame (from malloc), also on failure. The descriptors are duplicated; they travel with the
 * frame's first byte. -ENOMEM, -EMFILE: nothing was queued. */
int outbox_push(struct outbox *outbox, uint8_t *frame, size_t length, const int *fds, unsigned fd_count);

/* Sends what the socket takes. 0: all is sent; -EAGAIN: the rest waits; else the connection is broken. */
int outbox_send(struct outbox *outbox, int socket);

#endif
