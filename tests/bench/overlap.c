/* What a trainer's computing hides of the moving of its state: a training whose state is all on NVMe, from
 * one closed step to the next, over the longer of what its computing and the daemon's take of all processors,
 * and of what the bytes that are moved take fio. At half as much computing as moving, as much, and twice as
 * much.
 *
 * The trainer computes on all processors, forward and backward, and its daemon takes what it needs of them.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "client/tierd.h"
#include "common/cleanup.h"
#include "common/clock.h"
#include "common/size.h"
#include "tests/bench/bench.h"
#include "tests/bench/burn.h"
#include "tests/bench/fio.h"
#include "tests/bench/node.h"
#include "tests/bench/standin.h"

#define UNITS 24
#define QUICK_UNITS 8
#define UNIT_ELEMENTS (UINT64_C(1) << 20)
#define SPARE_UNITS 12 /* of the parameters, beside the sums of all gradients */
#define BACKWARD 2     /* times forward */
#define LIMIT 1.15
#define FAST_LIMIT 1.20
#define PROBE_SECONDS 1
#define QUICK_PROBE_SECONDS 0.1

struct subject {
	const char *name;
	double computing; /* over moving */
};

static const struct subject subjects[] = {
	{ "overlap at 0.5 : 1", 0.5 },
	{ "overlap at 1 : 1", 1 },
	{ "overlap at 2 : 1", 2 },
};

struct training {
	struct bench_node tierd;
	struct tierd_node *node;
	struct tierd_job *job;
	struct tierd_ticket *ticket; /* of the last step */
	struct burner *burner;
	struct fio_job fio;
	struct standin *standin; /* that the state is on; NULL: it is on the machine's disk */
	unsigned units;
	unsigned pieces; /* of a unit, forward */
	/* Of a step, as last measured. */
	double bytes, trainer_seconds, daemon_seconds; /* of processors */
};

/* ---- A step ---- */

static int forward(const struct training *training, uint32_t unit)
{
	struct tierd_view parameters;
	int r = tierd_gather(training->job, unit, &parameters);

	if (r < 0)
		return r;
	burner_work(training->burner, training->pieces);
	return tierd_release(training->job, unit);
}

static int backward(const struct training *training, uint32_t unit)
{
	struct tierd_view parameters, gradients;
	int r = tierd_gather(training->job, unit, &parameters);

	if (r == 0)
		r = tierd_gradients(training->job, unit, &gradients);
	if (r < 0)
		return r;
	burner_work(training->burner, BACKWARD * training->pieces);
	r = bench_push(training->job, unit, &gradients, UNIT_ELEMENTS);
	return r < 0 ? r : tierd_release(training->job, unit);
}

static int end_step(struct training *training, enum tierd_event event)
{
	int r = training->ticket ? tierd_ticket_wait(training->ticket, event, -1) : 0;

	training->ticket = tierd_ticket_free(training->ticket);
	return r;
}

/* Runs into the updates of the step before. */
static int take_step(struct training *training)
{
	struct tierd_rates rates = TIERD_RATES_INIT;
	int r;

	rates.learning_rate = 1e-4f;
	r = tierd_step_begin(training->job, &rates, 1);
	for (uint32_t unit = 0; unit < training->units && r == 0; unit++)
		r = forward(training, unit);
	for (uint32_t unit = training->units; unit > 0 && r == 0; unit--)
		r = backward(training, unit - 1);
	if (r == 0)
		r = end_step(training, TIERD_DONE);
	return r < 0 ? r : tierd_step(training->job, &rates, &training->ticket);
}

/* ---- Measuring ---- */

/* What has been moved, and what processors have worked, since ever. */
struct counters {
	uint64_t now_ns, daemon_ns;
	double trainer_seconds, bytes;
};

static int count(const struct training *training, struct counters *ret_counters)
{
	struct timespec own;
	int r = bench_node_processor_ns(&training->tierd, &ret_counters->daemon_ns);

	if (r == 0)
		r = bench_node_moved_bytes(&training->tierd, &ret_counters->bytes);
	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &own);
	ret_counters->trainer_seconds = (double)own.tv_sec + (double)own.tv_nsec / 1e9;
	ret_counters->now_ns = clock_now_ns();
	return r;
}

static void note_step(struct training *training, const struct counters *from, const struct counters *to,
		      unsigned steps)
{
	training->bytes = (to->bytes - from->bytes) / steps;
	training->trainer_seconds = (to->trainer_seconds - from->trainer_seconds) / steps;
	training->daemon_seconds = (double)(to->daemon_ns - from->daemon_ns) / 1e9 / steps;
}

/* Steps a second: from the closing of one to that of another, so that each runs into the one before. What is
 * left of the last is waited for, or others would have less of the disk. */
static double run_training(void *context, double seconds)
{
	struct training *training = context;
	struct counters from, to;
	unsigned steps = 0;
	int r = take_step(training);

	if (r == 0)
		r = count(training, &from);
	while (r == 0 && (steps == 0 || (double)(clock_now_ns() - from.now_ns) < seconds * 1e9)) {
		r = take_step(training);
		steps++;
	}
	if (r == 0)
		r = count(training, &to);
	if (r == 0)
		r = end_step(training, TIERD_DURABLE);
	if (r < 0) {
		fprintf(stderr, "overlap: %s\n", tierd_message());
		return r;
	}
	note_step(training, &from, &to, steps);
	return steps / ((double)(to.now_ns - from.now_ns) / 1e9);
}

static double fio_rate(struct training *training, double seconds)
{
	return training->standin ? standin_fio_run(training->standin, &training->fio, seconds)
				 : fio_run(&training->fio, seconds);
}

