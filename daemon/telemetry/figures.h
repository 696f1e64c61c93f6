/* Figures: what is counted of a job, and of all that there have been. */
#ifndef TIERD_DAEMON_FIGURES_H
#define TIERD_DAEMON_FIGURES_H

#include "proto/statistics.h"

void figures_add(struct statistics_figures *sum, const struct statistics_figures *more);

#endif
