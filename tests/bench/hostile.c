/* How long a client's requests take beside another that does its worst: floods of requests, of connections,
 * of garbage, of messages as large as they may be. Over the same requests alone, in turns. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/clock.h"
#include "common/size.h"
#include "proto/frame.h"
#include "tests/bench/gather.h"
#include "tests/bench/line.h"
#include "tests/bench/node.h"

#define PAIRS 9
#define QUICK_PAIRS 1
#define BLOCK 50 /* gathers */
#define UNITS 32
#define ELEMENTS (UINT64_C(2) << 20)
#define BUDGET (24 * MIB)
#define BLOCKS (2 * PAIRS)
#define SAMPLES (BLOCKS * BLOCK)
#define LIMIT 2
#define FLOOD 256 /* requests in one piece */

enum side { ALONE, BESIDE, SIDES };

/* Each goes on until it is killed; what the daemon does to its connections is part of the game. */
struct attack {
	const char *name;
	void (*run)(const char *path);
};

/* ---- Attacks ---- */

static void flood_requests(const char *path)
{
	struct line line = LINE_INIT;
	uint8_t *requests, *replies;

	if (line_open(path, &line) < 0)
		return;
	requests = malloc(FLOOD * line.request_length);
	replies = malloc(FLOOD * line.reply_length);
	for (unsigned i = 0; requests && i < FLOOD; i++)
		memcpy(requests + i * line.request_length, line.request, line.request_length);
	while (requests && replies && line_send(line.socket, requests, FLOOD * line.request_length) == 0 &&
	       line_receive(line.socket, replies, FLOOD * line.reply_length) == 0)
		;
	free(requests);
	free(replies);
	line_close(&line);
}

static void flood_connections(const char *path)
{
	int connection = line_connect(path);

	if (connection >= 0)
		line_greet(connection);
	fd_close(connection);
}

static void flood_garbage(const char *path)
{
	static const char garbage[] = "GET / HTTP/1.1\r\nHost: tierd\r\n\r\n";
	int connection = line_connect(path);
	char rest[512];

	if (connection >= 0 && line_send(connection, garbage, sizeof(garbage)) == 0)
		while (read(connection, rest, sizeof(rest)) > 0)
			;
	fd_close(connection);
}

/* Of fields that nobody knows: each is looked at. */
static void flood_bytes(const char *path)
{
	static uint8_t frame[FRAME_MAX_BYTES];
	const uint32_t header[4] = { FRAME_MAGIC, 1 | FRAME_REQUEST << 16, sizeof(frame) - FRAME_HEADER_BYTES,
				     1 };
	struct line line = LINE_INIT;
	uint8_t reply[LINE_MAX_REPLY];

	memcpy(frame, header, sizeof(header));
	for (size_t i = FRAME_HEADER_BYTES; i + 2 < sizeof(frame); i += 3)
		memcpy(frame + i, "\x80\x7d\x01", 3);
	if (line_open(path, &line) == 0)
		while (line_send(line.socket, frame, sizeof(frame)) == 0 &&
		       read(line.socket, reply, sizeof(reply)) > 0)
			;
	line_close(&line);
}

static const struct attack attacks[] = {
	{ "requests", flood_requests },
	{ "connections", flood_connections },
	{ "garbage", flood_garbage },
	{ "the largest messages", flood_bytes },
};

/* Stopped, until the victim wants it to go on. */
static int start_attack(const struct attack *attack, const char *path, pid_t *ret_pid)
{
	fflush(NULL);
	*ret_pid = fork();
	if (*ret_pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		raise(SIGSTOP);
		for (;;)
			attack->run(path);
	}
	return *ret_pid < 0 || waitpid(*ret_pid, NULL, WUNTRACED) < 0 ? -errno : 0;
}

static void end_attack(pid_t pid)
{
	if (pid <= 0)
		return;
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
}

/* ---- The victim ---- */

