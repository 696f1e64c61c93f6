/* How long a user's steps take beside another one who has jobs at their limits, and as many connections as he
 * may, each of which loops over a request. Over the same beside a process that is as busy and asks for
 * nothing, in turns: the worst of all requests. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client/tierd.h"
#include "tests/bench/bench.h"
#include "tests/bench/line.h"
#include "tests/bench/node.h"
#include "tests/bench/raid.h"
#include "tests/bench/victim.h"

#define UNITS 100000
#define QUICK_UNITS 2000
#define VICTIM_UNITS 8
#define VICTIM_ELEMENTS (UINT64_C(256) << 10)
#define BLOCK_S 0.1 /* short ones, in turns: so machines that others use change little between them */
#define BLOCKS 12
#define QUICK_BLOCKS 4
#define LIMIT 2
#define NAME "hostile_requests_ratio"
#define SAMPLES 65536

/* Two of each block, in the order ABBA. */
enum side { CONTROL, BESIDE, SIDES };

struct victim {
	struct bench_victim trains;
	struct line line;
	double step_ms[SIDES][SAMPLES], ping_us[SIDES][SAMPLES];
	unsigned steps[SIDES];
};

/* ---- The victim ---- */

static int step(struct victim *victim, enum side side)
{
	uint64_t start = clock_now_ns();
	int r = bench_victim_step(&victim->trains);

	victim->step_ms[side][victim->steps[side]] = bench_ms_since(start);
	start = clock_now_ns();
	if (r == 0)
		r = line_round_trip(&victim->line);
	victim->ping_us[side][victim->steps[side]++] = bench_ms_since(start) * 1e3;
	return r;
}

static int step_for_a_while(struct victim *victim, struct raid *raid, int what, enum side side)
{
	int r = raid_turn_to(raid, what);

	for (uint64_t start = clock_now_ns();
	     r == 0 && bench_seconds_since(start) < BLOCK_S && victim->steps[side] < SAMPLES;)
		r = step(victim, side);
	return r;
}

/* ---- Results ---- */

static int suffer(struct victim *victim, struct raid *raid, int what, unsigned blocks, double *ret_ratio)
{
	uint64_t answers = atomic_load(&raid->orders->answers);
	double steps[SIDES], pings[SIDES];
	int r = 0;

	victim->steps[CONTROL] = victim->steps[BESIDE] = 0;
	for (unsigned block = 0; block < blocks && r == 0; block++) {
		enum side side = (block + 1) / 2 % 2 ? BESIDE : CONTROL;

		r = step_for_a_while(victim, raid, side == BESIDE ? what : RAID_SPIN, side);
	}
	if (r < 0)
		return r;
	for (int side = 0; side < SIDES; side++) {
		steps[side] = bench_median(victim->step_ms[side], victim->steps[side]);
		pings[side] = bench_median(victim->ping_us[side], victim->steps[side]);
	}
	*ret_ratio = steps[BESIDE] / steps[CONTROL];
	printf("hostile: %-16s %6.2f times: a step takes %.3f ms, %.3f beside as much work; a ping %.0f us, "
	       "%.0f; %llu answers\n",
	       raid_requests[what].name, *ret_ratio, steps[BESIDE], steps[CONTROL], pings[BESIDE],
	       pings[CONTROL], (unsigned long long)(atomic_load(&raid->orders->answers) - answers));
	fflush(stdout);
	return 0;
}

static int suffer_all(struct bench *bench, struct victim *victim, struct raid *raid)
{
	const char *only = getenv("TIERD_RAID");
	unsigned blocks = bench_is_quick(bench) ? QUICK_BLOCKS : BLOCKS;
	double worst = 0, ratio;
	int r = 0;

	for (unsigned i = 0; i < raid_request_count && r == 0; i++) {
		if (only && strcmp(only, raid_requests[i].name) != 0)
			continue;
		r = suffer(victim, raid, (int)i, blocks, &ratio);
		worst = r == 0 && ratio > worst ? ratio : worst;
	}
	return r < 0 ? r : bench_record(bench, NAME, worst, "times", LIMIT);
}

static int raid_victim(struct bench *bench, struct bench_node *node, struct victim *victim, struct raid *raid)
{
	int r = bench_node_start(node, "4G", "10G");

	if (r == 0)
		r = bench_node_let_others_in(node);
	if (r == 0)
		r = bench_victim_open(&victim->trains, node->socket);
	if (r == 0)
		r = line_open(node->socket, &victim->line);
	if (r == 0)
		r = raid_start(raid, node->socket, bench_is_quick(bench) ? QUICK_UNITS : UNITS);
	return r == 0 ? suffer_all(bench, victim, raid) : r;
}

static int run(struct bench *bench)
{
	static struct victim victim = { .trains = { .units = VICTIM_UNITS, .elements = VICTIM_ELEMENTS },
					.line = LINE_INIT };
	struct bench_node node = BENCH_NODE_INIT;
	struct raid raid = { .pid = -1 };
	int r;

	if (getuid() != 0)
		bench_skip(bench, NAME, "only root can play two users");
	if (getuid() != 0 || !bench_wants(bench, NAME))
		return 0;
	r = raid_victim(bench, &node, &victim, &raid);
	raid_end(&raid);
	line_close(&victim.line);
	tierd_disconnect(victim.trains.node);
	bench_node_stop(&node);
	return r;
}

int main(int argc, char **argv)
{
	return bench_main(argc, argv, run);
}
