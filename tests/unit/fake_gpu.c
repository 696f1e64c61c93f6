#include "tests/unit/fake_gpu.h"

#include <assert.h>
#include <errno.h>
#include <semaphore.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "offload/cuda/driver.h"
#include "tests/lib/gpu/cuda_calls.h"
#include "tests/lib/gpu/script.h"

/* What the process of the GPU is told. It answers each with the same. */
struct order {
	enum { OPEN, COPY, HOLD, GO_ON, SYNCHRONIZE, OVERWRITE, STOP } kind;
	uint32_t unit;
	unsigned char value;
	bool is_late;	/* OPEN: they may be gone */
	uint64_t event; /* of the client's, by number; 0: none */
	struct driver_event_handle
		handles[GPU_EVENTS]; /* of the client's; in the answer its own, for each slot */
};
static_assert(GPU_EVENTS >= FAKE_GPU_SLOTS, "an answer has all events");

/* ---- The process ---- */

#define did(call) assert((call) == DRIVER_DONE)

static struct driver driver;
static struct driver_stream *stream;
static struct driver_event *ours[FAKE_GPU_SLOTS], *theirs[GPU_EVENTS];
static driver_address memory;
static sem_t going;

static int make_memory(void)
{
	const struct driver_memory_kind kind = { .type = DRIVER_PINNED,
						 .handles = DRIVER_DESCRIPTOR,
						 .location = { DRIVER_ON_GPU, 0 } };
	const struct driver_access access = { { DRIVER_ON_GPU, 0 }, DRIVER_READ_WRITE };
	driver_allocation allocation;
	int fd;

	did(driver.memory_create(&allocation, FAKE_GPU_BYTES, &kind, 0));
	did(driver.address_reserve(&memory, FAKE_GPU_BYTES, 0, 0, 0));
	did(driver.memory_map(memory, FAKE_GPU_BYTES, 0, allocation, 0));
	did(driver.memory_allow(memory, FAKE_GPU_BYTES, &access, 1));
	did(driver.memory_export(&fd, allocation, DRIVER_DESCRIPTOR, 0));
	return fd;
}

static int begin(struct order *ret_first)
{
	struct dynamic_library library = { .is_found = false };
	struct driver_context *context;

	sem_init(&going, 0, 0);
	assert(driver_open(&driver, &library));
	did(driver.context_retain(&context, 0));
	did(driver.context_enter(context));
	did(driver.stream_create(&stream, DRIVER_NO_STREAM_0));
	for (unsigned i = 0; i < FAKE_GPU_SLOTS; i++) {
		did(driver.event_create(&ours[i], DRIVER_NO_TIMES | DRIVER_SHARED));
		did(driver.event_export(&ret_first->handles[i], ours[i]));
	}
	return make_memory();
}

static void open_theirs(const struct order *order)
{
	for (unsigned i = 0; i < GPU_EVENTS; i++) {
		if (theirs[i])
			did(driver.event_destroy(theirs[i]));
		theirs[i] = NULL;
		if (driver.event_import(&theirs[i], order->handles[i]) != DRIVER_DONE)
			assert(order->is_late);
	}
}

static void wait_to_go_on(void *argument)
{
	while (sem_wait(&going) < 0)
		assert(errno == EINTR);
}

static void fill(const struct order *order)
{
	if (order->event && theirs[gpu_event_at(order->event)])
		did(driver.stream_wait(stream, theirs[gpu_event_at(order->event)], 0));
	did(cuMemsetD8Async(memory + order->unit * FAKE_GPU_SLOT_BYTES, order->value, FAKE_GPU_SLOT_BYTES,
			    stream));
	did(driver.event_record(ours[order->unit], stream));
}

static void obey(const struct order *order)
{
	if (order->kind == OPEN)
		open_theirs(order);
	if (order->kind == COPY || order->kind == OVERWRITE)
		fill(order);
	if (order->kind == HOLD)
		did(cuLaunchHostFunc(stream, wait_to_go_on, NULL));
	if (order->kind == GO_ON)
		sem_post(&going);
	if (order->kind == SYNCHRONIZE || order->kind == OVERWRITE)
		did(driver.stream_synchronize(stream));
}

static void send_fd(int socket, const struct order *order, int fd)
{
	union {
		struct cmsghdr header;
		char bytes[CMSG_SPACE(sizeof(int))];
	} control = { .bytes = { 0 } };
	struct iovec vector = { (void *)order, sizeof(*order) };
	struct msghdr message = { .msg_iov = &vector,
				  .msg_iovlen = 1,
				  .msg_control = control.bytes,
				  .msg_controllen = sizeof(control.bytes) };

	control.header.cmsg_level = SOL_SOCKET;
	control.header.cmsg_type = SCM_RIGHTS;
	control.header.cmsg_len = CMSG_LEN(sizeof(int));
	memcpy(CMSG_DATA(&control.header), &fd, sizeof(int));
	assert(sendmsg(socket, &message, MSG_NOSIGNAL) == sizeof(*order));
}

