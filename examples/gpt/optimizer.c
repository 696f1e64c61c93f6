#include "optimizer.h"

#include <math.h>

#include "options.h"

unsigned optimizer_slots(const struct options *options, const char *ret_names[KERNEL_SLOTS])
{
	switch (options->optimizer) {
	case TIERD_SGD:
		ret_names[0] = "momentum";
		return options->momentum != 0.0;
	case TIERD_LION:
		ret_names[0] = "m";
		return 1;
	default:
		ret_names[0] = "m";
		ret_names[1] = "v";
		return 2;
	}
}

static double power(double base, uint64_t exponent)
{
	double result = 1.0;

	for (; exponent > 0; exponent >>= 1) {
		if (exponent & 1)
			result = result * base;
		base = base * base;
	}
	return result;
}

struct update_constants optimizer_constants(const struct options *options, enum tensor_group group,
					    float learning_rate, double factor, uint64_t t)
{
	double beta1 = (float)options->beta1, beta2 = (float)options->beta2, rate = (double)learning_rate;
	float weight_decay = group == GROUP_DECAYS ? (float)options->weight_decay : 0.0f;

	return (struct update_constants){
		.factor = (float)factor,
		.beta1 = (float)beta1,
		.beta2 = (float)beta2,
		.c1 = (float)(1.0 - beta1),
		.c2 = (float)(1.0 - beta2),
		.weight_decay = weight_decay,
		.decay = (float)(1.0 - rate * (double)weight_decay),
		.rate = learning_rate,
		.step = (float)(rate / (1.0 - power(beta1, t))),
		.scale = (float)(1.0 / sqrt(1.0 - power(beta2, t))),
		.epsilon = OPTIMIZER_EPSILON,
		.momentum = (float)options->momentum,
	};
}
