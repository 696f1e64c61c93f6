#include "tests/fuzz/liar.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include "common/cleanup.h"

#define PAGE_BYTES 8192
#define MOST_FDS 3

/* The header is right; only what it announces is not. */
static void send_frame(struct fake_peer *peer, enum frame_type type, uint32_t number,
		       const struct script_record *record, const int *fds, unsigned count)
{
	uint32_t header[4] = { FRAME_MAGIC, 1 | (uint32_t)type << 16, (uint32_t)record->length, number };
	struct iovec parts[] = { { header, sizeof(header) }, { (void *)record->bytes, record->length } };
	union {
		struct cmsghdr header;
		char bytes[CMSG_SPACE(MOST_FDS * sizeof(int))];
	} control = { .bytes = { 0 } };
	struct msghdr message = { .msg_iov = parts, .msg_iovlen = 2 };

	if (count > 0) {
		message.msg_control = control.bytes;
		message.msg_controllen = CMSG_SPACE(count * sizeof(int));
		control.header.cmsg_level = SOL_SOCKET;
		control.header.cmsg_type = SCM_RIGHTS;
		control.header.cmsg_len = CMSG_LEN(count * sizeof(int));
		memcpy(CMSG_DATA(&control.header), fds, count * sizeof(int));
	}
	(void)!sendmsg(peer->fd, &message, MSG_NOSIGNAL);
}

/* A GPU's directory and lease page begin alike, and are one here. Returns how many there are. */
static unsigned fill_fds(const struct liar *liar, const Tierd__Wire__Request *request, int page,
			 int fds[MOST_FDS])
{
	fds[0] = request && request->body_case == BODY(GPU_GRADIENTS) ? liar->gpu_gradients : page;
	fds[1] = page;
	fds[2] = liar->gpu_memory;
	return request && request->body_case == BODY(GPU_ATTACH) ? 3 : 1;
}

/* Of what the record has after its first two bytes, which are the length of its Reply. */
static void send_page(struct liar *liar, uint32_t number, const Tierd__Wire__Request *request,
		      const struct script_record *record)
{
	_cleanup_close_ int fd = memfd_create("liar", MFD_CLOEXEC);
	struct script_record reply = *record;
	int fds[MOST_FDS];
	unsigned count = fill_fds(liar, request, fd, fds);
	size_t length;

	assert(fd >= 0 && ftruncate(fd, PAGE_BYTES) == 0);
	if (record->length >= 2) {
		length = (size_t)(record->bytes[0] | record->bytes[1] << 8);
		reply.bytes += 2;
		reply.length = length < record->length - 2 ? length : record->length - 2;
		assert(pwrite(fd, reply.bytes + reply.length, record->length - 2 - reply.length, 0) >= 0);
	}
	send_frame(&liar->peer, FRAME_REPLY, number, &reply, fds, count);
}

static void fail(struct fake_peer *peer, uint32_t number, const struct script_record *record)
{
	char words[64] = "";
	size_t length = record->length > 0 ? record->length - 1 : 0;

	if (length > 0)
		memcpy(words, record->bytes + 1, length < sizeof(words) - 1 ? length : sizeof(words) - 1);
	fake_peer_fail(peer, number, record->length > 0 ? -record->bytes[0] : 0, words);
}

/* True: the request has been answered, or never will be. request: NULL of a hello. */
static bool lie(struct liar *liar, uint32_t number, const Tierd__Wire__Request *request,
		const struct script_record *record)
{
	enum frame_type type = request ? FRAME_REPLY : FRAME_HELLO_REPLY;
	struct fake_peer *peer = &liar->peer;

	switch ((enum liar_action)(record->action & 7)) {
	case LIAR_ANSWER:
		return false;
	case LIAR_REPLY:
		send_frame(peer, type, number, record, NULL, 0);
		return true;
	case LIAR_PAGES:
		send_page(liar, number, request, record);
		return true;
	case LIAR_EVENT:
		send_frame(peer, FRAME_EVENT, 0, record, NULL, 0);
		return false;
	case LIAR_OTHER:
		send_frame(peer, FRAME_REPLY, number + 1, record, NULL, 0);
		return false;
	case LIAR_FAIL:
		fail(peer, number, record);
		return true;
	case LIAR_NOISE:
		fake_peer_send(peer, record->bytes, record->length);
		break;
	case LIAR_HANG_UP:
		break;
	}
	shutdown(peer->fd, SHUT_RDWR);
	return true;
}

/* What a client asks that believed other lies, the peer itself cannot answer. */
static bool is_sound(const struct fake_peer *peer, const Tierd__Wire__Request *request)
{
	switch (request->body_case) {
	case TIERD__WIRE__REQUEST__BODY_JOB_READY:
		return peer->unit_count > 0;
	case TIERD__WIRE__REQUEST__BODY_UNIT_DEFINE:
		return peer->unit_count < FAKE_MAX_UNITS;
	case TIERD__WIRE__REQUEST__BODY_GATHER:
		return peer->directory && request->gather->unit < peer->unit_count;
	case TIERD__WIRE__REQUEST__BODY_BUFFER_WAIT:
		return peer->directory != NULL;
	default:
		return true;
	}
}

/* To who watches, all that is left is told at once. */
static void answer_watch(struct liar *liar, uint32_t number, const Tierd__Wire__Request *request)
{
	struct script_record record;

	fake_peer_reply(&liar->peer, number, NULL);
	while (script_next(&liar->script, &record))
		lie(liar, number, request, &record);
	shutdown(liar->peer.fd, SHUT_RDWR);
}

static bool on_request(struct fake_peer *peer, uint32_t number, const Tierd__Wire__Request *request)
{
	struct liar *liar = container_of(peer, struct liar, peer);
	struct script_record record;

	if (request->body_case == TIERD__WIRE__REQUEST__BODY_WATCH) {
		answer_watch(liar, number, request);
		return true;
	}
	if (script_next(&liar->script, &record) && lie(liar, number, request, &record))
		return true;
	if (liar->answer_gpu && liar->answer_gpu(liar, number, request))
		return true;
	if (is_sound(peer, request))
		return false;
	shutdown(peer->fd, SHUT_RDWR);
	return true;
}

static bool on_hello(struct fake_peer *peer)
{
	struct liar *liar = container_of(peer, struct liar, peer);
	static const struct script_record good = { .bytes = (const uint8_t *)"\x0a\x00\x10\x01",
						   .length = 4 };
	struct script_record record;

	if (!script_next(&liar->script, &record) || !lie(liar, 0, NULL, &record))
		send_frame(peer, FRAME_HELLO_REPLY, 0, &good, NULL, 0);
	return true;
}

void liar_start(struct liar *liar, const uint8_t *bytes, size_t length)
{
	liar->peer = (struct fake_peer){ .hook = on_request, .greet = on_hello };
	liar->script = (struct script){ bytes, length };
	fake_peer_start(&liar->peer);
}

void liar_stop(struct liar *liar)
{
	fake_peer_stop(&liar->peer);
}