int fake_gpu_main(char **argv)
{
	int socket = atoi(argv[1]), fd;
	struct order order = { .kind = OPEN };

	fd = begin(&order);
	send_fd(socket, &order, fd);
	close(fd);
	while (recv(socket, &order, sizeof(order), MSG_WAITALL) == sizeof(order)) {
		obey(&order);
		if (send(socket, &order, sizeof(order), MSG_NOSIGNAL) != sizeof(order) || order.kind == STOP)
			break;
	}
	/* Not by _exit(), in which ThreadSanitizer waits for a second. */
	syscall(SYS_exit_group, 0);
	return 0;
}

/* ---- The peer's side ---- */

static bool give_order(struct fake_gpu *gpu, struct order order)
{
	return send(gpu->socket, &order, sizeof(order), MSG_NOSIGNAL) == sizeof(order) &&
	       recv(gpu->socket, &order, sizeof(order), MSG_WAITALL) == sizeof(order);
}

static int shared_memory(size_t bytes, void *ret_address)
{
	int fd = memfd_create("fake GPU pages", MFD_CLOEXEC);

	assert(fd >= 0 && ftruncate(fd, (off_t)bytes) == 0);
	void *address = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	assert(address != MAP_FAILED);
	memcpy(ret_address, &address, sizeof(address));
	return fd;
}

static int receive_fd(int socket, struct order *ret_order)
{
	union {
		struct cmsghdr header;
		char bytes[CMSG_SPACE(sizeof(int))];
	} control = { .bytes = { 0 } };
	struct iovec vector = { ret_order, sizeof(*ret_order) };
	struct msghdr message = { .msg_iov = &vector,
				  .msg_iovlen = 1,
				  .msg_control = control.bytes,
				  .msg_controllen = sizeof(control.bytes) };
	int fd;

	assert(recvmsg(socket, &message, MSG_WAITALL | MSG_CMSG_CLOEXEC) == sizeof(*ret_order));
	assert(message.msg_controllen > 0);
	memcpy(&fd, CMSG_DATA(&control.header), sizeof(int));
	return fd;
}

static struct driver_event_handle copied[FAKE_GPU_SLOTS];

void fake_gpu_start(struct fake_gpu *gpu)
{
	char number[16], *const arguments[] = { (char *)FAKE_GPU_NAME, number, NULL };
	struct order first;
	int ends[2];

	gpu->fds[0] = gpu->fds[1] = -1;
	assert(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0);
	snprintf(number, sizeof(number), "%d", dup(ends[1]));
	assert(posix_spawn(&gpu->process, "/proc/self/exe", NULL, NULL, arguments, standin_environment()) ==
	       0);
	close(atoi(number));
	close(ends[1]);
	gpu->socket = ends[0];
	gpu->fds[2] = receive_fd(gpu->socket, &first);
	memcpy(copied, first.handles, sizeof(copied));
}

const void *fake_gpu_handle(unsigned slot)
{
	return &copied[slot];
}

static void drop_pages(struct fake_gpu *gpu)
{
	if (!gpu->directory)
		return;
	munmap(gpu->directory, directory_bytes(gpu->unit_count, 0));
	munmap(gpu->leases, gpu_lease_bytes(gpu->unit_count));
	close(gpu->fds[0]);
	close(gpu->fds[1]);
	gpu->directory = NULL;
}

void fake_gpu_stop(struct fake_gpu *gpu)
{
	int status;

	(void)give_order(gpu, (struct order){ .kind = STOP });
	assert(waitpid(gpu->process, &status, 0) == gpu->process);
	assert((status == 0) == !gpu->has_raced);
	drop_pages(gpu);
	close(gpu->socket);
	close(gpu->fds[2]);
}

/* ---- Requests ---- */

unsigned char fake_gpu_value(uint32_t unit, uint64_t step)
{
	return (unsigned char)(16 * (unit + 1) + step);
}

static void make_pages(struct fake_gpu *gpu, uint32_t unit_count)
{
	drop_pages(gpu);
	gpu->unit_count = unit_count;
	gpu->fds[0] = shared_memory(directory_bytes(unit_count, 0), &gpu->directory);
	gpu->fds[1] = shared_memory(gpu_lease_bytes(unit_count), &gpu->leases);
	gpu->directory->magic = gpu->leases->magic = GPU_PAGES_MAGIC;
	gpu->directory->version = gpu->leases->version = GPU_PAGES_VERSION;
	gpu->directory->unit_count = gpu->leases->unit_count = unit_count;
}

