/* What a trainer does on a GPU, in a process of its own, because a process cannot open events of itself: it
 * has events, imports memory, and reads from it in a stream. An actor of the scene does the rest. */
#ifndef TIERD_TESTS_UNIT_GPU_PEER_H
#define TIERD_TESTS_UNIT_GPU_PEER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "proto/gpu_pages.h"

#define PEER_NO_EVENT UINT32_MAX
#define PEER_READ_BYTES 4096

struct gpu_peer {
	pid_t pid;
	int socket;
	unsigned char events[GPU_EVENTS][GPU_HANDLE_BYTES];
	bool has_gradients; /* its actor says that it will push from there */
};

/* In main(), if the program was called with arguments. */
int gpu_peer_run(int argc, char **argv);

/* Starts this program once more. */
void gpu_peer_start(struct gpu_peer *peer);
void gpu_peer_end(struct gpu_peer *peer);

/* Those calls of libraries do not return in this process, until they may. */
void gpu_peer_block(const char *calls);
void gpu_peer_unblock(void);
/* Until one of them is under way. */
void gpu_peer_await_blocked(void);

/* The peer imports memory of so many bytes, and the daemon's events. */
void gpu_peer_map(struct gpu_peer *peer, int fd, size_t bytes, unsigned count,
		  const unsigned char (*handles)[GPU_HANDLE_BYTES]);

/* Queues in the stream: a wait for that event of the daemon's, or PEER_NO_EVENT; then a copy of
 * PEER_READ_BYTES from there. And the record of an event of its own. */
void gpu_peer_read(struct gpu_peer *peer, size_t offset, uint32_t event);
void gpu_peer_record(struct gpu_peer *peer, uint64_t number);

/* The peer imports memory for its gradients, and its stream writes there: that byte, so often. */
void gpu_peer_map_gradients(struct gpu_peer *peer, int fd, size_t bytes);
void gpu_peer_write(struct gpu_peer *peer, size_t offset, size_t bytes, unsigned char value);

/* Its stream stands still, and goes on. */
void gpu_peer_hold(struct gpu_peer *peer, bool is_held);

/* Waits for the last read: what it has found. */
void gpu_peer_look(struct gpu_peer *peer, unsigned char ret_bytes[PEER_READ_BYTES]);

#endif
