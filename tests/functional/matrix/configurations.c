#include "configurations.h"

#include <string.h>

#include "common/cleanup.h"
#include "tests/unit/seeds.h"

bool configurations_are_alike(const struct configuration *a, const struct configuration *b)
{
	return a->ranks == b->ranks && a->micro_batches == b->micro_batches && a->format == b->format &&
	       a->has_wide == b->has_wide && a->has_skips == b->has_skips && a->rule == b->rule &&
	       a->has_dynamic_scale == b->has_dynamic_scale && a->is_announced == b->is_announced;
}

/* Ranks that push in different orders need room to put gradients aside, or buffers to leave them in. */
static void tighten(struct configuration *configuration)
{
	configuration->is_tight = true;
	if (configuration->ranks > 1)
		configuration->gradient_buffers = 64;
}

/* Of products of properties one in so many is enough by day ($TIERD_SEEDS_PART): those whose numbers add up
 * to a multiple of it, so that of all but one of the properties each combination is there. */
static bool is_thinned_out(unsigned sum)
{
	return sum % seeds_part() != 0;
}

/* Stages 0 to 3 in host memory, with one gradient buffer or two, or with a room for the largest unit (0), and
 * in as little as possible beside NVMe. */
static unsigned add_stages(const struct configuration *base, unsigned sum, struct configuration *all)
{
	unsigned count = 0;

	for (unsigned i = 0; i < 8; i++) {
		struct configuration *configuration = &all[count];
		unsigned stage = i / 2;
		bool is_nvme = i % 2;

		if (is_thinned_out(sum + stage + is_nvme))
			continue;
		count++;
		*configuration = *base;
		configuration->stage = stage;
		configuration->has_nvme_parameters = is_nvme && stage == 3;
		configuration->has_nvme_optimizer = is_nvme;
		configuration->gradient_buffers = (i + base->ranks / 2 + base->micro_batches / 2) % 3;
		if (is_nvme)
			tighten(configuration);
	}
	return count;
}

static unsigned all_configurations(struct configuration *all)
{
	static const unsigned ranks[] = { 1, 2, 4 };
	unsigned count = 0;

	for (unsigned i = 0; i < 24; i++) {
		const struct configuration base = { .ranks = ranks[i % 3],
						    .micro_batches = i / 3 % 2 ? 3 : 1,
						    .format = i / 6 % 2 ? TIERD_BF16 : TIERD_FP32,
						    .has_skips = i / 12 };

		count += add_stages(&base, i % 3 + i / 3 % 2 + i / 6 % 2 + i / 12, all + count);
	}
	return count;
}

/* Units that do not fit into one pack, and more of them than slots; mixed placements too. */
static unsigned wide_configurations(struct configuration *all)
{
	static const struct configuration wide[] = {
		{ 2, 1, TIERD_BF16, true, false, RULE_ADAMW, false, 3, true, true, 2 },
		{ 2, 1, TIERD_BF16, true, false, RULE_ADAMW, false, 2, false, true, 1 },
		{ 2, 1, TIERD_BF16, true, false, RULE_ADAMW, false, 0, false, false, 2 },
		{ 2, 1, TIERD_BF16, true, false, RULE_ADAMW, false, 1, false, true, 2 },
		{ 4, 2, TIERD_BF16, true, true, RULE_ADAMW, false, 3, true, true, 1 },
		{ 4, 2, TIERD_BF16, true, true, RULE_ADAMW, false, 3, true, false, 2 },
		{ 1, 1, TIERD_FP32, true, false, RULE_ADAMW, false, 3, true, true, 2 },
		{ 1, 1, TIERD_FP32, true, false, RULE_ADAMW, false, 3, false, true, 1 },
	};

	for (unsigned i = 0; i < ARRAY_LENGTH(wide); i++) {
		all[i] = wide[i];
		if (all[i].has_nvme_parameters)
			tighten(&all[i]);
	}
	return ARRAY_LENGTH(wide);
}

/* For other I/O engines, vector instructions and numbers of workers; three ranks have a crooked tree; one is
 * updated by its ranks. */
static unsigned few_configurations(struct configuration *all)
{
	static const struct configuration few[] = {
		{ 2, 3, TIERD_BF16, false, true, RULE_ADAMW, false, 3, true, true, 1 },
		{ 2, 3, TIERD_BF16, false, true, RULE_ADAMW, false, 1, false, true, 2 },
		{ 2, 3, TIERD_BF16, false, true, RULE_ADAMW, false, 0, false, false, 1 },
		{ 4, 3, TIERD_FP32, false, true, RULE_ADAMW, false, 3, true, true, 2 },
		{ 2, 1, TIERD_BF16, true, false, RULE_ADAMW, false, 3, true, true, 2 },
		{ 3, 3, TIERD_BF16, false, true, RULE_ADAMW, false, 2, false, true, 1 },
		{ 3, 3, TIERD_BF16, false, true, RULE_ADAMW, false, 0, false, false, 2 },
	};

	for (unsigned i = 0; i < ARRAY_LENGTH(few); i++) {
		all[i] = few[i];
		all[i].is_by_owner = i % 5 == 4;
		if (all[i].has_nvme_parameters && i > 0)
			tighten(&all[i]);
	}
	return ARRAY_LENGTH(few);
}

