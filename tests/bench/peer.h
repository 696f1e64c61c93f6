/* A peer is DeepSpeed at work in a process of its own (peer.py), which takes turns with tierd: it is told to
 * do a run, and says how fast that was. It is no part of what tierd needs; the Python that has it is named by
 * $TIERD_BENCH_PYTHON, else python3 is asked. */
#ifndef TIERD_TESTS_BENCH_PEER_H
#define TIERD_TESTS_BENCH_PEER_H

#include <sys/types.h>

struct peer {
	pid_t pid;
	int socket;
	char said[512]; /* what it is, or what it lacks, when it started; later its last rate */
};
#define PEER_INIT                                                                                            \
	{                                                                                                    \
		.pid = -1, .socket = -1                                                                      \
	}

/* What peer.py does, and its arguments, which end with NULL. Its first start compiles DeepSpeed's operators,
 * for minutes. -ENOPKG: it cannot run here, and peer->said is why. peer_stop() is needed after an error, too.
 */
int peer_start(struct peer *peer, const char *const *arguments);
void peer_stop(struct peer *peer);

struct peer_job {
	struct peer *peer;
	const char *what; /* peer.py's word for it */
};

/* A side of a comparison, whose context is a struct peer_job. Elements a second, or a negative errno. */
double peer_run(void *context, double seconds);

#endif
