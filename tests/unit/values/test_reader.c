/* Readers at the daemon's handlers: what they get is of one step, what they hold is charged and given back,
 * and what they must not have they do not get. */
#include <errno.h>
#include <stdio.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "common/log.h"
#include "daemon/life/life.h"
#include "daemon/model/job.h"
#include "daemon/resources/resources.h"
#include "daemon/update/own.h"
#include "daemon/update/warm.h"
#include "daemon/values/reader.h"
#include "tests/unit/test.h"
#include "tests/unit/values/values_test.h"

#define UNITS 12
/* Each unit is a pack of its own, in several chunks. */
#define ELEMENTS ((UINT64_C(1) << 20) + 1000)
#define SMALL 5000
#define MEMORY_BYTES (64 * 1024)

static struct actor trainer, watcher;
static struct blockade blockade;
static uint64_t idle_bytes; /* before there was a reader */
static struct job *job;
static uint64_t steps;

/* Warm state comes and goes as it likes. */
static uint64_t used_bytes(void)
{
	return budget_host_used(scene.node) - warm_bytes(job);
}

static void start_with(unsigned units, uint64_t elements, uint32_t placement)
{
	assert_int_equal(actor_enter(&scene, &trainer), 0);
	assert_int_equal(actor_enter(&scene, &watcher), 0);
	assert_int_equal(actor_open(&trainer, &(struct actor_job){ .stage = 3,
								   .parameter_placement = placement,
								   .optimizer_placement = placement }),
			 0);
	for (unsigned i = 0; i < units; i++) {
		char name[16], frozen[16];
		const struct actor_tensor tensors[] = { { name, FORMAT_FP32, INITIALIZE_ONES, elements,
							  false },
							{ frozen, FORMAT_BF16, INITIALIZE_ONES, 100, true } };

		snprintf(name, sizeof(name), "u%u", i);
		snprintf(frozen, sizeof(frozen), "f%u", i);
		assert_int_equal(actor_define(&trainer, name, tensors, 2), 0);
	}
	assert_int_equal(actor_ready(&trainer), 0);
	job = job_find(scene.node, geteuid(), "play");
	idle_bytes = used_bytes();
	steps = 0;
}

static void start(void)
{
	start_with(2, SMALL, PLACEMENT_DEFAULT);
}

static void push_all(unsigned units, uint64_t elements)
{
	for (unsigned i = 0; i < units; i++) {
		actor_fill(&trainer, FORMAT_FP32, elements, 1.0f);
		assert_int_equal(actor_await(&trainer, actor_send_push(&trainer, i, 0), 0)->status, 0);
	}
}

static void take_step(void)
{
	push_all(2, SMALL);
	assert_int_equal(actor_await(&trainer, actor_send_step(&trainer, 0.25f), 0)->status, 0);
	steps++;
}

static uint32_t open_reader(struct actor *actor)
{
	uint32_t reader = 0;

	assert_int_equal(actor_open_reader(actor, "play", &reader), 0);
	return reader;
}

static int refresh(struct actor *actor, uint32_t reader, const Tierd__Wire__ReaderPiece *piece)
{
	return actor_await(actor, actor_send_refresh(actor, reader, piece, piece ? 1 : 0), 0)->status;
}

static Tierd__Wire__ReaderPiece everything(const char *state)
{
	Tierd__Wire__ReaderPiece piece = TIERD__WIRE__READER_PIECE__INIT;

	piece.state = (char *)state;
	piece.all_units = true;
	return piece;
}

static Tierd__Wire__ReaderRead reading(uint32_t unit, const char *state, uint64_t first, uint64_t count)
{
	Tierd__Wire__ReaderRead read = TIERD__WIRE__READER_READ__INIT;

	read.unit = unit;
	read.state = (char *)state;
	read.first = first;
	read.count = count;
	read.step = steps;
	return read;
}

static int read_one(struct actor *actor, uint32_t reader, Tierd__Wire__ReaderRead read)
{
	return actor_await(actor, actor_send_reader_read(actor, reader, &read), 0)->status;
}

static void expect_parameter(uint32_t reader, uint32_t unit, uint64_t first, float value)
{
	assert_int_equal(read_one(&watcher, reader, reading(unit, "parameter", first, 1)), 0);
	assert_true(*(float *)watcher.reader_window.base == value);
}

