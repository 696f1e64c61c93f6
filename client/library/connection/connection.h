/* A connection is the node's socket shared by all threads: requests go out, replies find their tickets.
 *
 * One mutex guards the node, its tickets and the control state of its jobs. Of the threads that wait, one
 * (the reader) polls the socket without the mutex and handles what comes for all; the others sleep on a
 * condition. Only the reader reads: otherwise it could miss, inside poll(), what another thread has handled.
 */
#ifndef TIERD_CLIENT_CONNECTION_H
#define TIERD_CLIENT_CONNECTION_H

#include <pthread.h>

#include "client/library/connection/message.h"
#include "client/library/connection/stream.h"
#include "client/tierd.h"
#include "common/queue.h"
#include "proto/socket_path.h"

#define CONNECTION_BUCKETS 256
#define CONNECTION_NEVER UINT64_MAX

struct tierd_node;

/* Where messages of the daemon go; called with the lock held. */
struct connection_listener {
	void (*answer)(struct tierd_node *node, uint32_t request, const Tierd__Wire__Reply *reply);
	void (*end_epoch)(struct tierd_node *node, const Tierd__Wire__Event__EpochEnded *event);
	/* The connection has ended; error and is_lost of the node are set. */
	void (*lose)(struct tierd_node *node);
};

struct tierd_node {
	const struct connection_listener *listener;
	pthread_mutex_t lock;
	pthread_cond_t changed;
	uint32_t generation; /* of the process that connected */
	int timeout_ms;
	uint32_t connections;		 /* opened so far */
	struct versions versions, pages; /* that this library speaks, and can map */
	uint32_t version;		 /* of the protocol; 0: not greeted yet */
	int error;			 /* with which the connection has ended; 0: it is open */
	char error_text[512];

	char socket_path[SOCKET_PATH_SIZE];
	int reconnect_ms;     /* 0: a connection that is lost stays so */
	bool is_lost;	      /* the connection has ended, and may be opened again */
	bool is_reconnecting; /* by the thread below; others wait for it */
	pthread_t reconnecting;
	bool (*is_interrupted)(void *argument); /* the user's; may be NULL */
	void *interrupt_argument;
	uint64_t incarnation; /* of the daemon */

	struct stream *stream; /* NULL: never connected */
	struct frame_arena *arena;
	bool has_reader, is_reader_awake_to_output;
	int wake_fd; /* calls the reader out of poll() */

	uint32_t last_request;
	struct queue pending[CONNECTION_BUCKETS]; /* tickets that wait for a reply, by number */
	struct queue tickets;			  /* all */
	struct queue jobs, readers;

	int poll_fd, done_fd; /* see tierd_ticket_descriptor(); -1 until it is called */
	unsigned unseen;      /* tickets with an event that no call has returned yet */
};

/* Counts forks: a child differs from the process that connected. */
extern uint32_t connection_generation;

/* Not connected yet. */
int connection_new(const struct connection_listener *listener, struct tierd_node **ret_node);
struct tierd_node *connection_free(struct tierd_node *node);
DEFINE_FREEP(struct tierd_node *, connection_free)

/* Locks. -ECHILD in a forked child, without a lock. */
int connection_enter(struct tierd_node *node);
void connection_exit(struct tierd_node *node);

/* ---- With the lock held ---- */

/* Begins a connection in place of one that has ended. The socket is the node's afterwards, also on failure.
 */
int connection_open(struct tierd_node *node, int fd);

/* Exchanges hellos. */
int connection_greet(struct tierd_node *node, uint64_t deadline);

/* A lost connection is not opened again: later calls fail with this error. */
void connection_give_up(struct tierd_node *node, int r, const char *text);

/* 0, or the error that ended the connection, as this thread's message. */
int connection_check(const struct tierd_node *node);
void connection_fail(struct tierd_node *node, int r, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

/* When a call with this timeout gives up; negative: the node's timeout. */
uint64_t connection_deadline(const struct tierd_node *node, int timeout_ms);

/* Waits until is_done() returns true; releases the lock meanwhile. Returns 0, -ETIMEDOUT (without a message:
 * the caller knows what it waited for), or the connection's error. Reads once even if the deadline has
 * passed. An interrupt counts as the deadline. */
int connection_wait(struct tierd_node *node, bool (*is_done)(const void *argument), const void *argument,
		    uint64_t deadline);

/* Whether the program wants its calls to end. Called without the lock. */
bool connection_is_interrupted(const struct tierd_node *node);

/* Handles the messages that are there, without waiting; or leaves that to a thread that waits for some. */
void connection_look(struct tierd_node *node);

/* Comes back when all messages that are there now were handled, by whichever thread. */
void connection_hear(struct tierd_node *node);

/* Copies without the lock: both places are the caller's. */
void connection_copy(struct tierd_node *node, void *to, const void *from, size_t bytes);

uint32_t connection_number(struct tierd_node *node);

/* Sends, and waits (releasing the lock) while the socket is full. Once it returns 0 the request is on its
 * way, even if a part of it is still to be sent. */
int connection_send(struct tierd_node *node, uint32_t number, const Tierd__Wire__Request *request);

/* The same where nothing may wait, as in a handler: too much output ends the connection. */
void connection_post(struct tierd_node *node, uint32_t number, const Tierd__Wire__Request *request);

#endif
