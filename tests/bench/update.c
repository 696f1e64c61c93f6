/* Every optimizer with every format of parameters and moments, on all processors, over the lesser of what
 * memory allows (streaming the same arrays, in the same formats, by the same threads and stores) and of what
 * the kernel itself does where nothing waits for memory (in the first-level cache).
 *
 * All of them are looked at, in short turns; that which comes out worst is then compared at length. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/cleanup.h"
#include "common/size.h"
#include "offload/optimizer.h"
#include "tests/bench/kernels.h"
#include "tests/bench/passes.h"

#define LIMIT 0.95
#define TURNS 9 /* odd: one is the median */
#define QUICK_TURNS 1
#define TURN_SECONDS 0.05
#define QUICK_TURN_SECONDS 0.01
#define TILE 4096
#define WIDEST sizeof(float)

/* What stays in the first-level cache: of each array so many elements, and as many 4 KiB behind them, for
 * which the kernel asks in advance. The five arrays lie so that no set of that cache is wanted more than six
 * times. A call takes longer for so few elements, by some percent. */
#define NEAR_ELEMENTS 512
#define NEAR_STRIDE (6 * KIB)
#define ARRAYS 5

enum rival { STREAM, NEAR, RIVALS };

struct choice {
	const char *name, *optimizer;
	float momentum;
	unsigned slots;
};

static const struct choice choices[] = {
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

/* A choice with its formats, and the arrays that it is at work on. */
struct subject {
	const struct choice *choice;
	enum master_kind kind;
	enum moment_format format;
	struct optimizer_constants constants;
	optimizer_kernel *kernel;
	stream_update *stream;
	struct optimizer_arrays arrays;
	struct pass ours, rivals[RIVALS];
};

/* Their room is the same for all. */
struct room {
	char *parameter, *master, *slots[OPTIMIZER_MAX_SLOTS];
	float *gradient;
};

/* ---- Passes ---- */

static struct optimizer_arrays arrays_at(const struct subject *subject, size_t first)
{
	const struct optimizer_arrays *all = &subject->arrays;
	struct optimizer_arrays at = { .gradient = all->gradient + first, .noise = { { 1, 2 }, first } };

	at.parameter = (char *)all->parameter + first * master_parameter_bytes(subject->kind);
	if (all->master)
		at.master = (char *)all->master + first * master_bytes(subject->kind);
	for (unsigned i = 0; i < subject->choice->slots; i++)
		at.slots[i] = (char *)all->slots[i] + moment_bytes(subject->format, first);
	return at;
}

static void run_kernel(const struct pass *pass, size_t first, size_t count)
{
	const struct subject *subject = container_of(pass, struct subject, ours);
	const struct optimizer_arrays at = arrays_at(subject, first);

	subject->kernel(&subject->constants, count, &at);
}

static void run_stream(const struct pass *pass, size_t first, size_t count)
{
	const struct subject *subject = container_of(pass, struct subject, rivals[STREAM]);
	const struct optimizer_arrays at = arrays_at(subject, first);

	subject->stream(kernels_no_mask, count, &at);
}

/* A copy of the first elements, each thread its own. */
static struct optimizer_arrays copy_near(const struct subject *subject, char *room)
{
	const struct optimizer_arrays *all = &subject->arrays;
	struct optimizer_arrays near = { .noise = { { 1, 2 }, 0 } };

	memset(room, 0, ARRAYS * NEAR_STRIDE);
	near.parameter = memcpy(room, all->parameter, NEAR_ELEMENTS * master_parameter_bytes(subject->kind));
	near.gradient = memcpy(room + NEAR_STRIDE, all->gradient, NEAR_ELEMENTS * sizeof(float));
	if (all->master)
		near.master = memcpy(room + 2 * NEAR_STRIDE, all->master,
				     NEAR_ELEMENTS * master_bytes(subject->kind));
	for (unsigned i = 0; i < subject->choice->slots; i++)
		near.slots[i] = memcpy(room + (3 + i) * NEAR_STRIDE, all->slots[i],
				       moment_bytes(subject->format, NEAR_ELEMENTS));
	return near;
}

static void run_near(const struct pass *pass, size_t first, size_t count)
{
	_Alignas(4096) char room[ARRAYS * NEAR_STRIDE + 4096];
	const struct subject *subject = container_of(pass, struct subject, rivals[NEAR]);
	const struct optimizer_arrays near = copy_near(subject, room);

	for (size_t done = 0; done < count; done += NEAR_ELEMENTS)
		subject->kernel(&subject->constants, NEAR_ELEMENTS, &near);
}

/* ---- Values ---- */

static struct room make_room(void)
{
	struct room room = { .parameter = pass_allocate(PASS_ELEMENTS * WIDEST),
			     .master = pass_allocate(PASS_ELEMENTS * WIDEST),
			     .gradient = pass_allocate(PASS_ELEMENTS * sizeof(float)) };

	for (unsigned i = 0; i < OPTIMIZER_MAX_SLOTS; i++)
		room.slots[i] = pass_allocate(PASS_ELEMENTS * WIDEST);
	/* Of the size that they have in training, positive and negative, never denormal. */
	for (size_t i = 0; i < PASS_ELEMENTS; i++)
		room.gradient[i] = 1e-6f * (float)((int)((uint32_t)i * 2654435761u >> 20) - 2048 + 0.5);
	return room;
}

static void free_room(struct room *room)
{
	for (unsigned i = 0; i < OPTIMIZER_MAX_SLOTS; i++)
		free(room->slots[i]);
	free(room->parameter);
	free(room->master);
	free(room->gradient);
}

/* Parameters are a thousand gradients; moments begin as zeros, as ever. */
static void fill(const struct subject *subject)
{
	float values[TILE];

	for (size_t first = 0; first < PASS_ELEMENTS; first += TILE) {
		const struct optimizer_arrays at = arrays_at(subject, first);

		for (size_t i = 0; i < TILE; i++)
			values[i] = 1000 * at.gradient[i];
		format_keep(subject->kind, values, TILE, at.parameter, at.master);
	}
	for (unsigned i = 0; i < subject->choice->slots; i++)
		memset(subject->arrays.slots[i], 0, moment_bytes(subject->format, PASS_ELEMENTS));
}

static struct subject make_subject(const struct choice *choice, enum master_kind kind,
				   enum moment_format format, const struct room *room)
{
	const struct optimizer *optimizer = optimizer_find(choice->optimizer, simd_level());
	const struct optimizer_group group = { .learning_rate = 1,
					       .beta1 = 0.9f,
					       .beta2 = 0.999f,
					       .epsilon = 1e-8f,
					       .weight_decay = 0.01f,
					       .momentum = choice->momentum };
	struct subject subject = { .choice = choice, .kind = kind, .format = format };

	optimizer_set(optimizer, &group, 1e-4, 10, 1.0f, &subject.constants);
	subject.kernel = optimizer->kernels[format][kind];
	subject.stream = kernels_streams()->updates[kind][format][choice->slots];
	subject.arrays.parameter = room->parameter;
	subject.arrays.master = master_bytes(kind) > 0 ? room->master : NULL;
	subject.arrays.gradient = room->gradient;
	for (unsigned i = 0; i < choice->slots; i++)
		subject.arrays.slots[i] = room->slots[i];
	subject.ours.run = run_kernel;
	subject.rivals[STREAM].run = run_stream;
	subject.rivals[NEAR].run = run_near;
	fill(&subject);
	return subject;
}

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
	enum rival lesser;
};

