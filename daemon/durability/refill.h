/* Refill: what was in host memory comes back from NVMe, of a job whose ranks are back. */
#ifndef TIERD_DAEMON_REFILL_H
#define TIERD_DAEMON_REFILL_H

#include "daemon/model/model.h"

/* Transfers at a time. */
#define REFILL_READS 8

struct refill;

struct refill_read {
	struct store_transfer transfer;
	struct queue link; /* of the free ones */
	struct refill *refill;
	uint32_t pack;
};

struct refill {
	struct job *job;
	void (*done)(struct refill *refill, int status);
	uint32_t pack; /* the next part */
	unsigned part;
	unsigned running;
	int status;
	char message[200];
	struct queue free;
	struct refill_read reads[REFILL_READS];
};

/* The job has its memory, and all its packs have slots, where they need some. done() runs once, perhaps in
 * the call; after an error there is a message. The packs that are in slots are published then. */
void refill_start(struct refill *refill, struct job *job, void (*done)(struct refill *refill, int status));

#endif
