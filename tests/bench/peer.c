#include "tests/bench/peer.h"

#include <errno.h>
#include <signal.h>
#include <spawn.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/wait.h>

#include "common/cleanup.h"

#define MAX_ARGUMENTS 8
/* Of a run, which may be one step that takes long; and of the first start of all. */
#define RUN_DEADLINE_SECONDS 120
#define START_DEADLINE_SECONDS 900
#define READY "ready "
#define MISSING "missing "

extern char **environ;

static const char *python(void)
{
	const char *named = getenv("TIERD_BENCH_PYTHON");

	return named && *named ? named : "python3";
}

/* In a group of its own, with the compilers that it may start. Its standard output is ours to read, so that
 * peer.py hands over another one to DeepSpeed. */
static int spawn(struct peer *peer, const char *const *arguments, int socket)
{
	const char *words[MAX_ARGUMENTS + 3] = { python(), PEER_SCRIPT };
	posix_spawn_file_actions_t actions;
	posix_spawnattr_t attributes;
	int r;

	for (unsigned i = 0; i < MAX_ARGUMENTS && arguments[i]; i++)
		words[2 + i] = arguments[i];
	posix_spawn_file_actions_init(&actions);
	posix_spawn_file_actions_adddup2(&actions, socket, STDIN_FILENO);
	posix_spawn_file_actions_adddup2(&actions, socket, STDOUT_FILENO);
	posix_spawnattr_init(&attributes);
	posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP);
	r = -posix_spawnp(&peer->pid, words[0], &actions, &attributes, (char *const *)words, environ);
	posix_spawnattr_destroy(&attributes);
	posix_spawn_file_actions_destroy(&actions);
	if (r < 0)
		peer->pid = -1;
	return r;
}

/* Answers are short and rare: a byte at a time will do. */
static int receive(struct peer *peer, unsigned deadline_seconds)
{
	const struct timeval deadline = { .tv_sec = deadline_seconds };
	size_t length = 0;
	ssize_t count;

	setsockopt(peer->socket, SOL_SOCKET, SO_RCVTIMEO, &deadline, sizeof(deadline));
	do
		count = recv(peer->socket, &peer->said[length], 1, 0);
	while (count == 1 && peer->said[length] != '\n' && ++length < sizeof(peer->said));
	if (count < 0 && errno == EAGAIN) {
		fprintf(stderr, "%s has not answered for %u s\n", PEER_SCRIPT, deadline_seconds);
		return -ETIMEDOUT;
	}
	if (count <= 0 || length == sizeof(peer->said)) {
		fprintf(stderr, "%s has ended, or says what is no answer; above is what it wrote\n",
			PEER_SCRIPT);
		return -EPROTO;
	}
	peer->said[length] = '\0';
	return 0;
}

/* Without the word that it begins with. */
static bool begins(struct peer *peer, const char *word)
{
	size_t length = strlen(word);

	if (strncmp(peer->said, word, length) != 0)
		return false;
	memmove(peer->said, peer->said + length, strlen(peer->said + length) + 1);
	return true;
}

int peer_start(struct peer *peer, const char *const *arguments)
{
	int sockets[2], r;

	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets) < 0)
		return -errno;
	peer->socket = sockets[0];
	fflush(NULL);
	r = spawn(peer, arguments, sockets[1]);
	close(sockets[1]);
	if (r < 0) {
		snprintf(peer->said, sizeof(peer->said),
			 "cannot run %s (%s): TIERD_BENCH_PYTHON names the Python that has DeepSpeed",
			 python(), strerror(-r));
		return -ENOPKG;
	}
	r = receive(peer, START_DEADLINE_SECONDS);
	if (r < 0 || begins(peer, READY))
		return r;
	if (begins(peer, MISSING))
		return -ENOPKG;
	fprintf(stderr, "%s says \"%s\", neither ready nor what is missing\n", PEER_SCRIPT, peer->said);
	return -EPROTO;
}

void peer_stop(struct peer *peer)
{
	peer->socket = fd_close(peer->socket);
	if (peer->pid > 0) {
		kill(-peer->pid, SIGKILL);
		waitpid(peer->pid, NULL, 0);
	}
	peer->pid = -1;
}

double peer_run(void *context, double seconds)
{
	const struct peer_job *job = context;
	char request[128], *end;
	int length = snprintf(request, sizeof(request), "%s %g\n", job->what, seconds), r;
	double rate;

	/* If it is dead, receiving says so. */
	(void)send(job->peer->socket, request, (size_t)length, MSG_NOSIGNAL);
	r = receive(job->peer, RUN_DEADLINE_SECONDS);
	if (r < 0)
		return r;
	rate = strtod(job->peer->said, &end);
	if (*end || !(rate > 0)) {
		fprintf(stderr, "%s says \"%s\", where a rate is expected\n", PEER_SCRIPT, job->peer->said);
		return -EPROTO;
	}
	return rate;
}
