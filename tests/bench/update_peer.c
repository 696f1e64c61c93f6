/* AdamW over DeepSpeed's, as many elements in as many threads, in arrays far larger than any cache. DeepSpeed
 * has formats of its own: those that keep what tierd keeps are looked at, and the one of which least is left
 * is then compared at length. One keeps less; it is compared by the bytes that both move. */
#include <errno.h>
#include <stdio.h>

#include "common/cleanup.h"
#include "common/size.h"
#include "tests/bench/kernels.h"
#include "tests/bench/peer.h"
#include "tests/bench/subject.h"

#define NAME "adam_vs_deepspeed"
#define PER_BYTE "adam_vs_deepspeed_per_byte"
#define LIMIT 1.5
#define BYTES 28 /* that tierd moves for an element in each of them: its gradients are fp32 sums */
#define TURNS 5	 /* odd: one is the median */
#define QUICK_TURNS 1
#define TURN_SECONDS 0.2
#define QUICK_TURN_SECONDS 0.01

static const struct subject_choice adamw = { "adamw", "adamw", 0, 2 };

struct variant {
	const char *what; /* peer.py's word */
	enum master_kind kind;
	unsigned bytes; /* that it moves for an element */
	const char *text;
};

static const struct variant variants[] = {
	{ "fp32", MASTER_ITSELF, 28, "fp32 parameters" },
	{ "master", MASTER_SPLIT, 34, "bf16 parameters and an fp32 master" },
};
static const struct variant lesser = { "bf16", MASTER_SPLIT, 22,
				       "bf16 parameters and gradients without a master, of which it loses "
				       "small updates" };

struct match {
	struct subject subject;
	struct peer_job theirs;
};

static struct match match_make(const struct variant *variant, struct peer *peer,
			       const struct subject_memory *memory)
{
	return (struct match){ .subject = subject_make(&adamw, variant->kind, MOMENTS_FP32, memory),
			       .theirs = { peer, variant->what } };
}

/* In turns, each second one of them backwards. */
static int look_at(const struct bench *bench, const struct variant *variant, struct match *match,
		   double *ret_ratio)
{
	unsigned turns = bench_is_quick(bench) ? QUICK_TURNS : TURNS;
	double seconds = bench_is_quick(bench) ? QUICK_TURN_SECONDS : TURN_SECONDS;
	double ours[TURNS], theirs[TURNS], ratios[TURNS];

	for (unsigned turn = 0; turn < turns; turn++) {
		if (turn % 2 == 0)
			ours[turn] = pass_run(&match->subject.ours, seconds);
		theirs[turn] = peer_run(&match->theirs, seconds);
		if (theirs[turn] < 0)
			return (int)theirs[turn];
		if (turn % 2 == 1)
			ours[turn] = pass_run(&match->subject.ours, seconds);
		ratios[turn] = ours[turn] / theirs[turn];
	}
	*ret_ratio = bench_median(ratios, turns);
	printf("%s: %.2f G elements/s over its %.2f, of %s; it moves %u bytes an element, tierd %u\n", NAME,
	       bench_median(ours, turns) / 1e9, bench_median(theirs, turns) / 1e9, variant->text,
	       variant->bytes, BYTES);
	return 0;
}

static int find_worst(const struct bench *bench, struct peer *peer, const struct subject_memory *memory,
		      const struct variant **ret_worst)
{
	double ratio = 0, least = 0;

	for (size_t i = 0; i < ARRAY_LENGTH(variants); i++) {
		struct match match = match_make(&variants[i], peer, memory);
		int r = look_at(bench, &variants[i], &match, &ratio);

		if (r < 0)
			return r;
		if (i == 0 || ratio < least) {
			least = ratio;
			*ret_worst = &variants[i];
		}
	}
	return 0;
}

static int compare(struct bench *bench, struct peer *peer, const struct subject_memory *memory)
{
	const struct variant *worst = NULL;
	struct match match;
	int r = find_worst(bench, peer, memory, &worst);

	if (r < 0)
		return r;
	match = match_make(worst, peer, memory);
	printf("%s: least is left beside its %s:\n", NAME, worst->text);
	return bench_compare(bench, &(struct bench_comparison){ .name = NAME,
								.bound = BENCH_AT_LEAST,
								.limit = LIMIT,
								.unit = "G elements/s",
								.scale = 1e9,
								.ours = { pass_run, &match.subject.ours },
								.theirs = { peer_run, &match.theirs } });
}

static int compare_bytes(struct bench *bench, struct peer *peer, const struct subject_memory *memory)
{
	struct match match = match_make(&lesser, peer, memory);
	double ratio = 0;
	int r = look_at(bench, &lesser, &match, &ratio);

	if (r < 0)
		return r;
	return bench_record_result(bench, &(struct bench_result){ .name = PER_BYTE,
								  .value = ratio * BYTES / lesser.bytes,
								  .unit = "ratio",
								  .bound = BENCH_AT_LEAST });
}

int bench_update_peer(struct bench *bench)
{
	struct peer peer = PEER_INIT;
	char elements[32], threads[16];
	int r;

	snprintf(elements, sizeof(elements), "%llu", (unsigned long long)PASS_ELEMENTS);
	snprintf(threads, sizeof(threads), "%u", pass_threads());
	r = peer_start(&peer, (const char *const[]){ "adam", elements, threads, NULL });
	if (r == -ENOPKG) {
		bench_skip(bench, NAME, peer.said);
		bench_skip(bench, PER_BYTE, peer.said);
		r = 0;
	} else if (r == 0) {
		struct subject_memory memory = subject_memory_make();

		printf("%s: %s\n", NAME, peer.said);
		if (bench_wants(bench, NAME))
			r = compare(bench, &peer, &memory);
		if (r == 0 && bench_wants(bench, PER_BYTE))
			r = compare_bytes(bench, &peer, &memory);
		subject_memory_free(&memory);
	}
	peer_stop(&peer);
	return r;
}