/* In turns, each second one of them backwards. */
static struct look look_at(const struct bench *bench, struct subject *subject)
{
	struct pass *passes[1 + RIVALS] = { &subject->ours, &subject->rivals[STREAM],
					    &subject->rivals[NEAR] };
	unsigned turns = bench_is_quick(bench) ? QUICK_TURNS : TURNS;
	double rates[1 + RIVALS][TURNS], ratios[RIVALS][TURNS], over[RIVALS];
	struct look look;

	for (unsigned turn = 0; turn < turns; turn++)
		for (unsigned i = 0; i < 1 + RIVALS; i++) {
			unsigned side = turn % 2 ? RIVALS - i : i;

			rates[side][turn] =
				pass_run(passes[side], turns == TURNS ? TURN_SECONDS : QUICK_TURN_SECONDS);
		}
	for (unsigned rival = 0; rival < RIVALS; rival++) {
		for (unsigned turn = 0; turn < turns; turn++)
			ratios[rival][turn] = rates[0][turn] / rates[1 + rival][turn];
		over[rival] = bench_quantile(ratios[rival], turns, 0.5);
	}
	look.lesser = over[STREAM] > over[NEAR] ? STREAM : NEAR;
	look.ratio = over[look.lesser];
	print_subject(subject);
	printf(" %.2f G elements/s; %.3f of streaming, %.3f of itself in the cache\n",
	       bench_quantile(rates[0], turns, 0.5) / 1e9, over[STREAM], over[NEAR]);
	return look;
}

struct worst {
	const struct choice *choice;
	enum master_kind kind;
	enum moment_format format;
	struct look look;
};

static void look_at_choice(const struct bench *bench, const struct choice *choice, const struct room *room,
			   struct worst *worst)
{
	/* Without moments their format means nothing. */
	unsigned formats = choice->slots > 0 ? MOMENT_FORMATS : 1;

	for (unsigned kind = 0; kind < MASTER_KINDS; kind++)
		for (unsigned format = 0; format < formats; format++) {
			struct subject subject = make_subject(choice, kind, format, room);
			struct look look = look_at(bench, &subject);

			if (!worst->choice || look.ratio < worst->look.ratio)
				*worst = (struct worst){ choice, kind, format, look };
		}
}

int bench_updates(struct bench *bench)
{
	struct room room = make_room();
	struct worst worst = { 0 };
	struct subject subject;
	int r;

	for (size_t i = 0; i < ARRAY_LENGTH(choices); i++)
		look_at_choice(bench, &choices[i], &room, &worst);
	subject = make_subject(worst.choice, worst.kind, worst.format, &room);
	print_subject(&subject);
	printf(" is the worst; over %s:\n",
	       worst.look.lesser == STREAM ? "streaming" : "itself in the cache");
	r = bench_compare(bench, &(struct bench_comparison){
					 .name = "adam_ratio",
					 .bound = BENCH_AT_LEAST,
					 .limit = LIMIT,
					 .unit = "G elements/s",
					 .scale = 1e9,
					 .ours = { pass_run, &subject.ours },
					 .theirs = { pass_run, &subject.rivals[worst.look.lesser] } });
	free_room(&room);
	return r;
}