/* Each optimizer over stages, placements and ranks; in wide units its sections have several chunks. */
static unsigned optimizer_configurations(struct configuration *all)
{
	static const enum rule rules[] = { RULE_ADAM, RULE_SGD, RULE_MOMENTUM, RULE_LION };
	unsigned count = 0;

	all[count++] =
		(struct configuration){ 2, 1, TIERD_BF16, true, false, RULE_LION, false, 3, true, true, 2 };
	all[count++] =
		(struct configuration){ 2, 1, TIERD_BF16, true, false, RULE_SGD, false, 3, true, true, 2 };
	for (unsigned i = 0; i < ARRAY_LENGTH(rules); i++) {
		const struct configuration some[] = {
			{ 2, 3, TIERD_BF16, false, true, rules[i], false, 3, true, true, 1 },
			{ 2, 3, TIERD_BF16, false, true, rules[i], false, 0, false, false, 2 },
			{ 1, 1, TIERD_FP32, false, false, rules[i], false, 2, false, true, 2 },
			{ 4, 1, TIERD_BF16, false, false, rules[i], false, 1, false, true, 2 },
		};

		memcpy(all + count, some, sizeof(some));
		count += ARRAY_LENGTH(some);
	}
	for (unsigned i = 0; i < count; i++)
		if (all[i].has_nvme_parameters)
			tighten(&all[i]);
	return count;
}

/* fp16 with several optimizers, some with a dynamic loss scale; in wide units a chunk is smaller than with
 * the others. */
static unsigned half_configurations(struct configuration *all)
{
	static const struct configuration half[] = {
		{ 2, 3, TIERD_FP16, false, true, RULE_ADAMW, true, 3, true, true, 1 },
		{ 2, 3, TIERD_FP16, false, true, RULE_ADAMW, true, 0, false, false, 2 },
		{ 2, 3, TIERD_BF16, false, true, RULE_MOMENTUM, true, 2, false, true, 2 },
		{ 3, 1, TIERD_FP16, false, false, RULE_MOMENTUM, false, 2, false, true, 2 },
		{ 1, 1, TIERD_FP16, false, false, RULE_SGD, false, 1, false, false, 1 },
		{ 4, 1, TIERD_FP16, false, false, RULE_LION, false, 1, false, true, 2 },
		{ 2, 1, TIERD_FP16, true, false, RULE_ADAM, false, 3, true, true, 2 },
		{ 2, 1, TIERD_FP16, true, false, RULE_ADAM, false, 3, true, false, 1 },
	};

	for (unsigned i = 0; i < ARRAY_LENGTH(half); i++) {
		all[i] = half[i];
		if (all[i].has_nvme_parameters && i > 0)
			tighten(&all[i]);
	}
	return ARRAY_LENGTH(half);
}

/* Sums that are spilled to NVMe through as few buffers as there can be, beside the same ones in host memory.
 */
static unsigned spilled_configurations(struct configuration *all)
{
	static const struct configuration base[] = {
		{ 1, 1, TIERD_FP32, true, false, RULE_ADAMW, false },
		{ 1, 3, TIERD_BF16, true, false, RULE_LION, false },
		{ 2, 3, TIERD_FP16, true, true, RULE_ADAMW, true },
		{ 4, 2, TIERD_BF16, true, true, RULE_ADAMW, false },
		{ 1, 3, TIERD_BF16, false, false, RULE_MOMENTUM, false },
		{ 3, 3, TIERD_FP32, false, true, RULE_ADAMW, false },
		{ 4, 3, TIERD_FP16, false, true, RULE_ADAM, true },
	};
	unsigned count = 0;

	for (unsigned i = 0; i < ARRAY_LENGTH(base); i++)
		for (unsigned placement = 0; placement < 4; placement++) {
			struct configuration *configuration = &all[count];

			if (is_thinned_out(i + placement + placement / 2))
				continue;
			count++;
			*configuration = base[i];
			configuration->stage = placement < 2 ? 3 : 2;
			configuration->has_nvme_parameters = placement < 2;
			configuration->has_nvme_optimizer = placement % 2 == 0;
			configuration->gradient_buffers = 1 + i % 2;
			configuration->gradient_placement =
				placement == 3 ? TIERD_PLACE_HOST : TIERD_PLACE_NVME;
			tighten(configuration);
		}
	return count;
}

