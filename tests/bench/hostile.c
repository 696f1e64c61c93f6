/* How long a client's gathers and its bare round trips take beside another that does its worst. Over the same
 * alone, in turns. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/clock.h"
#include "common/size.h"
#include "tests/bench/attack.h"
#include "tests/bench/gather.h"
#include "tests/bench/line.h"
#include "tests/bench/node.h"

#define PAIRS 9
#define QUICK_PAIRS 1
#define BLOCK 50 /* gathers, and round trips */
#define UNITS 32
#define ELEMENTS (UINT64_C(2) << 20)
#define BUDGET (24 * MIB)
#define BLOCKS (2 * PAIRS)
#define SAMPLES (BLOCKS * BLOCK)
#define LIMIT 2

enum side { ALONE, BESIDE, SIDES };

/* ---- The victim ---- */

struct victim {
	struct tierd_node *node;
	struct tierd_job *job;
	struct line line;
	uint32_t next;
	double gathers[SIDES][SAMPLES], round_trips[SIDES][SAMPLES];
	unsigned counts[SIDES];
	unsigned pairs;
};

/* One gather and one round trip. */
static int ask(struct victim *victim, double *ret_gather, double *ret_round_trip)
{
	uint32_t unit = victim->next++ % UNITS;
	uint64_t start = clock_now_ns(), middle;
	struct tierd_view view;
	int r = tierd_gather(victim->job, unit, &view);

	*ret_gather = (double)(clock_now_ns() - start) / 1e3;
	if (r == 0)
		r = tierd_release(victim->job, unit);
	middle = clock_now_ns();
	if (r == 0)
		r = line_round_trip(&victim->line);
	*ret_round_trip = (double)(clock_now_ns() - middle) / 1e3;
	return r;
}

static int ask_some(struct victim *victim, enum side side)
{
	int r = 0;

	for (unsigned i = 0; i < BLOCK && r == 0; i++) {
		unsigned sample = victim->counts[side]++;

		r = ask(victim, &victim->gathers[side][sample], &victim->round_trips[side][sample]);
	}
	return r;
}

static int ask_beside(struct victim *victim, pid_t attacker)
{
	int r, stopped;

	attack_go_on(attacker);
	r = ask_some(victim, BESIDE);
	stopped = attack_stop(attacker);
	return r < 0 ? r : stopped;
}

static int ask_in_turns(struct victim *victim, pid_t attacker)
{
	int r = 0;

	victim->counts[ALONE] = victim->counts[BESIDE] = 0;
	for (unsigned pair = 0; pair < victim->pairs && r == 0; pair++) {
		r = ask_some(victim, ALONE);
		if (r == 0)
			r = ask_beside(victim, attacker);
		if (r == 0)
			r = ask_beside(victim, attacker);
		if (r == 0)
			r = ask_some(victim, ALONE);
	}
	return r;
}

/* Of what the attacks do, the worst. */
struct worst {
	double gather, round_trip; /* times what it is alone: of the 99th in 100, and of the median */
};

static double compare(const char *what, const char *beside_what, double samples[SIDES][SAMPLES],
		      const unsigned counts[SIDES], double part)
{
	double *alone = samples[ALONE], *beside = samples[BESIDE];

	printf("hostile: %s alone: median %.0f us, p99 %.0f us; beside %s: %.0f us, %.0f us\n", what,
	       bench_median(alone, counts[ALONE]), bench_quantile(alone, counts[ALONE], 0.99), beside_what,
	       bench_median(beside, counts[BESIDE]), bench_quantile(beside, counts[BESIDE], 0.99));
	return bench_quantile(beside, counts[BESIDE], part) / bench_quantile(alone, counts[ALONE], part);
}

static int suffer(struct victim *victim, const struct attack *attack, const char *path, struct worst *worst)
{
	pid_t attacker = -1;
	double gather, round_trip;
	int r;

	fflush(NULL);
	r = attack_start(attack, path, &attacker);
	if (r < 0)
		return r;
	r = ask_in_turns(victim, attacker);
	attack_end(attacker);
	if (r < 0)
		return r;
	gather = compare("a gather", attack->name, victim->gathers, victim->counts, 0.99);
	round_trip = compare("a round trip", attack->name, victim->round_trips, victim->counts, 0.5);
	worst->gather = gather > worst->gather ? gather : worst->gather;
	worst->round_trip = round_trip > worst->round_trip ? round_trip : worst->round_trip;
	return 0;
}

/* A round trip beside others has no limit: it is as long as what the loop does between two looks, and some of
 * that is the work for one connection. */
static int suffer_all(struct bench *bench, struct victim *victim, const char *path)
{
	struct worst worst = { 0 };
	int r = 0;

	for (unsigned i = 0; i < ATTACKS && r == 0; i++)
		r = suffer(victim, &attacks[i], path, &worst);
	if (r == 0)
		r = bench_record(bench, "hostile_latency_ratio", worst.gather, "times", LIMIT);
	return r < 0 ? r : bench_record(bench, "hostile_request_ratio", worst.round_trip, "times", 0);
}

int bench_hostile(struct bench *bench)
{
	struct victim *victim = calloc(1, sizeof(*victim));
	struct bench_node node = BENCH_NODE_INIT;
	int r;

	if (!victim)
		return -ENOMEM;
	victim->line = (struct line)LINE_INIT;
	victim->pairs = bench_is_quick(bench) ? QUICK_PAIRS : PAIRS;
	r = bench_node_start(&node, "256M", "1G");
	if (r == 0)
		r = gather_open(&node, &(struct gather_job){ "victim", BUDGET, UNITS, ELEMENTS, true },
				&victim->node, &victim->job);
	if (r == 0)
		r = line_open(node.socket, &victim->line);
	if (r == 0)
		r = suffer_all(bench, victim, node.socket);
	line_close(&victim->line);
	tierd_disconnect(victim->node);
	bench_node_stop(&node);
	free(victim);
	return r;
}
