/* The kernels of every optimizer, at every level and for every kind of master, follow the document to the
 * bit, and the papers in fp64. */
#include <errno.h>
#include <string.h>

#include "common/float16.h"
#include "offload/optimizer/moments.h"
#include "tests/unit/kernel_support.h"
#include "tests/unit/seeds.h"
#include "tests/unit/test.h"

struct element {
	float p, slots[OPTIMIZER_MAX_SLOTS];
};

/* What the document's constants are computed from. */
struct update {
	struct optimizer_group group;
	double learning_rate;
	uint64_t number;
	float factor;
};

/* ---- docs/numerics.md, line by line ---- */

static double power(double base, uint64_t exponent)
{
	double r = 1, b = base;

	while (exponent) {
		if (exponent & 1)
			r = r * b;
		b = b * b;
		exponent >>= 1;
	}
	return r;
}

static double rate_of(const struct update *u)
{
	return u->learning_rate * (double)u->group.learning_rate;
}

/* The moments; returns what is subtracted from the parameter, for a fused subtraction. */
static void move_moments(const struct update *u, float g, struct element *element)
{
	float c1 = (float)(1 - (double)u->group.beta1), c2 = (float)(1 - (double)u->group.beta2);
	float m_part = c1 * g, v_part = c2 * g;

	v_part = v_part * g;
	element->slots[0] = fmaf(u->group.beta1, element->slots[0], m_part);
	element->slots[1] = fmaf(u->group.beta2, element->slots[1], v_part);
}

static float step_along(const struct update *u, const struct element *element, float p)
{
	float step = (float)(rate_of(u) / (1 - power(u->group.beta1, u->number)));
	float scale = (float)(1 / sqrt(1 - power(u->group.beta2, u->number)));
	float denominator = fmaf(sqrtf(element->slots[1]), scale, u->group.epsilon);

	return fmaf(-step, element->slots[0] / denominator, p);
}

static struct element adamw(const struct update *u, struct element element, float a)
{
	float decay = (float)(1 - rate_of(u) * (double)u->group.weight_decay);
	float decayed = element.p * decay;

	move_moments(u, a * u->factor, &element);
	element.p = step_along(u, &element, decayed);
	return element;
}

static struct element adam(const struct update *u, struct element element, float a)
{
	float g = a * u->factor;

	g = fmaf(u->group.weight_decay, element.p, g);
	move_moments(u, g, &element);
	element.p = step_along(u, &element, element.p);
	return element;
}

static struct element sgd(const struct update *u, struct element element, float a)
{
	float g = fmaf(u->group.weight_decay, element.p, a * u->factor);
	float rest = u->number == 1 ? 1.0f : (float)(1 - (double)u->group.dampening);
	float part = rest * g;

	if (u->group.momentum != 0) {
		element.slots[0] = fmaf(u->group.momentum, element.slots[0], part);
		g = u->group.is_nesterov ? fmaf(u->group.momentum, element.slots[0], g) : element.slots[0];
	}
	element.p = fmaf(-(float)rate_of(u), g, element.p);
	return element;
}

static struct element lion(const struct update *u, struct element element, float a)
{
	float g = a * u->factor;
	float c1 = (float)(1 - (double)u->group.beta1) * g, c2 = (float)(1 - (double)u->group.beta2) * g;
	float c = fmaf(u->group.beta1, element.slots[0], c1);
	float decayed = element.p * (float)(1 - rate_of(u) * (double)u->group.weight_decay);

	element.slots[0] = fmaf(u->group.beta2, element.slots[0], c2);
	element.p = fmaf(-(float)rate_of(u), c == 0 || isnan(c) ? c : copysignf(1, c), decayed);
	return element;
}

/* The masters come in the gradients' place, and no factor counts. */
static struct element none(const struct update *u, struct element element, float a)
{
	element.p = a;
	return element;
}

/* ---- The papers, in fp64 and with other orders of operations ---- */

struct exact {
	double p, slots[OPTIMIZER_MAX_SLOTS];
};

static double exact_moments(const struct update *u, struct exact *x, double g)
{
	double beta1 = u->group.beta1, beta2 = u->group.beta2, t = (double)u->number;

	x->slots[0] = beta1 * x->slots[0] + (1 - beta1) * g;
	x->slots[1] = beta2 * x->slots[1] + (1 - beta2) * g * g;
	return x->slots[0] / (1 - pow(beta1, t)) /
	       (sqrt(x->slots[1] / (1 - pow(beta2, t))) + u->group.epsilon);
}

static void exact_adamw(const struct update *u, struct exact *x, double g)
{
	double direction = exact_moments(u, x, g);

	x->p -= rate_of(u) * (direction + u->group.weight_decay * x->p);
}

static void exact_adam(const struct update *u, struct exact *x, double g)
{
	x->p -= rate_of(u) * exact_moments(u, x, g + u->group.weight_decay * x->p);
}

