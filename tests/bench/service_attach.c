/* How long a trainer waits for its job: for a new one, whose memory is made and initialized, and, killed and
 * started again, for one whose state is still there. From tierd_connect to the pointer of the first gather.
 *
 * With huge pages, where the kernel has them, and without. What lies behind a pointer is mapped at its first
 * use; how long that takes for all parameters is printed beside. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/size.h"
#include "client/tierd.h"
#include "tests/bench/fio.h"
#include "tests/bench/node.h"
#include "tests/bench/service.h"

#define UNITS 16
#define UNIT_ELEMENTS (UINT64_C(16) << 20)
#define QUICK_UNIT_ELEMENTS (UINT64_C(1) << 20)
#define NODES 3 /* odd: one is the median */
#define RESTARTS 5
#define WRITE_DEPTH 16
#define HUGE_PAGES_LIMIT_MS 50
#define LIMIT_MS_PER_GIB 15
#define LARGE_TIMES 10	   /* a large job, of the usual one */
#define LARGE_FREE_TIMES 2 /* what the machine is to have free for that, of its bytes */

enum pages { HUGE_PAGES, SMALL_PAGES, PAGES };

/* What a trainer has measured, in milliseconds. */
struct wait {
	double open, pointer, use;
	int error;
	char message[512];
};

struct attach {
	uint64_t elements;
	bool is_frozen; /* parameters alone, which are nowhere but in memory */
	const char *host_budget;
	unsigned nodes;
	struct wait *wait; /* shared with the trainer */
	int line;	   /* of the trainer: it says when it has measured */
	double opens[PAGES][NODES], pointers[PAGES][NODES * RESTARTS], uses[PAGES][NODES * RESTARTS];
	double populates[PAGES][NODES], writes[NODES]; /* what the machine takes for as much */
	unsigned open_count[PAGES], pointer_count[PAGES];
	bool is_huge[PAGES];
};

static double gib(const struct attach *attach)
{
	return (double)(UNITS * attach->elements * sizeof(float)) / (double)GIB;
}

/* ---- The trainer ---- */

static int open_job(const char *socket, const struct attach *attach, struct tierd_job **ret_job)
{
	struct tierd_job_options options = TIERD_JOB_OPTIONS_INIT;
	struct tierd_node *node;

	options.name = "attach";
	options.parameter_placement = TIERD_PLACE_HOST;
	if (attach->is_frozen)
		options.durability = TIERD_DURABILITY_NONE;
	return bench_job_join(socket, &options,
			      &(struct bench_units){ .count = UNITS,
						     .elements = attach->elements,
						     .is_frozen = attach->is_frozen,
						     .format = TIERD_FP32 },
			      &node, ret_job);
}

static int use_all(struct tierd_job *job, uint64_t elements)
{
	struct tierd_view view;
	volatile char sum = 0;
	int r = 0;

	for (uint32_t unit = 0; unit < UNITS && r == 0; unit++) {
		r = tierd_gather(job, unit, &view);
		for (uint64_t at = 0; r == 0 && at < elements * sizeof(float); at += 4096)
			sum = (char)(sum + view.base[at]);
		if (r == 0)
			r = tierd_release(job, unit);
	}
	return r;
}

static int measure(const struct attach *attach, const char *socket)
{
	struct wait *wait = attach->wait;
	uint64_t start = clock_now_ns();
	struct tierd_view view;
	struct tierd_job *job;
	int r = open_job(socket, attach, &job);

	wait->open = bench_ms_since(start);
	if (r == 0)
		r = tierd_gather(job, 0, &view);
	wait->pointer = bench_ms_since(start);
	if (r == 0)
		r = tierd_release(job, 0);
	start = clock_now_ns();
	if (r == 0)
		r = use_all(job, attach->elements);
	wait->use = bench_ms_since(start);
	return r;
}

static void run_trainer(const struct attach *attach, const char *socket)
{
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	attach->wait->error = measure(attach, socket);
	if (attach->wait->error < 0)
		snprintf(attach->wait->message, sizeof(attach->wait->message), "%s", tierd_message());
	/* Until it is killed. */
	while (write(attach->line, "", 1) == 1)
		pause();
	_exit(EXIT_FAILURE);
}

/* ---- The first process ---- */

/* One that trains for as long as it takes to measure, and is killed. */
static int train_and_kill(struct attach *attach, const char *socket)
{
	pid_t process;
	int ends[2];
	char byte;

	if (pipe(ends) < 0)
		return -errno;
	attach->line = ends[1];
	fflush(NULL);
	process = fork();
	if (process == 0)
		run_trainer(attach, socket);
	close(ends[1]);
	int r = process < 0 ? -errno : read(ends[0], &byte, 1) == 1 ? attach->wait->error : -EPIPE;

	close(ends[0]);
	if (process > 0) {
		kill(process, SIGKILL);
		waitpid(process, NULL, 0);
	}
	if (r < 0)
		fprintf(stderr, "attach: %s\n", attach->wait->message);
	return r;
}

