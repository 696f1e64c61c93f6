/* AdamW over DeepSpeed's, as many elements in as many threads, in arrays far larger than any cache. DeepSpeed
 * has formats of its own: each of them is looked at beside that of tierd which trains the same model, and the
 * one of which least is left is then compared at length. */
#include <errno.h>
#include <stdio.h>

#include "common/cleanup.h"
#include "common/size.h"
#include "tests/bench/kernels.h"
#include "tests/bench/peer.h"
#include "tests/bench/subject.h"

#define NAME "adam_vs_deepspeed"
#define LIMIT 1.15
#define TURNS 5 /* odd: one is the median */
#define QUICK_TURNS 1
#define TURN_SECONDS 0.2
#define QUICK_TURN_SECONDS 0.01

static const struct subject_choice adamw = { "adamw", "adamw", 0, 2 };

struct variant {
	const char *what; /* peer.py's word */
	enum master_kind kind;
	const char *text;
};

/* tierd's gradients are fp32 sums in each of them; an update in fp32 or of a split master moves 28 bytes. */
static const struct variant variants[] = {
	{ "fp32", MASTER_ITSELF, "fp32 parameters; it moves 28 bytes an element, as tierd" },
	{ "master", MASTER_SPLIT, "bf16 parameters and an fp32 master; it moves 34 bytes, tierd 28" },
	{ "bf16", MASTER_SPLIT,
	  "bf16 parameters and gradients without a master; it moves 22 bytes, tierd 28" },
};

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
	printf("%s: %.2f G elements/s over its %.2f, of %s\n", NAME, bench_median(ours, turns) / 1e9,
	       bench_median(theirs, turns) / 1e9, variant->text);
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
		r = 0;
	} else if (r == 0) {
		struct subject_memory memory = subject_memory_make();

		printf("%s: %s\n", NAME, peer.said);
		r = compare(bench, &peer, &memory);
		subject_memory_free(&memory);
	}
	peer_stop(&peer);
	return r;
}
