/* How long a user's steps take beside another one who holds ten thousand connections and makes one after the
 * other. Over the same beside a process that is as busy and asks for nothing, in turns. */
#include <errno.h>
#include <grp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "client/tierd.h"
#include "common/cleanup.h"
#include "tests/bench/attack.h"
#include "tests/bench/bench.h"
#include "tests/bench/node.h"
#include "tests/bench/victim.h"

#define HOSTILE_USER 60001
#define CONNECTIONS 10000
#define UNITS 8
#define ELEMENTS 16384
#define BLOCK_S 0.5
#define PAIRS 8
#define QUICK_PAIRS 1
#define LIMIT 2
#define NAME "hostile_connections_ratio"

enum side { CONTROL, BESIDE, SIDES };

/* ---- The other user ---- */

static void become_hostile(void)
{
	const struct rlimit descriptors = { CONNECTIONS + 64, CONNECTIONS + 64 };

	if (setrlimit(RLIMIT_NOFILE, &descriptors) < 0 || setgroups(0, NULL) < 0 ||
	    setgid(HOSTILE_USER) < 0 || setuid(HOSTILE_USER) < 0)
		_exit(EXIT_FAILURE);
}

/* It never waits for a place. */
static int try_to_connect(const char *path)
{
	_cleanup_close_ int connection = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	struct sockaddr_un address = { .sun_family = AF_UNIX };

	strcpy(address.sun_path, path);
	if (connection < 0 || connect(connection, (const struct sockaddr *)&address, sizeof(address)) < 0)
		return -errno;
	return TAKE_FD(connection);
}

/* The oldest gives its place to the newest. */
static void crowd(const char *path)
{
	static int connections[CONNECTIONS];
	unsigned count = 0;

	become_hostile();
	for (;;) {
		int connection = try_to_connect(path);

		if (connection < 0)
			continue;
		if (count >= CONNECTIONS)
			close(connections[count % CONNECTIONS]);
		connections[count++ % CONNECTIONS] = connection;
	}
}

/* As many calls of the kernel, and none of tierd's. */
static void be_busy(const char *path)
{
	for (;;)
		fd_close(try_to_connect("/nonexistent"));
}

static const struct attack attackers[SIDES] = {
	[CONTROL] = { "a busy process", be_busy },
	[BESIDE] = { "a crowd of connections", crowd },
};

/* ---- The victim ---- */

struct victim {
	struct bench_victim trains;
	pid_t beside[SIDES];
	double ms[SIDES];
	unsigned steps[SIDES];
};

static int step_beside(struct victim *victim, enum side side)
{
	uint64_t start = clock_now_ns();
	int r = 0, stopped;

	attack_go_on(victim->beside[side]);
	for (; r == 0 && bench_seconds_since(start) < BLOCK_S; victim->steps[side]++)
		r = bench_victim_step(&victim->trains);
	victim->ms[side] += bench_ms_since(start);
	stopped = attack_stop(victim->beside[side]);
	return r < 0 ? r : stopped;
}

static int suffer(struct bench *bench, struct victim *victim, const char *path)
{
	unsigned pairs = bench_is_quick(bench) ? QUICK_PAIRS : PAIRS;
	double each[SIDES];
	int r = 0;

	fflush(NULL);
	for (int side = 0; side < SIDES && r == 0; side++)
		r = attack_start(&attackers[side], path, &victim->beside[side]);
	for (unsigned pair = 0; pair < pairs && r == 0; pair++) {
		r = step_beside(victim, pair % 2 ? BESIDE : CONTROL);
		if (r == 0)
			r = step_beside(victim, pair % 2 ? CONTROL : BESIDE);
	}
	if (r < 0)
		return r;
	for (int side = 0; side < SIDES; side++)
		each[side] = victim->ms[side] / victim->steps[side];
	printf("hostile: a step takes %.3f ms beside %s, %.3f beside %s\n", each[BESIDE],
	       attackers[BESIDE].name, each[CONTROL], attackers[CONTROL].name);
	return bench_record(bench, NAME, each[BESIDE] / each[CONTROL], "times", LIMIT);
}

/* ---- All of it ---- */

static int attack_victim(struct bench *bench)
{
	struct victim victim = { .trains = { .units = UNITS, .elements = ELEMENTS }, .beside = { -1, -1 } };
	struct bench_node node = BENCH_NODE_INIT;
	int r = bench_node_start(&node, "256M", "1G");

	if (r == 0)
		r = bench_node_let_others_in(&node);
	if (r == 0)
		r = bench_victim_open(&victim.trains, node.socket);
	if (r == 0)
		r = suffer(bench, &victim, node.socket);
	for (int side = 0; side < SIDES; side++)
		if (victim.beside[side] > 0)
			attack_end(victim.beside[side]);
	tierd_disconnect(victim.trains.node);
	bench_node_stop(&node);
	return r;
}

static int run(struct bench *bench)
{
	if (getuid() == 0)
		return bench_wants(bench, NAME) ? attack_victim(bench) : 0;
	bench_skip(bench, NAME, "only root can play two users");
	return 0;
}

int main(int argc, char **argv)
{
	return bench_main(argc, argv, run);
}
