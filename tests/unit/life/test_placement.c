/* Where a job's parameters and optimizer state go when it asks for placement = auto. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "common/cleanup.h"
#include "daemon/model/job.h"
#include "daemon/resources/placement.h"
#include "daemon/resources/resources.h"
#include "tests/unit/scene_test.h"

#define UNITS 8
#define ELEMENTS (UINT64_C(1) << 20) /* a pack each */

static struct actor actor, other;

/* ---- The choice ---- */

/* "HN": parameters in host memory, optimizer state on NVMe; "HNs": and sums of gradients. */
static const char *print_choices(const struct placement_job *job, char text[4 * PLACEMENT_CHOICES + 1])
{
	struct placement choices[PLACEMENT_CHOICES];
	unsigned count = placement_choices(job, choices);

	for (unsigned i = 0, used = 0; i < count; i++)
		used += (unsigned)snprintf(
			text + used, 5, "%c%c%s ", choices[i].has_nvme_parameters ? 'N' : 'H',
			choices[i].has_nvme_optimizer ? 'N' : 'H', choices[i].has_nvme_sums ? "s" : "");
	return text;
}

static struct placement_job bf16_adamw(void)
{
	return (struct placement_job){ .parameters = PLACEMENT_AUTO,
				       .optimizer = PLACEMENT_AUTO,
				       .stage = 3,
				       .has_paths = true,
				       .is_durable = true,
				       .trainable_bytes = 200,
				       .state_bytes = 1000,
				       .sums_bytes = 400 };
}

static void what_moves_least_is_tried_first(void **state)
{
	struct placement_job job = bf16_adamw();
	char text[4 * PLACEMENT_CHOICES + 1];

	assert_string_equal(print_choices(&job, text), "HH NH HN NN ");
	/* Without momentum the remainder alone is beside the parameters, and these move more. */
	job.state_bytes = 200;
	assert_string_equal(print_choices(&job, text), "HH HN NH NN ");
	/* Frozen values move at gathers alone. */
	job.frozen_bytes = 10000;
	job.state_bytes = 10000;
	assert_string_equal(print_choices(&job, text), "HH HN NH NN ");
	job.trainable_bytes = 0;
	job.state_bytes = 10001;
	assert_string_equal(print_choices(&job, text), "HH NH HN NN ");
}

static void what_is_asked_for_is_not_chosen(void **state)
{
	struct placement_job job = bf16_adamw();
	char text[4 * PLACEMENT_CHOICES + 1];

	job.parameters = PLACEMENT_NVME;
	assert_string_equal(print_choices(&job, text), "NH NN ");
	job.optimizer = PLACEMENT_NVME;
	assert_string_equal(print_choices(&job, text), "NN ");
	job.parameters = PLACEMENT_HOST;
	assert_string_equal(print_choices(&job, text), "HN ");
}

static void what_cannot_be_on_nvme_stays_in_host_memory(void **state)
{
	struct placement_job job = bf16_adamw();
	char text[4 * PLACEMENT_CHOICES + 1];

	job.stage = 2;
	assert_string_equal(print_choices(&job, text), "HH HN ");
	job.has_paths = false;
	assert_string_equal(print_choices(&job, text), "HH ");
}

static void sums_are_spilled_before_state_is_left_on_nvme(void **state)
{
	struct placement_job job = bf16_adamw();
	char text[4 * PLACEMENT_CHOICES + 1];

	job.may_spill = true;
	assert_string_equal(print_choices(&job, text), "HH NH HHs NHs HN NN HNs NNs ");
	job.stage = 2;
	assert_string_equal(print_choices(&job, text), "HH HHs HN HNs ");
}

/* ---- In a daemon ---- */

static int open_auto(struct actor *rank, uint32_t number, uint32_t world_size, uint64_t host_budget)
{
	return actor_open(rank, &(struct actor_job){ .stage = 3,
						     .rank = number,
						     .world_size = world_size,
						     .host_budget = host_budget,
						     .parameter_placement = PLACEMENT_AUTO,
						     .optimizer_placement = PLACEMENT_AUTO });
}

static void define_units(struct actor *rank)
{
	for (unsigned i = 0; i < UNITS; i++) {
		char name[8];
		const struct actor_tensor tensor = { name, FORMAT_BF16, INITIALIZE_ONES, ELEMENTS, false };

		snprintf(name, sizeof(name), "u%u", i);
		assert_int_equal(actor_define(rank, name, &tensor, 1), 0);
	}
}

static int start(uint64_t host_budget)
{
	assert_int_equal(actor_enter(&scene, &actor), 0);
	assert_int_equal(open_auto(&actor, 0, 1, host_budget), 0);
	define_units(&actor);
	return actor_ready(&actor);
}

