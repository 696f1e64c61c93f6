#include "long_step.h"

#include <string.h>

#include "proto/pages.h"

static const struct tierd_rates rates = { sizeof(struct tierd_rates), 0.1f, 1.0f, 1.0f, 0, NULL, 0.0f };

/* Of this process's lease pages, the one with a lease on the first unit. */
static void *find_page(void)
{
	FILE *maps = fopen("/proc/self/maps", "r");
	void *found = NULL;
	unsigned long start;
	char line[512];

	REQUIRE(maps);
	while (fgets(line, sizeof(line), maps)) {
		if (!strstr(line, "memfd:tierd-leases"))
			continue;
		REQUIRE(sscanf(line, "%lx-", &start) == 1);
		struct lease_header *page = (struct lease_header *)start;

		REQUIRE(page->magic == PAGES_MAGIC && page->version == PAGES_VERSION);
		if (page->unit_count != LONG_UNITS || !lease_counters(page, page->buffer_count)[0])
			continue;
		REQUIRE(!found);
		found = page;
	}
	fclose(maps);
	REQUIRE(found);
	return found;
}

void long_step_join(struct long_step *step, const char *name)
{
	struct tierd_view view;

	for (unsigned rank = 0; rank < LONG_RANKS; rank++) {
		struct tierd_job_options options = support_options(name, rank, LONG_RANKS);

		options.parameter_placement = options.optimizer_placement = TIERD_PLACE_NVME;
		step->nodes[rank] = support_connect();
		OK(tierd_job_open(step->nodes[rank], &options, &step->jobs[rank]));
		support_define_all(step->jobs[rank], LONG_UNITS, TIERD_FP32, LONG_ELEMENTS, 1.0, 0.0);
	}
	support_ready(step->jobs, LONG_RANKS, 0, NULL);
	OK(tierd_gather(step->jobs[0], 0, &view));
	step->page = find_page();
	OK(tierd_release(step->jobs[0], 0));
}

static void scribble(struct long_step *step, bool is_leased)
{
	struct lease_header *page = step->page;

	for (unsigned unit = 1; unit < LONG_UNITS; unit++)
		atomic_store(&lease_counters(page, page->buffer_count)[unit], is_leased);
}

/* A lease through a step is what no lawful client has: the library refuses such a step, and so does tierd. It
 * looks when the rank closes its part; so this writes behind the library's back, after the first rank has
 * done that and before the last one does. */
void long_step_begin(struct long_step *step)
{
	struct tierd_statistics statistics = TIERD_STATISTICS_INIT;
	struct tierd_view view;

	for (unsigned unit = 0; unit < LONG_UNITS; unit++)
		for (unsigned rank = 0; rank < LONG_RANKS; rank++)
			OK(support_push(step->jobs[rank], unit, LONG_ELEMENTS, 1.0f));
	OK(tierd_step(step->jobs[0], &rates, &step->tickets[0]));
	/* Requests are taken in their order: now the step has been. */
	OK(tierd_statistics(step->jobs[0], &statistics));
	scribble(step, true);
	for (unsigned rank = 1; rank < LONG_RANKS; rank++)
		OK(tierd_step(step->jobs[rank], &rates, &step->tickets[rank]));
	OK(tierd_gather(step->jobs[1], 0, &view));
	REQUIRE(view.version == 1);
	OK(tierd_release(step->jobs[1], 0));
}

void long_step_let_go(struct long_step *step)
{
	scribble(step, false);
}

void long_step_expect_applied(struct long_step *step)
{
	struct tierd_step_result result;

	for (unsigned rank = 0; rank < LONG_RANKS; rank++) {
		OK(tierd_ticket_wait(step->tickets[rank], TIERD_DONE, -1));
		OK(tierd_ticket_step_result(step->tickets[rank], &result));
		REQUIRE(result.step == 1 && !result.is_skipped);
		step->tickets[rank] = tierd_ticket_free(step->tickets[rank]);
	}
}
