/* What a tierd costs that serves for weeks, and how soon a job is open, or open again. */
#include "tests/bench/service.h"

static int run(struct bench *bench)
{
	int r = 0;

	if (bench_wants_any(bench, "open_job_ms", "attach_ms", "attach_small_pages_ms", "reattach_ms"))
		r = bench_attach(bench);
	if (r == 0 && bench_wants_any(bench, "daemon_base_mb", "tierctl_status_ms", "idle_cpu"))
		r = bench_idle(bench);
	if (r == 0 && bench_wants(bench, "metadata_unit_bytes"))
		r = bench_metadata(bench);
	return r;
}

int main(int argc, char **argv)
{
	return bench_main(argc, argv, run);
}
