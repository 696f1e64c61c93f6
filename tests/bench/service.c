/* What a tierd costs that serves for weeks, and how soon a job is open, or open again. */
#include "tests/bench/service.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool wants_any(const struct bench *bench, const char *const *names)
{
	for (; *names; names++)
		if (bench_wants(bench, *names))
			return true;
	return false;
}

int main(int argc, char **argv)
{
	static const char *const attach[] = { "open_job_ms", "attach_ms", "attach_small_pages_ms",
					      "reattach_ms", NULL };
	static const char *const idle[] = { "daemon_base_mb", "tierctl_status_ms", "idle_cpu", NULL };
	struct bench *bench = NULL;
	int r = bench_new(argc, argv, &bench);

	if (r < 0)
		return EXIT_FAILURE;
	if (wants_any(bench, attach))
		r = bench_attach(bench);
	if (r == 0 && wants_any(bench, idle))
		r = bench_idle(bench);
	if (r == 0 && bench_wants(bench, "metadata_unit_bytes"))
		r = bench_metadata(bench);
	return bench_end(bench, r);
}
