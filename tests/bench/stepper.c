#include "tests/bench/stepper.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "common/clock.h"
#include "tests/bench/bench.h"
#include "tests/bench/node.h"

int stepper_open(struct tierd_node *node, const struct stepper_options *stepper, struct stepper *ret_stepper)
{
	struct tierd_job_options options = TIERD_JOB_OPTIONS_INIT;
	struct tierd_group group = TIERD_GROUP_INIT;
	struct tierd_job *job = NULL;
	int r;

	group.moments = stepper->moments;
	options.name = stepper->name;
	options.mode = TIERD_REPLACE;
	options.parameter_placement = stepper->parameters_on;
	options.optimizer_placement = TIERD_PLACE_NVME;
	options.gradient_placement = TIERD_PLACE_HOST;
	options.durability = stepper->durability;
	options.host_budget = stepper->host_budget;
	options.group_count = 1;
	options.groups = &group;
	r = tierd_job_open(node, &options, &job);
	if (r == 0)
		r = bench_define_units(
			job, &(struct bench_units){ .count = stepper->units, .elements = STEPPER_ELEMENTS });
	if (r == 0)
		r = tierd_job_ready(job, -1, NULL);
	if (r < 0 && job)
		(void)tierd_job_detach(job);
	if (r == 0)
		*ret_stepper = (struct stepper){ job, stepper->units };
	return r;
}

int stepper_least(struct tierd_node *node, const struct stepper_options *options, uint64_t *ret_bytes)
{
	struct stepper_options none = *options;
	struct stepper stepper;
	const char *least;
	double mib;
	int r;

	none.host_budget = 1;
	r = stepper_open(node, &none, &stepper);
	least = r == -ENOMEM ? strstr(tierd_message(), "at least ") : NULL;
	if (!least || sscanf(least, "at least %lf MiB", &mib) != 1) {
		fprintf(stderr, "%s: it should have been told what it needs: %s\n", options->name,
			tierd_message());
		return r < 0 ? r : -EPROTO;
	}
	*ret_bytes = (uint64_t)(mib * (1 << 20));
	return 0;
}

int stepper_push(const struct stepper *stepper)
{
	struct tierd_view gradients;
	int r = 0;

	for (uint32_t unit = 0; unit < stepper->units && r == 0; unit++) {
		r = tierd_gradients(stepper->job, unit, &gradients);
		if (r == 0)
			r = bench_push(stepper->job, unit, &gradients, STEPPER_ELEMENTS);
	}
	return r;
}

int stepper_step(const struct stepper *stepper, enum tierd_event event, double *ret_seconds)
{
	struct tierd_rates rates = TIERD_RATES_INIT;
	struct tierd_ticket *ticket = NULL;
	uint64_t start = clock_now_ns();
	int r;

	rates.learning_rate = 1e-4f;
	r = tierd_step(stepper->job, &rates, &ticket);
	if (r == 0)
		r = tierd_ticket_wait(ticket, event, -1);
	*ret_seconds = bench_seconds_since(start);
	tierd_ticket_free(ticket);
	return r;
}
