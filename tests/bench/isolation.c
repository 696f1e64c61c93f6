/* How long a job waits for units on NVMe beside another that streams all it can: prefetches, the optimizer
 * state that its updates read, and what they write back. Over the same gathers alone; in turns, because disks
 * have moods.
 *
 * The job that waits has one rank and has learned no order, so each of its gathers is a demand read. */
#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/clock.h"
#include "common/size.h"
#include "tests/bench/gather.h"
#include "tests/bench/node.h"

#define QUIET_UNITS 32
#define QUIET_ELEMENTS (UINT64_C(8) << 20)
#define QUIET_BUDGET (96 * MIB)
#define STREAM_UNITS 24
#define STREAM_ELEMENTS (UINT64_C(2) << 20)
#define STREAM_BUDGET (272 * MIB) /* room for its sums, and for a part of its parameters */
#define ROUNDS 10
#define QUICK_ROUNDS 2
#define GATHERS 50
#define SAMPLES (ROUNDS * GATHERS)
#define LIMIT 2

enum side { ALONE, BESIDE, SIDES };

/* What the two processes see. */
struct shared {
	atomic_bool is_stopping;
	atomic_uint_least64_t bytes; /* that the stream has moved */
};

struct isolation {
	struct bench_node tierd;
	struct tierd_node *node;
	struct tierd_job *job;
	uint32_t next;
	struct shared *shared;
	pid_t stream;
	int line; /* a byte to the stream starts it, one from it says that it stands still */
	unsigned rounds;
	double waits[SIDES][SAMPLES];
	unsigned counts[SIDES];
	uint64_t beside_ns, bytes_before;
};

/* ---- The stream ---- */

static int count_bytes(struct isolation *isolation)
{
	struct tierd_statistics statistics = TIERD_STATISTICS_INIT;
	int r = tierd_statistics(isolation->job, &statistics);

	atomic_store(&isolation->shared->bytes, statistics.job_gather_read_bytes +
							statistics.job_update_read_bytes +
							statistics.job_update_written_bytes);
	return r;
}

static int end_step(struct tierd_ticket **ticket)
{
	int r = *ticket ? tierd_ticket_wait(*ticket, TIERD_DONE, -1) : 0;

	*ticket = tierd_ticket_free(*ticket);
	return r;
}

/* Each pass runs into the updates of the step before. */
static int stream_until_stopped(struct isolation *isolation)
{
	struct tierd_rates rates = { sizeof(rates), .gradient_scale = 1 };
	struct tierd_ticket *ticket = NULL;
	int r = 0, end;

	do {
		for (uint32_t unit = 0; unit < STREAM_UNITS && r == 0; unit++)
			r = bench_train_unit(isolation->job, unit, 0);
		if (r == 0)
			r = end_step(&ticket);
		if (r == 0)
			r = tierd_step(isolation->job, &rates, &ticket);
		if (r == 0)
			r = count_bytes(isolation);
	} while (r == 0 && !atomic_load(&isolation->shared->is_stopping));
	end = end_step(&ticket);
	return r < 0 ? r : end;
}

static void run_stream(struct isolation *isolation)
{
	char byte = 0;
	int r;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	r = gather_open(&isolation->tierd,
			&(struct gather_job){ "stream", STREAM_BUDGET, STREAM_UNITS, STREAM_ELEMENTS, false },
			&isolation->node, &isolation->job);
	/* The first pass teaches the order. */
	do {
		if (r == 0)
			r = stream_until_stopped(isolation);
	} while (r == 0 && write(isolation->line, &byte, 1) == 1 && read(isolation->line, &byte, 1) == 1);
	if (r < 0)
		fprintf(stderr, "stream: %s\n", tierd_message());
	_exit(r < 0 ? EXIT_FAILURE : EXIT_SUCCESS);
}

static int await_stream(struct isolation *isolation)
{
	char byte;

	return read(isolation->line, &byte, 1) == 1 ? 0 : -EPIPE;
}

static int start_stream(struct isolation *isolation)
{
	int ends[2];

	isolation->shared = mmap(NULL, sizeof(*isolation->shared), PROT_READ | PROT_WRITE,
				 MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (isolation->shared == MAP_FAILED || socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) < 0)
		return -errno;
	atomic_store(&isolation->shared->is_stopping, true);
	fflush(NULL);
	isolation->stream = fork();
	isolation->line = ends[isolation->stream == 0];
	close(ends[isolation->stream != 0]);
	if (isolation->stream == 0)
		run_stream(isolation);
	return isolation->stream < 0 ? -errno : await_stream(isolation);
}

