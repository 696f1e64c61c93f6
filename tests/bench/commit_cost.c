/* What a commit costs over a step that rewrites all of 4 GiB of state, on a device whose flushes take 20 ms
 * longer than the disk's: its time, less its two flushes, as a part of the step's. With the store alone, so
 * that nothing else is in the figure. */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/cleanup.h"
#include "common/clock.h"
#include "common/size.h"
#include "offload/store.h"
#include "tests/bench/bench.h"
#include "tests/bench/disk.h"

#define STATE_BYTES (4 * GIB)
#define QUICK_STATE_BYTES (256 * MIB)
#define DEPTH 16
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
	slow->ops = (struct tier_ops){
		.name = "slow", .block_size = next->ops->block_size, .submit = slow_submit, .free = slow_free
	};
	slow->tier = (struct tier){ .ops = &slow->ops, .capacity = next->capacity, .label = next->label };
	slow->next = next;
}

/* ---- The stage ---- */

struct slot {
	struct store_transfer transfer;
	struct stage *stage;
};

struct stage {
	struct bench_disk disk;
	struct workers *workers;
	struct slow_tier slow;
	struct store *store;
	struct slot slots[DEPTH];
	uint64_t bytes, next;
	unsigned in_flight;
	struct store_request request;
	int error;
	uint64_t step;
};

static void wait_for_all(struct stage *stage)
{
	struct pollfd wanted[] = { { .fd = engine_fd(stage->disk.engine), .events = POLLIN },
				   { .fd = workers_fd(stage->workers), .events = POLLIN } };

	while (stage->in_flight > 0) {
		(void)poll(wanted, ARRAY_LENGTH(wanted), stage->slow.due_ns > 0 ? 1 : -1);
		engine_reap(stage->disk.engine);
		workers_reap(stage->workers);
		slow_tell(&stage->slow);
	}
}

static void write_next(struct slot *slot)
{
	struct stage *stage = slot->stage;
	int r;

	if (stage->next == stage->bytes || stage->error)
		return;
	slot->transfer.offset = stage->next;
	stage->next += STORE_EXTENT_BYTES;
	/* No two steps write the same. */
	memcpy(slot->transfer.buffer, &stage->step, sizeof(stage->step));
	r = store_submit(stage->store, &slot->transfer);
	if (r < 0)
		stage->error = r;
	else
		stage->in_flight++;
}

static void written(struct store_transfer *transfer, int status)
{
	struct slot *slot = container_of(transfer, struct slot, transfer);

	slot->stage->in_flight--;
	if (status < 0)
		slot->stage->error = status;
	write_next(slot);
}

static int take_step(struct stage *stage)
{
	stage->step++;
	stage->next = 0;
	for (unsigned i = 0; i < DEPTH; i++)
		write_next(&stage->slots[i]);
	wait_for_all(stage);
	return stage->error;
}

static void request_done(struct store_request *request, int status)
{
	struct stage *stage = container_of(request, struct stage, request);

	stage->in_flight--;
	stage->error = status;
}

static int wait_for_request(struct stage *stage, int r)
{
	if (r < 0)
		return r;
	stage->in_flight++;
	wait_for_all(stage);
	if (stage->error < 0)
		fprintf(stderr, "commit_cost: %s\n", store_message(stage->store));
	return stage->error;
}

static int commit(struct stage *stage)
{
	return wait_for_request(stage, store_commit(stage->store, stage->step, &stage->request));
}

/* ---- Opening ---- */

static int make_layout(const struct stage *stage, struct store_layout **ret_layout)
{
	_cleanup_(store_layout_freep) struct store_layout *layout = NULL;
	uint64_t offset;
	int r = store_layout_new(&layout);

	if (r < 0)
		return r;
	store_layout_set_durable(layout);
	r = store_layout_add_stream(layout, "state");
	if (r == 0)
		r = store_layout_add_section(layout, 0, stage->bytes, &offset);
	if (r == 0)
		*ret_layout = TAKE_PTR(layout);
	return r;
}

static int open_store(struct stage *stage)
{
	struct store_config config = { .workers = stage->workers, .name = "bench" };
	struct tier *tiers[] = { &stage->slow.tier };
	_cleanup_(store_layout_freep) struct store_layout *layout = NULL;
	struct tier *tier;
	int r = make_layout(stage, &layout);

	if (r == 0)
		r = bench_disk_add(&stage->disk, store_layout_device_bytes(layout, 1), &tier);
	if (r < 0)
		return r;
	slow_init(&stage->slow, tier);
	return store_new_nvme(&config, TAKE_PTR(layout), tiers, 1, &stage->store);
}

static void fill_slots(struct stage *stage)
{
	for (unsigned i = 0; i < DEPTH; i++) {
		stage->slots[i].stage = stage;
		stage->slots[i].transfer = (struct store_transfer){
			.direction = TIER_WRITE,
			.buffer = stage->disk.buffers.base + i * STORE_EXTENT_BYTES,
			.length = STORE_EXTENT_BYTES,
			.done = written,
		};
	}
}

static int stage_open(struct stage *stage)
{
	int r = bench_disk_open(&stage->disk, DEPTH);

	if (r == 0)
		r = workers_new(2, "bench", &stage->workers);
	if (r == 0)
		r = open_store(stage);
	if (r == 0)
		fill_slots(stage);
	stage->request.done = request_done;
	return r < 0 ? r : wait_for_request(stage, store_create(stage->store, &stage->request));
}

static void stage_close(struct stage *stage)
{
	stage->store = store_free(stage->store);
	stage->workers = workers_free(stage->workers);
	bench_disk_close(&stage->disk);
}

/* ---- Measuring ---- */

struct round {
	double step, commit, flushes; /* seconds */
};

static double seconds_since(uint64_t start)
{
	return (double)(clock_now_ns() - start) / 1e9;
}

static int measure(struct stage *stage, struct round *ret_round)
{
	uint64_t start = clock_now_ns();
	int r = take_step(stage);

	ret_round->step = seconds_since(start);
	stage->slow.flushes = 0;
	stage->slow.flushing_ns = 0;
	start = clock_now_ns();
	if (r == 0)
		r = commit(stage);
	ret_round->commit = seconds_since(start);
	ret_round->flushes = (double)stage->slow.flushing_ns / 1e9;
	if (r == 0 && stage->slow.flushes != FLUSHES) {
		fprintf(stderr, "commit_cost: a commit has flushed %u times\n", stage->slow.flushes);
		r = -EPROTO;
	}
	return r;
}

static int run(struct bench *bench, struct stage *stage)
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
	       (unsigned long long)(stage->bytes / MIB), bench_quantile(steps, rounds, 0.5),
	       bench_quantile(commits, rounds, 0.5), FLUSHES, (double)FLUSH_NS / 1e6);
	return bench_record(bench, &(struct bench_result){ .name = "commit_cost",
							   .value = bench_quantile(costs, rounds, 0.5),
							   .unit = "of a step",
							   .limit = LIMIT });
}

int main(int argc, char **argv)
{
	struct stage stage = { .disk = BENCH_DISK_INIT };
	struct bench *bench = NULL;
	int r = bench_new(argc, argv, &bench);

	if (r < 0)
		return EXIT_FAILURE;
	stage.bytes = bench_is_quick(bench) ? QUICK_STATE_BYTES : STATE_BYTES;
	if (bench_wants(bench, "commit_cost"))
		r = run(bench, &stage);
	stage_close(&stage);
	return bench_end(bench, r);
}
