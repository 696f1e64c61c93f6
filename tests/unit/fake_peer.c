#include "tests/unit/fake_peer.h"

#include <assert.h>
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "proto/status.h"

/* ---- Bytes ---- */

void fake_peer_send(struct fake_peer *peer, const void *bytes, size_t length)
{
	/* A library that has given up closes its side. */
	(void)!send(peer->fd, bytes, length, MSG_NOSIGNAL);
}

static void send_frame(struct fake_peer *peer, enum frame_type type, uint32_t number,
		       const ProtobufCMessage *message, const int *fds, unsigned count)
{
	union {
		struct cmsghdr header;
		char bytes[CMSG_SPACE(8 * sizeof(int))];
	} control = { .bytes = { 0 } };
	uint8_t *frame;
	size_t length;

	assert(frame_encode(peer->version ?: 1, type, number, message, &frame, &length) == 0);
	struct iovec vector = { frame, length };
	struct msghdr header = { .msg_iov = &vector, .msg_iovlen = 1 };

	if (count > 0) {
		header.msg_control = control.bytes;
		header.msg_controllen = CMSG_SPACE(count * sizeof(int));
		control.header.cmsg_level = SOL_SOCKET;
		control.header.cmsg_type = SCM_RIGHTS;
		control.header.cmsg_len = CMSG_LEN(count * sizeof(int));
		memcpy(CMSG_DATA(&control.header), fds, count * sizeof(int));
	}
	(void)!sendmsg(peer->fd, &header, MSG_NOSIGNAL);
	free(frame);
}

void fake_peer_reply_fds(struct fake_peer *peer, uint32_t number, Tierd__Wire__Reply *body, const int *fds,
			 unsigned count)
{
	Tierd__Wire__Status status = TIERD__WIRE__STATUS__INIT;
	Tierd__Wire__Reply empty = TIERD__WIRE__REPLY__INIT;

	if (!body)
		body = &empty;
	body->status = &status;
	send_frame(peer, FRAME_REPLY, number, &body->base, fds, count);
}

void fake_peer_reply(struct fake_peer *peer, uint32_t number, Tierd__Wire__Reply *body)
{
	fake_peer_reply_fds(peer, number, body, NULL, 0);
}

void fake_peer_fail(struct fake_peer *peer, uint32_t number, int r, const char *message)
{
	Tierd__Wire__Status status = TIERD__WIRE__STATUS__INIT;
	Tierd__Wire__Reply reply = TIERD__WIRE__REPLY__INIT;

	status.code = status_from_errno(r);
	status.message = (char *)message;
	reply.status = &status;
	send_frame(peer, FRAME_REPLY, number, &reply.base, NULL, 0);
}

static void end_epoch(struct fake_peer *peer, const char *reason, bool may_return)
{
	Tierd__Wire__Status status = TIERD__WIRE__STATUS__INIT;
	Tierd__Wire__Event__EpochEnded ended = TIERD__WIRE__EVENT__EPOCH_ENDED__INIT;
	Tierd__Wire__Event event = TIERD__WIRE__EVENT__INIT;

	status.message = (char *)reason;
	ended.job = 7;
	ended.epoch = peer->epoch++;
	ended.reason = &status;
	ended.may_return = may_return;
	event.body_case = TIERD__WIRE__EVENT__BODY_EPOCH_ENDED;
	event.epoch_ended = &ended;
	if (peer->directory)
		peer->directory->epoch = peer->epoch;
	send_frame(peer, FRAME_EVENT, 0, &event.base, NULL, 0);
}

void fake_peer_end_epoch(struct fake_peer *peer, const char *reason)
{
	end_epoch(peer, reason, false);
}

void fake_peer_send_away(struct fake_peer *peer, const char *reason)
{
	end_epoch(peer, reason, true);
	peer->unit_count = 0;
	peer->has_sent_pages = false;
}

/* ---- Answers ---- */

static int shared_memory(size_t bytes, void *ret_address)
{
	int fd = memfd_create("fake", MFD_CLOEXEC);

	assert(fd >= 0 && ftruncate(fd, (off_t)bytes) == 0);
	void *address = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	assert(address != MAP_FAILED);
	memcpy(ret_address, &address, sizeof(address));
	return fd;
}