/* The same rules, but the ranks update their shards themselves. */
static unsigned owner_configurations(struct configuration *all)
{
	static const struct configuration owners[] = {
		{ 1, 1, TIERD_FP32, false, false, RULE_SGD, false, 3, true, true, 2 },
		{ 1, 1, TIERD_FP32, false, false, RULE_SGD, false, 0, false, false, 2 },
		{ 2, 3, TIERD_BF16, false, true, RULE_ADAMW, true, 3, true, true, 1 },
		{ 2, 3, TIERD_BF16, false, true, RULE_ADAMW, true, 2, false, false, 1 },
		{ 2, 3, TIERD_BF16, false, true, RULE_ADAMW, true, 1, false, true, 1 },
		{ 2, 3, TIERD_BF16, false, true, RULE_ADAMW, true, 0, false, false, 2 },
		{ 2, 3, TIERD_FP16, false, true, RULE_ADAMW, true, 3, true, false, 1 },
		{ 2, 3, TIERD_FP16, false, true, RULE_ADAMW, true, 1, false, false, 2 },
		{ 3, 3, TIERD_BF16, false, true, RULE_MOMENTUM, false, 2, false, true, 2 },
		{ 4, 1, TIERD_FP16, false, false, RULE_ADAMW, false, 2, false, true, 2 },
		{ 4, 1, TIERD_FP16, false, false, RULE_ADAMW, false, 0, false, true, 2 },
		{ 4, 3, TIERD_FP32, false, true, RULE_ADAMW, false, 3, true, true, 1 },
		{ 4, 3, TIERD_FP32, false, true, RULE_ADAMW, false, 1, false, false, 1 },
		{ 2, 1, TIERD_BF16, true, false, RULE_ADAMW, false, 3, true, true, 2 },
		{ 2, 1, TIERD_BF16, true, false, RULE_ADAMW, false, 0, false, false, 2 },
	};

	for (unsigned i = 0; i < ARRAY_LENGTH(owners); i++) {
		all[i] = owners[i];
		all[i].is_by_owner = true;
		if (all[i].has_nvme_parameters) {
			tighten(&all[i]);
			all[i].gradient_placement = TIERD_PLACE_NVME;
		}
	}
	return ARRAY_LENGTH(owners);
}

/* Units are updated before their step is decided, wherever that is possible. */
static unsigned announced_configurations(struct configuration *all)
{
	static const struct configuration announced[] = {
		{ 1, 1, TIERD_FP32, true, false, RULE_ADAMW, false, 3, true, true, 2 },
		{ 1, 1, TIERD_BF16, true, false, RULE_ADAMW, false, 3, true, true, 2 },
		{ 3, 3, TIERD_BF16, false, true, RULE_MOMENTUM, false, 3, true, true, 2 },
		{ 2, 3, TIERD_FP16, false, true, RULE_ADAMW, true, 3, true, true, 1 },
		{ 2, 3, TIERD_FP16, false, true, RULE_ADAMW, true, 2, false, true, 2 },
	};

	for (unsigned i = 0; i < ARRAY_LENGTH(announced); i++) {
		all[i] = announced[i];
		all[i].is_announced = true;
		all[i].gradient_placement = i % 2 ? TIERD_PLACE_NVME : TIERD_PLACE_HOST;
		if (all[i].has_nvme_parameters)
			tighten(&all[i]);
	}
	return ARRAY_LENGTH(announced);
}

static unsigned repeated_configurations(struct configuration *all)
{
	unsigned count = 2 / seeds_part() + 1;

	for (unsigned i = 0; i < count; i++)
		all[i] = (struct configuration){ 4,	3, TIERD_BF16, false, true, RULE_ADAMW,
						 false, 3, true,       true,  1 };
	return count;
}

unsigned configurations_of(const char *set, struct configuration *all)
{
	static const struct {
		const char *name;
		unsigned (*fill)(struct configuration *all);
	} sets[] = { { "all", all_configurations },
		     { "wide", wide_configurations },
		     { "few", few_configurations },
		     { "optimizers", optimizer_configurations },
		     { "half", half_configurations },
		     { "repeated", repeated_configurations },
		     { "spilled", spilled_configurations },
		     { "owners", owner_configurations },
		     { "announced", announced_configurations } };

	for (unsigned i = 0; i < ARRAY_LENGTH(sets); i++)
		if (strcmp(set, sets[i].name) == 0)
			return sets[i].fill(all);
	return 0;
}
