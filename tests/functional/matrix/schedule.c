#include "schedule.h"

#include "bits.h"

#define BROKEN_STEP 2
#define GROUPS_CHANGE 3

/* Between what the plain steps come to and those that are scaled up; small enough for 1e-6 to count. */
float schedule_clip_norm(const struct configuration *configuration)
{
	return configuration->is_announced ? 0.0f : 0.03f;
}

/* A dynamic scale grows, backs off, and reaches its minimum within a few steps. */
void schedule_options(const struct configuration *configuration, struct tierd_job_options *options)
{
	static const uint32_t kinds[] = { [RULE_ADAMW] = TIERD_ADAMW,
					  [RULE_ADAM] = TIERD_ADAM,
					  [RULE_SGD] = TIERD_SGD,
					  [RULE_MOMENTUM] = TIERD_SGD,
					  [RULE_LION] = TIERD_LION };

	options->optimizer = configuration->is_by_owner ? TIERD_NONE : kinds[configuration->rule];
	options->clip_norm = schedule_clip_norm(configuration);
	if (!configuration->has_dynamic_scale)
		return;
	options->loss_scale = 1e6f;
	options->loss_scale_interval = 2;
	options->loss_scale_growth = 2.5f;
	options->loss_scale_backoff = 0.125f;
	options->loss_scale_minimum = 7e5f;
}

unsigned schedule_slots(const struct configuration *configuration, const char *ret_names[2])
{
	if (configuration->is_by_owner)
		return 0;
	switch (configuration->rule) {
	case RULE_SGD:
		return 0;
	case RULE_MOMENTUM:
		ret_names[0] = "momentum";
		return 1;
	case RULE_LION:
		ret_names[0] = "m";
		return 1;
	default:
		ret_names[0] = "m";
		ret_names[1] = "v";
		return 2;
	}
}

/* One group has no momentum in a job that keeps one; dampening counts from the second update on. */
static void add_momentum(unsigned step, struct tierd_group groups[MODEL_GROUPS])
{
	groups[0].momentum = step < GROUPS_CHANGE ? 0.9f : 0.8f;
	groups[0].dampening = 0.1f;
	groups[1].momentum = 0.7f;
	groups[1].nesterov = true;
	groups[3].momentum = 1.25f;
	groups[3].dampening = step < GROUPS_CHANGE ? 0.0f : -0.5f;
}

void schedule_groups(const struct configuration *configuration, unsigned step,
		     struct tierd_group groups[MODEL_GROUPS])
{
	static const struct tierd_group all[2][MODEL_GROUPS] = {
		{ { sizeof(struct tierd_group), 1.0f, 0.9f, 0.999f, 1e-8f, 0.01f },
		  { sizeof(struct tierd_group), 0.3f, 0.9f, 0.95f, 1e-6f, 0.1f },
		  { sizeof(struct tierd_group), 2.5f, 0.8f, 0.99f, 1e-5f, 0.0f },
		  { sizeof(struct tierd_group), 1.0f, 0.0f, 0.9f, 1e-8f, 0.05f } },
		{ { sizeof(struct tierd_group), 0.7f, 0.85f, 0.9f, 1e-7f, 0.02f },
		  { sizeof(struct tierd_group), 0.9f, 0.95f, 0.98f, 1e-8f, 0.0f },
		  { sizeof(struct tierd_group), 0.0f, 0.9f, 0.999f, 1e-8f, 0.3f },
		  { sizeof(struct tierd_group), 1.3f, 0.5f, 0.75f, 1e-3f, 0.2f } },
	};

	memcpy(groups, all[step >= GROUPS_CHANGE], sizeof(all[0]));
	if (configuration->rule == RULE_MOMENTUM)
		add_momentum(step, groups);
}

static const struct step_values {
	float learning_rate, gradient_scale, loss_scale;
	uint32_t exponent; /* gradients are larger by 2 to this */
} values_of[SCHEDULE_STEPS] = {
	{ 0.01f, 1.0f, 1e6f, 0 },      { 0.02f, 0.37f, 2097152.0f, 9 }, { 0.005f, 0.3333f, 999983.0f, 0 },
	{ 0.01f, 0.9f, 1.024e9f, 10 }, { 0.03f, -1.7f, 1e6f, 6 },
};

struct tierd_rates schedule_rates(const struct configuration *configuration, unsigned step,
				  const struct tierd_group groups[MODEL_GROUPS])
{
	const struct step_values *values = &values_of[step];
	bool is_changing = step == GROUPS_CHANGE;

	return (struct tierd_rates){ .size = sizeof(struct tierd_rates),
				     .learning_rate = values->learning_rate,
				     .gradient_scale = values->gradient_scale,
				     .loss_scale = configuration->has_dynamic_scale ? 0 : values->loss_scale,
				     .group_count = is_changing ? MODEL_GROUPS : 0,
				     .groups = is_changing ? groups : NULL,
				     .clip_norm = -1 };
}

