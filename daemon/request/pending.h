/* A pending request: what a client asked for and still waits for. */
#ifndef TIERD_DAEMON_PENDING_H
#define TIERD_DAEMON_PENDING_H

#include <stdbool.h>

#include "common/queue.h"
#include "daemon/request/port.h"
#include "proto/statistics.h"
#include "proto/vocabulary.h"

struct member;
struct node;

/* Waits for a pack to be resident at a version: a gather, or a reader within the daemon. */
struct waiter {
	struct queue link;	/* of the pack, while it waits */
	bool is_gather;		/* a client's: embedded in a pending */
	struct member *blocked; /* that does nothing else meanwhile, or NULL */
	uint64_t version;
	uint64_t stalled_ns; /* its rank waits since, for cause; 0: it does not */
	enum statistics_cause cause;
	/* Of one that is no gather: the pack's state is another one; NULL: nobody wants to know. */
	void (*moved)(struct waiter *waiter);
	/* status 0: the pack is resident and stays so until the callback returns, or longer if it pins it. */
	void (*done)(struct waiter *waiter, int status);
};

/* Belongs to its client's pool: nothing is allocated for one. */
struct pending {
	struct queue link;	  /* of the pool's free ones, or of what it waits for */
	struct queue member_link; /* of the member, while it waits */
	struct pending_pool *pool;
	struct member *member; /* NULL until it belongs to one */
	uint32_t number;       /* of the request */

	/* Of what it asks. */
	uint32_t unit, tensor;
	uint64_t first, count;
	bool is_master;
	int state;	 /* of the optimizer, that is written; 0: none */
	bool is_hurried; /* of a step: it is to be durable at once, when it is applied */
	bool is_writing; /* of a step: it is a writing */
	struct waiter waiter;
	struct event *timer;

	enum wire_trace waited_for; /* of a rank that waits for the answer, which is traced */
	uint64_t asked_ns;
};

struct pending_listener {
	/* The request is over, answered or not; the pending still says what it was. */
	void (*ended)(struct pending *pending);
};

/* The pendings of one client, which has as many as it may have requests outstanding. Embedded in it. */
struct pending_pool {
	struct node *node;
	struct port *port; /* where the answers go */
	const struct pending_listener *listener;
	bool is_silent; /* nothing is sent to the port any more */
	struct queue free;
	unsigned outstanding;
};

/* node, port, listener and the pendings are borrowed as long as the pool is used. */
void pending_pool_init(struct pending_pool *pool, struct node *node, struct port *port,
		       const struct pending_listener *listener, struct pending *pendings, unsigned count);

/* NULL: all of them wait. */
struct pending *pending_new(struct pending_pool *pool, uint32_t number);

/* Answers and takes the request back; what it was linked to forgets it. */
void pending_reply(struct pending *pending, Tierd__Wire__Reply *body);
void pending_reply_fds(struct pending *pending, Tierd__Wire__Reply *body, const int *fds, unsigned fd_count);
void pending_error(struct pending *pending, int r, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

struct port *pending_port(const struct pending *pending);
struct node *pending_node(const struct pending *pending);

/* Takes it back without an answer: the client is gone. */
void pending_drop(struct pending *pending);

#endif
