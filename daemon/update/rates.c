#include "daemon/update/rates.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "common/cleanup.h"
#include "daemon/update/own.h"

int rates_read(const struct job *job, const Tierd__Wire__Rates *wire, struct step_rates *rates, char *message,
	       size_t size)
{
	if (!wire) {
		snprintf(message, size, "a step without rates");
		return -EINVAL;
	}
	rates->learning_rate = wire->learning_rate;
	rates->gradient_scale = wire->gradient_scale;
	rates->loss_scale = wire->loss_scale;
	rates->is_dropped = wire->is_dropped;
	rates->clip_norm = wire->has_clip_norm ? wire->clip_norm : -1;
	if (!isfinite(rates->learning_rate) || !isfinite(rates->gradient_scale) ||
	    !(rates->loss_scale >= 0) || !isfinite(rates->loss_scale) || !isfinite(rates->clip_norm)) {
		snprintf(message, size,
			 "learning rate %g, gradient scale %g, loss scale %g, clip norm %g: all must be "
			 "finite, and the loss scale above 0, or 0 for the job's",
			 (double)rates->learning_rate, (double)rates->gradient_scale,
			 (double)rates->loss_scale, (double)rates->clip_norm);
		return -EINVAL;
	}
	rates->group_count = 0;
	if (wire->n_groups == 0)
		return 0;
	if (wire->n_groups != job->options.group_count) {
		snprintf(message, size, "rates for %zu parameter groups; the job has %u", wire->n_groups,
			 job->options.group_count);
		return -EINVAL;
	}
	return options_set_groups(&job->options, rates->groups, &rates->group_count, wire->groups,
				  wire->n_groups, message, size);
}

void rates_complete(const struct job *job, struct step_rates *rates)
{
	if (rates->loss_scale == 0)
		rates->loss_scale = job->update->loss_scale.value;
	if (rates->clip_norm < 0)
		rates->clip_norm = job->options.clip_norm;
	if (rates->group_count > 0)
		return;
	rates->group_count = job->options.group_count;
	memcpy(rates->groups, job->update->groups, rates->group_count * sizeof(*rates->groups));
}

void rates_copy(struct step_rates *rates, const struct step_rates *other)
{
	struct optimizer_group *groups = rates->groups;

	*rates = *other;
	rates->groups = groups;
	if (other->group_count > 0)
		memcpy(groups, other->groups, other->group_count * sizeof(*groups));
}

double rates_scale(const struct step_rates *rates)
{
	return (double)rates->gradient_scale / (double)rates->loss_scale;
}

int rates_compare(const struct step_rates *here, const struct step_rates *other, const char *where,
		  char *message, size_t size)
{
	const struct options_real reals[] = {
		{ "drop", (float)here->is_dropped, (float)other->is_dropped },
		{ "learning rate", here->learning_rate, other->learning_rate },
		{ "gradient scale", here->gradient_scale, other->gradient_scale },
		{ "loss scale", here->loss_scale, other->loss_scale },
		{ "clip norm", here->clip_norm, other->clip_norm },
	};
	int r = options_compare_reals("", reals, ARRAY_LENGTH(reals), where, message, size);

	return r < 0 ? r
		     : options_compare_groups(here->groups, other->groups, here->group_count, where, message,
					      size);
}