static float parameter_now(uint32_t unit, uint64_t step)
{
	assert_int_equal(actor_read(&trainer, unit, 0, "parameter", 0, 1, step), 0);
	return *(float *)trainer.window.base;
}

/* ---- Of one step ---- */

static void what_is_not_kept_is_refused_when_the_job_has_moved_on(void **state)
{
	uint32_t reader;

	start();
	reader = open_reader(&watcher);
	expect_parameter(reader, 0, 0, 1.0f);
	take_step();
	steps = 0;
	expect_error(&watcher, read_one(&watcher, reader, reading(0, "parameter", 0, 1)), -ESTALE,
		     "moved on to step 1");
	/* What is frozen belongs to every step. */
	Tierd__Wire__ReaderRead frozen = reading(0, "parameter", 0, 100);

	frozen.tensor = 1;
	assert_int_equal(read_one(&watcher, reader, frozen), 0);
	assert_int_equal(refresh(&watcher, reader, NULL), 0);
	/* And the client may not believe that it is elsewhere. */
	assert_int_equal(read_one(&watcher, reader, reading(0, "parameter", 0, 1)), -ESTALE);
	steps = 1;
	expect_parameter(reader, 0, 0, parameter_now(0, 1));
}

static void what_is_kept_stays_when_the_job_has_moved_on(void **state)
{
	Tierd__Wire__ReaderPiece pieces = everything("parameter");
	uint32_t reader;
	float then;

	start();
	take_step();
	reader = open_reader(&watcher);
	assert_int_equal(refresh(&watcher, reader, &pieces), 0);
	then = parameter_now(1, 1);
	take_step();
	take_step();
	steps = 1;
	expect_parameter(reader, 1, SMALL - 1, then);
	assert_true(parameter_now(1, 3) != then);
	assert_int_equal(read_one(&watcher, reader, reading(1, "m", 0, 1)), -ESTALE);
	assert_int_equal(refresh(&watcher, reader, NULL), 0);
	steps = 3;
	expect_parameter(reader, 1, SMALL - 1, parameter_now(1, 3));
}

/* The view begins while the step is decided: its pieces and the sweep meet on their ways. */
static void a_sweep_saves_what_it_updates(uint32_t placement)
{
	Tierd__Wire__ReaderPiece pieces[] = { everything("master"), everything("m") };
	uint32_t reader, step, number;

	start_with(UNITS, ELEMENTS, placement);
	reader = open_reader(&watcher);
	push_all(UNITS, ELEMENTS);
	scene_settle(&scene);
	blockade_begin(&scene, scene.node->workers, &blockade);
	step = actor_send_step(&trainer, 0.25f);
	number = actor_send_refresh(&watcher, reader, pieces, 2);
	event_base_loop(scene.loop, EVLOOP_NONBLOCK);
	assert_null(actor_find(&watcher, number, 0));
	blockade_end(&blockade);
	assert_int_equal(actor_await(&watcher, number, 0)->status, 0);
	assert_int_equal(actor_find(&watcher, number, 0)->reply->reader_refresh->step, 0);
	assert_int_equal(actor_await(&trainer, step, 0)->status, 0);
	for (uint32_t unit = 0; unit < UNITS; unit++)
		for (uint64_t first = 0; first < ELEMENTS; first += 99991) {
			assert_int_equal(read_one(&watcher, reader, reading(unit, "master", first, 1)), 0);
			assert_true(*(float *)watcher.reader_window.base == 1.0f);
			assert_int_equal(read_one(&watcher, reader, reading(unit, "m", first, 1)), 0);
			assert_true(*(float *)watcher.reader_window.base == 0.0f);
		}
	assert_true(parameter_now(UNITS - 1, 1) != 1.0f);
}

static void a_sweep_saves_what_it_updates_in_host_memory(void **state)
{
	a_sweep_saves_what_it_updates(PLACEMENT_HOST);
}

static void a_sweep_saves_what_it_updates_on_nvme(void **state)
{
	a_sweep_saves_what_it_updates(PLACEMENT_NVME);
}

static void a_refresh_waits_for_the_step_that_is_being_applied(void **state)
{
	uint32_t reader, step, number;

	start();
	reader = open_reader(&watcher);
	push_all(2, SMALL);
	step = actor_send_step(&trainer, 0.25f);
	while (!job->update->sweep)
		scene_wait(&scene);
	number = actor_send_refresh(&watcher, reader, NULL, 0);
	assert_int_equal(actor_await(&watcher, number, 0)->reply->reader_refresh->step, 1);
	assert_int_equal(actor_await(&trainer, step, 0)->status, 0);
}

