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
	struct tierd_job_state state;
	int r;

	options.name = wanted->name;
	options.host_budget = wanted->host_budget;
	r = tierd_connect(tierd->socket, ret_node);
	if (r == 0)
		r = tierd_job_open(*ret_node, &options, ret_job);
	if (r == 0)
		r = bench_define_units(*ret_job, &(struct bench_units){ .count = wanted->units,
									.elements = wanted->elements,
									.is_frozen = wanted->is_frozen });
	if (r == 0)
		r = tierd_job_ready(*ret_job, -1, &state);
	if (r < 0)
		fprintf(stderr, "%s: %s\n", wanted->name, tierd_message());
	return r;
}

int gather_end_pass(struct tierd_job *job)
{
	struct tierd_rates rates = { sizeof(rates), .gradient_scale = 1 };

	return tierd_step(job, &rates, NULL);
}

static bool wants_cold(const struct bench *bench)
{
	return bench_wants(bench, "gather_cold_ratio") || bench_wants(bench, "nvme_cpu_cores");
}

static int skip_cold(struct bench *bench)
{
	static const char *const names[] = { "gather_cold_ratio", "nvme_cpu_cores" };

	for (size_t i = 0; i < ARRAY_LENGTH(names); i++)
		if (bench_wants(bench, names[i]))
			bench_skip(bench, names[i], FIO_MISSING);
	return 0;
}

static int run(struct bench *bench)
{
	int r = 0;

	if (bench_wants(bench, "gather_hit_pair_ns_p50") || bench_wants(bench, "gather_hit_pair_ns_p99") ||
	    bench_wants(bench, "gather_hit_batch_ns"))
		r = bench_gather_hits(bench);
	if (r == 0 && bench_wants(bench, "gather_miss_host_us"))
		r = bench_gather_misses(bench);
	if (r == 0 && bench_wants(bench, "request_ratio"))
		r = bench_requests(bench);
	if (r == 0 && bench_wants(bench, "isolation_p99_ratio"))
		r = bench_isolation(bench);
	if (r == 0 &&
	    (bench_wants(bench, "hostile_latency_ratio") || bench_wants(bench, "hostile_request_ratio")))
		r = bench_hostile(bench);
	if (r == 0 && (bench_wants(bench, "hostile_io_ratio") || bench_wants(bench, "hostile_io_control")))
		r = bench_hostile_io(bench);
	if (r == 0 && wants_cold(bench))
		r = fio_is_installed() ? bench_gather_cold(bench) : skip_cold(bench);
	return r;
}

int main(int argc, char **argv)
{
	struct bench *bench = NULL;
	int r = bench_new(argc, argv, &bench);

	if (r < 0)
		return EXIT_FAILURE;
	r = run(bench);
	return bench_end(bench, r);
}
