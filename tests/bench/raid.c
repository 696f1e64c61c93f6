#include "tests/bench/raid.h"

#include <errno.h>
#include <grp.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/clock.h"
#include "tests/bench/line.h"

#define DEFINITIONS 256 /* that are sent before their answers are read */
#define INPUT ((size_t)2 << 20)

struct connection {
	int socket;
	uint8_t *input;
	size_t filled;
	uint32_t number; /* of its last request */
};

struct raider {
	struct raid_orders *orders;
	struct connection connections[RAID_CONNECTIONS];
};

/* ---- Frames ---- */

static int send_request(struct connection *connection, const Tierd__Wire__Request *request)
{
	_cleanup_free_ uint8_t *frame = NULL;
	size_t length;
	int r = frame_encode(1, FRAME_REQUEST, ++connection->number, &request->base, &frame, &length);

	return r < 0 ? r : line_send(connection->socket, frame, length);
}

/* Takes what has come. How many answers that were; descriptors are dropped. */
static int take_answers(struct connection *connection, Tierd__Wire__Reply **ret_last)
{
	ssize_t got = recv(connection->socket, connection->input + connection->filled,
			   INPUT - connection->filled, 0);
	struct frame_header header;
	size_t used = 0;
	int answers = 0;

	if (got <= 0)
		return -EPIPE;
	connection->filled += (size_t)got;
	while (connection->filled - used >= FRAME_HEADER_BYTES) {
		if (frame_header_decode(connection->input + used, &header) < 0)
			return -EPROTO;
		if (connection->filled - used < FRAME_HEADER_BYTES + header.length)
			break;
		answers += header.type == FRAME_REPLY;
		if (header.type == FRAME_REPLY && ret_last) {
			if (*ret_last)
				tierd__wire__reply__free_unpacked(*ret_last, NULL);
			*ret_last = tierd__wire__reply__unpack(NULL, header.length,
							       connection->input + used + FRAME_HEADER_BYTES);
		}
		used += FRAME_HEADER_BYTES + header.length;
	}
	memmove(connection->input, connection->input + used, connection->filled - used);
	connection->filled -= used;
	return answers;
}

/* Waits for the answers to so many requests. The status of the last one. */
static int await(struct connection *connection, unsigned count, Tierd__Wire__Reply **ret_last)
{
	Tierd__Wire__Reply *last = NULL;
	int r = 0;

	while (count > 0 && r >= 0) {
		r = take_answers(connection, &last);
		count -= r > 0 ? (unsigned)r : 0;
	}
	if (r >= 0)
		r = last && last->status && last->status->code ? -EREMOTEIO : 0;
	if (r == -EREMOTEIO)
		fprintf(stderr, "raid: %s\n", last->status->message);
	if (ret_last)
		*ret_last = last;
	else if (last)
		tierd__wire__reply__free_unpacked(last, NULL);
	return r;
}

/* ---- Jobs ---- */

static int define_units(struct connection *connection, uint32_t job, uint32_t units)
{
	Tierd__Wire__Request request = TIERD__WIRE__REQUEST__INIT;
	Tierd__Wire__UnitDefine define = TIERD__WIRE__UNIT_DEFINE__INIT;
	Tierd__Wire__Tensor tensor = TIERD__WIRE__TENSOR__INIT, *tensors = &tensor;
	uint64_t shape = 16;
	char name[32];
	int r = 0;

	request.body_case = TIERD__WIRE__REQUEST__BODY_UNIT_DEFINE;
	request.unit_define = &define;
	define.job = job;
	define.name = tensor.name = name;
	define.n_tensors = 1;
	define.tensors = &tensors;
	tensor.format = 1;
	tensor.n_shape = 1;
	tensor.shape = &shape;
	tensor.initializer = 2;
	for (uint32_t unit = 0; unit < units && r == 0; unit++) {
		snprintf(name, sizeof(name), "model.layers.%u.weight", unit);
		r = send_request(connection, &request);
		if (r == 0 && (unit % DEFINITIONS == DEFINITIONS - 1 || unit == units - 1))
			r = await(connection, unit % DEFINITIONS + 1, NULL);
	}
	return r;
}

static int open_job(struct connection *connection, unsigned index, uint32_t *ret_job)
{
	Tierd__Wire__Request request = TIERD__WIRE__REQUEST__INIT;
	Tierd__Wire__JobOpen open = TIERD__WIRE__JOB_OPEN__INIT;
	Tierd__Wire__Reply *reply = NULL;
	char name[32];
	int r;

	snprintf(name, sizeof(name), RAID_JOB, index);
	request.body_case = TIERD__WIRE__REQUEST__BODY_JOB_OPEN;
	request.job_open = &open;
	open.name = name;
	open.world_size = 1;
	open.stage = 3;
	open.durability = UINT32_MAX - 1;
	r = send_request(connection, &request);
	if (r == 0)
		r = await(connection, 1, &reply);
	if (r == 0)
		*ret_job = reply->job_open->job;
	if (reply)
		tierd__wire__reply__free_unpacked(reply, NULL);
	return r;
}

static int get_ready(struct connection *connection, uint32_t job)
{
	Tierd__Wire__Request request = TIERD__WIRE__REQUEST__INIT;
	Tierd__Wire__JobReady ready = TIERD__WIRE__JOB_READY__INIT;
	int r;

	request.body_case = TIERD__WIRE__REQUEST__BODY_JOB_READY;
	request.job_ready = &ready;
	ready.job = job;
	ready.timeout_ms = -1;
	r = send_request(connection, &request);
	return r == 0 ? await(connection, 1, NULL) : r;
}