static void of_many_that_refresh_at_once_each_gets_its_turn(void **state)
{
	Tierd__Wire__ReaderPiece pieces = everything("v");
	uint32_t readers[8], numbers[8];

	start();
	for (unsigned i = 0; i < ARRAY_LENGTH(readers); i++)
		readers[i] = open_reader(&watcher);
	for (unsigned i = 0; i < ARRAY_LENGTH(readers); i++)
		numbers[i] = actor_send_refresh(&watcher, readers[i], &pieces, 1);
	for (unsigned i = 0; i < ARRAY_LENGTH(readers); i++)
		assert_int_equal(actor_await(&watcher, numbers[i], 0)->status, 0);
}

/* ---- Memory ---- */

static void memory_is_charged_and_given_back(void **state)
{
	Tierd__Wire__ReaderPiece pieces = everything("master");
	uint64_t kept = 2 * SMALL * sizeof(float);
	uint32_t reader;

	start();
	reader = open_reader(&watcher);
	assert_true(used_bytes() >= idle_bytes + WINDOW_BYTES);
	assert_int_equal(refresh(&watcher, reader, &pieces), 0);
	assert_true(used_bytes() >= idle_bytes + WINDOW_BYTES + COPY_BUFFER_BYTES + kept);
	assert_true(readers_bytes(job) == used_bytes() - idle_bytes);
	assert_int_equal(readers_count(job), 1);
	/* Nothing is kept any more. */
	assert_int_equal(actor_await(&watcher, actor_send_refresh(&watcher, reader, &pieces, 0), 0)->status,
			 0);
	assert_true(used_bytes() < idle_bytes + WINDOW_BYTES + COPY_BUFFER_BYTES + 4096);
	assert_int_equal(refresh(&watcher, reader, &pieces), 0);
	assert_int_equal(actor_await(&watcher, actor_send_close_reader(&watcher, reader), 0)->status, 0);
	assert_true(used_bytes() == idle_bytes);
	assert_int_equal(readers_count(job), 0);
	assert_int_equal(refresh(&watcher, reader, NULL), -EINVAL);
}

/* A reader's copies of all masters have begun, and so has a step: its number. Workers wait until
 * blockade_end(). */
static uint32_t refresh_beside_a_blocked_step(void)
{
	Tierd__Wire__ReaderPiece pieces = everything("master");
	uint32_t step;

	start_with(UNITS, ELEMENTS, PLACEMENT_NVME);
	push_all(UNITS, ELEMENTS);
	scene_settle(&scene);
	blockade_begin(&scene, scene.node->workers, &blockade);
	step = actor_send_step(&trainer, 0.25f);
	actor_send_refresh(&watcher, open_reader(&watcher), &pieces, 1);
	event_base_loop(scene.loop, EVLOOP_NONBLOCK);
	return step;
}

static void a_reader_that_dies_in_the_middle_leaves_nothing(void **state)
{
	uint32_t step = refresh_beside_a_blocked_step();

	actor_die(&watcher);
	/* Its copy is still on its way. */
	assert_true(used_bytes() > idle_bytes);
	blockade_end(&blockade);
	assert_int_equal(actor_await(&trainer, step, 0)->status, 0);
	scene_settle(&scene);
	assert_true(used_bytes() == idle_bytes);
	assert_true(node_values_have_ended(scene.node));
}

static void what_a_sweep_saves_for_one_that_dies_goes_with_the_sweep(void **state)
{
	uint32_t step = refresh_beside_a_blocked_step();

	blockade_end(&blockade);
	while (!job->update->sweep)
		scene_wait(&scene);
	actor_die(&watcher);
	assert_int_equal(actor_await(&trainer, step, 0)->status, 0);
	scene_settle(&scene);
	assert_true(used_bytes() == idle_bytes);
	assert_true(node_values_have_ended(scene.node));
}

