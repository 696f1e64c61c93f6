/* A reader of libtierd against a fake peer: units that come in pieces, answers that make no sense, and those
 * that come late. */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "client/library/connection/connection.h"
#include "client/tierd.h"
#include "common/cleanup.h"
#include "tests/unit/fake_peer.h"
#include "tests/unit/library/reading.h"
#include "tests/unit/test.h"

#define WINDOW_BYTES 4096
#define UNITS 2
#define TENSORS 2
#define ELEMENTS 5000

enum fault {
	NO_FAULT,
	SMALL_WINDOW,
	NO_UNITS,
	NO_TENSORS,
	MANY_TENSORS,
	MANY_DIMENSIONS,
	MORE_TENSORS,
	OTHER_REPLY,
	OTHER_REFRESH,
	LATE_OPEN,
	LATE_REFRESH,
	OLD,
	NO_FILE,
	NO_MEMORY,
	LAST_ANSWER,
};

static _Atomic enum fault fault;
static int window_fd = -1, file = -1;
static char *window;
static _Atomic unsigned closed, asked;
static _Atomic uint64_t present_step, seen_step;

/* ---- The daemon's side ---- */

static void reply_opened(struct fake_peer *peer, uint32_t number)
{
	Tierd__Wire__Reply reply = TIERD__WIRE__REPLY__INIT;
	Tierd__Wire__ReaderOpenReply open = TIERD__WIRE__READER_OPEN_REPLY__INIT;

	open.reader = 3;
	open.unit_count = UNITS;
	open.window_bytes = fault == SMALL_WINDOW ? 100 : WINDOW_BYTES;
	reply.body_case = TIERD__WIRE__REPLY__BODY_READER_OPEN;
	reply.reader_open = &open;
	fake_peer_reply_fds(peer, number, &reply, &window_fd, 1);
}

/* One tensor at a time. */
static void reply_units(struct fake_peer *peer, uint32_t number, const Tierd__Wire__ReaderUnits *request)
{
	static const char *const names[UNITS][TENSORS] = { { "a", "b" }, { "c", "d" } };
	uint64_t shape[9] = { ELEMENTS, 1, 1, 1, 1, 1, 1, 1, 1 };
	Tierd__Wire__Reply reply = TIERD__WIRE__REPLY__INIT;
	Tierd__Wire__ReaderUnitsReply body = TIERD__WIRE__READER_UNITS_REPLY__INIT;
	Tierd__Wire__ReaderUnit unit = TIERD__WIRE__READER_UNIT__INIT, *units = &unit;
	Tierd__Wire__Tensor tensor = TIERD__WIRE__TENSOR__INIT, *tensors[] = { &tensor, &tensor, &tensor };

	assert_true(request->unit < UNITS && request->tensor < TENSORS);
	unit.name = (char *)(request->unit == 0 ? "first" : "second");
	unit.tensor_count = fault == NO_TENSORS ? 0 : fault == MANY_TENSORS ? UINT32_MAX : TENSORS;
	unit.n_tensors = fault == MORE_TENSORS ? 3 : 1;
	unit.tensors = tensors;
	tensor.name = (char *)names[request->unit][request->tensor];
	tensor.alias = (char *)(request->unit == 0 ? "" : "tied");
	tensor.dtype = (char *)(request->unit == 0 ? "" : "U64[1]");
	tensor.format = TIERD_FP32;
	tensor.n_shape = fault == MANY_DIMENSIONS ? 9 : 1;
	tensor.shape = shape;
	body.n_units = fault == NO_UNITS ? 0 : 1;
	body.units = &units;
	reply.body_case = TIERD__WIRE__REPLY__BODY_READER_UNITS;
	reply.reader_units = &body;
	fake_peer_reply(peer, number, fault == OTHER_REPLY ? NULL : &reply);
	asked++;
}

