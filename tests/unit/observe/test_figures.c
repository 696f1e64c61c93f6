/* What the daemon counts, as its pages of statistics show it: whose they are, and what a client can do to
 * them. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "daemon/model/job.h"
#include "daemon/observe/statistics.h"
#include "daemon/telemetry/telemetry.h"
#include "tests/unit/scene_test.h"

#define UNIT_BYTES (2 * PLAY_ELEMENTS)

static struct actor actor;

static int map_page(const char *job)
{
	Tierd__Wire__StatisticsMap map = TIERD__WIRE__STATISTICS_MAP__INIT;

	map.job = (char *)job;
	map.has_owner = true;
	map.owner = geteuid();
	return actor_ask(&actor, WIRE_REQUEST(STATISTICS_MAP, statistics_map, &map), NULL);
}

static struct statistics_job job_page(void)
{
	struct statistics_job body;

	assert_int_equal(map_page("play"), 0);
	assert_int_equal(actor.statistics.bytes, STATISTICS_PAGE_BYTES);
	assert_int_equal(statistics_page_read(actor.statistics.base, STATISTICS_OF_JOB, &body, sizeof(body)),
			 0);
	return body;
}

static struct statistics_node node_page(void)
{
	struct statistics_node body;

	assert_int_equal(map_page(""), 0);
	assert_int_equal(statistics_page_read(actor.statistics.base, STATISTICS_OF_NODE, &body, sizeof(body)),
			 0);
	return body;
}

static void what_a_gather_waits_for_is_counted(void **state)
{
	struct job *job = actor_play(&scene, &actor);
	struct statistics_figures before, after;
	uint32_t gather;

	scene_settle(&scene);
	before = job_page().figures;
	gather = actor_send_gather(&actor, scene_absent_unit(job), 0, true);
	assert_int_equal(actor_await(&actor, gather, 0)->status, 0);
	after = job_page().figures;
	assert_int_equal(after.misses - before.misses, 1);
	assert_true(after.stall_ns[STATISTICS_NVME_READ] > before.stall_ns[STATISTICS_NVME_READ]);
	assert_int_equal(after.stall_ns[STATISTICS_STEP], before.stall_ns[STATISTICS_STEP]);
	assert_int_equal(after.bytes[STATISTICS_DEMAND][STATISTICS_READ] -
				 before.bytes[STATISTICS_DEMAND][STATISTICS_READ],
			 UNIT_BYTES);
	assert_int_equal(after.transfers[STATISTICS_DEMAND][STATISTICS_READ] -
				 before.transfers[STATISTICS_DEMAND][STATISTICS_READ],
			 1);
}

static void a_stall_that_goes_on_is_counted_too(void **state)
{
	struct job *job = actor_play(&scene, &actor);
	uint64_t waited;

	assert_int_equal(job->decided, 0);
	/* The loop does not turn from here on: the step never comes. */
	actor_send_push(&actor, 0, 0);
	actor_send_step(&actor, 0.1f);
	actor_send_gather(&actor, 0, 1, true);
	waited = job_page().figures.stall_ns[STATISTICS_STEP];
	assert_true(waited > 0);
	assert_true(job_page().figures.stall_ns[STATISTICS_STEP] > waited);
}

static void a_step_shows_what_it_moved(void **state)
{
	struct job *job = actor_play(&scene, &actor);
	uint32_t step;

	for (uint32_t unit = 0; unit < PLAY_UNITS; unit++)
		assert_int_equal(actor_await(&actor, actor_send_push(&actor, unit, 0), 0)->status, 0);
	step = actor_send_step(&actor, 0.1f);
	assert_int_equal(actor_await(&actor, step, 0)->status, 0);
	struct statistics_job page = job_page();

	assert_int_equal(page.step, 1);
	assert_int_equal(page.ranks, 1);
	assert_string_equal(page.name, "play");
	assert_string_equal(page.status, "training");
	assert_int_equal(page.figures.steps, 1);
	assert_int_equal(page.figures.skipped_steps, 0);
	assert_int_equal(page.figures.epochs, 1);
	assert_int_equal(page.figures.pushes, PLAY_UNITS);
	assert_true(page.figures.step_ns > 0);
	assert_int_equal(page.nvme_bytes, budget_nvme_bytes(job));
	/* Remainder, m and v, and the parameters. */
	assert_int_equal(page.figures.bytes[STATISTICS_UPDATE][STATISTICS_WRITTEN],
			 PLAY_UNITS * 12 * PLAY_ELEMENTS);
	assert_true(page.figures.bytes[STATISTICS_WRITE_BACK][STATISTICS_WRITTEN] > 0);
}

static void a_lost_rank_breaks_an_epoch(void **state)
{
	struct job *job = actor_play(&scene, &actor);

	job_abort(job, -ESTALE, "for the test");
	assert_int_equal(job_page().figures.broken_epochs, 1);
}

/* It is the first one. */
static void expect_path(const char *told, const char *path)
{
	static const char number[] = "0:…";

	if (strlen(path) < STATISTICS_PATH_BYTES) {
		assert_string_equal(told, path);
	} else {
		assert_memory_equal(told, number, strlen(number));
		assert_string_equal(told + strlen(number),
				    path + strlen(path) - strlen(told + strlen(number)));
	}
}

