/* What jobs would take of a node: asked from tierd itself, which plans them by the code that prepares jobs.
 */
#ifndef TIERD_CLIENT_TIERCTL_PLAN_ASK_H
#define TIERD_CLIENT_TIERCTL_PLAN_ASK_H

#include "client/tierctl/plan_units.h"
#include "proto/frame.h"
#include "proto/vocabulary.h"

/* A job with one thing changed, that takes less then. */
struct plan_change {
	const char *flags;
	bool (*apply)(Tierd__Wire__JobOpen *job); /* false: it changes nothing */
};
/* The last one is all of them together. */
extern const struct plan_change plan_changes[];
extern const unsigned plan_change_count;

/* A job that is planned: with the units of its model, or, where only its size is known, with each cut of it.
 */
struct plan_row {
	unsigned stage;
	uint32_t parameters, optimizer;	  /* enum wire_placement */
	const struct plan_change *change; /* NULL: none */
	const Tierd__Wire__JobPlan *plans[PLAN_CUTS];
	unsigned count; /* of these */
};

#define PLAN_MAX_ROWS 32

struct plan_rows {
	struct plan_row rows[PLAN_MAX_ROWS];
	unsigned count;
	Tierd__Wire__PlanRequest *requests[PLAN_CUTS]; /* owned, as the answers are */
	Tierd__Wire__JobPlans *answers[PLAN_CUTS];
	unsigned cuts; /* 1: the units are known */
};

void plan_rows_clear(struct plan_rows *rows);

/* A message of the same kind; NULL: out of memory. The caller's, as what is unpacked. */
void *plan_ask_copy(const ProtobufCMessage *message);

/* The job with what the row says of it. -ENOMEM. */
int plan_rows_add(struct plan_rows *rows, const Tierd__Wire__JobOpen *job, const struct plan_row *row);

/* Fills what each row takes. An exit code, after a message. */
int plan_rows_ask(struct plan_rows *rows);

/* What a row takes, at least and at most. */
struct plan_bounds {
	Tierd__Wire__PlanNeeds low, high;
	uint64_t low_own, high_own; /* that a daemon whose budget just does takes for itself */
};

/* What the job takes of the node, if it fits there. If it does not: the least with which it is accepted. If
 * no node was described: what it takes where there is plenty. The row must be possible. */
struct plan_bounds plan_row_bounds(const struct plan_row *row);
/* The least that it is accepted with, which may be more on NVMe. */
struct plan_bounds plan_row_least(const struct plan_row *row);
/* Why nobody can have it; NULL: that can be. */
const char *plan_row_problem(const struct plan_row *row);

#endif