/* torch.optim.SGD's documentation. */
static void exact_sgd(const struct update *u, struct exact *x, double g)
{
	g += u->group.weight_decay * x->p;
	if (u->group.momentum != 0) {
		x->slots[0] =
			u->number == 1 ? g : u->group.momentum * x->slots[0] + (1 - u->group.dampening) * g;
		g = u->group.is_nesterov ? g + u->group.momentum * x->slots[0] : x->slots[0];
	}
	x->p -= rate_of(u) * g;
}

static void exact_lion(const struct update *u, struct exact *x, double g)
{
	double c = u->group.beta1 * x->slots[0] + (1 - u->group.beta1) * g;

	x->p -= rate_of(u) * ((c > 0) - (c < 0) + u->group.weight_decay * x->p);
	x->slots[0] = u->group.beta2 * x->slots[0] + (1 - u->group.beta2) * g;
}

static void exact_none(const struct update *u, struct exact *x, double g)
{
	x->p = g / (double)u->factor;
}

/* ---- Moments in bf16 ---- */

static const struct moment_noise noise = { { 0x12345678, 0x9abcdef0 }, 0xffffff00 };

/* The document's words again, of the element with this number. */
static uint32_t noise_of(uint64_t number)
{
	uint32_t k1 = noise.keys[1] ^ (uint32_t)((number >> 32) * 0x9e3779b1);
	uint32_t n = (uint32_t)number + noise.keys[0];

	n ^= n >> 16;
	n = n * 0x7feb352d ^ k1;
	n ^= n >> 15;
	n *= 0x846ca68b;
	return n ^ n >> 16;
}

static uint32_t chance_of(uint64_t number, unsigned slot)
{
	return slot == 0 ? noise_of(number) % 65536 : noise_of(number) / 65536;
}

static float kept_moment(float x, uint64_t number, unsigned slot)
{
	uint32_t bits = float_bits(x);

	if (isnan(x))
		return x;
	bits += chance_of(number, slot);
	bits &= 0xffff0000;
	if (isfinite(x) && !isfinite(float_from_bits(bits)))
		return copysignf(0x1.fep127f, x);
	return float_from_bits(isinf(x) ? float_bits(x) : bits);
}

/* ---- Moments in 8 bits ---- */

static double code_base(unsigned slot)
{
	return slot == 0 ? 0x1p-15 : 0x1p-31;
}

/* Of a code without its sign: what it stands for, before the base is taken away. */
static double code_value(int code, unsigned slot)
{
	return code_base(slot) * (1 << code / 8 % 16) * (code / 8 < 16 ? 1 : 65536) * (1 + code % 8 / 8.0);
}

/* The power of two that the largest has, as it is or with the base, or with what a code leaves of it. */
static double block_scale(const float *values, size_t count, unsigned slot)
{
	double most = 0;
	int exponent;

	for (size_t i = 0; i < count; i++)
		if (!(fabs((double)values[i]) <= most))
			most = isfinite(values[i]) ? fabs((double)values[i]) : 0x1p127;
	if (most >= 0x1p127 * (1 - 0x1p-12))
		most = 0x1p126;
	frexp(most, &exponent);
	if (slot == 0 && most >= ldexp(1 - 0x1p-15, exponent))
		exponent++;
	return most > 0 && exponent - 1 >= -126 ? ldexp(1, exponent - 1) : 0;
}

static double code_chance_of(uint64_t number, unsigned slot)
{
	return (slot == 0 ? noise_of(number) % 1048576 : noise_of(number) / 4096) / 1048576.0;
}

static float coded_moment(float x, unsigned slot, double scale, double chance)
{
	const int most = slot == 0 ? 127 : 255;
	float sum = fmaf(fabsf(x), scale > 0 ? (float)(1 / scale) : 0, (float)code_base(slot));
	int code = 0;

	while (code < most && !(code_value(code + 1, slot) > (double)sum))
		code++;
	if (code < most && (double)sum < code_value(most, slot)) {
		double low = code_value(code, slot), high = code_value(code + 1, slot);

		code += ((double)sum - low) / (high - low) + chance >= 1;
	}
	if (slot == 1 && x != 0 && code == 0)
		code = 1;
	return copysignf((float)((code_value(code, slot) - code_base(slot)) * scale), slot == 0 ? x : 1);
}

/* A block whose first element has this number, each in its slot's place. */
static void code_moments(struct element *elements, size_t count, uint64_t number, unsigned slot)
{
	float values[MOMENT_BLOCK];

	for (size_t i = 0; i < count; i++)
		values[i] = elements[i].slots[slot];
	double scale = block_scale(values, count, slot);

	for (size_t i = 0; i < count; i++)
		elements[i].slots[slot] =
			coded_moment(values[i], slot, scale, code_chance_of(number + i, slot));
}

/* ---- All of them ---- */