static void reply_refreshed(struct fake_peer *peer, uint32_t number)
{
	Tierd__Wire__Reply reply = TIERD__WIRE__REPLY__INIT;
	Tierd__Wire__ReaderRefreshReply body = TIERD__WIRE__READER_REFRESH_REPLY__INIT;

	body.step = present_step;
	reply.body_case = TIERD__WIRE__REPLY__BODY_READER_REFRESH;
	reply.reader_refresh = &body;
	fake_peer_reply(peer, number, fault == OTHER_REFRESH ? NULL : &reply);
}

static float *memory_at(uint64_t place)
{
	struct stat status;
	char *memory;

	assert_int_equal(fstat(file, &status), 0);
	memory = mmap(NULL, (size_t)status.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
	assert_true(memory != MAP_FAILED && place < (uint64_t)status.st_size);
	return (float *)(memory + place);
}

static void answer_memory(struct fake_peer *peer, uint32_t number, const Tierd__Wire__ReaderMemory *request)
{
	struct stat status;

	if (fault == OLD || (request->bytes > 0 && fault == NO_MEMORY)) {
		fake_peer_fail(peer, number, fault == OLD ? -EOPNOTSUPP : -ENOMEM, "no");
		return;
	}
	if (request->bytes > 0) {
		assert_int_equal(fstat(file, &status), 0);
		assert_int_equal(status.st_size, request->bytes);
		assert_int_equal(fcntl(file, F_GET_SEALS), F_SEAL_SHRINK | F_SEAL_GROW);
		assert_int_equal(lseek(file, 0, SEEK_HOLE), request->bytes);
		fake_peer_reply(peer, number, NULL);
		return;
	}
	close(file);
	file = memfd_create("memory", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	fake_peer_reply_fds(peer, number, NULL, &file, fault != NO_FILE);
}

static void answer_read(struct fake_peer *peer, uint32_t number, const Tierd__Wire__ReaderRead *read)
{
	float *values = read->to_memory ? memory_at(read->at) : (float *)window;

	assert_true(read->count <= WINDOW_BYTES / 4);
	for (uint64_t i = 0; i < read->count; i++)
		values[i] = (float)(read->first + i);
	seen_step = read->step;
	fake_peer_reply(peer, number, NULL);
}

/* The library reads the answer and the end together. */
static void answer_and_end(struct fake_peer *peer, uint32_t number)
{
	while (peer->stage == 0)
		sched_yield();
	fake_peer_reply(peer, number, NULL);
	shutdown(peer->fd, SHUT_RDWR);
	peer->stage++;
}

static bool answer(struct fake_peer *peer, uint32_t number, const Tierd__Wire__Request *request)
{
	switch (request->body_case) {
	case BODY(READER_OPEN):
		while (fault == LATE_OPEN && peer->stage == 0)
			sched_yield();
		reply_opened(peer, number);
		return true;
	case BODY(READER_UNITS):
		reply_units(peer, number, request->reader_units);
		return true;
	case BODY(READER_REFRESH):
		while (fault == LATE_REFRESH && present_step == 2 && peer->stage == 0)
			sched_yield();
		reply_refreshed(peer, number);
		return true;
	case BODY(READER_READ):
	case BODY(READER_READ_MANY):
		if (fault == LAST_ANSWER)
			answer_and_end(peer, number);
		else
			answer_read(peer, number, request->reader_read);
		return true;
	case BODY(READER_MEMORY):
		answer_memory(peer, number, request->reader_memory);
		return true;
	case BODY(READER_CLOSE):
		closed++;
		fake_peer_reply(peer, number, NULL);
		return true;
	default:
		return false;
	}
}

/* ---- The scene ---- */

struct scene {
	struct fake_peer peer;
	struct tierd_node *node;
	struct tierd_reader *reader;
};

static int open_with(struct scene *scene, enum fault kind)
{
	struct tierd_reader_options options = TIERD_READER_OPTIONS_INIT;

	memset(scene, 0, sizeof(*scene));
	scene->peer.hook = answer;
	present_step = 1;
	fault = kind;
	closed = asked = 0;
	fake_peer_start(&scene->peer);
	assert_int_equal(tierd_connect(scene->peer.path, &scene->node), 0);
	if (kind == LATE_OPEN)
		tierd_set_timeout(scene->node, 1);
	options.name = "job";
	return tierd_reader_open(scene->node, &options, &scene->reader);
}

static void end(struct scene *scene)
{
	tierd_disconnect(scene->node);
	fake_peer_stop(&scene->peer);
}

/* ---- The tests ---- */

static void units_come_in_pieces(void **state)
{
	struct tierd_reader_state reader_state = TIERD_READER_STATE_INIT;
	struct tierd_tensor tensor = TIERD_TENSOR_INIT;
	struct scene scene;
	uint32_t unit, index, count;
	const char *name;

	assert_int_equal(open_with(&scene, NO_FAULT), 0);
	assert_int_equal(asked, UNITS * TENSORS);
	assert_int_equal(tierd_reader_state(scene.reader, &reader_state), 0);
	assert_true(reader_state.step == 1 && reader_state.unit_count == UNITS);
	assert_int_equal(tierd_reader_unit(scene.reader, 1, &name, &count), 0);
	assert_string_equal(name, "second");
	assert_int_equal(count, TENSORS);
	assert_int_equal(tierd_reader_tensor(scene.reader, 1, 1, &tensor), 0);
	assert_string_equal(tensor.name, "d");
	assert_string_equal(tensor.alias, "tied");
	assert_null(tensor.slice_of);
	assert_string_equal(tensor.dtype, "U64[1]");
	assert_int_equal(tierd_reader_find(scene.reader, "b", &unit, &index), 0);
	assert_true(unit == 0 && index == 1);
	assert_int_equal(tierd_reader_find(scene.reader, "", &unit, &index), -ENOENT);
	assert_int_equal(tierd_reader_close(scene.reader), 0);
	assert_int_equal(closed, 1);
	end(&scene);
}

static void values_come_in_pieces(void **state)
{
	static float values[ELEMENTS];
	struct scene scene;

	assert_int_equal(open_with(&scene, NO_FAULT), 0);
	assert_int_equal(tierd_reader_read(scene.reader, 0, 0, "parameter", 7, ELEMENTS - 7, values), 0);
	for (unsigned i = 0; i < ELEMENTS - 7; i++)
		assert_true(values[i] == (float)(i + 7));
	assert_int_equal(tierd_reader_read(scene.reader, 0, 0, "m", 1, ELEMENTS, values), -EINVAL);
	assert_int_equal(tierd_reader_read(scene.reader, 0, 0, "m", UINT64_MAX, 2, values), -EINVAL);
	assert_int_equal(tierd_reader_read(scene.reader, 0, TENSORS, "m", 0, 1, values), -EINVAL);
	assert_int_equal(tierd_reader_read(scene.reader, UNITS, 0, "m", 0, 1, values), -EINVAL);
	assert_int_equal(tierd_reader_read(scene.reader, 0, 0, NULL, 0, 1, values), -EINVAL);
	/* Readers that are left go with the connection. */
	end(&scene);
}

static void answers_that_make_no_sense_are_a_protocol_error(void **state)
{
	struct scene scene;

	for (enum fault kind = SMALL_WINDOW; kind <= OTHER_REFRESH; kind++) {
		assert_int_equal(open_with(&scene, kind), -EPROTO);
		end(&scene);
	}
}

static void a_reader_that_comes_late_is_closed(void **state)
{
	struct tierd_reader_options options = TIERD_READER_OPTIONS_INIT;
	struct scene scene;

	assert_int_equal(open_with(&scene, LATE_OPEN), -ETIMEDOUT);
	tierd_set_timeout(scene.node, -1);
	scene.peer.stage = 1;
	options.name = "job";
	assert_int_equal(tierd_reader_open(scene.node, &options, &scene.reader), 0);
	assert_int_equal(closed, 1);
	end(&scene);
}

static void a_refresh_that_comes_late_does_not_count(void **state)
{
	struct scene scene;
	uint64_t step = 0;
	float value;

	assert_int_equal(open_with(&scene, LATE_REFRESH), 0);
	present_step = 2;
	tierd_set_timeout(scene.node, 1);
	assert_int_equal(tierd_reader_refresh(scene.reader, NULL, 0, &step), -ETIMEDOUT);
	tierd_set_timeout(scene.node, -1);
	scene.peer.stage = 1;
	/* The daemon is told where this reader believes to be, and refuses that. */
	assert_int_equal(tierd_reader_read(scene.reader, 0, 0, "m", 0, 1, &value), 0);
	assert_true(seen_step == 1 && step == 0);
	assert_int_equal(tierd_reader_refresh(scene.reader, NULL, 0, &step), 0);
	assert_true(step == 2);
	end(&scene);
}

static void bad_options_and_pieces_are_refused_at_once(void **state)
{
	struct tierd_reader_options options = TIERD_READER_OPTIONS_INIT;
	struct tierd_piece piece = TIERD_PIECE_INIT;
	struct scene scene;
	static const char name[] =
		"a-name-that-is-longer-than-sixty-four-bytes-and-so-cannot-be-that-of-a-job";

	assert_int_equal(open_with(&scene, NO_FAULT), 0);
	assert_int_equal(tierd_reader_open(scene.node, &options, &scene.reader), -EINVAL);
	options.name = name;
	assert_int_equal(tierd_reader_open(scene.node, &options, &scene.reader), -EINVAL);
	options.name = "job";
	options.size = 8;
	assert_int_equal(tierd_reader_open(scene.node, &options, &scene.reader), -EINVAL);
	assert_int_equal(tierd_reader_refresh(scene.reader, &piece, 10001, NULL), -E2BIG);
	piece.state = NULL;
	assert_int_equal(tierd_reader_refresh(scene.reader, &piece, 1, NULL), -EINVAL);
	piece.size = 1;
	assert_int_equal(tierd_reader_refresh(scene.reader, &piece, 1, NULL), -EINVAL);
	end(&scene);
}

static void a_forked_child_cannot_read(void **state)
{
	struct scene scene;
	float value;
	int status;

	assert_int_equal(open_with(&scene, NO_FAULT), 0);
	pid_t child = fork();

	if (child == 0)
		_exit(tierd_reader_read(scene.reader, 0, 0, "m", 0, 1, &value) != -ECHILD ||
		      tierd_reader_refresh(scene.reader, NULL, 0, NULL) != -ECHILD ||
		      tierd_reader_memory(scene.reader, 4096, &(void *){ NULL }) != -ECHILD ||
		      tierd_reader_close(scene.reader) != -ECHILD);
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
	assert_int_equal(tierd_reader_read(scene.reader, 0, 0, "m", 0, 1, &value), 0);
	end(&scene);
}

/* ---- A window that is taken back ---- */

static void *read_one(void *argument)
{
	const struct scene *scene = argument;
	float value;

	assert_int_equal(tierd_reader_read(scene->reader, 0, 0, "m", 0, 1, &value), -ECONNRESET);
	return NULL;
}

static void *read_one_of_many(void *argument)
{
	const struct scene *scene = argument;
	struct tierd_read read = TIERD_READ_INIT;
	float value;

	read.state = "m";
	read.count = 1;
	read.ret_data = &value;
	assert_int_equal(tierd_reader_read_many(scene->reader, &read, 1), -ECONNRESET);
	return NULL;
}

/* As tierd takes the window's pages back then. */
static void what_was_read_when_the_connection_ends_does_not_count(void **state)
{
	static void *(*const calls[])(void *argument) = { read_one, read_one_of_many };
	struct scene scene;
	pthread_t other;

	for (unsigned i = 0; i < ARRAY_LENGTH(calls); i++) {
		assert_int_equal(open_with(&scene, LAST_ANSWER), 0);
		assert_int_equal(pthread_create(&other, NULL, calls[i], &scene), 0);
		lock_while_another_thread_reads(scene.node);
		scene.peer.stage = 1;
		while (scene.peer.stage == 1)
			sched_yield();
		connection_exit(scene.node);
		pthread_join(other, NULL);
		end(&scene);
	}
}

/* ---- Memory ---- */

#define MEMORY_BYTES (4 * ELEMENTS + 64)

static void what_is_read_to_memory_does_not_come_through_the_window(void **state)
{
	void *memory = NULL;
	struct scene scene;

	assert_int_equal(open_with(&scene, NO_FAULT), 0);
	assert_int_equal(tierd_reader_memory(scene.reader, 0, &memory), -EINVAL);
	assert_int_equal(tierd_reader_memory(scene.reader, SIZE_MAX, &memory), -EINVAL);
	assert_int_equal(tierd_reader_memory(scene.reader, MEMORY_BYTES, &memory), 0);
	memset(window, 7, WINDOW_BYTES);
	float *values = (float *)((char *)memory + 64);

	assert_int_equal(tierd_reader_read(scene.reader, 0, 0, "parameter", 0, ELEMENTS, values), 0);
	for (unsigned i = 0; i < ELEMENTS; i++)
		assert_true(values[i] == (float)i);
	assert_int_equal(window[0], 7);
	/* Where no number begins it does. */
	assert_int_equal(tierd_reader_read(scene.reader, 0, 0, "parameter", 3, 1, (char *)memory + 2), 0);
	assert_int_equal(*(float *)window, 3);

	/* Another one, in its place. */
	void *place = memory, *wrong = (char *)memory + 1;

	assert_int_equal(tierd_reader_memory(scene.reader, MEMORY_BYTES, &wrong), -EINVAL);
	assert_int_equal(tierd_reader_memory(scene.reader, MEMORY_BYTES, &place), 0);
	assert_ptr_equal(place, memory);
	assert_true(values[ELEMENTS - 1] == (float)(ELEMENTS - 1));
	*memory_at(64) = 77;
	assert_true(values[0] == 77);
	assert_int_equal(tierd_reader_close(scene.reader), 0);
	end(&scene);
	/* It is the caller's, also when nobody is connected any more. */
	assert_true(values[0] == 77);
	assert_int_equal(munmap(memory, MEMORY_BYTES), 0);
}

static void without_memory_values_come_through_the_window(void **state)
{
	static const struct {
		enum fault fault;
		int status;
	} cases[] = { { OLD, -EOPNOTSUPP }, { NO_MEMORY, -ENOMEM } };
	struct scene scene;

	for (unsigned i = 0; i < 2; i++) {
		void *memory = NULL;
		float value = 0;

		assert_int_equal(open_with(&scene, cases[i].fault), 0);
		assert_int_equal(tierd_reader_memory(scene.reader, MEMORY_BYTES, &memory), cases[i].status);
		assert_null(memory);
		assert_int_equal(tierd_reader_read(scene.reader, 0, 0, "parameter", 3, 1, &value), 0);
		assert_true(value == 3);
		end(&scene);
	}
	void *memory = NULL;

	assert_int_equal(open_with(&scene, NO_FILE), 0);
	assert_int_equal(tierd_reader_memory(scene.reader, MEMORY_BYTES, &memory), -EPROTO);
	end(&scene);
}

static int setup(void **state)
{
	window_fd = memfd_create("window", MFD_CLOEXEC);
	assert_true(window_fd >= 0);
	assert_int_equal(ftruncate(window_fd, WINDOW_BYTES), 0);
	window = mmap(NULL, WINDOW_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, window_fd, 0);
	return window == MAP_FAILED;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(units_come_in_pieces),
		cmocka_unit_test(values_come_in_pieces),
		cmocka_unit_test(answers_that_make_no_sense_are_a_protocol_error),
		cmocka_unit_test(a_reader_that_comes_late_is_closed),
		cmocka_unit_test(a_refresh_that_comes_late_does_not_count),
		cmocka_unit_test(bad_options_and_pieces_are_refused_at_once),
		cmocka_unit_test(a_forked_child_cannot_read),
		cmocka_unit_test(what_was_read_when_the_connection_ends_does_not_count),
		cmocka_unit_test(what_is_read_to_memory_does_not_come_through_the_window),
		cmocka_unit_test(without_memory_values_come_through_the_window),
	};

	return cmocka_run_group_tests(tests, setup, NULL);
}
