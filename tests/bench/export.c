/* tierctl export and tierctl import over a plain copy: of a job whose tensors lie on NVMe, and of the file
 * that was exported, on the same disk. The copy reads and writes 4 MiB at a time with O_DIRECT, and flushes,
 * as an export does; an import commits. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include "client/tierd.h"
#include "common/cleanup.h"
#include "common/clock.h"
#include "common/size.h"
#include "tests/bench/bench.h"
#include "tests/bench/node.h"

#define UNITS 16
#define UNIT_ELEMENTS (UINT64_C(8) << 20) /* of fp32 */
#define QUICK_UNIT_ELEMENTS (UINT64_C(1) << 20)
#define COPY_BYTES ((size_t)4 << 20)

struct stage {
	struct bench_node node;
	uint64_t elements, bytes;
	char exported[sizeof((struct bench_node){ 0 }.disk) + 32],
		copied[sizeof((struct bench_node){ 0 }.disk) + 32];
	char *buffer;
};

/* ---- The job ---- */

/* Frozen: there is nothing of it but parameters, and of those the host memory has room for few. */
static int make_job(const struct stage *stage)
{
	struct tierd_job_options options = TIERD_JOB_OPTIONS_INIT;
	struct tierd_node *node;
	struct tierd_job *job;
	int r;

	options.name = "export";
	options.parameter_placement = TIERD_PLACE_NVME;
	options.host_budget = 8 * stage->elements * sizeof(float);
	r = bench_job_join(stage->node.socket, &options,
			   &(struct bench_units){ .count = UNITS,
						  .elements = stage->elements,
						  .format = TIERD_FP32,
						  .is_frozen = true },
			   &node, &job);
	return r < 0 ? r : tierd_job_close(job);
}

/* ---- The sides ---- */

static double rate(const struct stage *stage, uint64_t start)
{
	return (double)stage->bytes * 1e9 / (double)(clock_now_ns() - start);
}

/* What tierctl says is for nobody. The words end with a NULL, if there are fewer. */
static int run_tierctl(const struct stage *stage, const char *const words[5])
{
	int status;
	pid_t pid = fork();

	if (pid == 0) {
		if (!freopen("/dev/null", "w", stdout))
			_exit(EXIT_FAILURE);
		execl(TIERCTL_PROGRAM, TIERCTL_PROGRAM, "--socket", stage->node.socket, words[0], words[1],
		      words[2], words[3], words[4], (char *)NULL);
		_exit(EXIT_FAILURE);
	}
	if (pid < 0 || waitpid(pid, &status, 0) < 0)
		return -errno;
	return status == 0 ? 0 : -EIO;
}

static double run_export(void *context, double seconds)
{
	struct stage *stage = context;
	const char *const words[5] = { "export", "export", "--force", "--output", stage->exported };
	uint64_t start = clock_now_ns();
	int r = run_tierctl(stage, words);

	return r < 0 ? r : rate(stage, start);
}

static double run_import(void *context, double seconds)
{
	static const char *const drop[5] = { "drop", "import", "--yes" };
	struct stage *stage = context;
	const char *const words[5] = { "import", "import", stage->exported };
	uint64_t start = clock_now_ns();
	int r = run_tierctl(stage, words);
	double result = rate(stage, start);

	if (r == 0)
		r = run_tierctl(stage, drop);
	return r < 0 ? r : result;
}

static int copy_all(struct stage *stage, int source, int target)
{
	ssize_t got;

	while ((got = read(source, stage->buffer, COPY_BYTES)) > 0) {
		/* The last one of a file: what O_DIRECT wants is cut off afterwards. */
		size_t length = (size_t)size_align((uint64_t)got, 4096);

		if (write(target, stage->buffer, length) != (ssize_t)length)
			return -EIO;
	}
	if (got < 0 || ftruncate(target, lseek(source, 0, SEEK_END)) < 0 || fsync(target) < 0)
		return -errno;
	return 0;
}

static double run_copy(void *context, double seconds)
{
	struct stage *stage = context;
	uint64_t start = clock_now_ns();
	_cleanup_close_ int source = open(stage->exported, O_RDONLY | O_DIRECT | O_CLOEXEC), target = -1;
	int r;

	unlink(stage->copied);
	target = open(stage->copied, O_WRONLY | O_CREAT | O_TRUNC | O_DIRECT | O_CLOEXEC, 0600);
	if (source < 0 || target < 0)
		return -errno;
	r = copy_all(stage, source, target);
	return r < 0 ? r : rate(stage, start);
}

static int compare(struct bench *bench, struct stage *stage)
{
	struct bench_comparison comparison = { .name = "export_ratio",
					       .bound = BENCH_AT_LEAST,
					       .limit = 0.85,
					       .unit = "MB/s",
					       .scale = 1e6,
					       .ours = { run_export, stage },
					       .theirs = { run_copy, stage } };
	int r = make_job(stage);
	double first;

	if (r < 0)
		return r;
	/* The copy needs a file; so does the import. */
	first = run_export(stage, 0);
	if (first < 0)
		return (int)first;
	if (bench_wants(bench, "export_ratio"))
		r = bench_compare(bench, &comparison);
	comparison.name = "import_ratio";
	comparison.ours.run = run_import;
	if (r == 0 && bench_wants(bench, "import_ratio"))
		r = bench_compare(bench, &comparison);
	return r;
}

static int run(struct bench *bench)
{
	struct stage stage = { .node = BENCH_NODE_INIT };
	int r;

	if (!bench_wants_any(bench, "export_ratio", "import_ratio"))
		return 0;
	stage.elements = bench_is_quick(bench) ? QUICK_UNIT_ELEMENTS : UNIT_ELEMENTS;
	stage.bytes = UNITS * stage.elements * sizeof(float);
	stage.buffer = aligned_alloc(4096, COPY_BYTES);
	r = stage.buffer ? bench_node_start(&stage.node, "512M", "4G") : -ENOMEM;
	snprintf(stage.exported, sizeof(stage.exported), "%s/exported", stage.node.disk);
	snprintf(stage.copied, sizeof(stage.copied), "%s/copied", stage.node.disk);
	if (r == 0)
		r = compare(bench, &stage);
	bench_node_stop(&stage.node);
	free(stage.buffer);
	return r;
}

int main(int argc, char **argv)
{
	return bench_main(argc, argv, run);
}
