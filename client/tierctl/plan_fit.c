/* Whether a job fits, and why it does not. */
#include <errno.h>

#include "client/tierctl/plan_request.h"
#include "proto/status.h"

static unsigned count_taken(const struct plan_row *row, bool needs_nvme)
{
	unsigned count = 0;

	for (unsigned i = 0; i < row->count; i++)
		count += row->plans[i]->taken && (!needs_nvme || row->plans[i]->taken->nvme_bytes > 0);
	return count;
}

static bool fits_alone(const struct plan_row *row)
{
	for (unsigned i = 0; i < row->count; i++)
		if (row->plans[i]->fits_alone)
			return true;
	return false;
}

enum plan_fit plan_fit(const struct plan_request *request, const struct plan_row *row)
{
	unsigned taken = count_taken(row, false);

	if (plan_row_problem(row))
		return PLAN_IMPOSSIBLE;
	if (!request->has_host && !request->has_nvme)
		return PLAN_UNKNOWN;
	if (taken == 0)
		return fits_alone(row) ? PLAN_FITS_ALONE : PLAN_LACKS;
	/* Where something is not known, what needs nothing of it can be judged all the same. */
	if (!request->has_host || (!request->has_nvme && count_taken(row, true) > 0))
		return PLAN_UNKNOWN;
	return taken == row->count &&
			       (row->count == 1 || plan_row_least(row).high.host_bytes <= request->host_bytes)
		       ? PLAN_FITS
		       : PLAN_DEPENDS;
}

/* Where it fits it takes no more than there is. */
struct plan_bounds plan_bounds_here(const struct plan_request *request, const struct plan_row *row)
{
	struct plan_bounds bounds = plan_row_bounds(row);

	if (plan_fit(request, row) == PLAN_FITS && bounds.high.host_bytes > request->host_bytes)
		bounds.high.host_bytes = request->host_bytes;
	return bounds;
}

static const Tierd__Wire__Status *find_refusal(const struct plan_row *row)
{
	for (unsigned i = 0; i < row->count; i++)
		if (row->plans[i]->here)
			return row->plans[i]->here;
	return NULL;
}

const char *plan_refusal(const struct plan_row *row)
{
	const Tierd__Wire__Status *here = find_refusal(row);

	return here ? here->message : NULL;
}

static int why(const struct plan_row *row)
{
	const Tierd__Wire__Status *here = find_refusal(row);

	return here ? status_to_errno(here->code) : 0;
}

bool plan_lacks_host(const struct plan_row *row)
{
	return why(row) == -ENOMEM;
}

/* It is less where sums need not be there. */
static uint64_t least_nvme(const struct plan_row *row)
{
	uint64_t bytes = UINT64_MAX;

	for (unsigned i = 0; i < row->count; i++)
		if (row->plans[i]->most->nvme_bytes < bytes)
			bytes = row->plans[i]->most->nvme_bytes;
	return bytes;
}

/* Where memory lacks, too, that is what is said first. Who wants NVMe of a node without is told so at once.
 */
bool plan_lacks_nvme(const struct plan_request *request, const struct plan_row *row)
{
	return why(row) == -ENOSPC || why(row) == -EINVAL ||
	       (why(row) != 0 && request->has_nvme && least_nvme(row) > request->nvme_bytes);
}

const struct plan_row *plan_find_auto(const struct plan_request *request, unsigned stage)
{
	for (unsigned i = 0; i < request->rows.count; i++) {
		const struct plan_row *row = &request->rows.rows[i];

		if (row->stage == stage && row->parameters == PLACEMENT_AUTO && !row->change)
			return row;
	}
	return NULL;
}

static bool is_there(const Tierd__Wire__JobPlan *plan, const struct plan_row *row)
{
	return plan->taken && plan->taken->has_nvme_parameters == (row->parameters == PLACEMENT_NVME) &&
	       plan->taken->has_nvme_optimizer == (row->optimizer == PLACEMENT_NVME);
}

bool plan_is_auto(const struct plan_request *request, const struct plan_row *row)
{
	const struct plan_row *chosen = plan_find_auto(request, row->stage);

	for (unsigned i = 0; chosen && i < chosen->count; i++)
		if (!is_there(chosen->plans[i], row))
			return false;
	return chosen != NULL;
}

unsigned plan_stage(const struct plan_request *request)
{
	return request->stage >= 0 ? (unsigned)request->stage : request->like ? request->job->stage : 3;
}

/* As tierd has placed it, or would. */
struct plan_place plan_place_of(const struct plan_row *row)
{
	return (struct plan_place){ .is_parameter_nvme = row->parameters == PLACEMENT_NVME,
				    .is_optimizer_nvme = row->optimizer == PLACEMENT_NVME,
				    .is_gradient_nvme = !plan_row_problem(row) &&
							plan_row_bounds(row).high.has_nvme_sums };
}

bool plan_has_days(const struct plan_request *request, const struct plan_place *place)
{
	return request->step_ms > 0 && request->has_endurance &&
	       plan_written_per_day(&request->model, place, request->step_ms) > 0;
}

uint64_t plan_days(const struct plan_request *request, const struct plan_place *place)
{
	return plan_whole((double)request->endurance_bytes /
			  plan_written_per_day(&request->model, place, request->step_ms));
}
