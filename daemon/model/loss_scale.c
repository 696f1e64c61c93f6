#include "daemon/model/loss_scale.h"

#include <errno.h>
#include <math.h>

#include "common/plural.h"
#include "daemon/request/request.h"

/* Comparisons are written so that a NaN fails too. */
int loss_scale_check(const struct loss_scale_options *options, char *message, size_t size)
{
	if (!(options->initial > 0) || !isfinite(options->initial))
		return refuse(message, size, -EINVAL, "loss_scale is %g; it is above 0 and finite",
			      (double)options->initial);
	if (!loss_scale_is_dynamic(options))
		return 0;
	if (!(options->growth > 1) || !isfinite(options->growth))
		return refuse(message, size, -EINVAL, "loss_scale_growth is %g; it is above 1 and finite",
			      (double)options->growth);
	if (!(options->backoff > 0 && options->backoff < 1))
		return refuse(message, size, -EINVAL, "loss_scale_backoff is %g; it is between 0 and 1",
			      (double)options->backoff);
	if (!(options->minimum > 0 && options->minimum <= options->initial))
		return refuse(message, size, -EINVAL,
			      "loss_scale_minimum is %g; it is above 0 and at most loss_scale, which is %g",
			      (double)options->minimum, (double)options->initial);
	return 0;
}

int loss_scale_restore(struct loss_scale *scale, const struct loss_scale_options *options,
		       const struct loss_scale *past, char *message, size_t size)
{
	bool is_possible = loss_scale_is_dynamic(options)
				   ? past->value >= options->minimum && isfinite(past->value) &&
					     past->steps < options->interval
				   : past->value == options->initial && past->steps == 0;

	if (!is_possible)
		return refuse(
			message, size, -EINVAL, "its loss scale cannot be %g for %u step%s: it began with %g",
			(double)past->value, past->steps, PLURAL(past->steps), (double)options->initial);
	*scale = *past;
	return 0;
}

static void back_off(struct loss_scale *scale, const struct loss_scale_options *options)
{
	float less = scale->value * options->backoff;

	scale->value = less > options->minimum ? less : options->minimum;
	scale->steps = 0;
}

static void grow(struct loss_scale *scale, const struct loss_scale_options *options)
{
	float more = scale->value * options->growth;

	if (isfinite(more))
		scale->value = more;
	scale->steps = 0;
}

void loss_scale_move(struct loss_scale *scale, const struct loss_scale_options *options, bool has_overflown)
{
	if (!loss_scale_is_dynamic(options))
		return;
	if (has_overflown)
		back_off(scale, options);
	else if (++scale->steps >= options->interval)
		grow(scale, options);
}
