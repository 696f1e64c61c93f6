/* How long a user's steps take beside eight jobs of another user that have the greatest weight and move all
 * they can: trainings, gathers that nobody has announced, and small ones. Over the same steps alone, in
 * turns. Beside that, the same jobs with all of it in host memory: what is lost there is the processors'. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/clock.h"
#include "common/size.h"
#include "tests/bench/attack.h"
#include "tests/bench/gather.h"
#include "tests/bench/node.h"

#define JOBS 8
#define WEIGHT 10000
#define ATTACKER 60001 /* users who need no name */
#define VICTIM 60002
#define UNITS 16
#define ELEMENTS (UINT64_C(1) << 20)
#define ROUNDS 9
#define QUICK_ROUNDS 2
#define STEPS 2 /* of a block, after one that is not counted */
#define LIMIT 2

enum side { ALONE, BESIDE, SIDES };

struct load {
	const char *name;
	unsigned units;
	uint64_t elements;
	bool does_train;
	uint32_t placement;
};

static const struct load loads[] = {
	{ "8 trainings", UNITS, ELEMENTS, true, TIERD_PLACE_NVME },
	{ "8 jobs that gather 8 MiB", UNITS, 4 * ELEMENTS, false, TIERD_PLACE_NVME },
	{ "8 jobs that gather 16 KiB", 256, 8 * KIB, false, TIERD_PLACE_NVME },
	{ "8 trainings in host memory", 4, ELEMENTS, true, TIERD_PLACE_HOST },
};
#define CONTROL (ARRAY_LENGTH(loads) - 1)

/* ---- Jobs ---- */

/* Of parameters and of what the optimizer keeps, a few units are in host memory. */
static int open_job(const char *path, const char *name, const struct load *load, uint32_t weight,
		    struct tierd_node **ret_node, struct tierd_job **ret_job)
{
	struct tierd_job_options options = TIERD_JOB_OPTIONS_INIT;

	options.name = name;
	options.io_weight = weight;
	options.parameter_placement = options.optimizer_placement = load->placement;
	options.durability = TIERD_DURABILITY_NONE;
	options.host_budget = load->placement == TIERD_PLACE_NVME && load->does_train ? 100 * MIB : 200 * MIB;
	return bench_job_join(path, &options,
			      &(struct bench_units){ .count = load->units,
						     .elements = load->elements,
						     .is_frozen = !load->does_train },
			      ret_node, ret_job);
}

static int pass(struct tierd_job *job, const struct load *load)
{
	int r = 0;

	for (uint32_t unit = 0; unit < load->units && r == 0; unit++)
		r = load->does_train ? bench_train_unit(job, unit, 0) : bench_gather_unit(job, unit);
	return r == 0 && load->does_train ? bench_step(job, TIERD_DONE) : r;
}

/* ---- The attackers ---- */

static _Noreturn void attack(const char *path, const struct load *load, unsigned index)
{
	struct tierd_node *node = NULL;
	struct tierd_job *job = NULL;
	char name[32];
	int r;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (setresgid(ATTACKER, ATTACKER, ATTACKER) < 0 || setresuid(ATTACKER, ATTACKER, ATTACKER) < 0)
		_exit(EXIT_FAILURE);
	snprintf(name, sizeof(name), "attack%u-%u", (unsigned)(load - loads), index);
	r = open_job(path, name, load, WEIGHT, &node, &job);
	if (r == 0)
		raise(SIGSTOP);
	while (r == 0)
		r = pass(job, load);
	fprintf(stderr, "%s: %s\n", name, tierd_message());
	_exit(EXIT_FAILURE);
}

/* Each is ready and stopped. */
static int start_attackers(const char *path, const struct load *load, pid_t attackers[JOBS])
{
	int status;

	for (unsigned i = 0; i < JOBS; i++) {
		fflush(NULL);
		attackers[i] = fork();
		if (attackers[i] == 0)
			attack(path, load, i);
		if (attackers[i] < 0 || waitpid(attackers[i], &status, WUNTRACED) < 0)
			return -errno;
		if (!WIFSTOPPED(status)) {
			attackers[i] = -1;
			return -ECHILD;
		}
	}
	return 0;
}

