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

/* The header is right; only what it announces is not. */
static void send_frame(struct fake_peer *peer, enum frame_type type, uint32_t number,
		       const struct script_record *record, int fd)
{
	uint32_t header[4] = { FRAME_MAGIC, 1 | (uint32_t)type << 16, (uint32_t)record->length, number };
	struct iovec parts[] = { { header, sizeof(header) }, { (void *)record->bytes, record->length } };
	union {
		struct cmsghdr header;
		char bytes[CMSG_SPACE(sizeof(int))];
	} control = { .bytes = { 0 } };
	struct msghdr message = { .msg_iov = parts, .msg_iovlen = 2 };

	if (fd >= 0) {
		message.msg_control = control.bytes;
		message.msg_controllen = CMSG_SPACE(sizeof(int));
		control.header.cmsg_level = SOL_SOCKET;
		control.header.cmsg_type = SCM_RIGHTS;
		control.header.cmsg_len = CMSG_LEN(sizeof(int));
		memcpy(CMSG_DATA(&control.header), &fd, sizeof(int));
	}
	(void)!sendmsg(peer->fd, &message, MSG_NOSIGNAL);
}

/* Of what the record has after its first two bytes, which are the length of its Reply. */
static void send_page(struct fake_peer *peer, uint32_t number, const struct script_record *record)
{
	_cleanup_close_ int fd = memfd_create("liar", MFD_CLOEXEC);
	struct script_record reply = *record;
	size_t length;

	assert(fd >= 0 && ftruncate(fd, PAGE_BYTES) == 0);
	if (record->length >= 2) {
		length = (size_t)(record->bytes[0] | record->bytes[1] << 8);
		reply.bytes += 2;
		reply.length = length < record->length - 2 ? length : record->length - 2;
		assert(pwrite(fd, reply.bytes + reply.length, record->length - 2 - reply.length, 0) >= 0);
	}
	send_frame(peer, FRAME_REPLY, number, &reply, fd);
}

static void fail(struct fake_peer *peer, uint32_t number, const struct script_record *record)
{
	char words[64] = "";
	size_t length = record->length > 0 ? record->length - 1 : 0;

	if (length > 0)
		memcpy(words, record->bytes + 1, length < sizeof(words) - 1 ? length : sizeof(words) - 1);
	fake_peer_fail(peer, number, record->length > 0 ? -record->bytes[0] : 0, words);
}

/* True: the request has been answered, or never will be. */
static bool lie(struct fake_peer *peer, uint32_t number, enum frame_type type,
		const struct script_record *record)
{
	switch ((enum liar_action)(record->action & 7)) {
	case LIAR_ANSWER:
		return false;
	case LIAR_REPLY:
		send_frame(peer, type, number, record, -1);
		return true;
	case LIAR_PAGES:
		send_page(peer, number, record);
		return true;
	case LIAR_EVENT:
		send_frame(peer, FRAME_EVENT, 0, record, -1);
		return false;
	case LIAR_OTHER:
		send_frame(peer, FRAME_REPLY, number + 1, record, -1);
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
static void answer_watch(struct liar *liar, uint32_t number)
{
	struct script_record record;

	fake_peer_reply(&liar->peer, number, NULL);
	while (script_next(&liar->script, &record))
		lie(&liar->peer, number, FRAME_REPLY, &record);
	shutdown(liar->peer.fd, SHUT_RDWR);
}

static bool on_request(struct fake_peer *peer, uint32_t number, const Tierd__Wire__Request *request)
{
	struct liar *liar = container_of(peer, struct liar, peer);
	struct script_record record;

	if (request->body_case == TIERD__WIRE__REQUEST__BODY_WATCH) {
		answer_watch(liar, number);
		return true;
	}
	if (script_next(&liar->script, &record) && lie(peer, number, FRAME_REPLY, &record))
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

	if (!script_next(&liar->script, &record) || !lie(peer, 0, FRAME_HELLO_REPLY, &record))
		send_frame(peer, FRAME_HELLO_REPLY, 0, &good, -1);
	return true;
}

void liar_start(struct liar *liar, const uint8_t *bytes, size_t length)
{
	*liar = (struct liar){ .peer = { .hook = on_request, .greet = on_hello },
			       .script = { bytes, length } };
	fake_peer_start(&liar->peer);
}

void liar_stop(struct liar *liar)
{
	fake_peer_stop(&liar->peer);
}
