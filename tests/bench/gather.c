/* Gathers as a trainer sees them, through a real tierd: of units that are there, of units that are not, and
 * what a request costs. */
#include "tests/bench/gather.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/cleanup.h"
#include "tests/bench/fio.h"

int gather_open(const struct bench_node *tierd, const struct gather_job *wanted, struct tierd_node **ret_node,
		struct tierd_job **ret_job)
{
	struct tierd_job_options options = TIERD_JOB_OPTIONS_INIT;

	options.name = wanted->name;
	options.host_budget = wanted->host_budget;
	return bench_job_join(tierd->socket, &options,
			      &(struct bench_units){ .count = wanted->units,
						     .elements = wanted->elements,
						     .is_frozen = wanted->is_frozen },
			      ret_node, ret_job);
}

/* The fast ones come last: they move $TMPDIR. */
static int run_cold(struct bench *bench)
{
	static const char *const cold[] = { "gather_cold_ratio", "nvme_cpu_cores", NULL };
	static const char *const fast[] = { "fast_gather_ratio", "gather_cpu_per_gb", "fast_paths_ratio",
					    NULL };
	int r = 0;

	for (unsigned i = 0; !fio_is_installed() && cold[i]; i++)
		bench_skip(bench, cold[i], FIO_MISSING);
	for (unsigned i = 0; !fio_is_installed() && fast[i]; i++)
		bench_skip(bench, fast[i], FIO_MISSING);
	if (!fio_is_installed())
		return 0;
	if (bench_wants_one_of(bench, cold))
		r = bench_gather_cold(bench);
	if (r == 0 && bench_wants_one_of(bench, fast))
		r = bench_gather_fast(bench);
	return r;
}

static int run(struct bench *bench)
{
	int r = 0;

	if (bench_wants_any(bench, "gather_hit_pair_ns_p50", "gather_hit_pair_ns_p99", "gather_hit_batch_ns"))
		r = bench_gather_hits(bench);
	if (r == 0 && bench_wants(bench, "gather_miss_host_us"))
		r = bench_gather_misses(bench);
	if (r == 0 && bench_wants(bench, "request_ratio"))
		r = bench_requests(bench);
	if (r == 0 && bench_wants(bench, "isolation_p99_ratio"))
		r = bench_isolation(bench);
	if (r == 0 && bench_wants_any(bench, "hostile_latency_ratio", "hostile_request_ratio"))
		r = bench_hostile(bench);
	if (r == 0 && bench_wants_any(bench, "hostile_io_ratio", "hostile_io_control"))
		r = bench_hostile_io(bench);
	return r < 0 ? r : run_cold(bench);
}

int main(int argc, char **argv)
{
	return bench_main(argc, argv, run);
}