static void more_than_there_is_cannot_be_kept(void **state)
{
	Tierd__Wire__ReaderPiece pieces[64];
	uint32_t reader;

	start_with(UNITS, ELEMENTS, PLACEMENT_NVME);
	reader = open_reader(&watcher);
	for (unsigned i = 0; i < ARRAY_LENGTH(pieces); i++)
		pieces[i] = everything("master");
	expect_error(&watcher,
		     actor_await(&watcher, actor_send_refresh(&watcher, reader, pieces, 64), 0)->status,
		     -ENOMEM, "what tierd has left");
	assert_true(used_bytes() <= idle_bytes + WINDOW_BYTES + COPY_BUFFER_BYTES + 4096);
	/* It is where it was. */
	assert_int_equal(refresh(&watcher, reader, NULL), 0);
	expect_parameter(reader, 0, 0, 1.0f);
}

static void who_lacks_memory_hears_what_readers_have(void **state)
{
	Tierd__Wire__ReaderPiece pieces[4];
	struct actor_job large = { .name = "large", .stage = 3, .parameter_placement = PLACEMENT_HOST };
	const struct actor_tensor tensor = { "w", FORMAT_FP32, INITIALIZE_ONES, 60 * MIB, false };

	start_with(UNITS, ELEMENTS, PLACEMENT_NVME);
	for (unsigned i = 0; i < ARRAY_LENGTH(pieces); i++)
		pieces[i] = everything("v");
	assert_int_equal(
		actor_await(&watcher, actor_send_refresh(&watcher, open_reader(&watcher), pieces, 4), 0)
			->status,
		0);
	actor_die(&trainer);
	assert_int_equal(actor_enter(&scene, &trainer), 0);
	assert_int_equal(actor_open(&trainer, &large), 0);
	assert_int_equal(actor_define(&trainer, "u", &tensor, 1), 0);
	expect_error(&trainer, actor_ready(&trainer), -ENOMEM, "your readers have 1");
}

/* ---- Refusals ---- */

static void there_is_a_limit_to_readers(void **state)
{
	static struct actor others[READER_MAX_PER_USER / READER_MAX_PER_CLIENT];
	uint32_t reader = 0;

	start();
	for (unsigned i = 0; i < ARRAY_LENGTH(others); i++) {
		assert_int_equal(actor_enter(&scene, &others[i]), 0);
		for (unsigned k = 0; k < READER_MAX_PER_CLIENT; k++)
			reader = open_reader(&others[i]);
		assert_int_equal(actor_open_reader(&others[i], "play", &reader), -EBUSY);
	}
	expect_error(&watcher, actor_open_reader(&watcher, "play", &reader), -EBUSY,
		     "this user has 64 readers");
	actor_die(&others[0]);
	open_reader(&watcher);
	for (unsigned i = 1; i < ARRAY_LENGTH(others); i++)
		actor_die(&others[i]);
}

static void what_cannot_be_read_is_refused(void **state)
{
	uint32_t reader;

	start_with(2, ELEMENTS, PLACEMENT_DEFAULT);
	reader = open_reader(&watcher);
	const struct {
		Tierd__Wire__ReaderRead read;
		int status;
	} cases[] = {
		{ reading(2, "parameter", 0, 1), -EINVAL },
		{ reading(UINT32_MAX, "parameter", 0, 1), -EINVAL },
		{ reading(0, "gradient", 0, 1), -ENODATA },
		{ reading(0, "", 0, 1), -ENODATA },
		{ reading(0, "parameter", ELEMENTS, 1), -ERANGE },
		{ reading(0, "parameter", 1, UINT64_MAX), -ERANGE },
		{ reading(0, "parameter", UINT64_MAX, UINT64_MAX), -ERANGE },
		{ reading(0, "parameter", 0, WINDOW_BYTES / 4 + 1), -E2BIG },
		{ reading(0, "parameter", ELEMENTS, 0), 0 },
		{ reading(0, "parameter", 3, WINDOW_BYTES / 4), 0 },
	};

	for (size_t i = 0; i < ARRAY_LENGTH(cases); i++)
		assert_int_equal(read_one(&watcher, reader, cases[i].read), cases[i].status);
	Tierd__Wire__ReaderRead read = reading(0, "parameter", 0, 1);

	read.tensor = 2;
	assert_int_equal(read_one(&watcher, reader, read), -EINVAL);
	read.tensor = 1;
	read.state = (char *)"m";
	assert_int_equal(read_one(&watcher, reader, read), -ENODATA);
	assert_int_equal(read_one(&watcher, reader + 1, reading(0, "parameter", 0, 1)), -EINVAL);
	/* Of another connection. */
	assert_int_equal(read_one(&trainer, reader, reading(0, "parameter", 0, 1)), -EINVAL);
}

