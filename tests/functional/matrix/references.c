#include "references.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "configurations.h"

static struct model model;
static bool has_model, is_wide_model;
static uint32_t model_format;
static float *initial[MODEL_MAX_UNITS][MODEL_MAX_TENSORS];
static struct configuration trained;
static bool has_trained;
static int descriptors[2] = { -1, -1 }; /* by whether the order is early */

static void fail(const char *what)
{
	fprintf(stderr, "FAILED: the reference: %s\n", what);
	exit(1);
}

static void make_model(const struct configuration *configuration)
{
	if (has_model && is_wide_model == configuration->has_wide && model_format == configuration->format)
		return;
	model_make(&model, configuration->format, configuration->has_wide);
	for (unsigned u = 0; u < model.unit_count; u++)
		for (unsigned t = 0; t < model.units[u].tensor_count; t++) {
			free(initial[u][t]);
			initial[u][t] = calloc(model.units[u].tensors[t].elements + 1, sizeof(float));
			if (!initial[u][t])
				fail("no memory");
			model_initial_values(&model, u, t, initial[u][t]);
		}
	has_model = true;
	is_wide_model = configuration->has_wide;
	model_format = configuration->format;
}

/* Without CLOEXEC: the ranks inherit it. */
static int train(const struct configuration *configuration, struct reference *reference)
{
	int fd = memfd_create("reference", 0);

	if (fd < 0 || ftruncate(fd, (off_t)reference_length(&model)) < 0)
		fail("no shared memory");
	reference_map(reference, &model, fd, true);
	reference_train(reference, configuration, initial);
	return fd;
}

static void check_steps(const struct configuration *configuration, const struct reference *reference)
{
	const struct reference_step *steps = reference_steps(reference);
	unsigned clipped = 0, skipped = 0;

	for (unsigned step = 0; step < SCHEDULE_STEPS; step++) {
		clipped += steps[step].is_clipped;
		skipped += steps[step].is_skipped;
	}
	if (!configuration->is_announced && (clipped == 0 || clipped + skipped == SCHEDULE_STEPS))
		fail("clipping is always active, or never");
	if (skipped != (configuration->has_skips ? 1 : 0))
		fail("not the steps that are to be skipped are skipped");
}

static void train_both(const struct configuration *configuration)
{
	struct configuration early = *configuration, late = *configuration;
	struct reference references[2];
	bool is_equal;

	early.stage = 0;
	late.stage = 3;
	descriptors[0] = train(&late, &references[0]);
	descriptors[1] = train(&early, &references[1]);
	check_steps(configuration, &references[0]);
	is_equal = memcmp(references[0].base, references[1].base, references[0].length) == 0;
	if (configuration->micro_batches == 1 && !is_equal)
		fail("without accumulation the order of the early stages makes a difference");
	if (configuration->micro_batches > 1 && configuration->ranks > 1 && is_equal)
		fail("with accumulation the order of the early stages makes no difference");
	reference_unmap(&references[0]);
	reference_unmap(&references[1]);
}

int references_get(const struct configuration *configuration)
{
	if (!has_trained || !configurations_are_alike(&trained, configuration)) {
		for (int i = 0; i < 2; i++)
			if (descriptors[i] >= 0)
				close(descriptors[i]);
		make_model(configuration);
		train_both(configuration);
		trained = *configuration;
		has_trained = true;
	}
	return descriptors[configuration_is_early(configuration)];
}
