/* What setting up a job has to remember, from the plan to the memory and disk that are there. */
#ifndef TIERD_DAEMON_SETUP_H
#define TIERD_DAEMON_SETUP_H

#include "daemon/durability/durability.h"
#include "daemon/gradients/gradients.h"
#include "daemon/life/replaced.h"
#include "daemon/model/model.h"
#include "daemon/resources/resources.h"

struct setup {
	struct work work;
	struct job *job;
	struct store_layout *nvme, *host, *sums; /* NULL: no such store */
	bool is_return; /* of a released job: it has its packs, its store on NVMe and the metadata of both */
	uint64_t arena_bytes, sums_bytes, directory_bytes;
	uint64_t device_bytes, sums_device_bytes; /* of each path: of the state, of spilled sums */
	struct budget_needs needs;		  /* beside its arena */
	struct placement placement;
	struct spill_plan spill; /* of sums that may be spilled */
	char folder[16];	 /* of its owner on each path */
	struct made made;
	struct store_request creation; /* of a durable store */
	struct listing_entry listing;  /* of the same */
	struct host_load load;	       /* of what comes back to host memory */
	int pinning;		       /* what engine_buffer_add() said */
	int status;
	char hint[BUDGET_HINT];
	char message[1400];
};

/* Says why; returns r. */
#define SETUP_REFUSE(setup, r, ...) refuse((setup)->message, sizeof((setup)->message), r, __VA_ARGS__)

/* Decides where everything of the job lies, how much memory and disk that takes, and takes it from the
 * budgets. A negative errno with a message. */
int setup_plan(struct setup *setup);
/* Whether a job whose units are not all defined has more already than there is room for. What it says no to
 * no plan would take, whatever is still to come; more may turn out when all are there. -ENOMEM, -ENOSPC,
 * -EOVERFLOW with a message. */
int setup_check(struct job *job, char *message, size_t size);
/* What the plan has beside the job's own, and what was made of it, is given up. */
void setup_give_up(struct setup *setup);

/* A job that is brought back: it has its definition and its placement, its state on NVMe, and becomes one
 * that was released, but for its stores. layout: what record_layout() said when it was planned. -EBADMSG: its
 * state lies elsewhere than this tierd would look; others with a message, too. */
int setup_restore(struct job *job, uint64_t layout, char *message, size_t size);

/* Then its store, which it takes over: it has its layout from here on. is_fork: as family_charge() takes it.
 * A negative errno with a message: it stays the caller's. */
int setup_adopt(struct job *job, struct store *store, bool is_fork, char *message, size_t size);

/* How a job owns its stores on NVMe. */
struct store_owner setup_owner(struct job *job);

#endif