static void what_cannot_be_kept_is_refused(void **state)
{
	Tierd__Wire__ReaderPiece piece = TIERD__WIRE__READER_PIECE__INIT;
	uint32_t reader;

	start();
	reader = open_reader(&watcher);
	piece.state = (char *)"parameter";
	piece.unit = 2;
	assert_int_equal(refresh(&watcher, reader, &piece), -EINVAL);
	piece.all_tensors = true;
	assert_int_equal(refresh(&watcher, reader, &piece), -EINVAL);
	piece.all_tensors = false;
	piece.unit = 1;
	piece.first = UINT64_MAX;
	piece.count = 2;
	assert_int_equal(refresh(&watcher, reader, &piece), -ERANGE);
	piece.state = (char *)"w";
	assert_int_equal(refresh(&watcher, reader, &piece), -ENODATA);
	assert_true(used_bytes() < idle_bytes + WINDOW_BYTES + COPY_BUFFER_BYTES + 4096);
}

static void a_reader_does_one_thing_at_a_time(void **state)
{
	Tierd__Wire__ReaderPiece pieces = everything("master");
	uint32_t reader, number;

	start();
	reader = open_reader(&watcher);
	blockade_begin(&scene, scene.node->workers, &blockade);
	number = actor_send_refresh(&watcher, reader, &pieces, 1);
	assert_int_equal(refresh(&watcher, reader, NULL), -EBUSY);
	assert_int_equal(read_one(&watcher, reader, reading(0, "m", 0, 1)), -EBUSY);
	assert_null(actor_find(&watcher, number, 0));
	blockade_end(&blockade);
	assert_int_equal(actor_await(&watcher, number, 0)->status, 0);
}

static void a_job_without_values_cannot_be_read(void **state)
{
	const struct actor_tensor tensor = { "w", FORMAT_FP32, INITIALIZE_ONES, SMALL, false };
	uint32_t reader;

	assert_int_equal(actor_enter(&scene, &trainer), 0);
	assert_int_equal(actor_enter(&scene, &watcher), 0);
	assert_int_equal(actor_open_reader(&watcher, "play", &reader), -ENOENT);
	assert_int_equal(actor_open(&trainer, &(struct actor_job){ .stage = 3 }), 0);
	assert_int_equal(actor_define(&trainer, "u", &tensor, 1), 0);
	expect_error(&watcher, actor_open_reader(&watcher, "play", &reader), -EBUSY, "no values yet");
}

static void a_dropped_job_leaves_its_readers_alone(void **state)
{
	Tierd__Wire__ReaderPiece pieces = everything("master");
	uint32_t reader, number;

	start();
	reader = open_reader(&watcher);
	actor_die(&trainer);
	blockade_begin(&scene, scene.node->workers, &blockade);
	number = actor_send_refresh(&watcher, reader, &pieces, 1);
	event_base_loop(scene.loop, EVLOOP_NONBLOCK);
	job_drop(job);
	assert_int_equal(actor_await(&watcher, number, 0)->status, -ENOENT);
	blockade_end(&blockade);
	scene_settle(&scene);
	assert_int_equal(refresh(&watcher, reader, NULL), -ENOENT);
	assert_int_equal(read_one(&watcher, reader, reading(0, "parameter", 0, 1)), -ENOENT);
	assert_int_equal(actor_await(&watcher, actor_send_close_reader(&watcher, reader), 0)->status, 0);
	assert_true(node_values_have_ended(scene.node));
}

static void what_cannot_be_read_fails_for_the_reader_alone(void **state)
{
	Tierd__Wire__ReaderPiece pieces = everything("m");
	uint32_t reader;

	/* The first read is the reader's. */
	const struct scene_options options = { .fault = "corrupt:read:1", .reads_nothing_ahead = true };

	scene_close(&scene);
	assert_int_equal(scene_open(&options, &scene), 0);
	start();
	take_step();
	reader = open_reader(&watcher);
	expect_error(&watcher, refresh(&watcher, reader, &pieces), -EIO, "its checksum does not match");
	take_step();
	assert_int_equal(refresh(&watcher, reader, NULL), 0);
	assert_int_equal(read_one(&watcher, reader, reading(0, "m", 0, SMALL)), 0);
}

