#include "launch.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "environment.h"

struct world {
	char **argv;
	const struct options *options;
	sigset_t signals; /* that the launcher waits for, and ranks do not inherit as blocked */
	uint64_t restarts;
	unsigned running;
	bool has_failed;
	pid_t *ranks; /* 0: ended */
};

/* In the child: a fresh image, so that no rank inherits anything of another's. */
static void become_rank(const struct world *world, unsigned rank, bool is_restart, pid_t parent)
{
	struct environment environment = { true, rank, world->options->ranks, is_restart };

	prctl(PR_SET_PDEATHSIG, SIGTERM);
	if (getppid() != parent)
		_exit(1);
	sigprocmask(SIG_UNBLOCK, &world->signals, NULL);
	environment_set(&environment);
	execv("/proc/self/exe", world->argv);
	fprintf(stderr, "gpt: cannot start rank %u: %s\n", rank, strerror(errno));
	_exit(1);
}

static int start_rank(struct world *world, unsigned rank, bool is_restart)
{
	pid_t parent = getpid(), pid = fork();

	if (pid < 0) {
		int r = -errno;

		fprintf(stderr, "gpt: cannot start rank %u: %s\n", rank, strerror(-r));
		return r;
	}
	if (pid == 0)
		become_rank(world, rank, is_restart, parent);
	world->ranks[rank] = pid;
	world->running++;
	return 0;
}

static void end_ranks(struct world *world)
{
	world->has_failed = true;
	for (unsigned rank = 0; rank < world->options->ranks; rank++) {
		if (world->ranks[rank] > 0)
			kill(world->ranks[rank], SIGTERM);
	}
}

/* A rank that fails by itself would do so again. */
static const char *advice(const struct world *world, bool is_killed)
{
	if (!is_killed)
		return "";
	return world->options->restarts > 0 ? "; it was started again as often as --restart says"
					    : "; --restart N starts a rank again that is killed";
}

static void rank_ended(struct world *world, unsigned rank, int status)
{
	bool is_killed = WIFSIGNALED(status);

	world->ranks[rank] = 0;
	world->running--;
	if ((WIFEXITED(status) && WEXITSTATUS(status) == 0) || world->has_failed)
		return;
	if (is_killed)
		fprintf(stderr, "gpt: rank %u died of signal %d (%s)\n", rank, WTERMSIG(status),
			strsignal(WTERMSIG(status)));
	else
		fprintf(stderr, "gpt: rank %u failed with status %d\n", rank, WEXITSTATUS(status));
	if (is_killed && world->restarts > 0) {
		world->restarts--;
		fprintf(stderr, "gpt: starting rank %u again\n", rank);
		if (start_rank(world, rank, true) == 0)
			return;
	}
	fprintf(stderr, "gpt: ending the other ranks%s\n", advice(world, is_killed));
	end_ranks(world);
}

static void reap(struct world *world)
{
	int status;
	pid_t pid;

	while ((pid = waitpid(-1, &status, WNOHANG)) > 0) {
		for (unsigned rank = 0; rank < world->options->ranks; rank++) {
			if (world->ranks[rank] == pid) {
				rank_ended(world, rank, status);
				break;
			}
		}
	}
}

static void wait_for_ranks(struct world *world)
{
	while (world->running > 0) {
		int number = sigwaitinfo(&world->signals, NULL);

		if (number == SIGCHLD)
			reap(world);
		else if (number > 0)
			end_ranks(world);
	}
}

int launch(char **argv, const struct options *options)
{
	_cleanup_free_ pid_t *ranks = calloc(options->ranks, sizeof(*ranks));
	struct world world = { argv, options, .restarts = options->restarts, .ranks = ranks };

	if (!ranks) {
		fprintf(stderr, "gpt: out of memory\n");
		return -ENOMEM;
	}
	sigemptyset(&world.signals);
	sigaddset(&world.signals, SIGCHLD);
	sigaddset(&world.signals, SIGTERM);
	sigaddset(&world.signals, SIGINT);
	sigprocmask(SIG_BLOCK, &world.signals, NULL);
	for (unsigned rank = 0; rank < options->ranks; rank++) {
		if (start_rank(&world, rank, false) < 0) {
			end_ranks(&world);
			break;
		}
	}
	wait_for_ranks(&world);
	return world.has_failed ? -ECHILD : 0;
}