static void the_node_keeps_the_figures_of_jobs_that_are_gone(void **state)
{
	struct job *job = actor_play(&scene, &actor);
	struct statistics_figures figures = job_page().figures;
	struct statistics_node before = node_page(), after;

	assert_int_equal(before.jobs, 1);
	assert_int_equal(before.clients, 1);
	assert_int_equal(before.path_count, 1);
	expect_path(before.paths[0].path, scene.folder);
	assert_memory_equal(before.figures.bytes, figures.bytes, sizeof(figures.bytes));
	assert_true(before.paths[0].moved[STATISTICS_WRITTEN] > 0);
	actor_die(&actor);
	job_drop(job);
	scene_settle(&scene);
	assert_int_equal(actor_enter(&scene, &actor), 0);
	after = node_page();
	assert_int_equal(after.jobs, 0);
	assert_true(after.heartbeat_ns > before.heartbeat_ns);
	for (unsigned kind = 0; kind < STATISTICS_KINDS; kind++)
		for (unsigned direction = 0; direction < STATISTICS_DIRECTIONS; direction++)
			assert_true(after.figures.bytes[kind][direction] >= figures.bytes[kind][direction]);
	assert_true(after.paths[0].moved[STATISTICS_WRITTEN] >= before.paths[0].moved[STATISTICS_WRITTEN]);
	assert_int_equal(after.paths[0].used, 0);
}

static void the_trace_counts_gathers_but_no_nonsense(void **state)
{
	struct lease_header *leases;
	uint64_t before;

	actor_play(&scene, &actor);
	leases = (struct lease_header *)actor.leases.base;
	before = job_page().figures.gathers;
	atomic_fetch_add(&leases->trace_head, 5);
	assert_int_equal(job_page().figures.gathers, before + 5);
	atomic_store(&leases->trace_head, UINT64_MAX / 2);
	assert_int_equal(job_page().figures.gathers, before + 5);
	atomic_store(&leases->trace_head, 0);
	assert_int_equal(job_page().figures.gathers, before + 5);
	atomic_fetch_add(&leases->trace_head, 2);
	assert_int_equal(job_page().figures.gathers, before + 7);
}

static void others_have_no_page_of_the_job(void **state)
{
	actor_play(&scene, &actor);
	assert_int_equal(map_page("play"), 0);
	actor.port.uid = geteuid() + 1;
	assert_int_equal(map_page("play"), -ENOENT);
	actor.port.uid = geteuid();
	assert_int_equal(map_page("plays"), -ENOENT);
}

static void a_page_is_for_reading_only(void **state)
{
	struct job *job = actor_play(&scene, &actor);
	struct stat file;

	assert_int_equal(map_page("play"), 0);
	assert_int_not_equal(mprotect(actor.statistics.base, actor.statistics.bytes, PROT_READ | PROT_WRITE),
			     0);
	/* Other users cannot open it again for writing, and nobody can cut it. */
	assert_int_equal(fstat(telemetry_page(job)->fd, &file), 0);
	assert_int_equal(file.st_mode & 0777, 0600);
	assert_int_not_equal(ftruncate(telemetry_page(job)->fd, 0), 0);
}

static void the_nodes_page_is_published_and_removed(void **state)
{
	/* Paths of sockets are short. */
	char folder[] = "/tmp/tierd-figures-XXXXXX", socket[64], path[STATISTICS_FILE_SIZE];
	struct statistics *statistics = NULL;
	struct statistics_node body;
	struct stat file;
	void *page;
	int fd;

	assert_non_null(mkdtemp(folder));
	snprintf(socket, sizeof(socket), "%s/s", folder);
	assert_int_equal(statistics_new(scene.node, socket, 0660, &statistics), 0);
	assert_int_equal(statistics_file(socket, path), 0);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	assert_true(fd >= 0 && fstat(fd, &file) == 0);
	assert_int_equal(file.st_mode & 07777, 0640);
	page = mmap(NULL, STATISTICS_PAGE_BYTES, PROT_READ, MAP_SHARED, fd, 0);
	assert_ptr_not_equal(page, MAP_FAILED);
	assert_int_equal(statistics_page_read(page, STATISTICS_OF_NODE, &body, sizeof(body)), 0);
	uint64_t first = body.heartbeat_ns;

	while (body.heartbeat_ns == first) {
		scene_wait(&scene);
		assert_int_equal(statistics_page_read(page, STATISTICS_OF_NODE, &body, sizeof(body)), 0);
	}
	statistics_free(statistics);
	assert_int_not_equal(access(path, F_OK), 0);
	assert_int_equal(rmdir(folder), 0);
	munmap(page, STATISTICS_PAGE_BYTES);
	close(fd);
}

#define TEST(name) SCENE_TEST(name, scene_setup)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(what_a_gather_waits_for_is_counted),
		TEST(a_stall_that_goes_on_is_counted_too),
		TEST(a_step_shows_what_it_moved),
		TEST(a_lost_rank_breaks_an_epoch),
		TEST(the_node_keeps_the_figures_of_jobs_that_are_gone),
		TEST(the_trace_counts_gathers_but_no_nonsense),
		TEST(others_have_no_page_of_the_job),
		TEST(a_page_is_for_reading_only),
		TEST(the_nodes_page_is_published_and_removed),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
