#include "tests/unit/gpu/gpu_peer.h"

#include <errno.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "tests/lib/gpu/cuda_calls.h"
#include "tests/lib/gpu/script.h"
#include "tests/unit/test.h"

struct order {
	enum {
		ORDER_MAP,
		ORDER_MAP_GRADIENTS,
		ORDER_READ,
		ORDER_WRITE,
		ORDER_RECORD,
		ORDER_HOLD,
		ORDER_LOOK
	} kind;
	uint32_t event;
	uint64_t number, bytes;
};

/* ---- The peer, where there is no cmocka ---- */

#define did(call)                                                                                            \
	do {                                                                                                 \
		int error_ = (call);                                                                         \
		if (error_ != DRIVER_DONE) {                                                                 \
			fprintf(stderr, "peer: %s: error %d\n", #call, error_);                              \
			_exit(1);                                                                            \
		}                                                                                            \
	} while (0)

#define EVENTS_MAX 1024

static struct driver_context *context;
static struct driver_stream *stream;
static struct driver_event *own[GPU_EVENTS], *others[EVENTS_MAX];
static driver_address memory, gradients;
static unsigned char host[2 * PEER_READ_BYTES] __attribute__((aligned(4096)));
static int channel;

static void take(void *bytes, size_t count)
{
	if (recv(channel, bytes, count, MSG_WAITALL) != (ssize_t)count)
		_exit(0);
}

static void tell(const void *bytes, size_t count)
{
	if (send(channel, bytes, count, MSG_NOSIGNAL) != (ssize_t)count)
		_exit(0);
}

static int take_descriptor(void)
{
	char byte, space[CMSG_SPACE(sizeof(int))];
	struct iovec part = { &byte, 1 };
	struct msghdr message = {
		.msg_iov = &part, .msg_iovlen = 1, .msg_control = space, .msg_controllen = sizeof(space)
	};
	int fd;

	if (recvmsg(channel, &message, 0) != 1 || !CMSG_FIRSTHDR(&message))
		_exit(1);
	memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof(fd));
	return fd;
}

static driver_address map_memory(size_t bytes)
{
	const struct driver_access access = { { DRIVER_ON_GPU, 0 }, DRIVER_READ_WRITE };
	int fd = take_descriptor();
	driver_allocation allocation;
	driver_address address;

	did(cuMemImportFromShareableHandle(&allocation, (void *)(uintptr_t)fd, DRIVER_DESCRIPTOR));
	close(fd);
	did(cuMemAddressReserve(&address, bytes, 0, 0, 0));
	did(cuMemMap(address, bytes, 0, allocation, 0));
	did(cuMemSetAccess(address, bytes, &access, 1));
	return address;
}

static void do_map(size_t bytes, unsigned count)
{
	memory = map_memory(bytes);
	for (unsigned i = 0; i < count; i++) {
		struct driver_event_handle handle;

		take(&handle, sizeof(handle));
		did(cuIpcOpenEventHandle(&others[i], handle));
	}
	tell("", 1);
}

static void follow(const struct order *order)
{
	switch (order->kind) {
	case ORDER_MAP:
		do_map(order->number, order->event);
		break;
	case ORDER_MAP_GRADIENTS:
		gradients = map_memory(order->number);
		break;
	case ORDER_WRITE:
		did(cuMemsetD8Async(gradients + order->number, (unsigned char)order->event, order->bytes,
				    stream));
		break;
	case ORDER_READ:
		if (order->event != PEER_NO_EVENT)
			did(cuStreamWaitEvent(stream, others[order->event], 0));
		did(cuMemcpyAsync((uintptr_t)host, memory + order->number, PEER_READ_BYTES, stream));
		break;
	case ORDER_RECORD:
		did(cuEventRecord(own[gpu_event_at(order->number)], stream));
		break;
	case ORDER_HOLD:
		standin_hold(order->number);
		break;
	case ORDER_LOOK:
		did(cuStreamSynchronize(stream));
		tell(host, PEER_READ_BYTES);
		break;
	}
	if (order->kind != ORDER_MAP && order->kind != ORDER_LOOK)
		tell("", 1);
}

int gpu_peer_run(int argc, char **argv)
{
	struct order order;

	channel = atoi(argv[1]);
	/* What fails is the daemon's. */
	standin_tell("STANDIN_FAILURES", "");
	did(cuInit(0));
	did(cuDevicePrimaryCtxRetain(&context, 0));
	did(cuCtxSetCurrent(context));
	did(cuMemHostRegister_v2(host, sizeof(host), 0));
	did(cuStreamCreate(&stream, DRIVER_NO_STREAM_0));
	for (unsigned i = 0; i < GPU_EVENTS; i++) {
		struct driver_event_handle handle;

		did(cuEventCreate(&own[i], DRIVER_NO_TIMES | DRIVER_SHARED));
		did(cuIpcGetEventHandle(&handle, own[i]));
		tell(&handle, sizeof(handle));
	}
	for (;;) {
		take(&order, sizeof(order));
		follow(&order);
	}
}

