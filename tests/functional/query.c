/* What a rank asks about itself: its leases, and where its memory lies. */
#include <errno.h>

#include "crash_support.h"

static void expect_leases(struct tierd_job *job, uint32_t unit, uint64_t expected)
{
	uint64_t leases = 999;

	OK(tierd_leases(job, unit, &leases));
	REQUIRE(leases == expected);
}

static bool is_within(const void *address, const void *start, uint64_t bytes)
{
	return start && (const char *)address >= (const char *)start &&
	       (const char *)address < (const char *)start + bytes;
}

static void require_views_within(struct tierd_job *job, const struct tierd_view *parameters,
				 const struct tierd_view *gradients)
{
	struct tierd_mappings mappings = TIERD_MAPPINGS_INIT;

	OK(tierd_mappings(job, &mappings));
	REQUIRE(is_within(tierd_at(parameters, 0), mappings.parameters, mappings.parameter_bytes));
	REQUIRE(is_within(tierd_at(gradients, 0), mappings.gradients, mappings.gradient_bytes));
	REQUIRE(!is_within(tierd_at(gradients, 0), mappings.parameters, mappings.parameter_bytes));
	REQUIRE(mappings.page_bytes >= 4096);
	mappings.size = 0;
	FAILS(tierd_mappings(job, &mappings), -EINVAL, "TIERD_MAPPINGS_INIT");
}

int main(void)
{
	struct tierd_job_options options = support_options("query", 0, 1);
	struct tierd_node *node = support_connect();
	struct tierd_job *job = support_join(node, &options, 3);
	struct tierd_mappings mappings = TIERD_MAPPINGS_INIT;
	struct tierd_view view, gradients;
	uint64_t leases;

	FAILS(tierd_mappings(job, &mappings), -EINVAL, "tierd_job_ready");
	expect_leases(job, TIERD_ALL, 0);
	OK(tierd_job_ready(job, -1, NULL));
	OK(tierd_gather(job, 0, &view));
	OK(tierd_gather(job, 0, &view));
	OK(tierd_gather(job, 2, &view));
	OK(tierd_gradients(job, 1, &gradients));
	expect_leases(job, 0, 2);
	expect_leases(job, 1, 0);
	expect_leases(job, TIERD_ALL, 3);
	require_views_within(job, &view, &gradients);
	FAILS(tierd_leases(job, 3, &leases), -EINVAL, "no unit 3");
	OK(tierd_release(job, 0));
	expect_leases(job, TIERD_ALL, 2);
	OK(tierd_release_all(job));
	expect_leases(job, TIERD_ALL, 0);
	OK(tierd_job_close(job));
	tierd_disconnect(node);
	return 0;
}