static const struct subject {
	const char *name;
	struct optimizer_group group; /* of the long run */
	struct element (*formula)(const struct update *u, struct element element, float a);
	void (*exact)(const struct update *u, struct exact *x, double g);
} subjects[] = {
	{ "adamw", { 1.0f, 0.9f, 0.999f, 1e-8f, 0.1f }, adamw, exact_adamw },
	{ "adam", { 1.0f, 0.9f, 0.999f, 1e-8f, 0.1f }, adam, exact_adam },
	{ "sgd", { 1.0f, 0, 0, 0, 0.1f, 0, 0, false }, sgd, exact_sgd },
	{ "sgd", { 1.0f, 0, 0, 0, 0.1f, 0.9f, 0.3f, false }, sgd, exact_sgd },
	{ "sgd", { 0.5f, 0, 0, 0, 0.1f, 0.8f, 0, true }, sgd, exact_sgd },
	{ "lion", { 0.5f, 0.9f, 0.99f, 0, 0.1f }, lion, exact_lion },
	{ "none", { 0 }, none, exact_none },
};

static const struct optimizer *optimizer_of(const struct subject *subject, enum simd_level level)
{
	const struct optimizer *optimizer = optimizer_find(subject->name, level);

	assert_non_null(optimizer);
	return optimizer;
}

static struct update some_update(unsigned number)
{
	static const struct optimizer_group groups[] = {
		{ 1.0f, 0.9f, 0.999f, 1e-8f, 0.01f, 0.9f, 0.1f, false },
		{ 0.3f, 0.9f, 0.95f, 1e-10f, 0.1f, 0.7f, 0.0f, true },
		{ 1.0f, 0.0f, 0.0f, 1e-20f, 0.0f, 0.0f, 0.5f, false },
		{ 0.0f, 0.9f, 0.999f, 1e-8f, 0.5f, 1.5f, -1.0f, false },
	};

	return (struct update){ .group = groups[number % ARRAY_LENGTH(groups)],
				.learning_rate = 1e-3,
				.number = 1 + number * 7,
				.factor = number % 3 == 0 ? 1.0f : 0.37f };
}

struct sample {
	size_t count;
	enum master_kind kind;
	enum moment_format format;
	char *parameter, *master, *slots[OPTIMIZER_MAX_SLOTS];
	float *gradient;
	struct element *expected;
};

static bool moves_slots(const struct subject *subject, const struct update *update)
{
	return strcmp(subject->name, "sgd") != 0 || update->group.momentum != 0;
}

static float slot_value(const struct sample *sample, unsigned slot, size_t i)
{
	float value;

	moments_restore(sample->format, slot, sample->slots[slot] + moment_offset(sample->format, i), i, 1,
			&value);
	return value;
}

/* Each begins as what is kept of it. */
static void set_slot(struct sample *sample, struct element *elements, unsigned slot)
{
	_cleanup_free_ float *values = allocate_floats(sample->count);

	for (size_t i = 0; i < sample->count; i++)
		values[i] = elements[i].slots[slot];
	moments_keep(sample->format, slot, values, 0, sample->count, sample->slots[slot]);
	for (size_t i = 0; i < sample->count; i++)
		elements[i].slots[slot] = slot_value(sample, slot, i);
}

/* What an update that has no use for a slot leaves alone is exact. */
static void keep_expected(struct sample *sample, unsigned slot)
{
	size_t count = sample->count;

	for (size_t i = 0; i < count && sample->format == MOMENTS_BF16; i++)
		sample->expected[i].slots[slot] =
			kept_moment(sample->expected[i].slots[slot], noise.first + i, slot);
	for (size_t i = 0; i < count && sample->format == MOMENTS_INT8; i += MOMENT_BLOCK)
		code_moments(sample->expected + i, count - i < MOMENT_BLOCK ? count - i : MOMENT_BLOCK,
			     noise.first + i, slot);
}

/* In most blocks of many elements there is something so large that all else has the least code: so some
 * samples have only what lies within 24 powers of two. */
static float random_value(bool is_near)
{
	return is_near ? ldexpf(random_ordinary(2), -(int)(random_bits() % 24)) : random_any();
}

static struct element random_element(bool is_near)
{
	struct element element = { random_value(is_near), { random_value(is_near), random_value(is_near) } };

	if (random_bits() % 4 > 0)
		element.slots[1] = fabsf(element.slots[1]);
	return element;
}

static struct sample sample_new(const struct subject *subject, enum master_kind kind,
				enum moment_format format, const struct update *update, size_t count)
{
	struct sample sample = {
		.count = count,
		.kind = kind,
		.format = format,
		.parameter = allocate(count * master_parameter_bytes(kind)),
		.master = master_bytes(kind) ? allocate(count * master_bytes(kind)) : NULL,
		.gradient = allocate_floats(count),
		.expected = allocate(count * sizeof(struct element)),
	};
	const unsigned slots = optimizer_of(subject, SIMD_SCALAR)->slot_count;
	const bool is_near = random_bits() % 2;

