/* Each allocation of a training fails in turn, the daemon's own and libevent's: whatever fails is answered
 * with an error or survived, and a client that comes afterwards trains as if nothing had happened. */
#include <errno.h>
#include <event2/event.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "common/log.h"
#include "tests/fault/alloc_fault.h"
#include "tests/fault/daemon_training.h"

static struct scene scene;
static struct actor actor;

/* Through functions of this program, so that they are counted: --wrap does not see into the library. */
static void *counted_malloc(size_t size)
{
	return malloc(size);
}

static void *counted_realloc(void *pointer, size_t size)
{
	return realloc(pointer, size);
}

static void end_scene(void)
{
	actor_die(&actor);
	scene_close(&scene);
}

/* Nothing of the job that failed is in the way of the next. */
static void expect_that_others_train(void)
{
	actor_die(&actor);
	scene_settle(&scene);
	assert_int_equal(training_run(&scene, &actor, &(struct actor_job){ .name = "next", .stage = 3 }), 0);
}

static void survive(const struct actor_job *job, bool is_without_nvme)
{
	const struct scene_options options = { .is_without_nvme = is_without_nvme };
	bool has_tripped = true;

	for (unsigned nth = 1; has_tripped; nth++) {
		assert_int_equal(scene_open(&options, &scene), 0);
		alloc_fault_arm(nth);
		int r = training_run(&scene, &actor, job);

		has_tripped = alloc_fault_tripped();
		/* What was survived (a fallback, a prefetch) is no error. */
		if (!has_tripped)
			assert_int_equal(r, 0);
		expect_that_others_train();
		end_scene();
	}
}

static void a_training_on_nvme_survives(void **state)
{
	survive(&(struct actor_job){ .stage = 3 }, false);
}

static void a_training_in_host_memory_survives(void **state)
{
	survive(&(struct actor_job){ .stage = 1 }, true);
}

static void a_training_with_spilled_sums_survives(void **state)
{
	survive(&(struct actor_job){ .stage = 2,
				     .optimizer_placement = PLACEMENT_HOST,
				     .gradient_placement = PLACEMENT_NVME },
		false);
}

static void a_training_by_its_owner_survives(void **state)
{
	survive(&(struct actor_job){ .stage = 3, .optimizer = OPTIMIZER_NONE }, false);
}

/* Opens a reader, keeps two states, and reads of those and of what is not kept. */
static int read_all(void)
{
	static const char *const states[] = { "master", "v", "parameter" };
	Tierd__Wire__ReaderPiece pieces[2];
	Tierd__Wire__ReaderRead read = TIERD__WIRE__READER_READ__INIT;
	uint32_t reader;
	int r = actor_open_reader(&actor, "play", &reader);

	for (unsigned i = 0; i < ARRAY_LENGTH(pieces); i++) {
		tierd__wire__reader_piece__init(&pieces[i]);
		pieces[i].state = (char *)states[i];
		pieces[i].all_units = true;
	}
	if (r == 0)
		r = actor_await(&actor, actor_send_refresh(&actor, reader, pieces, 2), 0)->status;
	read.count = TRAINING_ELEMENTS;
	read.step = 2;
	for (unsigned i = 0; i < ARRAY_LENGTH(states) && r == 0; i++) {
		read.state = (char *)states[i];
		r = actor_await(&actor, actor_send_reader_read(&actor, reader, &read), 0)->status;
	}
	return r;
}

static void a_reader_survives(void **state)
{
	bool has_tripped = true;

	for (unsigned nth = 1; has_tripped; nth++) {
		assert_int_equal(scene_open(&(struct scene_options){ 0 }, &scene), 0);
		assert_int_equal(training_run(&scene, &actor, &(struct actor_job){ .stage = 3 }), 0);
		alloc_fault_arm(nth);
		int r = read_all();

		has_tripped = alloc_fault_tripped();
		if (!has_tripped)
			assert_int_equal(r, 0);
		expect_that_others_train();
		end_scene();
	}
}

static void a_node_survives(void **state)
{
	bool has_tripped = true;

	for (unsigned nth = 1; has_tripped; nth++) {
		alloc_fault_arm(nth);
		int r = scene_open(&(struct scene_options){ 0 }, &scene);

		has_tripped = alloc_fault_tripped();
		if (!has_tripped)
			assert_int_equal(r, 0);
		scene_close(&scene);
	}
}

static int setup(void **state)
{
	log_open(LOG_LEVEL_ERROR);
	event_set_mem_functions(counted_malloc, counted_realloc, free);
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_node_survives),
		cmocka_unit_test(a_training_on_nvme_survives),
		cmocka_unit_test(a_training_in_host_memory_survives),
		cmocka_unit_test(a_training_with_spilled_sums_survives),
		cmocka_unit_test(a_training_by_its_owner_survives),
		cmocka_unit_test(a_reader_survives),
	};

	return cmocka_run_group_tests(tests, setup, NULL);
}
