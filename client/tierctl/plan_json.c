/* A plan for programs. */
#include "client/tierctl/fields.h"
#include "client/tierctl/plan_request.h"

#define NEEDS "host_bytes nvme_bytes nvme_path_bytes=path_bytes"
#define NEEDS_OF_HOST                                                                                        \
	"host_bytes host_parameter_bytes=parameter_bytes host_gradient_bytes=sum_bytes "                     \
	"host_optimizer_bytes=state_bytes host_buffer_bytes=buffer_bytes nvme_bytes "                        \
	"nvme_path_bytes=path_bytes"

/* With how little it is accepted; which may be more on NVMe. */
static cJSON *least_json(const Tierd__Wire__PlanNeeds *needs, uint64_t budget)
{
	cJSON *json = fields_json(&needs->base, NEEDS);

	cJSON_AddNumberToObject(json, "host_budget", (double)budget);
	return json;
}

/* Definitions, windows, pages. */
static uint64_t other_bytes(const Tierd__Wire__PlanNeeds *needs)
{
	return needs->host_bytes - needs->parameter_bytes - needs->sum_bytes - needs->state_bytes -
	       needs->buffer_bytes;
}

/* The most that it takes; and the least, if that is something else. */
static void add_bounds(cJSON *json, const struct plan_request *request, const struct plan_row *row)
{
	const char *problem = plan_row_problem(row), *refusal = plan_refusal(row);
	struct plan_bounds bounds, least;

	if (problem)
		cJSON_AddStringToObject(json, "refusal", problem);
	if (problem)
		return;
	bounds = plan_bounds_here(request, row);
	least = plan_row_least(row);
	fields_add(json, &bounds.high.base, NEEDS_OF_HOST);
	cJSON_AddItemToObject(json, "least", least_json(&least.high, least.high.host_bytes + least.high_own));
	if (row->count == 1)
		cJSON_AddNumberToObject(json, "host_other_bytes", (double)other_bytes(&bounds.high));
	if (row->count > 1) {
		cJSON_AddItemToObject(json, "at_best", fields_json(&bounds.low.base, NEEDS));
		cJSON_AddItemToObject(json, "least_at_best",
				      least_json(&least.low, least.low.host_bytes + least.low_own));
	}
	if (refusal)
		cJSON_AddStringToObject(json, "refusal", refusal);
}

static void add_fit(cJSON *json, const struct plan_request *request, const struct plan_row *row)
{
	enum plan_fit fit = plan_fit(request, row);

	if (fit != PLAN_UNKNOWN && fit != PLAN_DEPENDS)
		cJSON_AddBoolToObject(json, "fits", fit == PLAN_FITS);
	if (fit == PLAN_FITS_ALONE)
		cJSON_AddBoolToObject(json, "fits_alone", true);
}

static void add_traffic(cJSON *json, const struct plan_request *request, const struct plan_place *place)
{
	struct plan_traffic traffic = plan_traffic(&request->model, place);

	cJSON_AddNumberToObject(json, "update_read_bytes_per_parameter", traffic.update_read);
	cJSON_AddNumberToObject(json, "update_written_bytes_per_parameter", traffic.update_written);
	cJSON_AddNumberToObject(json, "gather_read_bytes_per_parameter", traffic.gather_read);
	cJSON_AddNumberToObject(json, "gradient_read_bytes_per_parameter", traffic.gradient_read);
	cJSON_AddNumberToObject(json, "gradient_written_bytes_per_parameter", traffic.gradient_written);
	if (request->step_ms > 0)
		cJSON_AddNumberToObject(json, "written_bytes_per_day",
					plan_written_per_day(&request->model, place, request->step_ms));
	if (plan_has_days(request, place))
		cJSON_AddNumberToObject(json, "endurance_days", (double)plan_days(request, place));
}

static cJSON *place_json(const struct plan_request *request, const struct plan_row *row)
{
	struct plan_place place = plan_place_of(row);
	cJSON *json = cJSON_CreateObject();

	cJSON_AddStringToObject(json, "parameters", place.is_parameter_nvme ? "nvme" : "host");
	cJSON_AddStringToObject(json, "optimizer", place.is_optimizer_nvme ? "nvme" : "host");
	cJSON_AddStringToObject(json, "gradients", place.is_gradient_nvme ? "nvme" : "host");
	add_bounds(json, request, row);
	add_traffic(json, request, &place);
	add_fit(json, request, row);
	if (request->has_host && request->has_nvme)
		cJSON_AddBoolToObject(json, "is_auto", plan_is_auto(request, row));
	return json;
}

