#include "formula.h"

#include <math.h>

static double power(double base, unsigned exponent)
{
	double result = 1.0;

	for (; exponent > 0; exponent >>= 1) {
		if (exponent & 1)
			result = result * base;
		base = base * base;
	}
	return result;
}

static void apply_adam(const struct formula *formula, uint64_t count, const float *gradients, float *masters,
		       float *ms, float *vs)
{
	const struct tierd_group *group = formula->group;
	double beta1 = (double)group->beta1, beta2 = (double)group->beta2;
	float c1 = (float)(1.0 - beta1), c2 = (float)(1.0 - beta2);
	float decay = (float)(1.0 - formula->rate * (double)group->weight_decay);
	float size = (float)(formula->rate / (1.0 - power(beta1, formula->update)));
	float scale = (float)(1.0 / sqrt(1.0 - power(beta2, formula->update)));

	for (uint64_t i = 0; i < count; i++) {
		float gradient = gradients[i] * formula->factor, master = masters[i];

		if (formula->rule == RULE_ADAM)
			gradient = fmaf(group->weight_decay, master, gradient);
		else
			master = master * decay;
		ms[i] = fmaf(group->beta1, ms[i], c1 * gradient);
		vs[i] = fmaf(group->beta2, vs[i], (c2 * gradient) * gradient);
		masters[i] = fmaf(-size, ms[i] / fmaf(sqrtf(vs[i]), scale, group->epsilon), master);
	}
}

static void apply_sgd(const struct formula *formula, uint64_t count, const float *gradients, float *masters,
		      float *momenta)
{
	const struct tierd_group *group = formula->group;
	float rest = formula->update == 1 ? 1.0f : (float)(1.0 - (double)group->dampening);
	float rate = (float)formula->rate;

	for (uint64_t i = 0; i < count; i++) {
		float gradient = fmaf(group->weight_decay, masters[i], gradients[i] * formula->factor);

		if (group->momentum != 0.0f) {
			momenta[i] = fmaf(group->momentum, momenta[i], rest * gradient);
			gradient = group->nesterov ? fmaf(group->momentum, momenta[i], gradient) : momenta[i];
		}
		masters[i] = fmaf(-rate, gradient, masters[i]);
	}
}

static void apply_lion(const struct formula *formula, uint64_t count, const float *gradients, float *masters,
		       float *ms)
{
	const struct tierd_group *group = formula->group;
	float c1 = (float)(1.0 - (double)group->beta1), c2 = (float)(1.0 - (double)group->beta2);
	float decay = (float)(1.0 - formula->rate * (double)group->weight_decay), rate = (float)formula->rate;

	for (uint64_t i = 0; i < count; i++) {
		float gradient = gradients[i] * formula->factor;
		float direction = fmaf(group->beta1, ms[i], c1 * gradient);
		float sign = direction > 0.0f ? 1.0f : direction < 0.0f ? -1.0f : direction;

		ms[i] = fmaf(group->beta2, ms[i], c2 * gradient);
		masters[i] = fmaf(-rate, sign, masters[i] * decay);
	}
}

void formula_apply(const struct formula *formula, uint64_t count, const float *gradients, float *masters,
		   float *first_slots, float *second_slots)
{
	if (formula->rule == RULE_SGD || formula->rule == RULE_MOMENTUM)
		apply_sgd(formula, count, gradients, masters, first_slots);
	else if (formula->rule == RULE_LION)
		apply_lion(formula, count, gradients, masters, first_slots);
	else
		apply_adam(formula, count, gradients, masters, first_slots, second_slots);
}
