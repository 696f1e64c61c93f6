#include "daemon/session/outbox.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include "daemon/request/request.h"

#define FRAMES_PER_CALL 16

struct frame {
	struct queue link;
	uint8_t *bytes;
	size_t length, sent;
	unsigned fd_count;
	int fds[PORT_MAX_FDS];
};

static struct frame *frame_free(struct frame *frame)
{
	if (!frame)
		return NULL;
	while (frame->fd_count > 0)
		fd_close(frame->fds[--frame->fd_count]);
	free(frame->bytes);
	free(frame);
	return NULL;
}
DEFINE_FREEP(struct frame *, frame_free)

void outbox_init(struct outbox *outbox)
{
	queue_init(&outbox->frames);
	outbox->bytes = 0;
}

void outbox_clear(struct outbox *outbox)
{
	struct queue *link;

	while ((link = queue_pop(&outbox->frames)))
		frame_free(queue_entry(link, struct frame, link));
	outbox->bytes = 0;
}

int outbox_push(struct outbox *outbox, uint8_t *bytes, size_t length, const int *fds, unsigned fd_count)
{
	_cleanup_(frame_freep) struct frame *frame = calloc(1, sizeof(*frame));

	assert(fd_count <= PORT_MAX_FDS);
	if (!frame) {
		free(bytes);
		return -ENOMEM;
	}
	frame->bytes = bytes;
	frame->length = length;
	for (; frame->fd_count < fd_count; frame->fd_count++) {
		int fd = fcntl(fds[frame->fd_count], F_DUPFD_CLOEXEC, 0);

		if (fd < 0)
			return -errno;
		frame->fds[frame->fd_count] = fd;
	}
	outbox->bytes += length;
	queue_push(&outbox->frames, &TAKE_PTR(frame)->link);
	return 0;
}

/* The first frame, and those behind it that have no descriptors of their own. */
static unsigned gather_frames(const struct outbox *outbox, struct iovec parts[FRAMES_PER_CALL])
{
	unsigned count = 0;

	QUEUE_FOREACH (link, &outbox->frames) {
		struct frame *frame = queue_entry(link, struct frame, link);

		if (count == FRAMES_PER_CALL || (count > 0 && frame->fd_count > 0))
			break;
		parts[count].iov_base = frame->bytes + frame->sent;
		parts[count++].iov_len = frame->length - frame->sent;
	}
	return count;
}

static ssize_t send_some(const struct outbox *outbox, int socket)
{
	const struct frame *first = queue_entry(queue_first(&outbox->frames), struct frame, link);
	struct iovec parts[FRAMES_PER_CALL];
	union {
		struct cmsghdr header;
		char bytes[CMSG_SPACE(sizeof(int) * PORT_MAX_FDS)];
	} control;
	struct msghdr message = { .msg_iov = parts, .msg_iovlen = gather_frames(outbox, parts) };

	if (first->fd_count > 0) {
		memset(&control, 0, sizeof(control));
		message.msg_control = &control;
		message.msg_controllen = CMSG_SPACE(sizeof(int) * first->fd_count);
		control.header.cmsg_level = SOL_SOCKET;
		control.header.cmsg_type = SCM_RIGHTS;
		control.header.cmsg_len = CMSG_LEN(sizeof(int) * first->fd_count);
		memcpy(CMSG_DATA(&control.header), first->fds, sizeof(int) * first->fd_count);
	}
	return sendmsg(socket, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
}

static void drop_sent(struct outbox *outbox, size_t sent)
{
	outbox->bytes -= sent;
	while (sent > 0) {
		struct frame *frame = queue_entry(queue_first(&outbox->frames), struct frame, link);
		size_t rest = frame->length - frame->sent;

		/* The descriptors went with the first byte. */
		while (frame->fd_count > 0)
			fd_close(frame->fds[--frame->fd_count]);
		if (sent < rest) {
			frame->sent += sent;
			return;
		}
		sent -= rest;
		queue_remove(&frame->link);
		frame_free(frame);
	}
}

int outbox_send(struct outbox *outbox, int socket)
{
	while (!queue_is_empty(&outbox->frames)) {
		ssize_t sent = send_some(outbox, socket);

		if (sent < 0 && errno == EINTR)
			continue;
		if (sent < 0)
			return -errno;
		drop_sent(outbox, (size_t)sent);
	}
	return 0;
}