static void answer_open(struct fake_peer *peer, uint32_t number)
{
	Tierd__Wire__JobOpenReply open = TIERD__WIRE__JOB_OPEN_REPLY__INIT;
	Tierd__Wire__Reply reply = TIERD__WIRE__REPLY__INIT;

	if (!peer->window)
		peer->window_fd = shared_memory(FAKE_WINDOW_BYTES, &peer->window);
	open.job = 7;
	open.status = peer->step > 0 ? 2 : 1;
	open.step = peer->step;
	open.window_bytes = FAKE_WINDOW_BYTES;
	reply.body_case = TIERD__WIRE__REPLY__BODY_JOB_OPEN;
	reply.job_open = &open;
	fake_peer_reply_fds(peer, number, &reply, &peer->window_fd, 1);
}

static void answer_define(struct fake_peer *peer, uint32_t number, const Tierd__Wire__UnitDefine *define)
{
	Tierd__Wire__UnitDefineReply unit = TIERD__WIRE__UNIT_DEFINE_REPLY__INIT;
	Tierd__Wire__Reply reply = TIERD__WIRE__REPLY__INIT;
	struct unit_layout *layout = &peer->layouts[peer->unit_count];
	struct tensor_layout tensor;
	uint64_t elements;

	unit_layout_init(layout);
	for (size_t i = 0; i < define->n_tensors; i++) {
		const Tierd__Wire__Tensor *given = define->tensors[i];

		assert(unit_layout_elements(given->shape, given->n_shape, &elements) == 0);
		assert(unit_layout_append(layout, given->format,
					  given->is_frozen ? UNIT_FROZEN : MOMENTS_IN_FP32, elements,
					  &tensor) == 0);
	}
	unit_layout_finish(layout);
	unit.unit = peer->unit_count++;
	reply.body_case = TIERD__WIRE__REPLY__BODY_UNIT_DEFINE;
	reply.unit_define = &unit;
	fake_peer_reply(peer, number, &reply);
}

static uint64_t count_sections(const struct fake_peer *peer)
{
	uint64_t count = 0;

	for (uint32_t unit = 0; unit < peer->unit_count; unit++)
		count += unit_layout_sections(&peer->layouts[unit]);
	return count;
}

static void fill_sections(const struct fake_peer *peer, uint64_t *sections)
{
	for (uint32_t unit = 0; unit < peer->unit_count; unit++) {
		uint64_t offset = 0;

		for (int section = 0; section < UNIT_SECTIONS; section++) {
			if (peer->layouts[unit].elements[section] > 0)
				*sections++ = offset;
			offset += peer->layouts[unit].elements[section] *
				  section_element_bytes((enum unit_section)section);
		}
	}
}

void fake_peer_make_pages(struct fake_peer *peer)
{
	peer->directory_bytes = directory_bytes(peer->unit_count, count_sections(peer));
	peer->fds[0] = shared_memory(peer->directory_bytes, &peer->directory);
	peer->fds[1] = shared_memory(peer->unit_count * FAKE_SLOT_BYTES, &peer->arena_bytes);
	peer->fds[2] = shared_memory(lease_bytes(peer->unit_count, FAKE_BUFFERS), &peer->leases);
	peer->fds[3] = shared_memory(FAKE_BUFFERS * FAKE_BUFFER_BYTES, &peer->gradients);
	peer->fds[4] = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	peer->directory->magic = peer->leases->magic = PAGES_MAGIC;
	peer->directory->version = peer->leases->version = PAGES_VERSION;
	peer->directory->unit_count = peer->leases->unit_count = peer->unit_count;
	peer->directory->section_count = count_sections(peer);
	peer->leases->buffer_count = FAKE_BUFFERS;
	peer->leases->doorbell_at = UINT64_MAX;
	fill_sections(peer, directory_sections(peer->directory));
	peer->epoch = 1;
	peer->directory->epoch = 1;
}

static void answer_ready(struct fake_peer *peer, uint32_t number)
{
	Tierd__Wire__JobReadyReply ready = TIERD__WIRE__JOB_READY_REPLY__INIT;
	Tierd__Wire__Reply reply = TIERD__WIRE__REPLY__INIT;
	bool is_first = !peer->has_sent_pages;

	if (is_first && !peer->directory)
		fake_peer_make_pages(peer);
	peer->has_sent_pages = true;
	ready.status = 1;
	ready.step = peer->step;
	ready.epoch = peer->epoch;
	ready.unit_count = peer->unit_count;
	ready.directory_bytes = peer->directory_bytes;
	ready.arena_bytes = peer->unit_count * FAKE_SLOT_BYTES;
	ready.lease_bytes = lease_bytes(peer->unit_count, FAKE_BUFFERS);
	ready.gradient_buffers = FAKE_BUFFERS;
	ready.gradient_buffer_bytes = FAKE_BUFFER_BYTES;
	reply.body_case = TIERD__WIRE__REPLY__BODY_JOB_READY;
	reply.job_ready = &ready;
	fake_peer_reply_fds(peer, number, &reply, peer->fds, is_first ? 5 : 0);
}