/* ---- The idle job ---- */

static void an_idle_job_is_read_and_stays_idle(void **state)
{
	Tierd__Wire__ReaderPiece pieces = everything("v");
	uint32_t reader;
	float then;

	start();
	take_step();
	then = parameter_now(0, 1);
	actor_die(&trainer);
	scene_settle(&scene);
	reader = open_reader(&watcher);
	expect_parameter(reader, 0, 7, then);
	/* As idle_release does. */
	assert_true(job_is_quiet(job));
	setup_release(job);
	job->state = JOB_RELEASED;
	expect_parameter(reader, 0, SMALL - 1, then);
	assert_int_equal(refresh(&watcher, reader, &pieces), 0);
	assert_int_equal(read_one(&watcher, reader, reading(1, "v", 0, SMALL)), 0);
	assert_true(*(float *)watcher.reader_window.base > 0);
	assert_int_equal(job->state, JOB_RELEASED);
	assert_int_equal(job->members.count, 0);
}

/* ---- Memory of the client's own ---- */

/* The file that is given, filled but for the last pages; and sealed. */
static float *fill_file(uint32_t reader, uint64_t bytes, uint64_t missing)
{
	float *memory;
	int fd;

	assert_int_equal(actor_reader_memory(&watcher, reader, 0), 0);
	fd = watcher.reader_file;
	assert_int_equal(ftruncate(fd, (off_t)bytes), 0);
	memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	assert_true(memory != MAP_FAILED);
	memset(memory, 0, bytes - missing);
	assert_int_equal(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW), 0);
	return memory;
}

static int read_to_memory(uint32_t reader, uint32_t unit, uint64_t count, uint64_t at)
{
	Tierd__Wire__ReaderRead read = reading(unit, "parameter", 0, count);

	read.to_memory = true;
	read.at = at;
	return read_one(&watcher, reader, read);
}

static void values_go_to_memory_of_the_clients_own(void **state)
{
	uint32_t reader;
	float *memory;

	start();
	take_step();
	reader = open_reader(&watcher);
	uint64_t before = used_bytes();

	expect_error(&watcher, actor_reader_memory(&watcher, reader, MEMORY_BYTES), -EINVAL,
		     "has no file for memory");
	expect_error(&watcher, read_to_memory(reader, 0, 1, 0), -EINVAL, "no memory of its client's");
	memory = fill_file(reader, MEMORY_BYTES, 0);
	assert_int_equal(actor_reader_memory(&watcher, reader, MEMORY_BYTES), 0);
	/* Page tables. */
	assert_true(used_bytes() == before + 4096);
	memset(watcher.reader_window.base, 0x7F, 4096);
	assert_int_equal(read_to_memory(reader, 1, SMALL, 4096), 0);
	for (unsigned i = 0; i < SMALL; i++)
		assert_true(memory[1024 + i] == parameter_now(1, 1));
	assert_true(memory[1023] == 0 && memory[1024 + SMALL] == 0);
	assert_int_equal((uint8_t)watcher.reader_window.base[0], 0x7F);
	/* Up to its end, and not beyond. */
	assert_int_equal(read_to_memory(reader, 0, 2, MEMORY_BYTES - 8), 0);
	assert_int_equal(read_to_memory(reader, 0, 2, MEMORY_BYTES - 4), -E2BIG);
	assert_int_equal(read_to_memory(reader, 0, 1, UINT64_MAX - 3), -E2BIG);
	assert_int_equal(read_to_memory(reader, 0, 1, 2), -EINVAL);
	assert_int_equal(actor_reader_memory(&watcher, reader, 0), -EBUSY);
	/* Nobody can take a page away, or change its size. */
	assert_true(fallocate(watcher.reader_file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 4096) < 0);
	assert_true(ftruncate(watcher.reader_file, 0) < 0);
	assert_int_equal(actor_await(&watcher, actor_send_close_reader(&watcher, reader), 0)->status, 0);
	assert_true(used_bytes() == idle_bytes);
	/* It is the client's, with what was read. */
	assert_true(memory[1024] == parameter_now(1, 1));
	munmap(memory, MEMORY_BYTES);
}

