/* The formula of each optimizer, in the order of docs/numerics.md:
 *
 *   static inline vector NAME_update(const struct optimizer_constants *constants, vector p, vector a,
 *                                    struct moments *moments, size_t i)
 *
 * returns the new master of some elements, given the old one and the summed gradients, and moves their
 * moments, from i on, too. */
#ifndef TIERD_OFFLOAD_FORMULAS_H
#define TIERD_OFFLOAD_FORMULAS_H

#include "offload/optimizer/moment_rows.h"

/* p - step * m / (sqrt(v) * scale + epsilon), with the moments moved on by g. */
static inline vector adam_step(const struct adam_constants *with, vector p, vector g, struct moments *moments,
			       size_t i)
{
	vector new_m =
		fused(all(with->beta1), moment_load(moments, 0, i), multiply(all(with->beta1_rest), g));
	vector new_v = fused(all(with->beta2), moment_load(moments, 1, i),
			     multiply(multiply(all(with->beta2_rest), g), g));
	vector denominator = fused(square_root(new_v), all(with->scale), all(with->epsilon));

	moment_store(moments, 0, i, new_m);
	moment_store(moments, 1, i, new_v);
	return fused_negative(all(with->step), divide(new_m, denominator), p);
}

static inline vector adamw_update(const struct optimizer_constants *with, vector p, vector a,
				  struct moments *moments, size_t i)
{
	vector g = multiply(a, all(with->factor));

	return adam_step(&with->adam, multiply(p, all(with->adam.decay)), g, moments, i);
}

static inline vector adam_update(const struct optimizer_constants *with, vector p, vector a,
				 struct moments *moments, size_t i)
{
	vector g = fused(all(with->adam.weight_decay), p, multiply(a, all(with->factor)));

	return adam_step(&with->adam, p, g, moments, i);
}

static inline vector sgd_update(const struct optimizer_constants *constants, vector p, vector a,
				struct moments *moments, size_t i)
{
	const struct sgd_constants *with = &constants->sgd;
	vector g = fused(all(with->weight_decay), p, multiply(a, all(constants->factor)));

	if (with->has_momentum) {
		vector b =
			fused(all(with->momentum), moment_load(moments, 0, i), multiply(all(with->rest), g));

		moment_store(moments, 0, i, b);
		g = with->is_nesterov ? fused(all(with->momentum), b, g) : b;
	}
	return fused_negative(all(with->rate), g, p);
}

static inline vector lion_update(const struct optimizer_constants *constants, vector p, vector a,
				 struct moments *moments, size_t i)
{
	const struct lion_constants *with = &constants->lion;
	vector g = multiply(a, all(constants->factor)), m = moment_load(moments, 0, i);
	vector c = fused(all(with->beta1), m, multiply(all(with->beta1_rest), g));

	moment_store(moments, 0, i, fused(all(with->beta2), m, multiply(all(with->beta2_rest), g)));
	return fused_negative(all(with->rate), sign(c), multiply(p, all(with->decay)));
}

/* The product changes no value, and makes every NaN one that can be cut. */
static inline vector none_update(const struct optimizer_constants *constants, vector p, vector a,
				 struct moments *moments, size_t i)
{
	return multiply(a, all(constants->factor));
}

#endif