/* Whether most of what the job has is in huge pages. */
static bool has_huge_pages(const struct attach *attach, const struct bench_node *tierd)
{
	return bench_node_memory(tierd, "ShmemPmdMapped") >= UNITS * attach->elements * sizeof(float) / 2;
}

/* What the machine itself takes to give out as much memory as the job fills, for its parameters and the sums
 * of its gradients, and to fill it. */
static int populate(const struct attach *attach, enum pages pages, double *ret_ms)
{
	size_t bytes = 2 * UNITS * attach->elements * sizeof(float);
	uint64_t start = clock_now_ns();
	char *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (memory == MAP_FAILED)
		return -errno;
	(void)madvise(memory, bytes, pages == HUGE_PAGES ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
	memset(memory, 1, bytes);
	*ret_ms = bench_ms_since(start);
	munmap(memory, bytes);
	return 0;
}

/* What the disk takes to write the job's first values, which are durable when it is open. */
static int write_out(const struct attach *attach, const struct bench_node *tierd, double *ret_ms)
{
	struct fio_job fio = { .direction = "write",
			       .depth = WRITE_DEPTH,
			       .block_mib = FIO_ARENA_MIB / WRITE_DEPTH };
	double rate;
	int r = fio_reserve_file(&fio, tierd->disk);

	if (r < 0)
		return r;
	rate = fio_run(&fio, 0);
	unlink(fio.file);
	if (rate < 0)
		return (int)rate;
	*ret_ms = 1000 * (double)(UNITS * attach->elements * sizeof(float)) / rate;
	return 0;
}

static int restart(struct attach *attach, enum pages pages, const char *socket)
{
	unsigned *count = &attach->pointer_count[pages];
	int r = train_and_kill(attach, socket);

	attach->pointers[pages][*count] = attach->wait->pointer;
	attach->uses[pages][*count] = attach->wait->use;
	++*count;
	return r;
}

static int start(const struct attach *attach, enum pages pages, struct bench_node *tierd)
{
	int r;

	/* The daemon inherits it. */
	prctl(PR_SET_THP_DISABLE, pages == SMALL_PAGES, 0, 0, 0);
	r = bench_node_start(tierd, attach->host_budget, "8G");
	prctl(PR_SET_THP_DISABLE, 0, 0, 0, 0);
	return r;
}

static int train_and_restart(struct attach *attach, enum pages pages, const struct bench_node *tierd)
{
	int r = train_and_kill(attach, tierd->socket);

	attach->opens[pages][attach->open_count[pages]++] = attach->wait->open;
	attach->is_huge[pages] = r == 0 && has_huge_pages(attach, tierd);
	for (unsigned i = 0; i < RESTARTS && r == 0; i++)
		r = restart(attach, pages, tierd->socket);
	return r;
}

static int serve(struct attach *attach, enum pages pages)
{
	struct bench_node tierd = BENCH_NODE_INIT;
	int r = start(attach, pages, &tierd);

	/* The first time is for virtual machines, whose host may have to find memory too. */
	for (unsigned i = 0; i < 2 && r == 0; i++)
		r = populate(attach, pages, &attach->populates[pages][attach->open_count[pages]]);
	if (r == 0)
		r = train_and_restart(attach, pages, &tierd);
	if (r == 0 && pages == HUGE_PAGES && fio_is_installed())
		r = write_out(attach, &tierd, &attach->writes[attach->open_count[pages] - 1]);
	bench_node_stop(&tierd);
	return r;
}

static int serve_large(struct attach *attach)
{
	struct bench_node tierd = BENCH_NODE_INIT;
	int r = start(attach, HUGE_PAGES, &tierd);

	if (r == 0)
		r = train_and_restart(attach, HUGE_PAGES, &tierd);
	bench_node_stop(&tierd);
	return r;
}

/* ---- Results ---- */

static int report_attach(struct bench *bench, struct attach *attach, enum pages pages, const char *name)
{
	double value = bench_median(attach->pointers[pages], attach->pointer_count[pages]);
	double limit = attach->is_huge[pages] ? HUGE_PAGES_LIMIT_MS : LIMIT_MS_PER_GIB * gib(attach);

	printf("%s: %.2f GiB in %s pages: the job is open after %.0f ms; restarted %u times, the first "
	       "pointer "
	       "after %.2f ms, at most %.2f ms; all of it used once, after %.1f ms more\n",
	       name, gib(attach), attach->is_huge[pages] ? "huge" : "small",
	       bench_median(attach->opens[pages], attach->open_count[pages]), attach->pointer_count[pages],
	       value, attach->pointers[pages][attach->pointer_count[pages] - 1],
	       bench_median(attach->uses[pages], attach->pointer_count[pages]));
	if (!bench_wants(bench, name))
		return 0;
	return bench_record(bench, name, value, "ms", limit);
}

/* Of both sizes the longer one. */
static int report_reattach(struct bench *bench, double small_ms, struct attach *large)
{
	double large_ms = bench_median(large->pointers[HUGE_PAGES], large->pointer_count[HUGE_PAGES]);

	printf("reattach_ms: %.2f GiB in %s pages: the job is open after %.0f ms; restarted %u times, the "
	       "first pointer after %.2f ms, at most %.2f ms; of a tenth of that after %.2f ms\n",
	       gib(large), large->is_huge[HUGE_PAGES] ? "huge" : "small", large->opens[HUGE_PAGES][0],
	       large->pointer_count[HUGE_PAGES], large_ms,
	       large->pointers[HUGE_PAGES][large->pointer_count[HUGE_PAGES] - 1], small_ms);
	return bench_record(bench, "reattach_ms", small_ms > large_ms ? small_ms : large_ms, "ms",
			    HUGE_PAGES_LIMIT_MS);
}

static int report_open(struct bench *bench, struct attach *attach)
{
	unsigned count = attach->open_count[HUGE_PAGES];
	double populate_ms = bench_median(attach->populates[HUGE_PAGES], count);
	double write_ms = bench_median(attach->writes, count);

	if (!bench_wants(bench, "open_job_ms"))
		return 0;
	if (!fio_is_installed()) {
		bench_skip(bench, "open_job_ms", FIO_MISSING);
		return 0;
	}
	printf("open_job_ms: the machine takes %.0f ms to fill as much memory, and %.0f ms to write the "
	       "first "
	       "values\n",
	       populate_ms, write_ms);
	return bench_record(bench, "open_job_ms", bench_median(attach->opens[HUGE_PAGES], count), "ms",
			    populate_ms > write_ms ? populate_ms : write_ms);
}

static void free_attach(struct attach *attach)
{
	if (attach && attach->wait != MAP_FAILED)
		munmap(attach->wait, sizeof(*attach->wait));
	free(attach);
}

static int new_attach(uint64_t elements, struct attach **ret_attach)
{
	struct attach *attach = calloc(1, sizeof(*attach));

	if (!attach)
		return -ENOMEM;
	attach->elements = elements;
	attach->host_budget = "3G";
	attach->wait =
		mmap(NULL, sizeof(*attach->wait), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (attach->wait == MAP_FAILED) {
		free_attach(attach);
		return -ENOMEM;
	}
	*ret_attach = attach;
	return 0;
}

static int attach_large(struct bench *bench, struct attach *small)
{
	uint64_t bytes = LARGE_TIMES * UNITS * small->elements * sizeof(float);
	uint64_t available = bench_proc_bytes("/proc/meminfo", "MemAvailable");
	double small_ms = bench_median(small->pointers[HUGE_PAGES], small->pointer_count[HUGE_PAGES]);
	struct attach *large;
	int r;

	/* Where there is less it says how much it measured, and scales nothing. */
	if (bytes > available / LARGE_FREE_TIMES)
		bytes = available / LARGE_FREE_TIMES;
	r = new_attach(bytes / UNITS / sizeof(float), &large);
	if (r < 0)
		return r;
	large->is_frozen = true;
	large->host_budget = "16G";
	r = serve_large(large);
	if (r == 0)
		r = report_reattach(bench, small_ms, large);
	free_attach(large);
	return r;
}

int bench_attach(struct bench *bench)
{
	struct attach *attach;
	int r = new_attach(bench_is_quick(bench) ? QUICK_UNIT_ELEMENTS : UNIT_ELEMENTS, &attach);

	if (r < 0)
		return r;
	attach->nodes = bench_is_quick(bench) ? 1 : NODES;
	for (unsigned i = 0; i < attach->nodes * PAGES && r == 0; i++)
		r = serve(attach, (enum pages)(i % PAGES));
	if (r == 0)
		r = report_open(bench, attach);
	if (r == 0)
		r = report_attach(bench, attach, HUGE_PAGES, "attach_ms");
	if (r == 0)
		r = report_attach(bench, attach, SMALL_PAGES, "attach_small_pages_ms");
	if (r == 0 && bench_wants(bench, "reattach_ms"))
		r = attach_large(bench, attach);
	free_attach(attach);
	return r;
}
