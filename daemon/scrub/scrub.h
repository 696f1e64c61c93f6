/* The scrub reads all that jobs have on NVMe, again and again, slowly, so that damage is found before
 * somebody needs what is damaged. */
#ifndef TIERD_DAEMON_SCRUB_H
#define TIERD_DAEMON_SCRUB_H

#include "daemon/scrub/verify.h"
#include "daemon/request/pending.h"
#include "daemon/scrub/scrub_pace.h"

struct job;
struct node;
struct scrub;

/* How far it is with a job. Embedded in the job. */
struct scrub_state {
	struct scrub_pace pace;
	uint64_t passes;  /* that are over */
	uint64_t ended_s; /* when the last one was, since 1970 */
};

/* -ENOMEM. period_ns: once through all of a job; 0: only what somebody hurries. */
int scrub_new(struct node *node, uint64_t period_ns, struct scrub **ret_scrub);
/* Nothing of it is under way. */
struct scrub *scrub_free(struct scrub *scrub);
uint64_t scrub_period_ns(unsigned days);
void scrub_set_period(struct scrub *scrub, uint64_t period_ns);

/* A client starts, stops or looks. */
void scrub_request(struct pending *pending, const Tierd__Wire__Scrub *request);

#endif
