/* A raw client speaks the protocol without libtierd, which would keep it from lying. */
#ifndef TIERD_TESTS_RAW_CLIENT_H
#define TIERD_TESTS_RAW_CLIENT_H

#include <stdbool.h>

#include "proto/frame.h"

#define RAW_MAX_FDS 16

struct raw_client {
	int socket;
	uint32_t number; /* of the last request */
	struct frame_arena *arena;
	uint8_t *bytes;
	size_t used;
	int fds[RAW_MAX_FDS]; /* that came with answers */
	unsigned fd_count;
};

/* Connects to $TIERD_SOCKET, and says hello. */
void raw_open(struct raw_client *client);
void raw_close(struct raw_client *client);

/* False: the daemon has ended the connection. */
bool raw_send(struct raw_client *client, Tierd__Wire__Request *request);

/* Sends, and waits for the answer, which is valid until the next call; NULL: the connection has ended. */
const Tierd__Wire__Reply *raw_call(struct raw_client *client, Tierd__Wire__Request *request);

/* Reads what has come, and forgets it. */
bool raw_drain(struct raw_client *client);

#endif
