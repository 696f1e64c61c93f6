#include "daemon/telemetry/figures.h"

#include <stddef.h>
#include <stdint.h>

void figures_add(struct statistics_figures *sum, const struct statistics_figures *more)
{
	uint64_t *to = (uint64_t *)sum;
	const uint64_t *from = (const uint64_t *)more;

	for (size_t i = 0; i < sizeof(*sum) / sizeof(*to); i++)
		to[i] += from[i];
}