	for (size_t i = 0; i < count; i++) {
		struct element *old = &sample.expected[i];

		*old = random_element(is_near);
		sample.gradient[i] = random_value(is_near);
		format_keep(kind, &old->p, 1, sample.parameter + i * master_parameter_bytes(kind),
			    sample.master ? sample.master + i * master_bytes(kind) : NULL);
	}
	for (unsigned slot = 0; slot < slots; slot++) {
		sample.slots[slot] = allocate(moment_bytes(format, count));
		memset(sample.slots[slot], 0, moment_bytes(format, count));
		set_slot(&sample, sample.expected, slot);
	}
	for (size_t i = 0; i < count; i++)
		sample.expected[i] = subject->formula(update, sample.expected[i], sample.gradient[i]);
	for (unsigned slot = 0; slot < slots && moves_slots(subject, update); slot++)
		keep_expected(&sample, slot);
	return sample;
}

static void sample_free(struct sample *sample)
{
	free(sample->parameter);
	free(sample->master);
	for (unsigned slot = 0; slot < OPTIMIZER_MAX_SLOTS; slot++)
		free(sample->slots[slot]);
	free(sample->gradient);
	free(sample->expected);
}

/* The elements first … end - 1. */
static void run(const struct optimizer *optimizer, const struct update *update, const struct sample *sample,
		size_t first, size_t end)
{
	struct optimizer_arrays arrays = {
		.parameter = sample->parameter + first * master_parameter_bytes(sample->kind),
		.master = sample->master ? sample->master + first * master_bytes(sample->kind) : NULL,
		.gradient = sample->gradient + first,
		.noise = noise,
	};
	struct optimizer_constants constants;

	arrays.noise.first += first;
	for (unsigned slot = 0; slot < OPTIMIZER_MAX_SLOTS; slot++)
		arrays.slots[slot] = sample->slots[slot]
					     ? sample->slots[slot] + moment_bytes(sample->format, first)
					     : NULL;
	optimizer_set(optimizer, &update->group, update->learning_rate, update->number, update->factor,
		      &constants);
	optimizer->kernels[sample->format][sample->kind](&constants, end - first, &arrays);
}

static void assert_split(const struct sample *sample, size_t i)
{
	uint32_t bits = float_bits(sample->expected[i].p);
	uint16_t high;

	memcpy(&high, sample->parameter + 2 * i, sizeof(high));
	if (isnan(sample->expected[i].p))
		assert_true(isnan(float_from_bits((uint32_t)high << 16)));
	else
		assert_int_equal(high, (uint16_t)((bits + 0x8000) >> 16));
}

static void assert_half(const struct sample *sample, size_t i)
{
	uint16_t half;

	memcpy(&half, sample->parameter + 2 * i, sizeof(half));
	if (isnan(sample->expected[i].p))
		assert_true(isnan(half_value(half)));
	else
		assert_int_equal(half, nearest_half(sample->expected[i].p));
}

/* What is read and written again, by an export and an import, say, is what it was. */
static void assert_stable(const struct sample *sample, unsigned slot)
{
	const struct coded_moments *blocks = (const struct coded_moments *)sample->slots[slot];

	for (size_t i = 0; i < sample->count; i += MOMENT_BLOCK) {
		const struct coded_moments *block = &blocks[i / MOMENT_BLOCK];
		struct coded_moments again = { 0 };
		float values[MOMENT_BLOCK];

		moments_restore(MOMENTS_INT8, slot, block, 0, MOMENT_BLOCK, values);
		moments_keep(MOMENTS_INT8, slot, values, 0, MOMENT_BLOCK, &again);
		if (block->scale > 0)
			assert_memory_equal(&again, block, sizeof(again));
	}
}

static void assert_expected(const struct sample *sample)
{
	for (unsigned slot = 0; slot < OPTIMIZER_MAX_SLOTS; slot++)
		if (sample->slots[slot] && sample->format == MOMENTS_INT8)
			assert_stable(sample, slot);
	_cleanup_free_ float *masters = allocate_floats(sample->count);

	format_restore(sample->kind, sample->parameter, sample->master, sample->count, masters);
	for (size_t i = 0; i < sample->count; i++) {
		assert_true(is_same(masters[i], sample->expected[i].p));
		if (sample->kind == MASTER_SPLIT)
			assert_split(sample, i);
		if (sample->kind == MASTER_BESIDE)
			assert_half(sample, i);
		for (unsigned slot = 0; slot < OPTIMIZER_MAX_SLOTS; slot++)
			if (sample->slots[slot])
				assert_true(is_same(slot_value(sample, slot, i),
						    sample->expected[i].slots[slot]));
	}
}

#define FOREACH_SUBJECT(subject)                                                                             \
	for (const struct subject *subject = subjects; subject < subjects + ARRAY_LENGTH(subjects); subject++)
#define FOREACH_KERNEL(subject, kind, format, level)                                                         \
	FOREACH_SUBJECT(subject)                                                                             \
	for (enum master_kind kind = (enum master_kind)0; kind < MASTER_KINDS; kind++)                       \
		for (enum moment_format format = (enum moment_format)0; format < MOMENT_FORMATS; format++)   \
	FOREACH_LEVEL(level)

