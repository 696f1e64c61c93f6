/* What jobs would take: found without memory or disk, and just what a daemon accepts. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/cleanup.h"
#include "common/log.h"
#include "common/size.h"
#include "daemon/resources/node.h"
#include "daemon/life/plan.h"
#include "daemon/resources/resources.h"
#include "proto/status.h"
#include "proto/vocabulary.h"
#include "tests/unit/test.h"

/* A job of two units, on a node that may be described. */
struct question {
	Tierd__Wire__PlanRequest request;
	Tierd__Wire__JobOpen job, *jobs[1];
	Tierd__Wire__UnitDefine units[2], *unit_pointers[2];
	Tierd__Wire__Tensor tensors[2], *tensor_pointers[2];
	uint64_t shapes[2];
	Tierd__Wire__NodeReply node;
	Tierd__Wire__Path path, *paths[1];
};

static void init_question(struct question *question, uint64_t first, uint64_t second)
{
	static const char *const names[] = { "first", "second" };

	*question = (struct question){ .shapes = { first, second } };
	tierd__wire__plan_request__init(&question->request);
	tierd__wire__job_open__init(&question->job);
	tierd__wire__node_reply__init(&question->node);
	tierd__wire__path__init(&question->path);
	question->job.name = (char *)"job";
	question->job.world_size = 1;
	question->job.stage = 3;
	question->jobs[0] = &question->job;
	question->request.n_jobs = 1;
	question->request.jobs = question->jobs;
	question->request.n_units = 2;
	question->request.units = question->unit_pointers;
	for (unsigned i = 0; i < 2; i++) {
		tierd__wire__unit_define__init(&question->units[i]);
		tierd__wire__tensor__init(&question->tensors[i]);
		question->tensors[i].name = question->units[i].name = (char *)names[i];
		question->tensors[i].format = FORMAT_BF16;
		question->tensors[i].n_shape = 1;
		question->tensors[i].shape = &question->shapes[i];
		question->tensor_pointers[i] = &question->tensors[i];
		question->units[i].n_tensors = 1;
		question->units[i].tensors = &question->tensor_pointers[i];
		question->unit_pointers[i] = &question->units[i];
	}
}

static void describe_node(struct question *question, uint64_t host, uint64_t used, uint64_t capacity)
{
	question->request.node = &question->node;
	question->node.host_budget_bytes = host;
	question->node.host_used_bytes = used;
	question->path.path = (char *)"/disk";
	question->path.capacity_bytes = capacity;
	question->paths[0] = &question->path;
	question->node.n_paths = 1;
	question->node.paths = question->paths;
}

static Tierd__Wire__JobPlans *plans;

static int forget(void **state)
{
	if (plans)
		tierd__wire__job_plans__free_unpacked(plans, NULL);
	plans = NULL;
	return 0;
}

/* The plan of the first job, until the next answer. */
static Tierd__Wire__JobPlan *answer(const struct question *question)
{
	forget(NULL);
	assert_int_equal(plan_answer(&question->request, &plans), 0);
	assert_int_equal(plans->n_plans, question->request.n_jobs);
	return plans->plans[0];
}

#define MUCH (UINT64_C(1) << 40)

static void the_least_is_accepted_and_a_byte_less_is_not(void **state)
{
	struct question question;
	Tierd__Wire__JobPlan *plan;
	uint64_t least, device, smaller;

	/* With too little memory for both sums they go to NVMe. */
	init_question(&question, 3000000, 2500000);
	describe_node(&question, MUCH, 0, MUCH);
	plan = answer(&question);
	assert_null(plan->status);
	assert_null(plan->here);
	least = plan->least->host_bytes;
	device = plan->least->path_bytes;
	smaller = plan->most->path_bytes;
	assert_true(smaller < device);
	assert_true(least < plan->most->host_bytes);
	assert_int_equal(plan->taken->host_bytes, plan->most->host_bytes);

	describe_node(&question, MUCH, MUCH - least, device);
	plan = answer(&question);
	assert_non_null(plan->taken);
	assert_int_equal(plan->taken->host_bytes, least);
	describe_node(&question, MUCH, MUCH - least + 1, device);
	plan = answer(&question);
	assert_null(plan->taken);
	assert_int_equal(status_to_errno(plan->here->code), -ENOMEM);
	assert_true(plan->fits_alone);
	/* Where there is memory enough the disk may be smaller. */
	describe_node(&question, MUCH, MUCH - least, device - 1);
	plan = answer(&question);
	assert_int_equal(status_to_errno(plan->here->code), -ENOSPC);
	assert_true(plan->fits_alone);
	describe_node(&question, MUCH, 0, smaller - 1);
	plan = answer(&question);
	assert_int_equal(status_to_errno(plan->here->code), -ENOSPC);
	assert_false(plan->fits_alone);
}