static void end_attackers(pid_t attackers[JOBS])
{
	for (unsigned i = 0; i < JOBS; i++)
		if (attackers[i] > 0)
			attack_end(attackers[i]);
}

static int stop_attackers(const pid_t attackers[JOBS])
{
	int r = 0;

	for (unsigned i = 0; i < JOBS && r == 0; i++)
		r = attack_stop(attackers[i]);
	return r;
}

/* ---- The victim ---- */

struct victim {
	struct tierd_node *node;
	struct tierd_job *job;
	double steps[SIDES][ROUNDS * STEPS];
	unsigned rounds, counts[SIDES];
};

/* The first step takes what the last side has left. */
static int train_some(struct victim *victim, enum side side)
{
	int r = 0;

	for (unsigned i = 0; i <= STEPS && r == 0; i++) {
		uint64_t start = clock_now_ns();

		r = pass(victim->job, &loads[0]);
		if (i > 0)
			victim->steps[side][victim->counts[side]++] = bench_ms_since(start);
	}
	return r;
}

static int train_in_turns(struct victim *victim, const pid_t attackers[JOBS])
{
	int r = 0;

	victim->counts[ALONE] = victim->counts[BESIDE] = 0;
	for (unsigned round = 0; round < victim->rounds && r == 0; round++) {
		r = train_some(victim, ALONE);
		for (unsigned i = 0; i < JOBS; i++)
			attack_go_on(attackers[i]);
		if (r == 0)
			r = train_some(victim, BESIDE);
		if (r == 0)
			r = stop_attackers(attackers);
	}
	return r;
}

static int suffer(struct victim *victim, const char *path, const struct load *load, double *ret_ratio)
{
	pid_t attackers[JOBS] = { 0 };
	int r = start_attackers(path, load, attackers);
	double alone, beside;

	if (r == 0)
		r = train_in_turns(victim, attackers);
	end_attackers(attackers);
	if (r < 0)
		return r;
	alone = bench_median(victim->steps[ALONE], victim->counts[ALONE]);
	beside = bench_median(victim->steps[BESIDE], victim->counts[BESIDE]);
	printf("hostile_io: a step alone: %.0f ms; beside %s of another user: %.0f ms\n", alone, load->name,
	       beside);
	*ret_ratio = beside / alone;
	return 0;
}

/* A user is who he is when he connects. */
static int open_victim(struct victim *victim, const char *path)
{
	int r;

	if (seteuid(VICTIM) < 0)
		return -errno;
	r = open_job(path, "victim", &loads[0], 0, &victim->node, &victim->job);
	return seteuid(0) < 0 ? -errno : r;
}

static int suffer_all(struct bench *bench, const char *path)
{
	struct victim victim = { .rounds = bench_is_quick(bench) ? QUICK_ROUNDS : ROUNDS };
	double worst = 0, ratio, control = 0;
	int r = open_victim(&victim, path);

	for (unsigned i = 0; i < ARRAY_LENGTH(loads) && r == 0; i++) {
		r = suffer(&victim, path, &loads[i], i == CONTROL ? &control : &ratio);
		worst = r == 0 && i != CONTROL && ratio > worst ? ratio : worst;
	}
	tierd_disconnect(victim.node);
	if (r == 0)
		r = bench_record(bench, "hostile_io_ratio", worst, "times", LIMIT);
	return r < 0 ? r : bench_record(bench, "hostile_io_control", control, "times", 0);
}

int bench_hostile_io(struct bench *bench)
{
	struct bench_node node = BENCH_NODE_INIT;
	int r;

	if (geteuid() != 0) {
		bench_skip(bench, "hostile_io_ratio", "only root can play two users");
		return 0;
	}
	r = bench_node_start(&node, "2G", "8G");
	if (r == 0)
		r = bench_node_let_others_in(&node);
	if (r == 0)
		r = suffer_all(bench, node.socket);
	bench_node_stop(&node);
	return r;
}