static void kernels_follow_the_document(void **state)
{
	unsigned kernel = 0;

	FOREACH_KERNEL(subject, kind, format, level)
	{
		/* With a part of the counts each kernel has others. */
		for (size_t i = kernel++ % seeds_part(); i < ARRAY_LENGTH(kernel_counts); i += seeds_part()) {
			struct update update = some_update((unsigned)i);
			struct sample sample = sample_new(subject, kind, format, &update, kernel_counts[i]);

			run(optimizer_of(subject, level), &update, &sample, 0, sample.count);
			assert_expected(&sample);
			sample_free(&sample);
		}
	}
}

/* Of blocks, where the moments are kept in some. */
static void any_alignment_of_elements_will_do(void **state)
{
	FOREACH_KERNEL(subject, kind, format, level)
	for (unsigned i = 1; i <= (format == MOMENTS_INT8 ? 2 : 16); i++) {
		struct update update = some_update(1);
		size_t skip = format == MOMENTS_INT8 ? i * MOMENT_BLOCK : i;
		/* From somewhere in a vector on their numbers have more than 32 bits. */
		size_t count = skip + 300;
		struct sample sample = sample_new(subject, kind, format, &update, count);

		run(optimizer_of(subject, level), &update, &sample, 0, skip);
		run(optimizer_of(subject, level), &update, &sample, skip, sample.count);
		assert_expected(&sample);
		sample_free(&sample);
	}
}

static void late_updates_need_no_correction(void **state)
{
	const struct optimizer_group group = { 1.0f, 0.9f, 0.999f, 1e-8f, 0.0f };
	struct optimizer_constants constants;

	optimizer_set(optimizer_find("adamw", SIMD_SCALAR), &group, 1.0, UINT64_C(1) << 40, 1.0f, &constants);
	assert_true(constants.adam.step == 1.0f);
	assert_true(constants.adam.scale == 1.0f);
}

static void many_updates_follow_the_papers(void **state)
{
	FOREACH_SUBJECT(subject)
	{
		float p = 0.5f, slots[OPTIMIZER_MAX_SLOTS] = { 0 }, gradient;
		struct exact x = { 0.5, { 0 } };
		struct sample sample = { .count = 1,
					 .kind = MASTER_ITSELF,
					 .parameter = (char *)&p,
					 .slots = { (char *)&slots[0], (char *)&slots[1] },
					 .gradient = &gradient };

		for (uint64_t t = 1; t <= 100; t++) {
			struct update update = { subject->group, 1e-2, t, 0.5f };

			gradient = 0.3f + random_ordinary(1);
			run(optimizer_of(subject, simd_level()), &update, &sample, 0, 1);
			subject->exact(&update, &x, 0.5 * (double)gradient);
			assert_true(fabs((double)p - x.p) < 1e-5);
		}
		assert_true(fabs(x.p - 0.5) > 1e-2);
	}
}

/* Moments that stand still: what is lost by one rounding comes back by others. */
static void noise_has_no_bias(void **state)
{
	enum { COUNT = 1 << 16 };
	const struct optimizer *lion = optimizer_find("lion", simd_level());
	const struct optimizer_group group = { 0, 1 - 0x1p-24f, 1 - 0x1p-24f, 0, 0 };
	_cleanup_free_ float *p = allocate_floats(COUNT), *gradient = allocate_floats(COUNT);
	_cleanup_free_ uint16_t *m = allocate(COUNT * sizeof(*m));
	/* A quarter of the way from 1 to the next bf16. */
	const float value = 1 + 0x1p-9f;
	double sum = 0, products = 0;
	struct optimizer_constants constants;

	for (size_t i = 0; i < COUNT; i++) {
		m[i] = 0x3f80;
		p[i] = 0;
		gradient[i] = 0x1p24f * (value - 1) + 1;
	}
	struct optimizer_arrays arrays = { .parameter = p, .slots = { m }, .gradient = gradient };

	arrays.noise = moment_noise(1, 2, 3, 0);
	optimizer_set(lion, &group, 0, 1, 1.0f, &constants);
	lion->kernels[MOMENTS_BF16][MASTER_ITSELF](&constants, COUNT, &arrays);
	for (size_t i = 0; i < COUNT; i++) {
		assert_true(m[i] == 0x3f80 || m[i] == 0x3f81);
		sum += m[i] - 0x3f80;
		products += (m[i] - 0x3f80) * (m[(i + 1) % COUNT] - 0x3f80);
	}
	/* Within five deviations, of a quarter, and of its square: neighbours know nothing of each other. */
	assert_true(fabs(sum / COUNT - 0.25) < 5 * sqrt(0.25 * 0.75 / COUNT));
	assert_true(fabs(products / COUNT - 0.0625) < 5 * sqrt(0.0625 * 0.9375 * 3 / COUNT));
}