/* ---- The test ---- */

static void send_all(const struct gpu_peer *peer, const void *bytes, size_t count)
{
	assert_int_equal(send(peer->socket, bytes, count, MSG_NOSIGNAL), count);
}

static void receive_all(const struct gpu_peer *peer, void *bytes, size_t count)
{
	assert_int_equal(recv(peer->socket, bytes, count, MSG_WAITALL), count);
}

static void give(const struct gpu_peer *peer, const struct order *order)
{
	char done;

	send_all(peer, order, sizeof(*order));
	receive_all(peer, &done, 1);
}

void gpu_peer_start(struct gpu_peer *peer)
{
	char number[12], *arguments[] = { program_invocation_name, number, NULL };
	int pair[2], inherited;

	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
	inherited = dup(pair[1]);
	snprintf(number, sizeof(number), "%d", inherited);
	assert_int_equal(
		posix_spawn(&peer->pid, "/proc/self/exe", NULL, NULL, arguments, standin_environment()), 0);
	/* So a peer that has ended is seen to have ended. */
	close(inherited);
	close(pair[1]);
	peer->socket = pair[0];
	for (unsigned i = 0; i < GPU_EVENTS; i++)
		receive_all(peer, peer->events[i], GPU_HANDLE_BYTES);
}

void gpu_peer_end(struct gpu_peer *peer)
{
	kill(peer->pid, SIGKILL);
	assert_int_equal(waitpid(peer->pid, NULL, 0), peer->pid);
	close(peer->socket);
}

static char blocking[64];

void gpu_peer_block(const char *calls)
{
	char setting[256];
	int fd;

	strcpy(blocking, "/tmp/tierd-gpu-XXXXXX");
	fd = mkstemp(blocking);
	assert_true(fd >= 0);
	close(fd);
	snprintf(setting, sizeof(setting), "%s=%s", calls, blocking);
	standin_tell("STANDIN_BLOCKS", setting);
}

void gpu_peer_unblock(void)
{
	unlink(blocking);
}

void gpu_peer_await_blocked(void)
{
	struct stat status;

	for (assert_int_equal(stat(blocking, &status), 0); status.st_size == 0;
	     assert_int_equal(stat(blocking, &status), 0))
		usleep(1000);
}

static void send_descriptor(struct gpu_peer *peer, int fd)
{
	char byte = 0, space[CMSG_SPACE(sizeof(int))] = { 0 };
	struct iovec part = { &byte, 1 };
	struct msghdr message = {
		.msg_iov = &part, .msg_iovlen = 1, .msg_control = space, .msg_controllen = sizeof(space)
	};
	struct cmsghdr *header = CMSG_FIRSTHDR(&message);

	header->cmsg_level = SOL_SOCKET;
	header->cmsg_type = SCM_RIGHTS;
	header->cmsg_len = CMSG_LEN(sizeof(fd));
	memcpy(CMSG_DATA(header), &fd, sizeof(fd));
	assert_int_equal(sendmsg(peer->socket, &message, MSG_NOSIGNAL), 1);
}

void gpu_peer_map(struct gpu_peer *peer, int fd, size_t bytes, unsigned count,
		  const unsigned char (*handles)[GPU_HANDLE_BYTES])
{
	const struct order order = { ORDER_MAP, count, bytes, 0 };
	char byte;

	assert_true(count <= EVENTS_MAX);
	send_all(peer, &order, sizeof(order));
	send_descriptor(peer, fd);
	send_all(peer, handles, (size_t)count * GPU_HANDLE_BYTES);
	receive_all(peer, &byte, 1);
}

void gpu_peer_map_gradients(struct gpu_peer *peer, int fd, size_t bytes)
{
	const struct order order = { ORDER_MAP_GRADIENTS, 0, bytes, 0 };
	char byte;

	send_all(peer, &order, sizeof(order));
	send_descriptor(peer, fd);
	receive_all(peer, &byte, 1);
}

void gpu_peer_write(struct gpu_peer *peer, size_t offset, size_t bytes, unsigned char value)
{
	give(peer, &(struct order){ ORDER_WRITE, value, offset, bytes });
}

void gpu_peer_read(struct gpu_peer *peer, size_t offset, uint32_t event)
{
	give(peer, &(struct order){ ORDER_READ, event, offset, 0 });
}

void gpu_peer_record(struct gpu_peer *peer, uint64_t number)
{
	give(peer, &(struct order){ ORDER_RECORD, 0, number, 0 });
}

void gpu_peer_hold(struct gpu_peer *peer, bool is_held)
{
	give(peer, &(struct order){ ORDER_HOLD, 0, is_held, 0 });
}

void gpu_peer_look(struct gpu_peer *peer, unsigned char ret_bytes[PEER_READ_BYTES])
{
	send_all(peer, &(struct order){ ORDER_LOOK, 0, 0, 0 }, sizeof(struct order));
	receive_all(peer, ret_bytes, PEER_READ_BYTES);
}
