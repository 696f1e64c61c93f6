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

/* What is told. */
struct watch_news {
	const char *event;     /* its name */
	const struct job *job; /* NULL: of the node */
	bool is_public; /* of the node: for everyone, not just for whom it concerns and administrators */
	bool is_step;	/* one of many */
	enum log_level level;
	const struct log_fields *fields;
	const char *text;
};

void watch_init(struct watch *watch, struct port *port);
/* The request is answered; the last one of a client counts. */
void watch_begin(struct watch *watch, struct pending *pending, const Tierd__Wire__Watch *request);
void watch_end(struct watch *watch);

/* Sends it to all whom it is for. Who does not read loses it, and hears later how many were lost. */
void watch_tell(struct node *node, const struct watch_news *news);
/* The client has read on. */
void watch_catch_up(struct watch *watch);

#endif
