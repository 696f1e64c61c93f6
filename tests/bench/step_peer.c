/* Durable steps over DeepSpeed's, with as many parameters on the same disk. */
#include <errno.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "tests/bench/peer.h"
#include "tests/bench/step.h"

#define MAX_UNITS 24 /* DeepSpeed takes six steps of each pair */

static const struct match {
	const char *name;
	const struct step_layout *layout;
	double limit;
} matches[] = {
	{ "step_vs_deepspeed_exact", &step_layouts[STEP_EXACT_HOST], 1.5 },
	{ "step_vs_deepspeed_int8", &step_layouts[STEP_INT8_HOST], 2.4 },
};

bool step_wants_peer(const struct bench *bench)
{
	for (size_t i = 0; i < ARRAY_LENGTH(matches); i++)
		if (bench_wants(bench, matches[i].name))
			return true;
	return false;
}

static double elements_of(const struct step_scene *scene)
{
	return (double)(scene->units * STEPPER_ELEMENTS);
}

static double run_step(void *context, double seconds)
{
	const struct step_scene *scene = context;
	struct step_cost cost;
	int r = step_take(scene, &cost);

	return r < 0 ? r : elements_of(scene) / cost.late_seconds;
}

/* From the closing of a step until it is durable, over the same of DeepSpeed, which is over when the last
 * write is: nothing makes that durable. */
static int compare_with_peer(struct bench *bench, struct step_scene *scene, const struct match *match,
			     struct peer *peer)
{
	struct peer_job theirs = { peer, "step" };
	const struct bench_comparison comparison = { .name = match->name,
						     .bound = BENCH_AT_LEAST,
						     .limit = match->limit,
						     .unit = "M parameters/s",
						     .scale = 1e6,
						     .ours = { run_step, scene },
						     .theirs = { peer_run, &theirs } };
	int r = step_open_job(scene, match->layout);

	if (r == 0)
		r = step_warm_up(scene);
	if (r == 0)
		r = bench_compare(bench, &comparison);
	return r < 0 ? r : tierd_job_close(scene->stepper.job);
}

static int start_peer(const struct step_scene *scene, struct peer *peer)
{
	char units[16], elements[32], threads[16], folder[sizeof(scene->tierd.disk) + 16];

	snprintf(units, sizeof(units), "%u", scene->units);
	snprintf(elements, sizeof(elements), "%llu", (unsigned long long)STEPPER_ELEMENTS);
	snprintf(threads, sizeof(threads), "%ld", sysconf(_SC_NPROCESSORS_ONLN));
	snprintf(folder, sizeof(folder), "%s/deepspeed", scene->tierd.disk);
	if (mkdir(folder, 0700) < 0)
		return -errno;
	return peer_start(peer, (const char *const[]){ "step", units, elements, threads, folder, NULL });
}

int bench_step_peer(struct bench *bench, const struct step_scene *scene)
{
	struct step_scene smaller = *scene;
	struct peer peer = PEER_INIT;
	bool is_missing;
	int r;

	if (smaller.units > MAX_UNITS)
		smaller.units = MAX_UNITS;
	r = start_peer(&smaller, &peer);
	is_missing = r == -ENOPKG;

	if (r == 0)
		printf("step_vs_deepspeed: %s\n", peer.said);
	else if (is_missing)
		r = 0;
	for (size_t i = 0; i < ARRAY_LENGTH(matches) && r == 0; i++) {
		if (!bench_wants(bench, matches[i].name))
			continue;
		if (is_missing)
			bench_skip(bench, matches[i].name, peer.said);
		else
			r = compare_with_peer(bench, &smaller, &matches[i], &peer);
	}
	peer_stop(&peer);
	return r;
}