/* A block of all codes of a slot, and what they stand for. */
static void all_codes(unsigned slot, struct coded_moments *ret_block, float values[MOMENT_BLOCK])
{
	ret_block->scale = 0x1p-20f;
	for (unsigned code = 0; code < MOMENT_BLOCK; code++)
		ret_block->codes[code] = (uint8_t)code;
	moments_restore(MOMENTS_INT8, slot, ret_block, 0, MOMENT_BLOCK, values);
}

static void run_lion(const struct optimizer_group *group, struct coded_moments *blocks, size_t count,
		     const float *gradient, enum simd_level level)
{
	const struct optimizer *lion = optimizer_find("lion", level);
	_cleanup_free_ float *p = allocate_floats(count);
	struct optimizer_arrays arrays = { .parameter = p, .slots = { blocks }, .gradient = gradient };
	struct optimizer_constants constants;

	memset(p, 0, count * sizeof(*p));
	arrays.noise = moment_noise(1, 2, 3, 0);
	optimizer_set(lion, group, 0, 1, 1.0f, &constants);
	lion->kernels[MOMENTS_INT8][MASTER_ITSELF](&constants, count, &arrays);
}

/* Noise moves only what has moved. */
static void a_value_that_has_a_code_keeps_it(void **state)
{
	const struct optimizer_group still = { 0, 1 - 0x1p-24f, 1 - 0x1p-24f, 0, 0 };

	for (unsigned slot = 0; slot < OPTIMIZER_MAX_SLOTS; slot++) {
		struct coded_moments block, kept = { 0 };
		float values[MOMENT_BLOCK];

		all_codes(slot, &block, values);
		moments_keep(MOMENTS_INT8, slot, values, 0, MOMENT_BLOCK, &kept);
		assert_memory_equal(&kept, &block, sizeof(block));
	}
	FOREACH_LEVEL(level)
	{
		struct coded_moments block, kept;
		float values[MOMENT_BLOCK];

		all_codes(0, &block, values);
		kept = block;
		/* What the momentum loses by its factor, and gets again. */
		run_lion(&still, &kept, MOMENT_BLOCK, values, level);
		assert_memory_equal(&kept, &block, sizeof(block));
	}
}

/* The codes of zeros, which a store has without being told, are zeros. */
static void nothing_becomes_zero_or_is_made_from_it(void **state)
{
	struct coded_moments block = { 0 };
	float values[MOMENT_BLOCK], back[MOMENT_BLOCK];

	moments_restore(MOMENTS_INT8, 1, &block, 0, MOMENT_BLOCK, values);
	for (unsigned i = 0; i < MOMENT_BLOCK; i++)
		assert_true(values[i] == 0);
	for (unsigned i = 0; i < MOMENT_BLOCK; i++)
		values[i] = ldexpf(1, -(int)i / 4);
	values[MOMENT_BLOCK - 1] = 0;
	moments_keep(MOMENTS_INT8, 1, values, 0, MOMENT_BLOCK, &block);
	moments_restore(MOMENTS_INT8, 1, &block, 0, MOMENT_BLOCK, back);
	for (unsigned i = 0; i < MOMENT_BLOCK; i++)
		assert_true((back[i] > 0) == (values[i] > 0));
	assert_true(back[0] == 1);
}

/* From an eighth to a sixteenth of a value, and what is far below the largest of its block. */
static void codes_are_as_near_as_the_document_says(void **state)
{
	for (unsigned slot = 0; slot < OPTIMIZER_MAX_SLOTS; slot++) {
		float values[MOMENT_BLOCK], back[MOMENT_BLOCK];
		struct coded_moments block = { 0 };

		for (unsigned i = 0; i < MOMENT_BLOCK; i++)
			values[i] = ldexpf(fabsf(random_ordinary(1)), -(int)(random_bits() % 20));
		values[0] = 1.0f;
		moments_keep(MOMENTS_INT8, slot, values, 0, MOMENT_BLOCK, &block);
		moments_restore(MOMENTS_INT8, slot, &block, 0, MOMENT_BLOCK, back);
		for (unsigned i = 0; i < MOMENT_BLOCK; i++)
			assert_true(fabs((double)values[i] - (double)back[i]) <=
				    ((double)values[i] + code_base(slot)) / 16);
	}
}

