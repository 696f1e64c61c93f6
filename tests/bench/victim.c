#include "tests/bench/victim.h"

#include "client/tierd.h"
#include "tests/bench/node.h"

int bench_victim_open(struct bench_victim *victim, const char *path)
{
	struct tierd_job_options options = TIERD_JOB_OPTIONS_INIT;

	options.name = "victim";
	options.parameter_placement = options.optimizer_placement = TIERD_PLACE_HOST;
	options.durability = TIERD_DURABILITY_NONE;
	return bench_job_join(path, &options,
			      &(struct bench_units){ .count = victim->units, .elements = victim->elements },
			      &victim->node, &victim->job);
}

int bench_victim_step(const struct bench_victim *victim)
{
	int r = 0;

	for (uint32_t unit = 0; unit < victim->units && r == 0; unit++)
		r = bench_train_unit(victim->job, unit, victim->elements);
	return r == 0 ? bench_step(victim->job, TIERD_DONE) : r;
}
