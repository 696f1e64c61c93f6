#include "tests/bench/node.h"

#include <errno.h>
#include <ftw.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "client/tierd.h"

#define START_TRIES 10000 /* of a millisecond */

static int make_folders(struct bench_node *node)
{
	const char *parent = getenv("TMPDIR");

	snprintf(node->folder, sizeof(node->folder), "/tmp/tierd-bench-XXXXXX");
	if (!mkdtemp(node->folder)) {
		node->folder[0] = '\0';
		return -errno;
	}
	snprintf(node->disk, sizeof(node->disk), "%.4000s/tierd-bench-XXXXXX", parent ? parent : "/var/tmp");
	if (!mkdtemp(node->disk)) {
		node->disk[0] = '\0';
		return -errno;
	}
	snprintf(node->socket, sizeof(node->socket), "%s/socket", node->folder);
	return 0;
}

static void run_daemon(const struct bench_node *node, const char *host_budget, const char *nvme_capacity)
{
	char state[sizeof(node->folder) + 8], nvme[sizeof(node->disk) + 32];

	snprintf(state, sizeof(state), "%s/state", node->folder);
	snprintf(nvme, sizeof(nvme), "%s:%s", node->disk, nvme_capacity);
	prctl(PR_SET_PDEATHSIG, SIGTERM);
	execl(TIERD_PROGRAM, TIERD_PROGRAM, "--config", "/dev/null", "--log-level", "warning", "--socket",
	      node->socket, "--state-dir", state, "--host-budget", host_budget, "--nvme", nvme, (char *)NULL);
	fprintf(stderr, "%s: %s\n", TIERD_PROGRAM, strerror(errno));
	_exit(EXIT_FAILURE);
}

static int wait_until_it_answers(struct bench_node *node)
{
	static const struct timespec pause = { .tv_nsec = 1000000 };
	struct tierd_node *connection;
	int r = -ETIMEDOUT;

	for (int i = 0; i < START_TRIES; i++) {
		r = tierd_connect(node->socket, &connection);
		if (r == 0) {
			tierd_disconnect(connection);
			return 0;
		}
		if (waitpid(node->pid, NULL, WNOHANG) == node->pid) {
			node->pid = -1;
			return -ECHILD;
		}
		nanosleep(&pause, NULL);
	}
	return r;
}

int bench_node_start(struct bench_node *node, const char *host_budget, const char *nvme_capacity)
{
	int r = make_folders(node);

	if (r < 0)
		return r;
	fflush(NULL);
	node->pid = fork();
	if (node->pid < 0)
		return -errno;
	if (node->pid == 0)
		run_daemon(node, host_budget, nvme_capacity);
	return wait_until_it_answers(node);
}

static int remove_entry(const char *path, const struct stat *status, int kind, struct FTW *walk)
{
	return remove(path);
}

void bench_node_stop(struct bench_node *node)
{
	if (node->pid > 0) {
		kill(node->pid, SIGTERM);
		waitpid(node->pid, NULL, 0);
		node->pid = -1;
	}
	if (node->folder[0])
		nftw(node->folder, remove_entry, 8, FTW_DEPTH | FTW_PHYS);
	if (node->disk[0])
		nftw(node->disk, remove_entry, 8, FTW_DEPTH | FTW_PHYS);
}