/* What is written beside others of its block does not move them, if their scale will do. */
static void a_part_of_a_block_is_written(void **state)
{
	struct coded_moments blocks[3] = { { 0 } }, old[3];
	float values[3 * MOMENT_BLOCK], back[3 * MOMENT_BLOCK], written[300];

	for (unsigned i = 0; i < ARRAY_LENGTH(values); i++)
		values[i] = i % MOMENT_BLOCK ? random_ordinary(1) : 1.0f;
	moments_keep(MOMENTS_INT8, 0, values, 0, ARRAY_LENGTH(values), blocks);
	moments_restore(MOMENTS_INT8, 0, blocks, 0, ARRAY_LENGTH(values), values);
	memcpy(old, blocks, sizeof(old));
	for (unsigned i = 0; i < ARRAY_LENGTH(written); i++)
		written[i] = values[200 + i] = 0.5f;
	values[MOMENT_BLOCK] = written[MOMENT_BLOCK - 200] = 1.0f;
	moments_keep(MOMENTS_INT8, 0, written, 200, ARRAY_LENGTH(written), blocks);
	moments_restore(MOMENTS_INT8, 0, blocks, 0, ARRAY_LENGTH(back), back);
	for (unsigned i = 0; i < ARRAY_LENGTH(back); i++)
		assert_true(back[i] == values[i] ||
			    (i >= 200 && i < 500 && fabsf(back[i] - values[i]) <= 0x1p-15f));
	assert_memory_equal(&blocks[2], &old[2], sizeof(old[2]));
	moments_restore(MOMENTS_INT8, 0, &blocks[1], MOMENT_BLOCK + 250, 5, back);
	assert_memory_equal(back, values + MOMENT_BLOCK + 250, 5 * sizeof(float));
}

/* A quarter of the way from a code to the next one. */
static void codes_have_no_bias(void **state)
{
	enum { COUNT = 1 << 16 };
	const struct optimizer_group group = { 0, 0, 0, 0, 0 };
	_cleanup_free_ struct coded_moments *blocks = allocate(moment_bytes(MOMENTS_INT8, COUNT));
	_cleanup_free_ float *gradient = allocate_floats(COUNT), *m = allocate_floats(COUNT);
	double sum = 0;

	memset(blocks, 0, moment_bytes(MOMENTS_INT8, COUNT));
	for (size_t i = 0; i < COUNT; i++)
		gradient[i] = i % MOMENT_BLOCK ? 0.5f + 0x1p-6f - 0x1p-15f : 1.0f;
	run_lion(&group, blocks, COUNT, gradient, simd_level());
	moments_restore(MOMENTS_INT8, 0, blocks, 0, COUNT, m);
	for (size_t i = 0; i < COUNT; i++) {
		if (i % MOMENT_BLOCK == 0)
			continue;
		assert_true(m[i] == 0.5f - 0x1p-15f || m[i] == 0.5625f - 0x1p-15f);
		sum += m[i] > 0.5f;
	}
	sum /= COUNT - COUNT / MOMENT_BLOCK;
	assert_true(fabs(sum - 0.25) < 5 * sqrt(0.25 * 0.75 / COUNT));
}

static void noise_differs_by_seed_tensor_update_and_element(void **state)
{
	const struct moment_noise all[] = {
		moment_noise(1, 2, 3, 0),
		moment_noise(2, 2, 3, 0),
		moment_noise(1 | UINT64_C(1) << 32, 2, 3, 0),
		moment_noise(1, 3, 3, 0),
		moment_noise(1, 2 | UINT64_C(1) << 32, 3, 0),
		moment_noise(1, 2, 4, 0),
		moment_noise(1, 2, 3 | UINT64_C(1) << 32, 0),
		moment_noise(1, 2, 3, 16),
		moment_noise(1, 2, 3, UINT64_C(1) << 32),
		moment_noise(1, 2, 3, UINT64_C(1) << 33),
	};
	uint16_t m[ARRAY_LENGTH(all)][64];
	float gradient[64], p[64] = { 0 };
	struct optimizer_constants constants;

	for (size_t i = 0; i < 64; i++)
		gradient[i] = 1.0f / 3;
	optimizer_set(optimizer_find("lion", SIMD_SCALAR), &(struct optimizer_group){ 0, 0, 0, 0, 0 }, 0, 1,
		      1.0f, &constants);
	for (size_t i = 0; i < ARRAY_LENGTH(all); i++) {
		struct optimizer_arrays arrays = {
			.parameter = p, .slots = { m[i] }, .gradient = gradient, .noise = all[i]
		};

		memset(m[i], 0, sizeof(m[i]));
		optimizer_find("lion", simd_level())
			->kernels[MOMENTS_BF16][MASTER_ITSELF](&constants, 64, &arrays);
		for (size_t j = 0; j < i; j++)
			assert_memory_not_equal(m[i], m[j], sizeof(m[i]));
	}
}

static void names_are_found_at_every_level(void **state)
{
	FOREACH_SUBJECT(subject)
	FOREACH_LEVEL(level)
	assert_string_equal(optimizer_of(subject, level)->name, subject->name);
	assert_null(optimizer_find("adagrad", SIMD_SCALAR));
}