void fake_peer_gather(struct fake_peer *peer, uint32_t number, uint32_t unit)
{
	Tierd__Wire__GatherReply gather = TIERD__WIRE__GATHER_REPLY__INIT;
	Tierd__Wire__Reply reply = TIERD__WIRE__REPLY__INIT;

	gather.offset = unit * FAKE_SLOT_BYTES;
	gather.version = peer->step;
	peer->gathers++;
	lease_counters(peer->leases, FAKE_BUFFERS)[unit]++;
	directory_publish(&directory_entries(peer->directory)[unit], gather.offset, peer->step);
	reply.body_case = TIERD__WIRE__REPLY__BODY_GATHER;
	reply.gather = &gather;
	fake_peer_reply(peer, number, &reply);
}

static void free_buffers(struct fake_peer *peer)
{
	for (uint32_t i = 0; i < FAKE_BUFFERS; i++)
		if (lease_buffers(peer->leases)[i] == GRADIENT_BUFFER_PUSHED)
			lease_buffers(peer->leases)[i] = GRADIENT_BUFFER_FREE;
}

static void answer_step(struct fake_peer *peer, uint32_t number)
{
	Tierd__Wire__StepReply step = TIERD__WIRE__STEP_REPLY__INIT;
	Tierd__Wire__Reply reply = TIERD__WIRE__REPLY__INIT;

	step.step = ++peer->step;
	step.gradient_norm = 2.5;
	step.loss_scale = 1.0f;
	reply.body_case = TIERD__WIRE__REPLY__BODY_STEP;
	reply.step = &step;
	fake_peer_reply(peer, number, &reply);
	fake_peer_fail(peer, number, -EOPNOTSUPP, "no durable store");
}

static void answer_statistics(struct fake_peer *peer, uint32_t number)
{
	Tierd__Wire__StatisticsReply statistics = TIERD__WIRE__STATISTICS_REPLY__INIT;
	Tierd__Wire__Reply reply = TIERD__WIRE__REPLY__INIT;

	statistics.communicated_elements = 1000;
	statistics.pushes = 3;
	reply.body_case = TIERD__WIRE__REPLY__BODY_STATISTICS;
	reply.statistics = &statistics;
	fake_peer_reply(peer, number, &reply);
}

void fake_peer_answer(struct fake_peer *peer, uint32_t number, const Tierd__Wire__Request *request)
{
	switch (request->body_case) {
	case BODY(JOB_OPEN):
		answer_open(peer, number);
		break;
	case BODY(UNIT_DEFINE):
		answer_define(peer, number, request->unit_define);
		break;
	case BODY(JOB_READY):
		answer_ready(peer, number);
		break;
	case BODY(GATHER):
		fake_peer_gather(peer, number, request->gather->unit);
		break;
	case BODY(STEP):
		answer_step(peer, number);
		break;
	case BODY(STATISTICS_READ):
		answer_statistics(peer, number);
		break;
	case BODY(PUSH):
		if (!request->push->is_silent)
			fake_peer_reply(peer, number, NULL);
		break;
	case BODY(BUFFER_WAIT):
		free_buffers(peer);
		fake_peer_reply(peer, number, NULL);
		break;
	case BODY(GATHER_CANCEL):
		peer->cancels++;
		fake_peer_reply(peer, number, NULL);
		break;
	case BODY(JOB_LEAVE):
		peer->leaves++;
		fake_peer_reply(peer, number, NULL);
		break;
	default:
		fake_peer_reply(peer, number, NULL);
	}
}

/* ---- The thread ---- */

static bool read_frame(struct fake_peer *peer, struct frame_header *ret_header, uint8_t **ret_payload)
{
	uint8_t bytes[FRAME_HEADER_BYTES];

	if (recv(peer->fd, bytes, sizeof(bytes), MSG_WAITALL) != sizeof(bytes))
		return false;
	assert(frame_header_decode(bytes, ret_header) == 0);
	*ret_payload = malloc(ret_header->length + 1);
	if (ret_header->length > 0 &&
	    recv(peer->fd, *ret_payload, ret_header->length, MSG_WAITALL) != (ssize_t)ret_header->length) {
		free(*ret_payload);
		return false;
	}
	return true;
}