static int make_job(struct connection *connection, unsigned index, uint32_t units)
{
	uint32_t job = 0;
	int r = open_job(connection, index, &job);

	if (r == 0)
		r = define_units(connection, job, units);
	return r == 0 ? get_ready(connection, job) : r;
}

static int make_connection(struct connection *connection, const char *path)
{
	connection->input = malloc(INPUT);
	connection->socket = line_connect(path);
	if (!connection->input || connection->socket < 0)
		return -EIO;
	return line_greet(connection->socket);
}

static int prepare(struct raider *raider, const char *path, uint32_t units)
{
	int r = 0;

	for (unsigned i = 0; i < RAID_CONNECTIONS && r == 0; i++) {
		r = make_connection(&raider->connections[i], path);
		if (r == 0)
			r = make_job(&raider->connections[i], i, units);
	}
	return r == 0 ? make_job(&raider->connections[0], RAID_CONNECTIONS, units) : r;
}

/* ---- What it does ---- */

static int ask(struct connection *connection, uint32_t index,
	       void (*fill)(Tierd__Wire__Request *request, uint32_t connection))
{
	Tierd__Wire__Request request = TIERD__WIRE__REQUEST__INIT;

	fill(&request, index);
	return send_request(connection, &request);
}

static int answer_all(struct raider *raider, const struct raid_request *request, struct pollfd *polls)
{
	int r = 0;

	for (unsigned i = 0; i < RAID_CONNECTIONS && r >= 0; i++) {
		if (!polls[i].revents)
			continue;
		r = take_answers(&raider->connections[i], NULL);
		if (r > 0) {
			atomic_fetch_add(&raider->orders->answers, (unsigned)r);
			r = ask(&raider->connections[i], i, request->fill);
		}
	}
	return r;
}

/* Until something else is wanted. */
static int loop_over(struct raider *raider, int what)
{
	const struct raid_request *request = &raid_requests[what];
	struct pollfd polls[RAID_CONNECTIONS];
	int r = 0;

	for (unsigned i = 0; i < RAID_CONNECTIONS && r >= 0; i++) {
		if (request->begin) {
			r = ask(&raider->connections[i], i, request->begin);
			if (r == 0)
				r = take_answers(&raider->connections[i], NULL);
		}
		if (r >= 0)
			r = ask(&raider->connections[i], i, request->fill);
		polls[i] = (struct pollfd){ raider->connections[i].socket, POLLIN, 0 };
	}
	while (r >= 0 && atomic_load(&raider->orders->wanted) == what)
		if (poll(polls, RAID_CONNECTIONS, 50) > 0)
			r = answer_all(raider, request, polls);
	return r;
}

/* What is on its way. */
static void drain(struct raider *raider)
{
	struct pollfd polls[RAID_CONNECTIONS];

	for (unsigned i = 0; i < RAID_CONNECTIONS; i++)
		polls[i] = (struct pollfd){ raider->connections[i].socket, POLLIN, 0 };
	while (poll(polls, RAID_CONNECTIONS, 100) > 0)
		for (unsigned i = 0; i < RAID_CONNECTIONS; i++)
			if (polls[i].revents && take_answers(&raider->connections[i], NULL) < 0)
				exit(EXIT_FAILURE);
}

static void obey(struct raider *raider)
{
	for (;;) {
		int wanted = atomic_load(&raider->orders->wanted);

		atomic_store(&raider->orders->at, wanted);
		if (wanted >= 0 && loop_over(raider, wanted) < 0)
			exit(EXIT_FAILURE);
		if (wanted >= 0)
			drain(raider);
		if (wanted == RAID_IDLE)
			clock_sleep_ns(1000000);
	}
}

static void run_raider(struct raid_orders *orders, const char *path, uint32_t units)
{
	struct raider *raider = calloc(1, sizeof(*raider));
	int r;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (setgroups(0, NULL) < 0 || setgid(RAID_USER) < 0 || setuid(RAID_USER) < 0)
		exit(EXIT_FAILURE);
	raider->orders = orders;
	r = prepare(raider, path, units);
	atomic_store(&orders->is_ready, r < 0 ? r : 1);
	if (r < 0)
		exit(EXIT_FAILURE);
	obey(raider);
}

/* ---- Life ---- */

static bool has_ended(const struct raid *raid)
{
	return waitpid(raid->pid, NULL, WNOHANG) == raid->pid;
}

int raid_start(struct raid *raid, const char *path, uint32_t units)
{
	raid->orders =
		mmap(NULL, sizeof(*raid->orders), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (raid->orders == MAP_FAILED)
		return -errno;
	atomic_store(&raid->orders->wanted, RAID_IDLE);
	fflush(NULL);
	raid->pid = fork();
	if (raid->pid < 0)
		return -errno;
	if (raid->pid == 0)
		run_raider(raid->orders, path, units);
	while (atomic_load(&raid->orders->is_ready) == 0) {
		if (has_ended(raid))
			return -ECHILD;
		clock_sleep_ns(1000000);
	}
	int r = atomic_load(&raid->orders->is_ready);

	return r < 0 ? r : 0;
}

int raid_turn_to(struct raid *raid, int what)
{
	atomic_store(&raid->orders->wanted, what);
	while (atomic_load(&raid->orders->at) != what) {
		if (has_ended(raid)) {
			raid->pid = -1;
			return -ECHILD;
		}
		clock_sleep_ns(1000000);
	}
	return 0;
}

void raid_end(struct raid *raid)
{
	if (raid->pid > 0) {
		kill(raid->pid, SIGKILL);
		waitpid(raid->pid, NULL, 0);
	}
}
