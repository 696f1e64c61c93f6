#include "tests/bench/victim.h"

#include "client/tierd.h"
#include "tests/bench/node.h"

int bench_victim_open(struct bench_victim *victim, const char *path)
{
	struct tierd_job_options options = TIERD_JOB_OPTIONS_INIT;
	struct tierd_job_state state;
	int r = tierd_connect(path, &victim->node);

	options.name = "victim";
	options.parameter_placement = options.optimizer_placement = TIERD_PLACE_HOST;
	options.durability = TIERD_DURABILITY_NONE;
	if (r == 0)
		r = tierd_job_open(victim->node, &options, &victim->job);
	if (r == 0)
		r = bench_define_units(victim->job, &(struct bench_units){ .count = victim->units,
									   .elements = victim->elements });
	return r == 0 ? tierd_job_ready(victim->job, -1, &state) : r;
}

static int train_unit(const struct bench_victim *victim, uint32_t unit)
{
	struct tierd_view parameters, gradients;
	int r = tierd_gather(victim->job, unit, &parameters);

	if (r == 0)
		r = tierd_gradients(victim->job, unit, &gradients);
	if (r == 0)
		r = bench_push(victim->job, unit, &gradients, victim->elements);
	return r == 0 ? tierd_release(victim->job, unit) : r;
}

int bench_victim_step(const struct bench_victim *victim)
{
	struct tierd_rates rates = { sizeof(rates), .gradient_scale = 1 };
	int r = 0;

	for (uint32_t unit = 0; unit < victim->units && r == 0; unit++)
		r = train_unit(victim, unit);
	return r == 0 ? tierd_step(victim->job, &rates, NULL) : r;
}
