#include "schedule.h"

#include <math.h>

#define LOWEST 0.1 /* of the peak */

float schedule_learning_rate(const struct schedule *schedule, uint64_t step)
{
	double progress;

	if (step < schedule->warmup)
		return (float)(schedule->peak * (double)(step + 1) / (double)schedule->warmup);
	if (step >= schedule->steps)
		return (float)(schedule->peak * LOWEST);
	progress = (double)(step - schedule->warmup) / (double)(schedule->steps - schedule->warmup);
	return (float)(schedule->peak * (LOWEST + (1.0 - LOWEST) * 0.5 * (1.0 + cos(M_PI * progress))));
}