/* Steps a second, if all that is moved were hidden behind what computes, or the other way round. */
static double run_bound(void *context, double seconds)
{
	struct training *training = context;
	double rate = fio_rate(training, seconds);
	double byte_seconds = (training->trainer_seconds + training->daemon_seconds) / training->bytes;

	return rate < 0 ? rate : standin_bound(training->standin, rate, byte_seconds) / training->bytes;
}

static double probe_seconds(const struct bench *bench)
{
	return bench_is_quick(bench) ? QUICK_PROBE_SECONDS : PROBE_SECONDS;
}

/* So much computing in a step as its moving takes fio, times what the subject says. */
static int set_pieces(struct training *training, const struct subject *subject, double probe_seconds)
{
	double rate = fio_rate(training, probe_seconds), seconds;

	if (rate < 0)
		return (int)rate;
	seconds = subject->computing * training->bytes / rate * (double)sysconf(_SC_NPROCESSORS_ONLN);
	training->pieces = (unsigned)(seconds / burner_piece_seconds(training->burner) /
				      (training->units * (1 + BACKWARD))) +
			   1;
	return 0;
}

static int measure(struct bench *bench, struct training *training, const struct subject *subject,
		   struct bench_result *ret_result)
{
	const struct bench_comparison comparison = { .name = subject->name,
						     .bound = BENCH_AT_MOST,
						     .unit = "steps a second",
						     .scale = 1,
						     .ours = { run_training, training },
						     .theirs = { run_bound, training } };
	int r = set_pieces(training, subject, probe_seconds(bench));

	/* The bound is of a step that has been taken. */
	if (r == 0)
		r = run_training(training, 0) < 0 ? -EIO : 0;
	if (r == 0)
		r = bench_measure(bench, &comparison, ret_result);
	if (r == 0)
		printf("%-24s %.3f, spread %.3f: %.0f MB a step, and of processors %.2f s for the trainer "
		       "and %.2f s for the daemon\n",
		       subject->name, ret_result->value, ret_result->spread, training->bytes / 1e6,
		       training->trainer_seconds, training->daemon_seconds);
	return r;
}

/* ---- All of it ---- */

static int open_job(struct training *training)
{
	struct tierd_job_options options = TIERD_JOB_OPTIONS_INIT;

	options.name = "overlap";
	options.parameter_placement = options.optimizer_placement = TIERD_PLACE_NVME;
	options.gradient_placement = TIERD_PLACE_HOST;
	options.host_budget = training->units * UNIT_ELEMENTS * sizeof(float) +
			      SPARE_UNITS * UNIT_ELEMENTS * sizeof(uint16_t);
	return bench_job_join(training->tierd.socket, &options,
			      &(struct bench_units){ .count = training->units, .elements = UNIT_ELEMENTS },
			      &training->node, &training->job);
}

static int open_all(struct bench *bench, struct training *training)
{
	int r = burner_new(&training->burner);

	if (r == 0)
		r = bench_node_start(&training->tierd, "1G", "4G");
	if (r == 0)
		r = fio_make_file(&training->fio, training->tierd.disk);
	if (r == 0)
		r = fio_find_depth(&training->fio, FIO_TRAINING_MIB, probe_seconds(bench));
	return r < 0 ? r : open_job(training);
}

/* The first count of the subjects; the worst is the result. */
static int measure_all(struct bench *bench, struct training *training, size_t count, const char *name,
		       double limit)
{
	struct bench_result worst = { 0 }, result;
	int r = open_all(bench, training);

	/* The first steps find moments that nobody has written, and places of the ones before. */
	for (unsigned i = 0; i < 2 && r == 0; i++)
		r = run_training(training, 0) < 0 ? -EIO : 0;
	for (size_t i = 0; i < count && r == 0; i++) {
		r = measure(bench, training, &subjects[i], &result);
		if (r == 0 && result.value > worst.value)
			worst = result;
	}
	if (r < 0)
		return r;
	printf("%s: the worst is %s\n", name, worst.name);
	worst.name = name;
	worst.limit = limit;
	return bench_record_result(bench, &worst);
}

static int train(struct bench *bench, struct standin *standin, size_t count, const char *name, double limit)
{
	struct training training = { .tierd = BENCH_NODE_INIT,
				     .fio.direction = "readwrite",
				     .standin = standin,
				     .units = bench_is_quick(bench) ? QUICK_UNITS : UNITS };
	int r;

	if (!bench_wants(bench, name))
		return 0;
	r = measure_all(bench, &training, count, name, limit);
	tierd_ticket_free(training.ticket);
	tierd_disconnect(training.node);
	bench_node_stop(&training.tierd);
	burner_free(training.burner);
	return r;
}

/* At half as much computing as moving, where least can be hidden. */
static int run_fast(struct bench *bench)
{
	struct standin standin;
	const char *why;
	int r;

	if (!bench_wants(bench, "fast_overlap_ratio"))
		return 0;
	r = standin_open(&standin, &why);
	if (r < 0) {
		bench_skip(bench, "fast_overlap_ratio", why);
		return 0;
	}
	r = train(bench, &standin, 1, "fast_overlap_ratio", FAST_LIMIT);
	standin_close(&standin);
	return r;
}

static int run(struct bench *bench)
{
	int r;

	if (!fio_is_installed()) {
		bench_skip(bench, "overlap_ratio", FIO_MISSING);
		bench_skip(bench, "fast_overlap_ratio", FIO_MISSING);
		return 0;
	}
	r = train(bench, NULL, ARRAY_LENGTH(subjects), "overlap_ratio", LIMIT);
	return r < 0 ? r : run_fast(bench);
}

int main(int argc, char **argv)
{
	return bench_main(argc, argv, run);
}