static void choices_without_sense_are_refused(void **state)
{
	static const struct {
		const char *optimizer;
		struct optimizer_group group;
		const char *why;
	} bad[] = {
		{ "adamw", { 1, 1.0f, 0.9f, 1e-8f, 0 }, "betas are 1 and 0.9" },
		{ "adamw", { 1, 0.9f, -0.1f, 1e-8f, 0 }, "[0, 1)" },
		{ "adamw", { 1, 0.9f, NAN, 1e-8f, 0 }, "betas" },
		{ "adamw", { 1, 0.9f, 0.9f, 0, 0 }, "epsilon is 0" },
		{ "adam", { 1, 0.9f, 0.9f, INFINITY, 0 }, "epsilon is inf" },
		{ "lion", { 1, 0.9f, 1.0f, 0, 0 }, "betas are 0.9 and 1" },
		{ "sgd", { .momentum = -0.1f }, "momentum is -0.1" },
		{ "sgd", { .momentum = NAN }, "momentum is nan" },
		{ "sgd", { .momentum = 0.9f, .dampening = INFINITY }, "dampening inf" },
		{ "sgd", { .is_nesterov = true }, "nesterov with momentum 0" },
		{ "sgd", { .momentum = 0.9f, .dampening = 0.1f, .is_nesterov = true }, "no dampening" },
	};

	for (size_t i = 0; i < ARRAY_LENGTH(bad); i++) {
		char why[128] = "";

		assert_int_equal(
			optimizer_find(bad[i].optimizer, SIMD_SCALAR)->check(&bad[i].group, why, sizeof(why)),
			-EINVAL);
		assert_non_null(strstr(why, bad[i].why));
	}
}

/* A rate of zero leaves the master, so that every kind of value goes through the rounding. */
static void vectors_round_to_fp16_as_one_value_does(void **state)
{
	const struct optimizer_group group = { .learning_rate = 0 };
	uint16_t halves[64];
	float masters[64], zeros[64] = { 0 };

	FOREACH_LEVEL(level)
	for (uint32_t first = 0; first < 0x7c00 * 4; first += 64) {
		struct optimizer_arrays arrays = { .parameter = halves,
						   .master = masters,
						   .gradient = zeros };
		const struct optimizer *sgd = optimizer_find("sgd", level);
		struct optimizer_constants constants;
		float before[64];

		/* Four places between each fp16 and the next, the first of them the fp16 itself. */
		for (uint32_t i = 0; i < 64; i++) {
			float low = float16_to_float((uint16_t)((first + i) / 4));
			uint32_t bits = float_bits(low) + (first + i) % 4 * (low < 0x1p-14f ? 1 : 0x800);

			masters[i] = before[i] = float_from_bits(bits | (i % 2) << 31);
		}
		optimizer_set(sgd, &group, 0, 1, 1.0f, &constants);
		sgd->kernels[MOMENTS_FP32][MASTER_BESIDE](&constants, ARRAY_LENGTH(masters), &arrays);
		for (size_t i = 0; i < ARRAY_LENGTH(masters); i++) {
			assert_int_equal(float_bits(masters[i]), float_bits(before[i]));
			assert_int_equal(halves[i], float16_from_float(before[i]));
		}
	}
}

static void sgd_without_momentum_keeps_nothing(void **state)
{
	const struct optimizer *sgd = optimizer_find("sgd", simd_level());
	const struct optimizer_group groups[] = { { .learning_rate = 1 }, { .momentum = 0.9f } };
	float p[40], gradient[40];
	struct optimizer_arrays arrays = { .parameter = p, .gradient = gradient };
	struct optimizer_constants constants;

	assert_int_equal(optimizer_slots(sgd, groups, 1), 0);
	assert_int_equal(optimizer_slots(sgd, groups, 2), 1);
	assert_int_equal(optimizer_slots(optimizer_find("adam", SIMD_SCALAR), groups, 1), 2);
	for (size_t i = 0; i < ARRAY_LENGTH(p); i++) {
		p[i] = 1;
		gradient[i] = (float)i;
	}
	optimizer_set(sgd, &groups[0], 0.5, 1, 1.0f, &constants);
	sgd->kernels[MOMENTS_FP32][MASTER_ITSELF](&constants, ARRAY_LENGTH(p), &arrays);
	for (size_t i = 0; i < ARRAY_LENGTH(p); i++)
		assert_true(p[i] == 1 - 0.5f * (float)i);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(kernels_follow_the_document),
		cmocka_unit_test(any_alignment_of_elements_will_do),
		cmocka_unit_test(late_updates_need_no_correction),
		cmocka_unit_test(many_updates_follow_the_papers),
		cmocka_unit_test(noise_has_no_bias),
		cmocka_unit_test(a_value_that_has_a_code_keeps_it),
		cmocka_unit_test(nothing_becomes_zero_or_is_made_from_it),
		cmocka_unit_test(codes_are_as_near_as_the_document_says),
		cmocka_unit_test(a_part_of_a_block_is_written),
		cmocka_unit_test(codes_have_no_bias),
		cmocka_unit_test(noise_differs_by_seed_tensor_update_and_element),
		cmocka_unit_test(names_are_found_at_every_level),
		cmocka_unit_test(choices_without_sense_are_refused),
		cmocka_unit_test(sgd_without_momentum_keeps_nothing),
		cmocka_unit_test(vectors_round_to_fp16_as_one_value_does),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