static void memory_that_writes_could_fail_in_is_refused(void **state)
{
	uint32_t reader;
	float *memory;

	start();
	reader = open_reader(&watcher);
	assert_int_equal(actor_reader_memory(&watcher, reader, 0), 0);
	assert_int_equal(actor_reader_memory(&watcher, reader, WIRE_MAX_READER_MEMORY + 4096), -EINVAL);
	assert_int_equal(actor_reader_memory(&watcher, reader, 4095), -EINVAL);
	expect_error(&watcher, actor_reader_memory(&watcher, reader, 4096), -EINVAL, "not sealed");

	memory = fill_file(reader, MEMORY_BYTES, 0);
	expect_error(&watcher, actor_reader_memory(&watcher, reader, MEMORY_BYTES / 2), -EINVAL,
		     "another size");
	munmap(memory, MEMORY_BYTES);

	/* As many blocks as its size has, but one of them behind its end. */
	assert_int_equal(actor_reader_memory(&watcher, reader, 0), 0);
	assert_int_equal(fallocate(watcher.reader_file, FALLOC_FL_KEEP_SIZE, MEMORY_BYTES, 4096), 0);
	memory = fill_file(reader, MEMORY_BYTES, 4096);
	expect_error(&watcher, actor_reader_memory(&watcher, reader, MEMORY_BYTES), -EINVAL, "never written");
	munmap(memory, MEMORY_BYTES);

	/* Each has a file of its own, and nothing is charged for what was refused. */
	memory = fill_file(reader, MEMORY_BYTES, 0);
	assert_int_equal(actor_reader_memory(&watcher, reader, MEMORY_BYTES), 0);
	munmap(memory, MEMORY_BYTES);
	actor_die(&watcher);
	scene_settle(&scene);
	assert_true(used_bytes() == idle_bytes);
}

static void a_reader_that_goes_while_its_memory_is_looked_at_leaves_nothing(void **state)
{
	Tierd__Wire__Request request = TIERD__WIRE__REQUEST__INIT;
	Tierd__Wire__ReaderMemory body = TIERD__WIRE__READER_MEMORY__INIT;
	float *memory;

	start();
	body.reader = open_reader(&watcher);
	memory = fill_file(body.reader, MEMORY_BYTES, 0);
	body.bytes = MEMORY_BYTES;
	request.body_case = TIERD__WIRE__REQUEST__BODY_READER_MEMORY;
	request.reader_memory = &body;
	blockade_begin(&scene, scene.node->workers, &blockade);
	actor_send(&watcher, &request);
	actor_die(&watcher);
	blockade_end(&blockade);
	scene_settle(&scene);
	assert_true(used_bytes() == idle_bytes);
	assert_true(node_values_have_ended(scene.node));
	munmap(memory, MEMORY_BYTES);
}

/* ---- */

static int setup(void **state)
{
	return scene_setup_with(&(struct scene_options){ .host_budget = 640 * MIB, .capacity = 1024 * MIB });
}

#define TEST(name) SCENE_TEST(name, setup)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(what_is_not_kept_is_refused_when_the_job_has_moved_on),
		TEST(what_is_kept_stays_when_the_job_has_moved_on),
		TEST(a_sweep_saves_what_it_updates_in_host_memory),
		TEST(a_sweep_saves_what_it_updates_on_nvme),
		TEST(a_refresh_waits_for_the_step_that_is_being_applied),
		TEST(of_many_that_refresh_at_once_each_gets_its_turn),
		TEST(memory_is_charged_and_given_back),
		TEST(a_reader_that_dies_in_the_middle_leaves_nothing),
		TEST(what_a_sweep_saves_for_one_that_dies_goes_with_the_sweep),
		TEST(more_than_there_is_cannot_be_kept),
		TEST(who_lacks_memory_hears_what_readers_have),
		TEST(there_is_a_limit_to_readers),
		TEST(what_cannot_be_read_is_refused),
		TEST(what_cannot_be_kept_is_refused),
		TEST(a_reader_does_one_thing_at_a_time),
		TEST(a_job_without_values_cannot_be_read),
		TEST(a_dropped_job_leaves_its_readers_alone),
		TEST(what_cannot_be_read_fails_for_the_reader_alone),
		TEST(an_idle_job_is_read_and_stays_idle),
		TEST(values_go_to_memory_of_the_clients_own),
		TEST(memory_that_writes_could_fail_in_is_refused),
		TEST(a_reader_that_goes_while_its_memory_is_looked_at_leaves_nothing),
	};

	log_open(LOG_LEVEL_ERROR);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
