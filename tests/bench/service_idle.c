/* What a tierd costs while nobody wants anything of it: its memory without jobs, its processor time beside
 * jobs whose ranks compute and connections that are silent, and how long tierctl status takes there.
 *
 * Memory is what its processes' page tables hold (RSS), shared libraries included; the part that is shared by
 * nobody else is printed beside. */
#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/size.h"
#include "client/tierd.h"
#include "tests/bench/node.h"
#include "tests/bench/service.h"

#define JOBS 3
#define UNITS 8
#define UNIT_ELEMENTS (UINT64_C(1) << 20)
#define CONNECTIONS 8
#define STATUS_RUNS 41 /* odd: one is the median */
#define IDLE_SECONDS 20
#define QUICK_IDLE_SECONDS 1
#define STATUS_LIMIT_MS 20
#define IDLE_LIMIT_PERCENT 0.1
#define BASE_LIMIT_MB 16

struct idle {
	struct bench_node tierd;
	struct tierd_node *nodes[CONNECTIONS];
};

/* ---- Memory ---- */

static int measure_base(struct bench *bench, const char *name, const struct idle *idle)
{
	uint64_t all = bench_node_memory(&idle->tierd, "Rss");

	if (all == 0)
		return -ENODATA;
	printf("%s: %.1f MB in all, %.1f MB of its share, %.1f MB private\n", name, (double)all / 1e6,
	       (double)bench_node_memory(&idle->tierd, "Pss") / 1e6,
	       (double)(bench_node_memory(&idle->tierd, "Private_Clean") +
			bench_node_memory(&idle->tierd, "Private_Dirty")) /
		       1e6);
	return bench_record(bench, name, (double)all / 1e6, "MB", BASE_LIMIT_MB);
}

/* ---- Jobs and connections that are idle ---- */

static int open_job(struct tierd_node *node, const char *name)
{
	struct tierd_job_options options = TIERD_JOB_OPTIONS_INIT;
	struct tierd_job *job;
	int r;

	options.name = name;
	options.host_budget = 128 * MIB;
	r = bench_job_open(node, &options, &(struct bench_units){ .count = UNITS, .elements = UNIT_ELEMENTS },
			   &job);
	return r < 0 ? r : bench_step(job, TIERD_DONE);
}

static int open_all(struct idle *idle)
{
	char name[32];
	int r = 0;

	for (unsigned i = 0; i < CONNECTIONS && r == 0; i++) {
		r = tierd_connect(idle->tierd.socket, &idle->nodes[i]);
		snprintf(name, sizeof(name), "idle.%u", i);
		if (r == 0 && i < JOBS)
			r = open_job(idle->nodes[i], name);
	}
	if (r < 0)
		fprintf(stderr, "idle: %s\n", tierd_message());
	return r;
}

/* ---- tierctl status ---- */

/* Milliseconds from before the program is started until after it has ended. */
static int run_program(const char *path, char *const arguments[], double *ret_ms)
{
	posix_spawn_file_actions_t actions;
	uint64_t start = clock_now_ns();
	pid_t process;
	int status, r;

	posix_spawn_file_actions_init(&actions);
	posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
	r = -posix_spawn(&process, path, &actions, NULL, arguments, environ);
	posix_spawn_file_actions_destroy(&actions);
	if (r == 0 && waitpid(process, &status, 0) != process)
		r = -errno;
	*ret_ms = bench_ms_since(start);
	return r < 0 ? r : WIFEXITED(status) && WEXITSTATUS(status) == 0 ? 0 : -EIO;
}

static int measure_status(struct bench *bench, const char *name, struct idle *idle)
{
	char *const status[] = { (char *)"tierctl", (char *)"--socket", idle->tierd.socket, (char *)"status",
				 NULL };
	char *const nothing[] = { (char *)"true", NULL };
	double ours[STATUS_RUNS], theirs[STATUS_RUNS];
	int r = 0;

	for (unsigned i = 0; i < STATUS_RUNS && r == 0; i++) {
		r = run_program(TIERCTL_PROGRAM, status, &ours[i]);
		if (r == 0)
			r = run_program("/bin/true", nothing, &theirs[i]);
	}
	if (r < 0)
		return r;
	printf("%s: at most %.2f ms; a program that does nothing takes %.2f ms\n", name,
	       bench_quantile(ours, STATUS_RUNS, 1), bench_median(theirs, STATUS_RUNS));
	return bench_record(bench, name, bench_median(ours, STATUS_RUNS), "ms", STATUS_LIMIT_MS);
}

/* ---- Processor time ---- */

static int measure_processor(struct bench *bench, const char *name, const struct idle *idle)
{
	uint64_t seconds = bench_is_quick(bench) ? QUICK_IDLE_SECONDS : IDLE_SECONDS;
	uint64_t start = clock_now_ns(), before = 0, after = 0;
	int r = bench_node_processor_ns(&idle->tierd, &before);

	clock_sleep_ns(seconds * UINT64_C(1000000000));
	if (r == 0)
		r = bench_node_processor_ns(&idle->tierd, &after);
	if (r < 0)
		return r;
	return bench_record(bench, name, 100 * (double)(after - before) / (double)(clock_now_ns() - start),
			    "%", IDLE_LIMIT_PERCENT);
}

int bench_idle(struct bench *bench)
{
	struct idle idle = { .tierd = BENCH_NODE_INIT };
	int r = bench_node_start(&idle.tierd, "1G", "2G");

	if (r == 0 && bench_wants(bench, "daemon_base_mb"))
		r = measure_base(bench, "daemon_base_mb", &idle);
	if (r == 0)
		r = open_all(&idle);
	if (r == 0 && bench_wants(bench, "tierctl_status_ms"))
		r = measure_status(bench, "tierctl_status_ms", &idle);
	if (r == 0 && bench_wants(bench, "idle_cpu"))
		r = measure_processor(bench, "idle_cpu", &idle);
	for (unsigned i = 0; i < CONNECTIONS; i++)
		tierd_disconnect(idle.nodes[i]);
	bench_node_stop(&idle.tierd);
	return r;
}
