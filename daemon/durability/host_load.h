/* Host load: what was in host memory comes back from NVMe, of a job whose ranks are back. */
#ifndef TIERD_DAEMON_HOST_LOAD_H
#define TIERD_DAEMON_HOST_LOAD_H

#include "daemon/model/model.h"

/* Transfers at a time. */
#define HOST_LOAD_READS 8

struct host_load;

struct host_load_read {
	struct store_transfer transfer;
	struct queue link; /* of the free ones */
	struct host_load *load;
	uint32_t pack;
};

struct host_load {
	struct job *job;
	void (*done)(struct host_load *load, int status);
	uint32_t pack; /* the next stream */
	unsigned stream;
	unsigned running;
	int status;
	char message[200];
	struct queue free;
	struct host_load_read reads[HOST_LOAD_READS];
};

/* The job has its memory, and all its packs have slots, where they need some. done() runs once, perhaps in
 * the call; after an error there is a message. The packs that are in slots are published then. */
void host_load_start(struct host_load *load, struct job *job,
		     void (*done)(struct host_load *load, int status));

#endif