static bool greet(struct fake_peer *peer)
{
	Tierd__Wire__Status status = TIERD__WIRE__STATUS__INIT;
	Tierd__Wire__HelloReply hello = TIERD__WIRE__HELLO_REPLY__INIT;

	hello.status = &status;
	hello.version = peer->version ?: 1;
	hello.pages = peer->pages;
	hello.incarnation = peer->connection;
	send_frame(peer, FRAME_HELLO_REPLY, 0, &hello.base, NULL, 0);
	return true;
}

static bool handle(struct fake_peer *peer)
{
	struct frame_header header;
	ProtobufCMessage *message;
	uint8_t *payload;
	bool goes_on = true;

	if (!read_frame(peer, &header, &payload))
		return false;
	if (header.type == FRAME_HELLO) {
		goes_on = peer->greet ? peer->greet(peer) : greet(peer);
	} else {
		assert(frame_decode(peer->arena, &tierd__wire__request__descriptor, payload, header.length,
				    &message) == 0);
		const Tierd__Wire__Request *request = (const Tierd__Wire__Request *)message;

		if (!peer->hook || !peer->hook(peer, header.request, request))
			fake_peer_answer(peer, header.request, request);
	}
	free(payload);
	return goes_on;
}

static void drop_pages(struct fake_peer *peer)
{
	if (!peer->directory)
		return;
	munmap(peer->directory, peer->directory_bytes);
	munmap(peer->arena_bytes, peer->unit_count * FAKE_SLOT_BYTES);
	munmap(peer->leases, lease_bytes(peer->unit_count, FAKE_BUFFERS));
	munmap(peer->gradients, FAKE_BUFFERS * FAKE_BUFFER_BYTES);
	for (int i = 0; i < 5; i++)
		close(peer->fds[i]);
	peer->directory = NULL;
}

static void start_again(struct fake_peer *peer)
{
	drop_pages(peer);
	peer->unit_count = 0;
	peer->has_sent_pages = false;
}

/* False: nobody comes any more, or as many have come as were wanted. */
static bool accept_one(struct fake_peer *peer, struct pollfd *connection)
{
	if (peer->connections > 0 && peer->connection == peer->connections)
		return false;
	connection->fd = accept4(peer->listener, NULL, NULL, SOCK_CLOEXEC);
	connection->events = POLLIN;
	if (connection->fd < 0)
		return false;
	if (peer->connection++ > 0 && peer->connections > 0)
		start_again(peer);
	return true;
}

static void serve_one(struct fake_peer *peer, struct pollfd *connection)
{
	peer->fd = connection->fd;
	if (handle(peer))
		return;
	close(connection->fd);
	connection->fd = -1;
}

/* Connections that have ended, and a listener that is shut, have -1 in their places, which poll skips. */
static void *serve(void *argument)
{
	struct fake_peer *peer = argument;
	struct pollfd waiting[1 + FAKE_CONNECTIONS] = { { .fd = peer->listener, .events = POLLIN } };
	unsigned count = 1, open = 1;

	while (open > 0 && poll(waiting, count, -1) > 0) {
		unsigned known = count;

		for (unsigned i = 1; i < known; i++)
			if (waiting[i].fd >= 0 && waiting[i].revents)
				serve_one(peer, &waiting[i]);
		while (count > 1 && waiting[count - 1].fd < 0)
			count--;
		if (waiting[0].revents) {
			if (count <= FAKE_CONNECTIONS && accept_one(peer, &waiting[count]))
				count++;
			else
				waiting[0].fd = -1;
		}
		open = 0;
		for (unsigned i = 0; i < count; i++)
			open += waiting[i].fd >= 0;
	}
	return NULL;
}

void fake_peer_start(struct fake_peer *peer)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	char folder[] = "/tmp/tierd-test-XXXXXX";

	assert(mkdtemp(folder));
	snprintf(peer->path, sizeof(peer->path), "%s/socket", folder);
	memcpy(address.sun_path, peer->path, sizeof(peer->path));
	assert(frame_arena_new(&peer->arena) == 0);
	peer->listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	assert(bind(peer->listener, (struct sockaddr *)&address, sizeof(address)) == 0);
	assert(listen(peer->listener, FAKE_CONNECTIONS) == 0);
	assert(pthread_create(&peer->thread, NULL, serve, peer) == 0);
}

void fake_peer_stop(struct fake_peer *peer)
{
	shutdown(peer->listener, SHUT_RDWR);
	pthread_join(peer->thread, NULL);
	close(peer->listener);
	unlink(peer->path);
	*strrchr(peer->path, '/') = '\0';
	rmdir(peer->path);
	frame_arena_free(peer->arena);
	if (peer->window) {
		munmap(peer->window, FAKE_WINDOW_BYTES);
		close(peer->window_fd);
	}
	drop_pages(peer);
}