static void end(void)
{
	actor_die(&actor);
	job_drop(scene_job(NULL));
	scene_settle(&scene);
}

/* 16 MiB of parameters, 80 of state, 32 of sums, 8 of buffers and windows. */
static void as_much_as_fits_is_in_host_memory(void **state)
{
	static const struct {
		uint64_t budget;
		bool has_nvme_parameters, has_nvme_optimizer, has_nvme_sums;
	} cases[] = { { 0, false, false, false },	 { 139 * MIB, false, false, false },
		      { 132 * MIB, true, false, false }, { 118 * MIB, false, false, true },
		      { 60 * MIB, false, true, false },	 { 50 * MIB, true, true, false },
		      { 30 * MIB, false, true, true },	 { 22 * MIB, true, true, true } };

	for (size_t i = 0; i < ARRAY_LENGTH(cases); i++) {
		assert_int_equal(start(cases[i].budget), 0);
		if (scene_job(NULL)->location.has_nvme_parameters != cases[i].has_nvme_parameters ||
		    scene_job(NULL)->location.has_nvme_optimizer != cases[i].has_nvme_optimizer ||
		    scene_job(NULL)->location.has_nvme_sums != cases[i].has_nvme_sums)
			fail_msg("%llu MiB: parameters %d, optimizer %d, sums %d; it holds %llu KiB",
				 (unsigned long long)(cases[i].budget / MIB),
				 scene_job(NULL)->location.has_nvme_parameters,
				 scene_job(NULL)->location.has_nvme_optimizer,
				 scene_job(NULL)->location.has_nvme_sums,
				 (unsigned long long)(budget_host_bytes(scene_job(NULL)) / KIB));
		assert_true(cases[i].budget == 0 || budget_host_bytes(scene_job(NULL)) <= cases[i].budget);
		end();
	}
}

static void the_disk_counts_as_well(void **state)
{
	/* State on NVMe would take twice its 80 MiB. */
	scene.node->paths[0].capacity = 64 * MIB;
	assert_int_equal(start(0), -ENOSPC);
	assert_non_null(
		strstr(actor_message(&actor), "with durability none what is in host memory needs none"));
	actor_die(&actor);
	scene_settle(&scene);
	scene.node->settings.durability = DURABILITY_NONE;
	assert_int_equal(start(132 * MIB), 0);
	assert_true(scene_job(NULL)->location.has_nvme_parameters &&
		    !scene_job(NULL)->location.has_nvme_optimizer);
	end();
	assert_int_equal(start(60 * MIB), -ENOSPC);
	assert_non_null(strstr(actor_message(&actor), "and 64.0 MiB are left there"));
	actor_die(&actor);
	scene_settle(&scene);
	assert_int_equal(budget_host_used(scene.node), staging_bytes(scene.node->staging->count));
	assert_int_equal(scene.node->paths[0].used, 0);
}

static void what_fits_nowhere_is_refused_with_the_least_that_would_do(void **state)
{
	assert_int_equal(start(8 * MIB), -ENOMEM);
	assert_non_null(strstr(actor_message(&actor), "optimizer state 0 B"));
	assert_non_null(strstr(actor_message(&actor), "the job's host_budget"));
}

static void a_rank_that_does_not_ask_for_auto_does_not_match(void **state)
{
	assert_int_equal(actor_enter(&scene, &actor), 0);
	assert_int_equal(actor_enter(&scene, &other), 0);
	assert_int_equal(open_auto(&actor, 0, 2, 0), 0);
	assert_int_equal(actor_open(&other, &(struct actor_job){ .stage = 3, .rank = 1, .world_size = 2 }),
			 -EINVAL);
	assert_non_null(strstr(actor_message(&other), "parameter placement"));
	assert_int_equal(open_auto(&other, 1, 2, 0), 0);
	actor_die(&other);
}

static int setup(void **state)
{
	return scene_setup_with(&(struct scene_options){ .host_budget = 512 * MIB, .capacity = 256 * MIB });
}

#define TEST(name) SCENE_TEST(name, setup)

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_moves_least_is_tried_first),
		cmocka_unit_test(sums_are_spilled_before_state_is_left_on_nvme),
		cmocka_unit_test(what_is_asked_for_is_not_chosen),
		cmocka_unit_test(what_cannot_be_on_nvme_stays_in_host_memory),
		TEST(as_much_as_fits_is_in_host_memory),
		TEST(the_disk_counts_as_well),
		TEST(what_fits_nowhere_is_refused_with_the_least_that_would_do),
		TEST(a_rank_that_does_not_ask_for_auto_does_not_match),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
