/* How long commits hold up a trainer. His gathers, each of which asks the daemon, beside a commit and as many
 * after it; and how long an applied step takes to be durable, over the same two flushes of another file on
 * the disk. In turns, because disks have moods. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/size.h"
#include "tests/bench/store.h"

#define ROUNDS 11 /* odd: one is the median */
#define QUICK_ROUNDS 1
#define MAX_SAMPLES 65536
#define STRIDE 61 /* an order that nobody has learned; prime to the number of units */
#define LIMIT_MS 5
#define PAGE ((size_t)4096)

enum side { ALONE, BESIDE, SIDES };

struct holdup {
	struct store_scene *scene;
	double gathers[SIDES][MAX_SAMPLES];
	unsigned counts[SIDES];
	uint32_t next;
	double lags[ROUNDS], flushes[ROUNDS];
	int file; /* on the same disk */
	void *page;
};

/* ---- Gathers ---- */

static int gather(struct holdup *holdup, enum side side)
{
	uint32_t unit = holdup->next % holdup->scene->units;
	double ms;
	int r = store_scene_gather(holdup->scene, unit, &ms);

	holdup->next += STRIDE;
	if (holdup->counts[side] < MAX_SAMPLES)
		holdup->gathers[side][holdup->counts[side]++] = ms;
	return r;
}

static int gather_beside_commit(struct holdup *holdup)
{
	struct tierd_ticket *ticket = NULL;
	unsigned before = holdup->counts[BESIDE], count;
	int r = store_scene_train(holdup->scene, &ticket), durable = -ETIMEDOUT;

	while (r == 0 && durable == -ETIMEDOUT) {
		r = gather(holdup, BESIDE);
		durable = tierd_ticket_wait(ticket, TIERD_DURABLE, 0);
	}
	tierd_ticket_free(ticket);
	count = holdup->counts[BESIDE] - before;
	for (unsigned i = 0; i < count && r == 0; i++)
		r = gather(holdup, ALONE);
	return r < 0 ? r : durable;
}

/* ---- Steps ---- */

static int flush_once(const struct holdup *holdup)
{
	if (pwrite(holdup->file, holdup->page, PAGE, 0) != (ssize_t)PAGE || fdatasync(holdup->file) < 0)
		return -errno;
	return 0;
}

static int time_flushes(struct holdup *holdup, double *ret_ms)
{
	uint64_t start = clock_now_ns();
	int r = flush_once(holdup);

	if (r == 0)
		r = flush_once(holdup);
	*ret_ms = bench_ms_since(start);
	return r;
}

static int open_file(struct holdup *holdup)
{
	char path[sizeof(holdup->scene->tierd.disk) + 16];

	snprintf(path, sizeof(path), "%s/flushed", holdup->scene->tierd.disk);
	holdup->page = aligned_alloc(PAGE, PAGE);
	holdup->file = open(path, O_RDWR | O_CREAT | O_DIRECT | O_CLOEXEC, 0600);
	if (!holdup->page || holdup->file < 0)
		return holdup->page ? -errno : -ENOMEM;
	/* As a store's: its blocks are there. */
	for (size_t i = 0; i < PAGE; i++)
		((char *)holdup->page)[i] = 1;
	return flush_once(holdup);
}

/* ---- Results ---- */

static double report_side(struct holdup *holdup, enum side side, const char *when)
{
	double *gathers = holdup->gathers[side];
	unsigned count = holdup->counts[side];
	double longest = bench_quantile(gathers, count, 1);

	printf("commit_stall_ms: %u gathers %s: median %.2f ms, p99 %.2f ms, longest %.2f ms\n", count, when,
	       bench_median(gathers, count), bench_quantile(gathers, count, 0.99), longest);
	return longest;
}

static int report(struct bench *bench, struct holdup *holdup, unsigned rounds)
{
	double beside = report_side(holdup, BESIDE, "beside commits");
	double alone = report_side(holdup, ALONE, "without");
	double waits[ROUNDS];
	int r;

	for (unsigned i = 0; i < rounds; i++)
		waits[i] = holdup->lags[i] - holdup->flushes[i];
	printf("commit_wait_ms: a step is durable %.2f ms after it is applied (at most %.2f ms); two flushes "
	       "of "
	       "another file take %.2f ms\n",
	       bench_median(holdup->lags, rounds), bench_quantile(holdup->lags, rounds, 1),
	       bench_median(holdup->flushes, rounds));
	r = bench_record(bench, "commit_stall_ms", beside - alone, "ms", LIMIT_MS);
	return r < 0 ? r : bench_record(bench, "commit_wait_ms", bench_median(waits, rounds), "ms", LIMIT_MS);
}

int bench_commit(struct bench *bench, struct store_scene *scene)
{
	unsigned rounds = bench_is_quick(bench) ? QUICK_ROUNDS : ROUNDS;
	struct holdup *holdup = calloc(1, sizeof(*holdup));
	int r;

	if (!holdup)
		return -ENOMEM;
	holdup->scene = scene;
	r = open_file(holdup);
	for (unsigned i = 0; i < rounds && r == 0; i++) {
		r = gather_beside_commit(holdup);
		if (r == 0)
			r = store_scene_train_durably(scene, &holdup->lags[i]);
		if (r == 0)
			r = time_flushes(holdup, &holdup->flushes[i]);
	}
	if (r == 0)
		r = report(bench, holdup, rounds);
	fd_close(holdup->file);
	free(holdup->page);
	free(holdup);
	return r;
}
