#include "daemon/session/inbox.h"

#include <errno.h>
#include <string.h>

#include "common/cleanup.h"

void inbox_init(struct inbox *inbox)
{
	inbox->bytes = inbox->small;
	inbox->size = sizeof(inbox->small);
	inbox->start = inbox->end = 0;
}

void inbox_clear(struct inbox *inbox)
{
	if (inbox->bytes != inbox->small)
		free(inbox->bytes);
	inbox_init(inbox);
}

int inbox_read(struct inbox *inbox, int socket)
{
	ssize_t length = read(socket, inbox->bytes + inbox->end, inbox->size - inbox->end);

	if (length < 0)
		return errno == EINTR ? -EAGAIN : -errno;
	if (length == 0)
		return -EPIPE;
	inbox->end += (size_t)length;
	return 0;
}

int inbox_next(struct inbox *inbox, size_t maximum, struct frame_header *ret_header,
	       const uint8_t **ret_bytes)
{
	const uint8_t *frame = inbox->bytes + inbox->start;
	size_t length = inbox->end - inbox->start;
	struct frame_header header;
	int r;

	if (length < FRAME_HEADER_BYTES)
		return 0;
	r = frame_header_decode(frame, &header);
	if (r < 0)
		return r;
	if (header.length > maximum - FRAME_HEADER_BYTES)
		return -EMSGSIZE;
	if (length - FRAME_HEADER_BYTES < header.length)
		return 0;
	inbox->start += FRAME_HEADER_BYTES + header.length;
	*ret_header = header;
	*ret_bytes = frame + FRAME_HEADER_BYTES;
	return 1;
}

size_t inbox_length(const struct inbox *inbox)
{
	struct frame_header header;

	if (inbox->end - inbox->start < FRAME_HEADER_BYTES ||
	    frame_header_decode(inbox->bytes + inbox->start, &header) < 0)
		return 0;
	return FRAME_HEADER_BYTES + (size_t)header.length;
}

static void move_to(struct inbox *inbox, uint8_t *bytes, size_t size)
{
	inbox->end -= inbox->start;
	memmove(bytes, inbox->bytes + inbox->start, inbox->end);
	inbox->start = 0;
	if (inbox->bytes != inbox->small && inbox->bytes != bytes)
		free(inbox->bytes);
	inbox->bytes = bytes;
	inbox->size = size;
}

/* Grows as bytes arrive, so that a header alone does not make us allocate what it announces. */
static int grow(struct inbox *inbox)
{
	size_t size = inbox->size * 2 < FRAME_MAX_BYTES ? inbox->size * 2 : FRAME_MAX_BYTES;
	uint8_t *larger = malloc(size);

	if (!larger)
		return -ENOMEM;
	move_to(inbox, larger, size);
	return 0;
}

int inbox_settle(struct inbox *inbox)
{
	if (inbox->end - inbox->start < INBOX_SMALL)
		move_to(inbox, inbox->small, INBOX_SMALL);
	else if (inbox->start > 0)
		move_to(inbox, inbox->bytes, inbox->size);
	return inbox->end == inbox->size ? grow(inbox) : 0;
}
