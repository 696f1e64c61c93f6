/* Scans read beside all else that happens to a job. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <unistd.h>
#include <cmocka.h>

#include "common/log.h"
#include "daemon/idle.h"
#include "daemon/job.h"
#include "daemon/scan.h"
#include "tests/unit/daemon_support.h"

static struct scene scene;
static struct actor actor;

struct reading {
	struct scan scan;
	unsigned found;
	bool is_done;
	int status;
};

static void on_found(struct scan *scan, const struct scan_finding *finding)
{
	container_of(scan, struct reading, scan)->found++;
}

static void on_done(struct scan *scan, int status)
{
	struct reading *reading = container_of(scan, struct reading, scan);

	reading->is_done = true;
	reading->status = status;
}

/* As a scrub does that somebody hurries: it would begin the next one at once. */
static void a_job_that_is_read_gives_its_memory_back(void **state)
{
	struct reading reading = { .scan = { .found = on_found, .done = on_done } };
	struct job *job = actor_play(&scene, &actor);

	actor_die(&actor);
	scene_settle(&scene);
	assert_int_equal(job->phase, JOB_TRAINED);
	assert_int_equal(scan_start(&reading.scan, job, 0, store_extents(job_nvme_store(job))), 0);
	assert_true(idle_release(job));
	assert_int_equal(job->phase, JOB_RELEASED);
	assert_false(reading.is_done);
	while (!reading.is_done)
		scene_wait(&scene);
	assert_int_equal(reading.status, 0);
	assert_int_equal(reading.found, 0);
	assert_int_equal(reading.scan.next, store_extents(job_nvme_store(job)));
	scan_clear(&reading.scan);
}

/* What it reads is there until it has ended. */
static void a_job_that_is_read_is_not_freed(void **state)
{
	struct reading reading = { .scan = { .found = on_found, .done = on_done } };
	struct job *job = actor_play(&scene, &actor);

	actor_die(&actor);
	scene_settle(&scene);
	assert_int_equal(scan_start(&reading.scan, job, 0, store_extents(job_nvme_store(job))), 0);
	assert_false(job_is_quiet(job));
	job_drop(job);
	while (!reading.is_done)
		scene_wait(&scene);
	assert_int_equal(reading.status, -ENOENT);
	scan_clear(&reading.scan);
	scene_settle(&scene);
	assert_true(queue_is_empty(&scene.node->dying));
}

static int setup(void **state)
{
	log_open(LOG_LEVEL_ERROR);
	return scene_open(&(struct scene_options){ 0 }, &scene);
}

static int teardown(void **state)
{
	actor_die(&actor);
	scene_close(&scene);
	return 0;
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(a_job_that_is_read_gives_its_memory_back),
		TEST(a_job_that_is_read_is_not_freed),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
