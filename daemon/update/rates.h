/* The rates of a step: what each rank gives with its part, and all must agree on. */
#ifndef TIERD_DAEMON_RATES_H
#define TIERD_DAEMON_RATES_H

#include "daemon/model/model.h"

/* What a client sends, with room for the groups of any job. -EINVAL with a message. */
int rates_read(const struct job *job, const Tierd__Wire__Rates *wire, struct step_rates *rates, char *message,
	       size_t size);

/* Rates without groups are those of the step before, which may not be decided when they are read; and so is a
 * dynamic loss scale. A clip norm that is not given is the job's. */
void rates_complete(const struct job *job, struct step_rates *rates);

/* Of two complete ones; where: that the others are from. -EINVAL with a message. */
int rates_compare(const struct step_rates *here, const struct step_rates *other, const char *where,
		  char *message, size_t size);

/* Makes them the other's, in their own room for groups. */
void rates_copy(struct step_rates *rates, const struct step_rates *other);

/* What sums of gradients are multiplied with, before clipping. */
double rates_scale(const struct step_rates *rates);

#endif
