/* A gather that has to ask although the unit's bytes lie in its slot: its trainer has looked a moment before
 * they were published. Over an empty request's way to tierd and back.
 *
 * That moment is made to last: this process sees a copy of the directory in which its units are still absent.
 * The daemon has them, and grants each lease at once. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "common/cleanup.h"
#include "common/clock.h"
#include "common/size.h"
#include "proto/pages.h"
#include "tests/bench/gather.h"
#include "tests/bench/line.h"
#include "tests/bench/node.h"

#define UNITS 8
#define ELEMENTS (UINT64_C(1) << 16)
#define BUDGET (64 * MIB)
#define BLOCK 100 /* between two looks at the clock */
#define LIMIT 1.5

struct missing {
	struct bench_node tierd;
	struct tierd_node *node;
	struct tierd_job *job;
	struct line line;
	uint32_t next;
};

/* ---- The directory that this process sees ---- */

static int find_directory(char **ret_start, size_t *ret_length)
{
	unsigned long start, end;
	char line[512];
	FILE *maps = fopen("/proc/self/maps", "re");
	int r = maps ? -ENOENT : -errno;

	while (maps && r < 0 && fgets(line, sizeof(line), maps))
		if (strstr(line, "memfd:tierd-directory") && sscanf(line, "%lx-%lx", &start, &end) == 2) {
			*ret_start = (char *)start;
			*ret_length = end - start;
			r = 0;
		}
	if (maps)
		fclose(maps);
	return r;
}

static int hide_units(void)
{
	_cleanup_free_ char *copy = NULL;
	struct directory_entry *entries;
	char *directory = NULL;
	size_t length = 0;
	int r = find_directory(&directory, &length);

	if (r < 0)
		return r;
	copy = malloc(length);
	if (!copy)
		return -ENOMEM;
	memcpy(copy, directory, length);
	if (mmap(directory, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) ==
	    MAP_FAILED)
		return -errno;
	memcpy(directory, copy, length);
	entries = directory_entries((struct directory_header *)directory);
	for (uint32_t unit = 0; unit < UNITS; unit++)
		directory_set(&entries[unit], DIRECTORY_ABSENT);
	return 0;
}

/* ---- The sides ---- */

static int gather_next(struct missing *missing)
{
	return bench_gather_unit(missing->job, missing->next++ % UNITS);
}

static int ask_next(struct missing *missing)
{
	return line_round_trip(&missing->line);
}

static double repeat(struct missing *missing, int (*once)(struct missing *), double seconds)
{
	uint64_t start = clock_now_ns(), now = start, count = 0;
	int r = 0;

	while (r == 0 && (double)(now - start) < seconds * 1e9) {
		for (unsigned i = 0; i < BLOCK && r == 0; i++)
			r = once(missing);
		count += BLOCK;
		now = clock_now_ns();
	}
	return r < 0 ? r : (double)count / ((double)(now - start) / 1e9);
}

static double run_gathers(void *context, double seconds)
{
	return repeat(context, gather_next, seconds);
}

static double run_requests(void *context, double seconds)
{
	return repeat(context, ask_next, seconds);
}

/* ---- */

static int gather_all(struct missing *missing)
{
	int r = 0;

	for (unsigned i = 0; i < UNITS && r == 0; i++)
		r = gather_next(missing);
	return r;
}

/* All gathers are misses, and nothing is read. */
static int expect_misses(struct missing *missing)
{
	struct tierd_statistics before = TIERD_STATISTICS_INIT, after = TIERD_STATISTICS_INIT;
	int r = tierd_statistics(missing->job, &before);

	if (r == 0)
		r = gather_all(missing);
	if (r == 0)
		r = tierd_statistics(missing->job, &after);
	if (r < 0)
		return r;
	if (after.gather_misses - before.gather_misses == UNITS &&
	    after.job_gather_read_bytes == before.job_gather_read_bytes)
		return 0;
	fprintf(stderr, "gather_miss_host_us: gathers were hits, or read something\n");
	return -ENODATA;
}

static int open_all(struct missing *missing)
{
	const struct gather_job wanted = { "miss", BUDGET, UNITS, ELEMENTS, false };
	int r = bench_node_start(&missing->tierd, "256M", "1G");

	if (r == 0)
		r = gather_open(&missing->tierd, &wanted, &missing->node, &missing->job);
	if (r == 0)
		r = gather_all(missing);
	if (r == 0)
		r = hide_units();
	if (r == 0)
		r = expect_misses(missing);
	return r < 0 ? r : line_open(missing->tierd.socket, &missing->line);
}

int bench_gather_misses(struct bench *bench)
{
	struct missing missing = { .tierd = BENCH_NODE_INIT, .line = LINE_INIT };
	int r = open_all(&missing);

	if (r == 0)
		r = bench_compare(bench, &(struct bench_comparison){ .name = "gather_miss_host_us",
								     .bound = BENCH_AT_MOST,
								     .limit = LIMIT,
								     .unit = "k a second",
								     .scale = 1e3,
								     .ours = { run_gathers, &missing },
								     .theirs = { run_requests, &missing } });
	line_close(&missing.line);
	tierd_disconnect(missing.node);
	bench_node_stop(&missing.tierd);
	return r;
}
