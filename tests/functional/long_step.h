/* A step that is decided and not applied for as long as a test wants it so, up to the second after which
 * tierd goes on without the rank that is in its way. */
#ifndef TIERD_TESTS_LONG_STEP_H
#define TIERD_TESTS_LONG_STEP_H

#include "crash_support.h"

#define LONG_RANKS 2
#define LONG_UNITS 8
/* Each is a pack by itself. */
#define LONG_ELEMENTS (UINT64_C(1) << 20)

struct long_step {
	struct tierd_node *nodes[LONG_RANKS];
	struct tierd_job *jobs[LONG_RANKS];
	struct tierd_ticket *tickets[LONG_RANKS];
	void *page; /* the first rank's leases */
};

/* Opens the job as all of its ranks, defines its units on NVMe, and is ready. */
void long_step_join(struct long_step *step, const char *name);

/* All ranks push all units and close their step, the job's first; comes back when it is decided, and the
 * first unit is updated. The others are not, until long_step_let_go(). */
void long_step_begin(struct long_step *step);
void long_step_let_go(struct long_step *step);

/* The tickets are done. */
void long_step_expect_applied(struct long_step *step);

#endif
