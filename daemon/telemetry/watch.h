/* A watch: a client's wish to hear what happens, of what it may see. */
#ifndef TIERD_DAEMON_WATCH_H
#define TIERD_DAEMON_WATCH_H

#include "common/log.h"
#include "common/queue.h"
#include "daemon/request/request.h"
#include "proto/vocabulary.h"

struct job;
struct node;

/* Embedded in its client, whose port it uses. */
struct watch {
	struct queue link; /* of the node's, while it is on */
	struct port *port;
	char job[WIRE_MAX_JOB_NAME + 1]; /* "": all */
	bool has_owner, with_steps;
	uid_t owner;
	uint64_t lost; /* events since the last one that was sent */
};

void watch_init(struct watch *watch, struct port *port);
/* The request is answered; the last one of a client counts. */
void watch_begin(struct watch *watch, struct pending *pending, const Tierd__Wire__Watch *request);
void watch_end(struct watch *watch);

/* The client has read on. */
void watch_catch_up(struct watch *watch);

#endif
