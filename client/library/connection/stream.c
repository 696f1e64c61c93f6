#include "client/library/connection/stream.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>

struct stream {
	int fd;
	uint8_t *output; /* grows up to STREAM_MAX_OUTPUT */
	size_t output_size, output_first, output_end;
	int fds[STREAM_MAX_FDS];
	unsigned fd_count;
	size_t input_first, input_end;
	uint8_t input[FRAME_MAX_BYTES];
};

int stream_new(int fd, struct stream **ret_stream)
{
	struct stream *stream = malloc(sizeof(*stream));

	if (!stream) {
		close(fd);
		return -ENOMEM;
	}
	stream->fd = fd;
	stream->output = NULL;
	stream->output_size = stream->output_first = stream->output_end = 0;
	stream->input_first = stream->input_end = 0;
	stream->fd_count = 0;
	*ret_stream = stream;
	return 0;
}

struct stream *stream_free(struct stream *stream)
{
	if (!stream)
		return NULL;
	for (unsigned i = 0; i < stream->fd_count; i++)
		close(stream->fds[i]);
	close(stream->fd);
	free(stream->output);
	free(stream);
	return NULL;
}

int stream_fd(const struct stream *stream)
{
	return stream->fd;
}

static int reserve_output(struct stream *stream, size_t length)
{
	size_t waiting = stream->output_end - stream->output_first;

	if (waiting + length > STREAM_MAX_OUTPUT)
		return -ENOBUFS;
	if (stream->output_first > 0) {
		memmove(stream->output, stream->output + stream->output_first, waiting);
		stream->output_first = 0;
		stream->output_end = waiting;
	}
	if (waiting + length > stream->output_size) {
		size_t size = 2 * (waiting + length);
		uint8_t *output = realloc(stream->output, size);

		if (!output)
			return -ENOMEM;
		stream->output = output;
		stream->output_size = size;
	}
	return 0;
}

int stream_queue(struct stream *stream, uint32_t version, enum frame_type type, uint32_t request,
		 const ProtobufCMessage *message)
{
	_cleanup_free_ uint8_t *frame = NULL;
	size_t length;
	int r = frame_encode(version, type, request, message, &frame, &length);

	if (r == 0)
		r = reserve_output(stream, length);
	if (r < 0)
		return r;
	memcpy(stream->output + stream->output_end, frame, length);
	stream->output_end += length;
	return 0;
}

bool stream_has_output(const struct stream *stream)
{
	return stream->output_first < stream->output_end;
}

int stream_flush(struct stream *stream)
{
	while (stream_has_output(stream)) {
		ssize_t sent = send(stream->fd, stream->output + stream->output_first,
				    stream->output_end - stream->output_first, MSG_NOSIGNAL | MSG_DONTWAIT);

		if (sent >= 0)
			stream->output_first += (size_t)sent;
		else if (errno == EAGAIN)
			return 0;
		else if (errno != EINTR)
			return errno == EPIPE ? -ECONNRESET : -errno;
	}
	stream->output_first = stream->output_end = 0;
	return 0;
}

/* Takes all descriptors before anything is refused, so that none leaks. */
static int take_fds(struct stream *stream, struct msghdr *message)
{
	bool is_refused = message->msg_flags & MSG_CTRUNC;

	for (struct cmsghdr *control = CMSG_FIRSTHDR(message); control;
	     control = CMSG_NXTHDR(message, control)) {
		if (control->cmsg_level != SOL_SOCKET || control->cmsg_type != SCM_RIGHTS)
			continue;
		size_t count = (control->cmsg_len - CMSG_LEN(0)) / sizeof(int);

		for (size_t i = 0; i < count; i++) {
			int fd;

			memcpy(&fd, CMSG_DATA(control) + i * sizeof(int), sizeof(int));
			if (stream->fd_count < STREAM_MAX_FDS) {
				stream->fds[stream->fd_count++] = fd;
			} else {
				close(fd);
				is_refused = true;
			}
		}
	}
	return is_refused ? -EPROTO : 0;
}

int stream_fill(struct stream *stream)
{
	union {
		struct cmsghdr header;
		char bytes[CMSG_SPACE(STREAM_MAX_FDS * sizeof(int))];
	} control;
	struct iovec vector;
	struct msghdr message = { .msg_iov = &vector,
				  .msg_iovlen = 1,
				  .msg_control = control.bytes,
				  .msg_controllen = sizeof(control.bytes) };
	ssize_t got;

	if (stream->input_first > 0) {
		memmove(stream->input, stream->input + stream->input_first,
			stream->input_end - stream->input_first);
		stream->input_end -= stream->input_first;
		stream->input_first = 0;
	}
	vector.iov_base = stream->input + stream->input_end;
	vector.iov_len = sizeof(stream->input) - stream->input_end;
	do
		got = recvmsg(stream->fd, &message, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
	while (got < 0 && errno == EINTR);
	if (got < 0)
		return -errno;
	if (got == 0)
		return -ECONNRESET;
	stream->input_end += (size_t)got;
	return take_fds(stream, &message);
}

int stream_next(struct stream *stream, struct frame_header *ret_header, const uint8_t **ret_payload)
{
	size_t waiting = stream->input_end - stream->input_first;
	const uint8_t *bytes = stream->input + stream->input_first;
	struct frame_header header;
	int r;

	if (waiting < FRAME_HEADER_BYTES)
		return 0;
	r = frame_header_decode(bytes, &header);
	if (r < 0)
		return r;
	if (waiting - FRAME_HEADER_BYTES < header.length)
		return 0;
	stream->input_first += FRAME_HEADER_BYTES + header.length;
	*ret_header = header;
	*ret_payload = bytes + FRAME_HEADER_BYTES;
	return 1;
}

int stream_take_fd(struct stream *stream)
{
	if (stream->fd_count == 0)
		return -1;
	int fd = stream->fds[0];

	stream->fd_count--;
	memmove(stream->fds, stream->fds + 1, stream->fd_count * sizeof(int));
	return fd;
}

bool stream_has_stray_fds(const struct stream *stream)
{
	return stream->fd_count > 0 && stream->input_first == stream->input_end;
}