struct victim {
	struct tierd_node *node;
	struct tierd_job *job;
	uint32_t next;
	double waits[SIDES][SAMPLES];
	unsigned counts[SIDES];
	unsigned pairs;
};

static int gather_some(struct victim *victim, enum side side)
{
	struct tierd_view view;
	int r = 0;

	for (unsigned i = 0; i < BLOCK && r == 0; i++) {
		uint32_t unit = victim->next++ % UNITS;
		uint64_t start = clock_now_ns();

		r = tierd_gather(victim->job, unit, &view);
		victim->waits[side][victim->counts[side]++] = (double)(clock_now_ns() - start) / 1e3;
		if (r == 0)
			r = tierd_release(victim->job, unit);
	}
	return r;
}

static int gather_beside(struct victim *victim, pid_t attacker)
{
	int r;

	kill(attacker, SIGCONT);
	r = gather_some(victim, BESIDE);
	kill(attacker, SIGSTOP);
	return waitpid(attacker, NULL, WUNTRACED) < 0 ? -errno : r;
}

static int gather_in_turns(struct victim *victim, pid_t attacker)
{
	int r = 0;

	victim->counts[ALONE] = victim->counts[BESIDE] = 0;
	for (unsigned pair = 0; pair < victim->pairs && r == 0; pair++) {
		r = gather_some(victim, ALONE);
		if (r == 0)
			r = gather_beside(victim, attacker);
		if (r == 0)
			r = gather_beside(victim, attacker);
		if (r == 0)
			r = gather_some(victim, ALONE);
	}
	return r;
}

static int suffer(struct victim *victim, const struct attack *attack, const char *path, double *ret_ratio)
{
	pid_t attacker = -1;
	int r = start_attack(attack, path, &attacker);

	if (r == 0)
		r = gather_in_turns(victim, attacker);
	end_attack(attacker);
	if (r < 0)
		return r;
	unsigned count = victim->counts[ALONE];
	double *alone = victim->waits[ALONE], *beside = victim->waits[BESIDE];

	printf("hostile: a gather of %llu MiB alone: median %.0f us, p99 %.0f us; "
	       "beside a flood of %s: %.0f us, %.0f us\n",
	       (unsigned long long)(2 * ELEMENTS / MIB), bench_quantile(alone, count, 0.5),
	       bench_quantile(alone, count, 0.99), attack->name, bench_quantile(beside, count, 0.5),
	       bench_quantile(beside, count, 0.99));
	*ret_ratio = bench_quantile(beside, count, 0.99) / bench_quantile(alone, count, 0.99);
	return 0;
}

static int suffer_all(struct bench *bench, struct victim *victim, const char *path)
{
	double ratio, worst = 0;
	int r = 0;

	for (unsigned i = 0; i < ARRAY_LENGTH(attacks) && r == 0; i++) {
		r = suffer(victim, &attacks[i], path, &ratio);
		if (r == 0 && ratio > worst)
			worst = ratio;
	}
	return r < 0 ? r
		     : bench_record(bench, &(struct bench_result){ .name = "hostile_latency_ratio",
								   .value = worst,
								   .unit = "times",
								   .limit = LIMIT });
}

int bench_hostile(struct bench *bench)
{
	struct victim *victim = calloc(1, sizeof(*victim));
	struct bench_node node = BENCH_NODE_INIT;
	int r;

	if (!victim)
		return -ENOMEM;
	victim->pairs = bench_is_quick(bench) ? QUICK_PAIRS : PAIRS;
	r = bench_node_start(&node, "256M", "1G");
	if (r == 0)
		r = gather_open(&node, &(struct gather_job){ "victim", BUDGET, UNITS, ELEMENTS, true },
				&victim->node, &victim->job);
	if (r == 0)
		r = suffer_all(bench, victim, node.socket);
	tierd_disconnect(victim->node);
	bench_node_stop(&node);
	free(victim);
	return r;
}
