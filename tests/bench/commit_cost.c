/* What a commit costs over a step that rewrites all of 4 GiB of state, on a device whose flushes take 20 ms
 * longer than the disk's: its time, less its two flushes, as a part of the step's. With the store alone, so
 * that nothing else is in the figure. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/cleanup.h"
#include "common/clock.h"
#include "common/size.h"
#include "tests/bench/bare_store.h"
#include "tests/bench/bench.h"

#define STATE_BYTES (4 * GIB)
#define QUICK_STATE_BYTES (256 * MIB)
#define ROUNDS 5 /* odd: one is the median */
#define QUICK_ROUNDS 1
#define FLUSH_NS UINT64_C(20000000)
#define FLUSHES 2 /* of the device in a commit */
#define LIMIT 0.02

/* ---- A device with slow flushes ---- */

struct slow_tier {
	struct tier tier;
	struct tier_ops ops;
	struct tier *next;
	struct tier_io flush, *original; /* one at a time: a commit has no more */
	uint64_t submitted_ns, due_ns;	 /* due: 0, or the flush has happened, and is told of then */
	int status;
	unsigned flushes;
	uint64_t flushing_ns; /* all of them together, as their caller has seen them */
};

static struct slow_tier *slow_of(struct tier *tier)
{
	return container_of(tier, struct slow_tier, tier);
}

static void flush_done(struct tier_io *io, int status)
{
	struct slow_tier *slow = container_of(io, struct slow_tier, flush);

	slow->status = status;
	slow->due_ns = clock_now_ns() + FLUSH_NS;
}

static int slow_submit(struct tier *tier, struct tier_io *io)
{
	struct slow_tier *slow = slow_of(tier);

	if (io->direction != TIER_FLUSH)
		return tier_submit(slow->next, io);
	slow->original = io;
	slow->flush = *io;
	slow->flush.done = flush_done;
	slow->submitted_ns = clock_now_ns();
	slow->flushes++;
	return tier_submit(slow->next, &slow->flush);
}

static void slow_free(struct tier *tier)
{
	slow_of(tier)->next = tier_free(slow_of(tier)->next);
}

static void slow_tell(struct slow_tier *slow)
{
	uint64_t now = clock_now_ns();

	if (slow->due_ns == 0 || now < slow->due_ns)
		return;
	slow->due_ns = 0;
	slow->flushing_ns += now - slow->submitted_ns;
	slow->original->done(slow->original, slow->status);
}

static void slow_init(struct slow_tier *slow, struct tier *next)
{
	slow->ops = (struct tier_ops){ .block_size = next->ops->block_size,
				       .submit = slow_submit,
				       .free = slow_free };
	slow->tier = (struct tier){ .ops = &slow->ops, .capacity = next->capacity, .label = next->label };
	slow->next = next;
}

/* ---- The stage ---- */

struct stage {
	struct bare_store bare;
	struct slow_tier slow;
};

static int slow_turn(struct bare_store *bare)
{
	struct slow_tier *slow = &container_of(bare, struct stage, bare)->slow;

	slow_tell(slow);
	return slow->due_ns > 0 ? 1 : -1;
}

static int make_store(struct stage *stage)
{
	struct store_config config = { .workers = stage->bare.workers, .name = "bench" };
	struct tier *tiers[] = { &stage->slow.tier };
	_cleanup_(store_layout_freep) struct store_layout *layout = NULL;
	struct tier *tier;
	int r = bare_store_layout(&stage->bare, &layout);

	if (r == 0)
		r = bench_disk_add(&stage->bare.disk, store_layout_device_bytes(layout, 1), &tier);
	if (r < 0)
		return r;
	slow_init(&stage->slow, tier);
	return store_new_nvme(&config, TAKE_PTR(layout), tiers, 1, &stage->bare.store);
}

static int stage_open(struct stage *stage)
{
	struct bare_store *bare = &stage->bare;
	int r = bare_store_open(bare);

	bare->turn = slow_turn;
	if (r == 0)
		r = make_store(stage);
	return r < 0 ? r : bare_store_wait_for_request(bare, store_create(bare->store, &bare->request));
}

/* ---- Measuring ---- */

struct round {
	double step, commit, flushes; /* seconds */
};

static int measure(struct stage *stage, struct round *ret_round)
{
	uint64_t start = clock_now_ns();
	int r = bare_store_take_step(&stage->bare);

	ret_round->step = bench_seconds_since(start);
	stage->slow.flushes = 0;
	stage->slow.flushing_ns = 0;
	start = clock_now_ns();
	if (r == 0)
		r = bare_store_commit(&stage->bare);
	ret_round->commit = bench_seconds_since(start);
	ret_round->flushes = (double)stage->slow.flushing_ns / 1e9;
	if (r == 0 && stage->slow.flushes != FLUSHES) {
		fprintf(stderr, "commit_cost: a commit has flushed %u times\n", stage->slow.flushes);
		r = -EPROTO;
	}
	return r;
}

static int measure_all(struct bench *bench, struct stage *stage)
{
	unsigned rounds = bench_is_quick(bench) ? QUICK_ROUNDS : ROUNDS;
	double costs[ROUNDS], steps[ROUNDS], commits[ROUNDS];
	struct round round;
	int r = stage_open(stage);

	/* Twice, so that both places of each extent have been written. */
	for (unsigned i = 0; i < 2 && r == 0; i++)
		r = measure(stage, &round);
	for (unsigned i = 0; i < rounds && r == 0; i++) {
		r = measure(stage, &round);
		steps[i] = round.step * 1e3;
		commits[i] = round.commit * 1e3;
		costs[i] = (round.commit - round.flushes) / round.step;
	}
	if (r < 0)
		return r;
	printf("commit_cost: %llu MiB in %.0f ms, committed in %.1f ms with %d flushes of %.0f ms and what "
	       "the disk takes\n",
	       (unsigned long long)(stage->bare.bytes / MIB), bench_median(steps, rounds),
	       bench_median(commits, rounds), FLUSHES, (double)FLUSH_NS / 1e6);
	return bench_record(bench, "commit_cost", bench_median(costs, rounds), "of a step", LIMIT);
}

static int run(struct bench *bench)
{
	struct stage stage = { .bare = BARE_STORE_INIT };
	int r = 0;

	stage.bare.bytes = bench_is_quick(bench) ? QUICK_STATE_BYTES : STATE_BYTES;
	if (bench_wants(bench, "commit_cost"))
		r = measure_all(bench, &stage);
	bare_store_close(&stage.bare);
	return r;
}

int main(int argc, char **argv)
{
	return bench_main(argc, argv, run);
}