static cJSON *change_json(const struct plan_request *request, const struct plan_row *row)
{
	cJSON *json = cJSON_CreateObject();

	cJSON_AddStringToObject(json, "change", row->change->flags);
	add_bounds(json, request, row);
	add_fit(json, request, row);
	return json;
}

static cJSON *stage_json(const struct plan_request *request, unsigned stage)
{
	struct plan_memory memory = plan_memory(&request->model, stage);
	const struct plan_row *chosen = plan_find_auto(request, stage);
	cJSON *json = cJSON_CreateObject(), *places;

	cJSON_AddNumberToObject(json, "stage", stage);
	cJSON_AddNumberToObject(json, "parameter_bytes_per_rank", (double)memory.parameters);
	cJSON_AddNumberToObject(json, "gradient_bytes_per_rank", (double)memory.gradients);
	cJSON_AddNumberToObject(json, "optimizer_bytes_per_rank", (double)memory.optimizer);
	cJSON_AddNumberToObject(json, "bytes_per_rank", (double)memory.total);
	cJSON_AddNumberToObject(json, "communicated_elements_per_rank",
				(double)plan_communication(&request->model, stage));
	places = cJSON_AddArrayToObject(json, "placements");
	for (unsigned i = 0; i < request->rows.count; i++)
		if (request->rows.rows[i].stage == stage && plan_row_is_plain(&request->rows.rows[i]))
			cJSON_AddItemToArray(places, place_json(request, &request->rows.rows[i]));
	if (chosen && !plan_row_problem(chosen)) {
		struct plan_bounds least = plan_row_least(chosen);

		cJSON_AddItemToObject(json, "least",
				      least_json(&least.high, least.high.host_bytes + least.high_own));
	}
	return json;
}

static void add_model(cJSON *json, const struct plan_request *request)
{
	const struct plan_model *model = &request->model;
	char text[PLAN_FORMAT_TEXT];

	cJSON_AddBoolToObject(json, "is_exact", request->rows.cuts == 1);
	if (request->rows.cuts == 1)
		cJSON_AddNumberToObject(json, "units", (double)request->rows.requests[0]->n_units);
	cJSON_AddNumberToObject(json, "parameters", (double)plan_parameters(model));
	cJSON_AddNumberToObject(json, "frozen_bytes", (double)model->frozen_bytes);
	cJSON_AddStringToObject(json, "format", plan_formats(model, text));
	cJSON_AddStringToObject(json, "optimizer", model->optimizer->name);
	cJSON_AddStringToObject(json, "moments", plan_moments(model, text));
	cJSON_AddNumberToObject(json, "world_size", model->world_size);
	cJSON_AddNumberToObject(json, "local_ranks", plan_local_ranks(request));
	if (request->size.largest_unit > 0)
		cJSON_AddNumberToObject(json, "largest_unit", (double)request->size.largest_unit);
	cJSON_AddNumberToObject(json, "micro_batches", model->micro_batches);
	cJSON_AddNumberToObject(json, "snapshots", request->job->snapshots);
	cJSON_AddBoolToObject(json, "is_durable", model->is_durable);
}

int plan_print_json(const struct plan_request *request)
{
	cJSON *json = cJSON_CreateObject(), *stages, *changes;

	add_model(json, request);
	if (request->has_host)
		cJSON_AddNumberToObject(json, "host_free_bytes", (double)request->host_bytes);
	if (request->has_nvme)
		cJSON_AddNumberToObject(json, "nvme_free_bytes", (double)request->nvme_bytes);
	if (request->connections > 0)
		cJSON_AddNumberToObject(json, "connections_per_user", request->connections);
	if (request->gpus.bytes > 0)
		cJSON_AddItemToObject(json, "gpus", plan_gpus_json(request));
	stages = cJSON_AddArrayToObject(json, "stages");
	for (unsigned stage = 0; stage < PLAN_STAGES; stage++)
		if (request->stage < 0 || request->stage == (int)stage)
			cJSON_AddItemToArray(stages, stage_json(request, stage));
	changes = cJSON_AddArrayToObject(json, "changes");
	for (unsigned i = 0; i < request->rows.count; i++)
		if (request->rows.rows[i].change)
			cJSON_AddItemToArray(changes, change_json(request, &request->rows.rows[i]));
	return command_print_json(json);
}
