/* What the ranks of a configuration do: who pushes which unit when, with which gradients and rates. A pure
 * function of counters, so that ranks and reference agree without talking. */
#ifndef TIERD_TESTS_MATRIX_SCHEDULE_H
#define TIERD_TESTS_MATRIX_SCHEDULE_H

#include "model.h"

#define SCHEDULE_STEPS 5

enum rule { RULE_ADAMW, RULE_ADAM, RULE_SGD, RULE_MOMENTUM, RULE_LION };

struct configuration {
	unsigned ranks, micro_batches;
	uint32_t format; /* of most parameters: enum tierd_format */
	bool has_wide;
	bool has_skips; /* ranks skip units; one step has gradients that are not finite */
	enum rule rule;
	bool has_dynamic_scale;

	/* What must not change a bit, but for the stage's order of sums. */
	unsigned stage;
	bool has_nvme_parameters, has_nvme_optimizer;
	unsigned gradient_buffers;
	bool is_tight; /* the least host memory that tierd takes */
	uint32_t gradient_placement;
	bool is_by_owner; /* the rule is the ranks' own work: tierd has the optimizer none */
	/* Each step, before its first gather; and nothing is clipped, so that it can be updated early. */
	bool is_announced;
};

/* In which order contributions are summed: stages 0 and 1, or 2 and 3. */
static inline bool configuration_is_early(const struct configuration *configuration)
{
	return configuration->stage < 2;
}

float schedule_clip_norm(const struct configuration *configuration);
/* Fills in what the configuration says of optimizer and loss scale. */
void schedule_options(const struct configuration *configuration, struct tierd_job_options *options);
/* The names of what tierd's optimizer keeps; returns how many there are. */
unsigned schedule_slots(const struct configuration *configuration, const char *ret_names[2]);
void schedule_groups(const struct configuration *configuration, unsigned step,
		     struct tierd_group groups[MODEL_GROUPS]);
/* Rates of a step, counted from 0; groups are passed only where they change, and are borrowed. A dynamic loss
 * scale is left to the job. */
struct tierd_rates schedule_rates(const struct configuration *configuration, unsigned step,
				  const struct tierd_group groups[MODEL_GROUPS]);

/* Whether the rank pushes the unit in this micro-batch of the trainer. */
bool schedule_is_pushed(const struct configuration *configuration, const struct model *model, unsigned step,
			unsigned micro_batch, unsigned rank, unsigned unit);

/* The unit that a rank comes to as its position-th when it pushes. */
unsigned schedule_order(const struct configuration *configuration, const struct model *model, unsigned step,
			unsigned micro_batch, unsigned rank, unsigned position);

/* Where gradients of a tensor come from. */
struct gradient_source {
	uint32_t seed, exponent;
	uint64_t broken; /* element whose gradient is not finite, or UINT64_MAX */
	uint32_t format;
	bool is_infinity;
};

struct gradient_source schedule_gradients(const struct configuration *configuration,
					  const struct model *model, unsigned step, unsigned micro_batch,
					  unsigned rank, unsigned unit, unsigned tensor);

/* In fp32; of bf16 tensors the lower half is zero. */
void gradient_values(const struct gradient_source *source, uint64_t count, float *values);
/* As the trainer hands them in, in the tensor's format. */
void gradient_write(const struct gradient_source *source, uint64_t count, void *buffer);

#endif