/* ---- The quiet one ---- */

static int gather_some(struct isolation *isolation, enum side side)
{
	struct tierd_view view;
	int r = 0;

	for (unsigned i = 0; i < GATHERS && r == 0; i++) {
		uint32_t unit = isolation->next++ % QUIET_UNITS;
		uint64_t start = clock_now_ns();

		r = tierd_gather(isolation->job, unit, &view);
		isolation->waits[side][isolation->counts[side]++] = bench_ms_since(start);
		if (r == 0)
			r = tierd_release(isolation->job, unit);
	}
	return r;
}

static int gather_beside(struct isolation *isolation)
{
	uint64_t start = clock_now_ns();
	int r;

	atomic_store(&isolation->shared->is_stopping, false);
	if (write(isolation->line, "", 1) != 1)
		return -EPIPE;
	r = gather_some(isolation, BESIDE);
	atomic_store(&isolation->shared->is_stopping, true);
	if (r == 0)
		r = await_stream(isolation);
	isolation->beside_ns += clock_now_ns() - start;
	return r;
}

static int gather_all(struct isolation *isolation)
{
	int r = 0;

	/* The first gathers find free slots. */
	r = gather_some(isolation, ALONE);
	isolation->counts[ALONE] = 0;
	isolation->bytes_before = atomic_load(&isolation->shared->bytes);
	for (unsigned round = 0; round < isolation->rounds && r == 0; round++) {
		r = gather_some(isolation, ALONE);
		if (r == 0)
			r = gather_beside(isolation);
	}
	return r;
}

/* ---- Results ---- */

static int report(struct bench *bench, struct isolation *isolation)
{
	unsigned count = isolation->counts[ALONE];
	double *alone = isolation->waits[ALONE], *beside = isolation->waits[BESIDE];
	double first = bench_quantile(alone, count / 2, 0.99),
	       second = bench_quantile(alone + count / 2, count / 2, 0.99);
	double moved = (double)(atomic_load(&isolation->shared->bytes) - isolation->bytes_before);

	if (moved == 0)
		return -ENODATA;
	printf("isolation: %u gathers of %llu MiB alone: median %.1f ms, p99 %.1f ms; beside a stream of "
	       "%.0f MiB/s: %.1f ms, %.1f ms\n",
	       count, (unsigned long long)(2 * QUIET_ELEMENTS / MIB), bench_median(alone, count),
	       bench_quantile(alone, count, 0.99), moved / (double)MIB / ((double)isolation->beside_ns / 1e9),
	       bench_median(beside, count), bench_quantile(beside, count, 0.99));
	return bench_record_result(
		bench, &(struct bench_result){ .name = "isolation_p99_ratio",
					       .value = bench_quantile(beside, count, 0.99) /
							bench_quantile(alone, count, 0.99),
					       .unit = "times",
					       .limit = LIMIT,
					       .spread = first > second ? first / second : second / first });
}

int bench_isolation(struct bench *bench)
{
	struct isolation *isolation = calloc(1, sizeof(*isolation));
	int r;

	if (!isolation)
		return -ENOMEM;
	*isolation = (struct isolation){ .tierd = BENCH_NODE_INIT, .line = -1 };
	isolation->rounds = bench_is_quick(bench) ? QUICK_ROUNDS : ROUNDS;
	r = bench_node_start(&isolation->tierd, "512M", "4G");
	if (r == 0)
		r = start_stream(isolation);
	if (r == 0)
		r = gather_open(
			&isolation->tierd,
			&(struct gather_job){ "quiet", QUIET_BUDGET, QUIET_UNITS, QUIET_ELEMENTS, true },
			&isolation->node, &isolation->job);
	if (r == 0)
		r = gather_all(isolation);
	if (r == 0)
		r = report(bench, isolation);
	fd_close(isolation->line);
	if (isolation->stream > 0)
		waitpid(isolation->stream, NULL, 0);
	tierd_disconnect(isolation->node);
	bench_node_stop(&isolation->tierd);
	if (isolation->shared)
		munmap(isolation->shared, sizeof(*isolation->shared));
	free(isolation);
	return r;
}
