/* The learning rate over the steps: a linear warm-up, then half a cosine down to a tenth. */
#ifndef GPT_SCHEDULE_H
#define GPT_SCHEDULE_H

#include <stdint.h>

struct schedule {
	double peak;
	uint64_t warmup, steps;
};

/* Of a step counted from 0. */
float schedule_learning_rate(const struct schedule *schedule, uint64_t step);

#endif
