#include "tests/bench/subject.h"

#include <stdlib.h>
#include <string.h>

#include "common/cleanup.h"
#include "common/simd.h"
#include "common/size.h"
#include "tests/bench/kernels.h"

#define TILE 4096
#define WIDEST sizeof(float)

/* What stays in the first-level cache: of each array so many elements, and as many SIMD_AHEAD bytes behind
 * them, for which the kernel asks in advance. The five arrays, one of which at least is of halves or not
 * there, lie so that no set of that cache is wanted more than seven times. */
#define NEAR_ELEMENTS 1024
#define NEAR_STRIDE (6 * KIB)
#define ARRAYS 5

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
	const struct subject *subject = container_of(pass, struct subject, rivals[SUBJECT_STREAM]);
	const struct optimizer_arrays at = arrays_at(subject, first);

	subject->stream(kernels_no_mask, count, &at);
}

/* A copy of the first elements, each thread its own. */
static struct optimizer_arrays copy_near(const struct subject *subject, char *memory)
{
	const struct optimizer_arrays *all = &subject->arrays;
	struct optimizer_arrays near = { .noise = { { 1, 2 }, 0 } };

	memset(memory, 0, ARRAYS * NEAR_STRIDE);
	near.parameter =
		memcpy(memory, all->parameter, NEAR_ELEMENTS * master_parameter_bytes(subject->kind));
	near.gradient = memcpy(memory + NEAR_STRIDE, all->gradient, NEAR_ELEMENTS * sizeof(float));
	if (all->master)
		near.master = memcpy(memory + 2 * NEAR_STRIDE, all->master,
				     NEAR_ELEMENTS * master_bytes(subject->kind));
	for (unsigned i = 0; i < subject->choice->slots; i++)
		near.slots[i] = memcpy(memory + (3 + i) * NEAR_STRIDE, all->slots[i],
				       moment_bytes(subject->format, NEAR_ELEMENTS));
	return near;
}

static void run_near(const struct pass *pass, size_t first, size_t count)
{
	_Alignas(4096) char memory[ARRAYS * NEAR_STRIDE + 4096];
	const struct subject *subject = container_of(pass, struct subject, rivals[SUBJECT_NEAR]);
	const struct optimizer_arrays near = copy_near(subject, memory);

	for (size_t done = 0; done < count; done += NEAR_ELEMENTS)
		subject->kernel(&subject->constants, NEAR_ELEMENTS, &near);
}

/* ---- Values ---- */

struct subject_memory subject_memory_make(void)
{
	struct subject_memory memory = { .parameter = pass_allocate(PASS_ELEMENTS * WIDEST),
					 .master = pass_allocate(PASS_ELEMENTS * WIDEST),
					 .gradient = pass_allocate(PASS_ELEMENTS * sizeof(float)) };

	for (unsigned i = 0; i < OPTIMIZER_MAX_SLOTS; i++)
		memory.slots[i] = pass_allocate(PASS_ELEMENTS * WIDEST);
	/* Of the size that they have in training, positive and negative, never denormal. */
	for (size_t i = 0; i < PASS_ELEMENTS; i++)
		memory.gradient[i] = 1e-6f * (float)((int)((uint32_t)i * 2654435761u >> 20) - 2048 + 0.5);
	return memory;
}

void subject_memory_free(struct subject_memory *memory)
{
	for (unsigned i = 0; i < OPTIMIZER_MAX_SLOTS; i++)
		free(memory->slots[i]);
	free(memory->parameter);
	free(memory->master);
	free(memory->gradient);
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

struct subject subject_make(const struct subject_choice *choice, enum master_kind kind,
			    enum moment_format format, const struct subject_memory *memory)
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
	subject.arrays.parameter = memory->parameter;
	subject.arrays.master = master_bytes(kind) > 0 ? memory->master : NULL;
	subject.arrays.gradient = memory->gradient;
	for (unsigned i = 0; i < choice->slots; i++)
		subject.arrays.slots[i] = memory->slots[i];
	subject.ours.run = run_kernel;
	subject.rivals[SUBJECT_STREAM].run = run_stream;
	subject.rivals[SUBJECT_NEAR].run = run_near;
	fill(&subject);
	return subject;
}
