/* What limits a node, by what it has counted between two looks. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "client/tierctl/limit.h"
#include "tests/unit/test.h"

#define SECOND UINT64_C(1000000000)

/* Two looks with two seconds in between, at a node of two workers, three paths and one rank. */
static struct statistics_node before, now;

static int begin(void **state)
{
	before = (struct statistics_node){
		.heartbeat_ns = SECOND, .started_ns = 1, .workers = 2, .ranks = 1, .path_count = 3
	};
	before.worker_busy_ns = before.loop_busy_ns = before.paths[1].busy_ns = 12 * SECOND;
	for (unsigned i = 0; i < 3; i++)
		snprintf(before.paths[i].path, sizeof(before.paths[i].path), "/mnt/nvme%u", i);
	now = before;
	now.heartbeat_ns += 2 * SECOND;
	return 0;
}

static void expect(const char *name, const char *line)
{
	struct limit_load load = limit_of_looks(&now, &before);
	FILE *file = tmpfile();
	char text[256] = "";
	int out = dup(STDOUT_FILENO);

	assert_true(file && out >= 0);
	fflush(stdout);
	dup2(fileno(file), STDOUT_FILENO);
	assert_int_equal(limit_print(&load, 9), COMMAND_DONE);
	fflush(stdout);
	dup2(out, STDOUT_FILENO);
	close(out);
	rewind(file);
	assert_true(fread(text, 1, sizeof(text) - 1, file) > 0 || !line);
	fclose(file);
	assert_string_equal(text, line ? line : "");
	if (name)
		assert_string_equal(limit_name(&load), name);
	else
		assert_null(limit_name(&load));
}

static void a_node_that_is_not_busy_is_not_what_limits(void **state)
{
	expect("neither", "limit    neither (the trainers compute)\n");
	now.paths[0].busy_ns += 2 * SECOND * 8 / 10;
	now.worker_busy_ns += 4 * SECOND * 8 / 10;
	now.figures.stall_ns[STATISTICS_STEP] = SECOND / 100;
	expect("neither", "limit    neither (the trainers compute)\n");
	now.figures.stall_ns[STATISTICS_SLOT] = SECOND / 2;
	expect("neither", "limit    neither (ranks wait 0.26 s/s, most for room in host memory)\n");
	now.figures.stall_ns[STATISTICS_GPU] = SECOND;
	expect("neither", "limit    neither (ranks wait 0.76 s/s, most for GPUs)\n");
	now.ranks = 0;
	expect("neither", "limit    neither (no rank is there)\n");
}

static void busy_devices_limit(void **state)
{
	now.paths[1].busy_ns += 2 * SECOND * 97 / 100;
	expect("devices", "limit    devices (/mnt/nvme1 97 % busy)\n");
	now.paths[2].busy_ns += 2 * SECOND;
	expect("devices", "limit    devices (/mnt/nvme2 100 % busy, and 1 more path)\n");
}

static void busy_workers_limit_or_a_busy_loop(void **state)
{
	now.worker_busy_ns += 4 * SECOND * 97 / 100;
	expect("processors", "limit    processors (2 workers 97 % busy)\n");
	now.paths[0].busy_ns += 2 * SECOND * 95 / 100;
	expect("devices and processors",
	       "limit    devices (/mnt/nvme0 95 % busy) and processors (2 workers 97 % busy)\n");
	/* Now nobody knows when the device has done what it had to do. */
	now.loop_busy_ns += 2 * SECOND;
	expect("processors", "limit    processors (2 workers 97 % busy, the loop 100 % busy)\n");
	now.worker_busy_ns = before.worker_busy_ns;
	expect("processors", "limit    processors (the loop 100 % busy)\n");
}

static void it_is_not_known_of_a_daemon_that_does_not_say(void **state)
{
	now.heartbeat_ns = before.heartbeat_ns;
	expect(NULL, NULL);
	begin(NULL);
	now.workers = 0;
	expect(NULL, NULL);
	begin(NULL);
	now.started_ns++;
	expect(NULL, NULL);
}

static void a_reply_tells_the_same(void **state)
{
	Tierd__Wire__NodeReply node = TIERD__WIRE__NODE_REPLY__INIT;
	Tierd__Wire__Load load = TIERD__WIRE__LOAD__INIT;
	Tierd__Wire__Path path = TIERD__WIRE__PATH__INIT, *paths[] = { &path };
	/* Of a newer daemon, with causes that nobody knows here. */
	uint64_t stalls[STATISTICS_CAUSES + 1] = { SECOND, 0, 0, 0, 0, SECOND };
	struct limit_load told = limit_of_node(&node);

	node.workers = 2;
	node.ranks = 1;
	node.n_paths = 1;
	node.paths = paths;
	assert_null(limit_name(&told));
	node.load = &load;
	told = limit_of_node(&node);
	assert_null(limit_name(&told));
	load.interval_ns = 2 * SECOND;
	load.n_stall_ns = STATISTICS_CAUSES + 1;
	load.stall_ns = stalls;
	told = limit_of_node(&node);
	assert_string_equal(limit_name(&told), "neither");
	assert_true(told.stalls[STATISTICS_NVME_READ] == 0.5);
	path.busy_ns = 2 * SECOND;
	told = limit_of_node(&node);
	assert_string_equal(limit_name(&told), "devices");
	load.worker_ns = 4 * SECOND;
	told = limit_of_node(&node);
	assert_string_equal(limit_name(&told), "devices and processors");
	load.loop_ns = 3 * SECOND;
	told = limit_of_node(&node);
	assert_string_equal(limit_name(&told), "processors");
	assert_true(told.loop == 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(a_node_that_is_not_busy_is_not_what_limits, begin),
		cmocka_unit_test_setup(busy_devices_limit, begin),
		cmocka_unit_test_setup(busy_workers_limit_or_a_busy_loop, begin),
		cmocka_unit_test_setup(it_is_not_known_of_a_daemon_that_does_not_say, begin),
		cmocka_unit_test(a_reply_tells_the_same),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