/* ---- Who pushes what ---- */

static bool breaks(const struct configuration *configuration, const struct model *model, unsigned step,
		   unsigned micro_batch, unsigned rank, unsigned unit)
{
	return configuration->has_skips && step == BROKEN_STEP && micro_batch == 0 &&
	       rank == configuration->ranks - 1 && unit == model->unit_count / 2;
}

bool schedule_is_pushed(const struct configuration *configuration, const struct model *model, unsigned step,
			unsigned micro_batch, unsigned rank, unsigned unit)
{
	if (model_trainable(&model->units[unit]) == 0)
		return false;
	if (!configuration->has_skips || breaks(configuration, model, step, micro_batch, rank, unit))
		return true;
	if (unit % 7 == 5 && (step + unit) % 2 == 1) /* nobody */
		return false;
	if (unit % 7 == 3 && rank != (step + unit) % configuration->ranks) /* one rank only */
		return false;
	return BITS_HASH(step, micro_batch, rank, unit) % 3 > 0;
}

/* Half of the ranks goes backwards, as training does; the others from some middle on forwards. */
unsigned schedule_order(const struct configuration *configuration, const struct model *model, unsigned step,
			unsigned micro_batch, unsigned rank, unsigned position)
{
	if ((rank + step + micro_batch) % 2 == 0)
		return model->unit_count - 1 - position;
	return (position + model->unit_count * (rank + 1) / (configuration->ranks + 1)) % model->unit_count;
}

/* ---- Gradients ---- */

struct gradient_source schedule_gradients(const struct configuration *configuration,
					  const struct model *model, unsigned step, unsigned micro_batch,
					  unsigned rank, unsigned unit, unsigned tensor)
{
	bool is_broken = tensor == 0 && breaks(configuration, model, step, micro_batch, rank, unit);

	return (struct gradient_source){
		.seed = BITS_HASH(step, micro_batch, rank, unit, tensor),
		.exponent = values_of[step].exponent,
		.broken = is_broken ? model->units[unit].tensors[tensor].elements - 1 : UINT64_MAX,
		.format = model_gradient_format(&model->units[unit].tensors[tensor]),
		.is_infinity = configuration->ranks == 2,
	};
}

/* Exponents from 2^-28 to 2^3, so that sums round and small ones vanish. */
static inline uint32_t gradient_bits(uint32_t seed, uint32_t exponent, uint32_t element)
{
	uint32_t hash = bits_mix(seed + element * 0x9e3779b1U);

	return (hash & 0x807fffffU) | ((99 + exponent + (hash >> 23 & 31)) << 23);
}

/* fp16 has fewer exponents: from 2^-11 to 2^4, times 2^exponent; and subnormal ones. */
static inline uint16_t gradient_half(const struct gradient_source *source, uint32_t element)
{
	uint32_t hash = bits_mix(source->seed + element * 0x9e3779b1U);

	uint32_t field = hash >> 23 & 15;

	return (uint16_t)((hash & 0x83ff) | (field == 0 ? 0 : field + 3 + source->exponent) << 10);
}

void gradient_values(const struct gradient_source *source, uint64_t count, float *values)
{
	uint32_t mask = source->format == TIERD_BF16 ? 0xffff0000U : 0xffffffffU;

	if (source->format == TIERD_FP16)
		for (uint64_t i = 0; i < count; i++)
			values[i] = bits_half_value(gradient_half(source, (uint32_t)i));
	else
		for (uint64_t i = 0; i < count; i++)
			values[i] =
				bits_float(gradient_bits(source->seed, source->exponent, (uint32_t)i) & mask);
	if (source->broken < count)
		values[source->broken] = source->is_infinity ? -INFINITY : NAN;
}

static uint16_t gradient_narrow(const struct gradient_source *source, uint32_t element)
{
	if (source->format == TIERD_FP16)
		return gradient_half(source, element);
	return (uint16_t)(gradient_bits(source->seed, source->exponent, element) >> 16);
}

void gradient_write(const struct gradient_source *source, uint64_t count, void *buffer)
{
	uint16_t infinity = source->format == TIERD_FP16 ? 0xfc00 : 0xff80;
	uint16_t nan = source->format == TIERD_FP16 ? 0x7e00 : 0x7fc0;
	uint16_t *narrow = buffer;

	if (source->format == TIERD_FP32) {
		gradient_values(source, count, buffer);
		return;
	}
	for (uint64_t i = 0; i < count; i++)
		narrow[i] = gradient_narrow(source, (uint32_t)i);
	if (source->broken < count)
		narrow[source->broken] = source->is_infinity ? infinity : nan;
}
