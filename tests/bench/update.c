/* Every optimizer with every format of parameters and moments, on all processors, over the lesser of what
 * memory allows (streaming the same arrays, in the same formats, by the same threads and stores) and of what
 * the kernel itself does where nothing waits for memory (in the first-level cache).
 *
 * All of them are looked at, in short turns; that which comes out worst is then compared at length. */
#include <stdio.h>

#include "common/cleanup.h"
#include "tests/bench/kernels.h"
#include "tests/bench/subject.h"

#define LIMIT 0.95
#define TURNS 9 /* odd: one is the median */
#define QUICK_TURNS 1
#define TURN_SECONDS 0.05
#define QUICK_TURN_SECONDS 0.01

static const struct subject_choice choices[] = {
	{ "adamw", "adamw", 0, 2 },
	{ "adam", "adam", 0, 2 },
	{ "lion", "lion", 0, 1 },
	{ "sgd", "sgd", 0, 0 },
	{ "sgd, momentum", "sgd", 0.9f, 1 },
};
static const char *const parameter_names[MASTER_KINDS] = {
	[MASTER_SPLIT] = "bf16", [MASTER_BESIDE] = "fp16", [MASTER_ITSELF] = "fp32"
};
static const char *const moment_names[MOMENT_FORMATS] = {
	[MOMENTS_FP32] = "fp32", [MOMENTS_BF16] = "bf16", [MOMENTS_INT8] = "int8"
};

static void print_subject(const struct subject *subject)
{
	printf("adam_ratio: %-13s %s parameters", subject->choice->name, parameter_names[subject->kind]);
	if (subject->choice->slots > 0)
		printf(", %s moments", moment_names[subject->format]);
	else
		printf(",             ");
}

/* ---- Looking at all of them ---- */

struct look {
	double ratio;
	enum subject_rival lesser;
};

/* In turns, each second one of them backwards. */
static struct look look_at(const struct bench *bench, struct subject *subject)
{
	struct pass *passes[1 + SUBJECT_RIVALS] = { &subject->ours, &subject->rivals[SUBJECT_STREAM],
						    &subject->rivals[SUBJECT_NEAR] };
	unsigned turns = bench_is_quick(bench) ? QUICK_TURNS : TURNS;
	double rates[1 + SUBJECT_RIVALS][TURNS], ratios[SUBJECT_RIVALS][TURNS], over[SUBJECT_RIVALS];
	struct look look;

	for (unsigned turn = 0; turn < turns; turn++)
		for (unsigned i = 0; i < 1 + SUBJECT_RIVALS; i++) {
			unsigned side = turn % 2 ? SUBJECT_RIVALS - i : i;

			rates[side][turn] =
				pass_run(passes[side], turns == TURNS ? TURN_SECONDS : QUICK_TURN_SECONDS);
		}
	for (unsigned rival = 0; rival < SUBJECT_RIVALS; rival++) {
		for (unsigned turn = 0; turn < turns; turn++)
			ratios[rival][turn] = rates[0][turn] / rates[1 + rival][turn];
		over[rival] = bench_median(ratios[rival], turns);
	}
	look.lesser = over[SUBJECT_STREAM] > over[SUBJECT_NEAR] ? SUBJECT_STREAM : SUBJECT_NEAR;
	look.ratio = over[look.lesser];
	print_subject(subject);
	printf(" %.2f G elements/s; %.3f of streaming, %.3f of itself in the cache\n",
	       bench_median(rates[0], turns) / 1e9, over[SUBJECT_STREAM], over[SUBJECT_NEAR]);
	return look;
}

struct worst {
	const struct subject_choice *choice;
	enum master_kind kind;
	enum moment_format format;
	struct look look;
};

static void look_at_choice(const struct bench *bench, const struct subject_choice *choice,
			   const struct subject_memory *memory, struct worst *worst)
{
	/* Without moments their format means nothing. */
	unsigned formats = choice->slots > 0 ? MOMENT_FORMATS : 1;

	for (unsigned kind = 0; kind < MASTER_KINDS; kind++)
		for (unsigned format = 0; format < formats; format++) {
			struct subject subject = subject_make(choice, kind, format, memory);
			struct look look = look_at(bench, &subject);

			if (!worst->choice || look.ratio < worst->look.ratio)
				*worst = (struct worst){ choice, kind, format, look };
		}
}

int bench_updates(struct bench *bench)
{
	struct subject_memory memory = subject_memory_make();
	struct worst worst = { 0 };
	struct subject subject;
	int r;

	for (size_t i = 0; i < ARRAY_LENGTH(choices); i++)
		look_at_choice(bench, &choices[i], &memory, &worst);
	subject = subject_make(worst.choice, worst.kind, worst.format, &memory);
	print_subject(&subject);
	printf(" is the worst; over %s:\n",
	       worst.look.lesser == SUBJECT_STREAM ? "streaming" : "itself in the cache");
	r = bench_compare(bench, &(struct bench_comparison){
					 .name = "adam_ratio",
					 .bound = BENCH_AT_LEAST,
					 .limit = LIMIT,
					 .unit = "G elements/s",
					 .scale = 1e9,
					 .ours = { pass_run, &subject.ours },
					 .theirs = { pass_run, &subject.rivals[worst.look.lesser] } });
	subject_memory_free(&memory);
	return r;
}
