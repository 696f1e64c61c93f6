/* Two jobs of different weights share the devices: one trains, with prefetches, updates and what they write
 * back, as fast as it can; the other gathers what is on NVMe, sometimes announced and then waited for while
 * it is still on its way. Both see their values, always. */
#include <errno.h>

#include "crash_support.h"

#define ELEMENTS UINT64_C(1048576)
#define UNIT_BYTES (4 * ELEMENTS)
#define FLOOD_UNITS 6
#define QUIET_UNITS 12
#define SLOTS 3
#define PASSES 6

static struct tierd_job *join(struct tierd_node *node, const char *name, uint32_t weight, uint64_t budget,
			      unsigned units)
{
	struct tierd_job_options options = support_options(name, 0, 1);
	struct tierd_job_state state;
	struct tierd_job *job;
	char unit[32];

	options.io_weight = weight;
	options.host_budget = budget;
	options.mode = TIERD_REPLACE;
	OK(tierd_job_open(node, &options, &job));
	for (unsigned i = 0; i < units; i++) {
		snprintf(unit, sizeof(unit), "weights%u", i);
		support_define(job, unit, TIERD_FP32, ELEMENTS, i + 1);
	}
	OK(tierd_job_ready(job, -1, &state));
	return job;
}

static void gather(struct tierd_job *job, uint32_t unit)
{
	struct tierd_view view;
	const float *values;

	OK(tierd_gather(job, unit, &view));
	values = tierd_at(&view, 0);
	for (uint64_t i = 0; i < ELEMENTS; i++)
		REQUIRE(values[i] == (float)(unit + 1));
}

/* With a learning rate of 0 everything is read, computed and written, and nothing changes. */
static void train_step(struct tierd_job *job, struct tierd_ticket **ticket)
{
	struct tierd_rates rates = { sizeof(rates), .gradient_scale = 1 };
	struct tierd_view gradients;

	for (uint32_t unit = 0; unit < FLOOD_UNITS; unit++) {
		gather(job, unit);
		OK(tierd_gradients(job, unit, &gradients));
		OK(tierd_push(job, unit));
		OK(tierd_release(job, unit));
	}
	if (*ticket)
		OK(tierd_ticket_wait(*ticket, TIERD_DONE, -1));
	*ticket = tierd_ticket_free(*ticket);
	OK(tierd_step(job, &rates, ticket));
}

static void run_flood(struct crowd_board *board, unsigned rank, void *argument)
{
	struct tierd_node *node = support_connect();
	/* Sums, gradient buffers, windows, slots, and change. */
	uint64_t budget = (FLOOD_UNITS + 4 + SLOTS) * UNIT_BYTES + (8 << 20);
	struct tierd_job *job = join(node, "flood", 1, budget, FLOOD_UNITS);
	struct tierd_ticket *ticket = NULL;

	do {
		train_step(job, &ticket);
		board->has_arrived[rank] = true;
	} while (!board->may_finish);
	OK(tierd_ticket_wait(ticket, TIERD_DONE, -1));
	tierd_ticket_free(ticket);
	OK(tierd_job_close(job));
	tierd_disconnect(node);
}

static void run_quiet(void)
{
	struct tierd_node *node = support_connect();
	uint64_t budget = (QUIET_UNITS + 4 + SLOTS) * UNIT_BYTES + (8 << 20);
	struct tierd_job *job = join(node, "quiet", 10000, budget, QUIET_UNITS);
	struct tierd_statistics before = TIERD_STATISTICS_INIT, after = TIERD_STATISTICS_INIT;

	OK(tierd_statistics(job, &before));
	for (uint32_t i = 0; i < PASSES * QUIET_UNITS; i++) {
		uint32_t units[] = { i % QUIET_UNITS, (i + 1) % QUIET_UNITS };

		if (i % 2 == 0)
			OK(tierd_prefetch(job, units, 2));
		gather(job, units[0]);
		OK(tierd_release(job, units[0]));
	}
	OK(tierd_statistics(job, &after));
	REQUIRE(after.job_gather_read_bytes - before.job_gather_read_bytes >=
		PASSES * (QUIET_UNITS - SLOTS - 1) * UNIT_BYTES);
	OK(tierd_job_close(job));
	tierd_disconnect(node);
}

int main(void)
{
	struct crowd crowd;

	crowd_start(&crowd, 1, 0, run_flood, NULL);
	run_quiet();
	crowd_finish(&crowd);
	crowd_free(&crowd);
	return EXIT_SUCCESS;
}