static void answer_attach(struct fake_gpu *gpu, struct fake_peer *peer, uint32_t number,
			  const Tierd__Wire__GpuAttach *attach)
{
	Tierd__Wire__GpuAttachReply reply = TIERD__WIRE__GPU_ATTACH_REPLY__INIT;
	struct order order = { .kind = OPEN, .is_late = gpu->is_late };
	ProtobufCBinaryData events[FAKE_GPU_SLOTS];

	assert(attach->n_events == GPU_EVENTS && attach->uuid.len == GPU_UUID_BYTES && attach->job == 7 &&
	       attach->epoch == peer->epoch);
	memcpy(gpu->uuid, attach->uuid.data, GPU_UUID_BYTES);
	gpu->budget = attach->budget;
	gpu->update_fraction = attach->update_fraction;
	for (unsigned i = 0; i < GPU_EVENTS; i++) {
		assert(attach->events[i].len == GPU_HANDLE_BYTES);
		memcpy(&order.handles[i], attach->events[i].data, GPU_HANDLE_BYTES);
	}
	assert(give_order(gpu, order));
	make_pages(gpu, peer->unit_count);
	for (unsigned i = 0; i < FAKE_GPU_SLOTS; i++)
		events[i] = (ProtobufCBinaryData){ GPU_HANDLE_BYTES, (uint8_t *)&copied[i] };
	reply.directory_bytes = directory_bytes(peer->unit_count, 0);
	reply.lease_bytes = gpu_lease_bytes(peer->unit_count);
	reply.memory_bytes = FAKE_GPU_BYTES;
	reply.is_whole = gpu->is_whole;
	reply.n_events = FAKE_GPU_SLOTS;
	reply.events = events;
	if (gpu->spoil)
		gpu->spoil(gpu, &reply);
	gpu->attached++;
	fake_peer_reply_fds(peer, number, WIRE_REPLY(GPU_ATTACH, gpu_attach, &reply), gpu->fds, 3);
}

/* Unless it is there, or on its way. */
static void copy_once(struct fake_gpu *gpu, uint32_t unit, uint64_t step)
{
	struct order order = {
		.kind = COPY, .unit = unit, .value = fake_gpu_value(unit, step), .event = gpu->leases->fence
	};

	if (gpu->values[unit] != order.value)
		assert(give_order(gpu, order));
	gpu->values[unit] = order.value;
}

static void answer_gather(struct fake_gpu *gpu, struct fake_peer *peer, uint32_t number,
			  const Tierd__Wire__GpuGather *gather)
{
	Tierd__Wire__GpuGatherReply reply = TIERD__WIRE__GPU_GATHER_REPLY__INIT;

	assert(gather->is_blocking && gather->version <= peer->step);
	copy_once(gpu, gather->unit, peer->step);
	gpu_lease_counters(gpu->leases)[gather->unit]++;
	gpu->gathers++;
	reply.offset = gather->unit * FAKE_GPU_SLOT_BYTES;
	reply.version = peer->step;
	reply.event = gather->unit;
	reply.has_arrived = gpu->is_lying;
	fake_peer_reply(peer, number, WIRE_REPLY(GPU_GATHER, gpu_gather, &reply));
}

bool fake_gpu_answer(struct fake_gpu *gpu, struct fake_peer *peer, uint32_t number,
		     const Tierd__Wire__Request *request)
{
	if (request->body_case == BODY(GPU_ATTACH))
		answer_attach(gpu, peer, number, request->gpu_attach);
	else if (request->body_case == BODY(GPU_GATHER))
		answer_gather(gpu, peer, number, request->gpu_gather);
	else
		return false;
	return true;
}

/* ---- What else happens to it ---- */

void fake_gpu_hold(struct fake_gpu *gpu, bool is_held)
{
	assert(give_order(gpu, (struct order){ .kind = is_held ? HOLD : GO_ON }));
}

void fake_gpu_publish(struct fake_gpu *gpu, uint32_t unit, uint64_t step)
{
	assert(give_order(gpu, (struct order){ .kind = SYNCHRONIZE }));
	directory_publish(&directory_entries(gpu->directory)[unit], unit * FAKE_GPU_SLOT_BYTES, step);
}

bool fake_gpu_overwrite(struct fake_gpu *gpu, uint32_t unit, uint64_t event)
{
	const struct order order = { .kind = OVERWRITE, .unit = unit, .value = 0xee, .event = event };

	gpu->has_raced = !give_order(gpu, order);
	gpu->values[unit] = order.value;
	return !gpu->has_raced;
}
