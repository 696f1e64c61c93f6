/* The fake peer is the daemon's side of a few connections, in a thread of the test: it answers as the
 * protocol says, but for what a test's hook does instead. */
#ifndef TIERD_TESTS_FAKE_PEER_H
#define TIERD_TESTS_FAKE_PEER_H

#include <pthread.h>
#include <stdbool.h>

#include "proto/frame.h"
#include "proto/pages.h"
#include "proto/unit_layout.h"

#define FAKE_CONNECTIONS 4
#define FAKE_MAX_UNITS 16
#define FAKE_SLOT_BYTES 65536
#define FAKE_BUFFER_BYTES 65536
#define FAKE_BUFFERS 2
#define FAKE_WINDOW_BYTES 4096

/* The kind of a request. */
#define BODY(kind) TIERD__WIRE__REQUEST__BODY_##kind

/* For tests by cmocka: what the last failed call has said. */
#define assert_says(words)                                                                                   \
	do {                                                                                                 \
		if (!strstr(tierd_message(), words))                                                         \
			fail_msg("\"%s\" is not in \"%s\"", words, tierd_message());                         \
	} while (0)

struct fake_peer {
	/* True: it has handled the request. Runs on the peer's thread. */
	bool (*hook)(struct fake_peer *peer, uint32_t number, const Tierd__Wire__Request *request);
	/* Instead of a greeting; true: go on with requests. */
	bool (*greet)(struct fake_peer *peer);
	/* How many it takes, one after another; 0: one. Each finds a daemon that was started again, with the
	 * state that it had. */
	unsigned connections;
	_Atomic unsigned connection; /* that is served, counted from 1 */
	uint32_t version;	     /* of the protocol that it chooses and speaks; 0: 1 */
	uint32_t pages;		     /* that it chooses; 0: it says nothing of them */
	_Atomic int stage;	     /* for hooks that count, and tests that wait for them */

	char path[64];
	int listener;
	_Atomic int fd; /* the connection of the last request; tests send events there */
	pthread_t thread;
	struct frame_arena *arena;
	struct unit_layout layouts[FAKE_MAX_UNITS];
	uint32_t unit_count;
	uint32_t epoch;
	_Atomic uint64_t step;
	bool has_sent_pages;
	struct directory_header *directory;
	size_t directory_bytes;
	struct lease_header *leases;
	char *arena_bytes, *gradients, *window;
	int fds[5], window_fd;
	_Atomic unsigned gathers, cancels, leaves;
};

void fake_peer_start(struct fake_peer *peer);
/* The library's connection is closed, or was refused. */
void fake_peer_stop(struct fake_peer *peer);

void fake_peer_reply(struct fake_peer *peer, uint32_t number, Tierd__Wire__Reply *body);
void fake_peer_reply_fds(struct fake_peer *peer, uint32_t number, Tierd__Wire__Reply *body, const int *fds,
			 unsigned count);
void fake_peer_fail(struct fake_peer *peer, uint32_t number, int r, const char *message);
void fake_peer_end_epoch(struct fake_peer *peer, const char *reason);
/* As a rollback does. */
void fake_peer_send_away(struct fake_peer *peer, const char *reason);
void fake_peer_send(struct fake_peer *peer, const void *bytes, size_t length);
/* The default answer. */
void fake_peer_answer(struct fake_peer *peer, uint32_t number, const Tierd__Wire__Request *request);
void fake_peer_make_pages(struct fake_peer *peer);
void fake_peer_gather(struct fake_peer *peer, uint32_t number, uint32_t unit);

#endif
