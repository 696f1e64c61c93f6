/* What the daemon's memory holds of each unit of a job: two daemons, of which one has a job of many more
 * units than the other; over the difference. The units are small and frozen, so there are neither sums nor
 * moments. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "client/tierd.h"
#include "common/size.h"
#include "tests/bench/node.h"
#include "tests/bench/service.h"

#define FEW_UNITS 10000
#define MANY_UNITS 100000 /* as many as a job may have */
#define QUICK_MANY_UNITS 20000
#define UNIT_ELEMENTS 256
#define LIMIT 512

static int open_job(const struct bench_node *tierd, unsigned units, struct tierd_node **ret_node)
{
	struct tierd_job_options options = TIERD_JOB_OPTIONS_INIT;
	struct tierd_job *job;
	int r;

	options.name = "metadata";
	options.parameter_placement = options.optimizer_placement = TIERD_PLACE_NVME;
	options.host_budget = 256 * MIB;
	r = bench_job_join(
		tierd->socket, &options,
		&(struct bench_units){ .count = units, .elements = UNIT_ELEMENTS, .is_frozen = true },
		ret_node, &job);
	/* Until it is durable, what is written of it is there twice. */
	return r < 0 ? r : bench_step(job, TIERD_DURABLE);
}

/* Where parameters lie for clients to map: they are no metadata. */
static bool is_for_values(const char *mapping)
{
	return strstr(mapping, "memfd:tierd-arena") || strstr(mapping, "memfd:tierd-cache");
}

/* What the daemon has in memory beside values: its own, and the pages that it shares with ranks. */
static int metadata_bytes(const struct bench_node *tierd, double *ret_bytes)
{
	char path[64], line[512];
	bool is_counted = false;
	unsigned long start, kib;
	double bytes = 0;
	FILE *file;

	snprintf(path, sizeof(path), "/proc/%d/smaps", (int)tierd->pid);
	file = fopen(path, "re");
	if (!file)
		return -errno;
	while (fgets(line, sizeof(line), file))
		if (sscanf(line, "Rss: %lu kB", &kib) == 1)
			bytes += is_counted ? (double)(kib * KIB) : 0;
		else if (sscanf(line, "%lx-%*x", &start) == 1)
			is_counted = !is_for_values(line);
	fclose(file);
	*ret_bytes = bytes;
	return 0;
}

static int measure(unsigned units, double *ret_bytes)
{
	struct bench_node tierd = BENCH_NODE_INIT;
	struct tierd_node *node = NULL;
	double before = 0, after = 0;
	int r = bench_node_start(&tierd, "1G", "4G");

	if (r == 0)
		r = metadata_bytes(&tierd, &before);
	if (r == 0)
		r = open_job(&tierd, units, &node);
	if (r == 0)
		r = metadata_bytes(&tierd, &after);
	*ret_bytes = after - before;
	tierd_disconnect(node);
	bench_node_stop(&tierd);
	return r;
}

int bench_metadata(struct bench *bench)
{
	unsigned many = bench_is_quick(bench) ? QUICK_MANY_UNITS : MANY_UNITS;
	double few_bytes = 0, many_bytes = 0;
	int r = measure(FEW_UNITS, &few_bytes);

	if (r == 0)
		r = measure(many, &many_bytes);
	if (r < 0)
		return r;
	printf("metadata_unit_bytes: %.1f MiB of %u units, %.1f MiB of %u\n", few_bytes / (double)MIB,
	       FEW_UNITS, many_bytes / (double)MIB, many);
	return bench_record(bench, "metadata_unit_bytes", (many_bytes - few_bytes) / (many - FEW_UNITS),
			    "bytes", LIMIT);
}