static void what_nobody_can_have_is_refused_with_the_reason(void **state)
{
	struct question question;
	Tierd__Wire__JobPlan *plan;

	init_question(&question, 1000, 1000);
	question.units[1].name = question.units[0].name;
	plan = answer(&question);
	assert_null(plan->least);
	assert_non_null(strstr(plan->status->message, "first"));
	init_question(&question, 1000, 1000);
	question.job.stage = 4;
	plan = answer(&question);
	assert_int_equal(status_to_errno(plan->status->code), -EINVAL);
	/* Larger than any store. */
	init_question(&question, UINT64_C(1) << 44, 1000);
	plan = answer(&question);
	assert_non_null(plan->status);
}

static void limits_of_the_user_count(void **state)
{
	Tierd__Wire__UserLimits limits = TIERD__WIRE__USER_LIMITS__INIT;
	struct question question;
	Tierd__Wire__JobPlan *plan;

	init_question(&question, 3000000, 1000);
	describe_node(&question, MUCH, 0, MUCH);
	question.node.limits = &limits;
	limits.nvme_maximum = MIB;
	plan = answer(&question);
	assert_int_equal(status_to_errno(plan->here->code), -ENOSPC);
	limits.nvme_maximum = 0;
	limits.host_maximum = 100 * MIB;
	plan = answer(&question);
	assert_non_null(plan->taken);
	limits.host_held = 99 * MIB;
	plan = answer(&question);
	assert_int_equal(status_to_errno(plan->here->code), -ENOMEM);
	assert_true(plan->fits_alone);
	limits.host_held = 200 * MIB;
	plan = answer(&question);
	assert_int_equal(status_to_errno(plan->here->code), -ENOMEM);
	/* Of its own budget nothing is said unless it asks. */
	limits = (Tierd__Wire__UserLimits)TIERD__WIRE__USER_LIMITS__INIT;
	limits.host_default = MIB;
	plan = answer(&question);
	assert_int_equal(status_to_errno(plan->here->code), -ENOMEM);
	assert_true(plan->least->host_bytes > MIB);
}

/* From the least budget on all leave as much; of one that is less too little is left. */
static void a_larger_budget_never_leaves_less_than_the_least_one(void **state)
{
	for (uint64_t bytes = MIB; bytes < 1024 * MIB; bytes += 7 * MIB + 4096) {
		uint64_t least = bytes + staging_bytes(node_staging_beside(bytes));

		assert_true(least - 1 - staging_bytes(node_staging_count(least - 1)) < bytes);
		for (uint64_t budget = least; budget < least + 200 * MIB; budget += MIB)
			assert_true(budget - staging_bytes(node_staging_count(budget)) >= bytes);
	}
}

static void what_is_no_request_is_refused(void **state)
{
	static char noise[] = "\xff\xff\xff no plan";
	_cleanup_free_ char *text = NULL;
	size_t length;
	FILE *input = fmemopen(noise, sizeof(noise) - 1, "r"), *output = open_memstream(&text, &length);

	assert_true(input && output);
	assert_int_equal(plan_serve(input, output), -EPROTO);
	fclose(input);
	fclose(output);
	assert_int_equal(length, 0);
}

static int quieten(void **state)
{
	log_open(LOG_LEVEL_ERROR);
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_least_is_accepted_and_a_byte_less_is_not),
		cmocka_unit_test(what_nobody_can_have_is_refused_with_the_reason),
		cmocka_unit_test(limits_of_the_user_count),
		cmocka_unit_test(a_larger_budget_never_leaves_less_than_the_least_one),
		cmocka_unit_test(what_is_no_request_is_refused),
	};

	return cmocka_run_group_tests(tests, quieten, forget);
}
