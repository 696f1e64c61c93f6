#include "client/tierctl/command.h"

#include <assert.h>
#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "client/tierctl/plan.h"
#include "common/plural.h"
#include "common/size.h"

/* A transformer of usual depth has a layer about this small; --largest-unit says better. */
#define USUAL_UNITS 32

struct plan_request {
	struct plan_model model;
	int stage;	 /* -1: all */
	bool is_durable; /* if there is NVMe for that */
	bool has_host, has_nvme;
	uint64_t host_bytes, nvme_bytes; /* free on this node */
	const char *source;		 /* of these two */
	uint64_t step_ms;		 /* 0: not given */
	bool has_endurance;
	uint64_t endurance_bytes; /* that are left of it */
	unsigned connections;	  /* that a user may have at once; 0: not known */
};

/* ---- Flags -----------------------------------------------------------------------------------------------
 */

static int set_count(uint64_t *place, const char *text, uint64_t maximum)
{
	uint64_t number;
	int r = plan_parse_count(text, &number);

	if (r == 0 && (number == 0 || number > maximum))
		r = -ERANGE;
	if (r == 0)
		*place = number;
	return r;
}

static int set_small(unsigned *place, const char *text, unsigned maximum)
{
	uint64_t number;
	int r = set_count(&number, text, maximum);

	if (r == 0)
		*place = (unsigned)number;
	return r;
}

static int set_parameters(struct plan_request *request, const char *value)
{
	return set_count(&request->model.parameters, value, PLAN_MAX_PARAMETERS);
}

static int set_world_size(struct plan_request *request, const char *value)
{
	return set_small(&request->model.world_size, value, PLAN_MAX_RANKS);
}

static int set_local_ranks(struct plan_request *request, const char *value)
{
	return set_small(&request->model.local_ranks, value, PLAN_MAX_RANKS);
}

static int set_format(struct plan_request *request, const char *value)
{
	return plan_set_format(&request->model, value);
}

static int set_optimizer(struct plan_request *request, const char *value)
{
	return plan_set_optimizer(&request->model, value);
}

static int set_moments(struct plan_request *request, const char *value)
{
	return plan_set_moments(&request->model, value);
}

static int set_stage(struct plan_request *request, const char *value)
{
	if (value[0] < '0' || value[0] >= '0' + PLAN_STAGES || value[1] != '\0')
		return -EINVAL;
	request->stage = value[0] - '0';
	return 0;
}

static int set_largest_unit(struct plan_request *request, const char *value)
{
	return set_count(&request->model.largest_unit, value, PLAN_MAX_PARAMETERS);
}

static int set_micro_batches(struct plan_request *request, const char *value)
{
	return set_small(&request->model.micro_batches, value, PLAN_MAX_MICRO_BATCHES);
}

static int set_gradients(struct plan_request *request, const char *value)
{
	return plan_set_gradients(&request->model, value);
}

static int set_frozen(struct plan_request *request, const char *value)
{
	return plan_parse_bytes(value, &request->model.frozen_bytes);
}

static int set_snapshots(struct plan_request *request, const char *value)
{
	uint64_t number;

	if (!command_read_number(value, PLAN_MAX_SNAPSHOTS, &number))
		return -EINVAL;
	request->model.snapshots = (unsigned)number;
	return 0;
}

static int set_durability(struct plan_request *request, const char *value)
{
	return plan_set_durability(&request->model, value, &request->is_durable);
}

static int set_host(struct plan_request *request, const char *value)
{
	request->has_host = true;
	return plan_parse_bytes(value, &request->host_bytes);
}

static int set_nvme(struct plan_request *request, const char *value)
{
	request->has_nvme = true;
	return plan_parse_bytes(value, &request->nvme_bytes);
}

static int set_step_ms(struct plan_request *request, const char *value)
{
	return set_count(&request->step_ms, value, UINT32_MAX);
}

static int set_endurance(struct plan_request *request, const char *value)
{
	request->has_endurance = true;
	return plan_parse_bytes(value, &request->endurance_bytes);
}

#define COUNT_HELP "a count such as 7B, 350M or 124000000, at most 2^44"
#define SIZE_HELP "a size such as 64G (K, M, G or T)"

static const struct plan_flag {
	const char *name;
	int (*set)(struct plan_request *request, const char *value);
	const char *takes;
} plan_flags[] = {
	{ "parameters", set_parameters, COUNT_HELP },
	{ "world-size", set_world_size, "a number from 1 to 1024" },
	{ "local-ranks", set_local_ranks, "a number from 1 to 1024" },
	{ "format", set_format, "bf16, fp16 or fp32" },
	{ "optimizer", set_optimizer, "adamw, adam, lion, momentum, none or sgd" },
	{ "moments", set_moments, "fp32, bf16 or int8" },
	{ "stage", set_stage, "0, 1, 2 or 3" },
	{ "largest-unit", set_largest_unit, COUNT_HELP },
	{ "micro-batches", set_micro_batches, "a number from 1 to 65536" },
	{ "gradients", set_gradients, "host or nvme" },
	{ "frozen", set_frozen, SIZE_HELP },
	{ "durability", set_durability, "step, none, or seconds from 1 to 86400" },
	{ "snapshots", set_snapshots, "a number from 0 to 14" },
	{ "step-ms", set_step_ms, "milliseconds, 1 to 4294967295" },
	{ "endurance", set_endurance, SIZE_HELP },
	{ "host", set_host, SIZE_HELP },
	{ "nvme", set_nvme, SIZE_HELP },
};

static int read_flags(struct plan_request *request, const struct command_context *context)
{
	for (size_t i = 0; i < ARRAY_LENGTH(plan_flags); i++) {
		const struct plan_flag *flag = &plan_flags[i];
		const char *value = command_flag(context, flag->name);

		if (value && flag->set(request, value) < 0)
			return command_fail(COMMAND_USAGE, "--%s cannot be '%s'; it takes %s", flag->name,
					    value, flag->takes);
	}
	if (request->model.parameters == 0 || request->model.world_size == 0)
		return command_fail(COMMAND_USAGE, "plan needs --parameters and --world-size, such as "
						   "tierctl plan --parameters 7B --world-size 8");
	request->model.is_pushed_once = command_flag(context, "pushed-once") != NULL;
	return COMMAND_DONE;
}

static int complete(struct plan_request *request)
{
	struct plan_model *model = &request->model;

	if (model->local_ranks == 0)
		model->local_ranks = model->world_size;
	if (model->largest_unit == 0)
		model->largest_unit = size_divide_up(model->parameters, USUAL_UNITS);
	if (model->local_ranks > model->world_size)
		return command_fail(COMMAND_USAGE, "--local-ranks %u are more than --world-size %u",
				    model->local_ranks, model->world_size);
	if (model->is_gradient_nvme && request->stage >= 0 && request->stage < 2)
		return command_fail(
			COMMAND_USAGE,
			"--gradients nvme needs stage 2 or 3: --stage %d keeps a sum for each rank",
			request->stage);
	if (model->is_pushed_once && model->micro_batches > 1)
		return command_fail(COMMAND_USAGE, "of %u --micro-batches each unit is pushed, not once",
				    model->micro_batches);
	if (model->largest_unit > model->parameters)
		return command_fail(COMMAND_USAGE,
				    "--largest-unit %" PRIu64 " is more than --parameters %" PRIu64,
				    model->largest_unit, model->parameters);
	if (!request->is_durable && model->snapshots > 0)
		return command_fail(COMMAND_USAGE,
				    "--snapshots are of jobs that are durable, and --durability is none");
	if (model->frozen_bytes > PLAN_MAX_FROZEN_BYTES)
		return command_fail(COMMAND_USAGE, "--frozen %" PRIu64 " bytes are more than 64T",
				    model->frozen_bytes);
	assert(plan_check(model) == 0);
	return COMMAND_DONE;
}

static uint64_t left_of(uint64_t whole, uint64_t used)
{
	return whole > used ? whole - used : 0;
}

/* All paths are written alike, so the first one that is worn out ends it for all. */
static void look_at_endurance(const Tierd__Wire__NodeReply *node, struct plan_request *request)
{
	uint64_t least = UINT64_MAX;

	for (size_t i = 0; i < node->n_paths; i++) {
		uint64_t left = left_of(node->paths[i]->endurance_bytes, node->paths[i]->written_ever_bytes);

		if (node->paths[i]->endurance_bytes == 0)
			return;
		least = left < least ? left : least;
	}
	if (node->n_paths == 0 || request->has_endurance)
		return;
	request->has_endurance = true;
	request->endurance_bytes = least * node->n_paths;
}

/* What is free, from the daemon if there is one; flags win. */
static void look_at_node(const struct command_context *context, struct plan_request *request)
{
	_cleanup_(ask_freep) struct ask *ask = NULL;
	const Tierd__Wire__NodeReply *node;
	uint64_t nvme = 0;

	request->source = "flags";
	if (request->has_host && request->has_nvme && (request->step_ms == 0 || request->has_endurance))
		return;
	if (ask_open(context->socket, &ask) < 0 || command_ask_node(ask, &node) != COMMAND_DONE) {
		request->source = request->has_host || request->has_nvme ? "flags" : NULL;
		return;
	}
	request->source = context->socket;
	request->connections = node->connections_per_user;
	look_at_endurance(node, request);
	for (size_t i = 0; i < node->n_paths; i++)
		nvme += left_of(node->paths[i]->capacity_bytes, node->paths[i]->used_bytes);
	if (!request->has_host)
		/* Caches shrink for a job that needs the memory. */
		request->host_bytes = left_of(node->host_budget_bytes,
					      left_of(node->host_used_bytes, node->host_cache_bytes));
	if (!request->has_nvme)
		request->nvme_bytes = nvme;
	request->has_host = request->has_nvme = true;
}

/* ---- Results ---------------------------------------------------------------------------------------------
 */

static bool lacks_host(const struct plan_request *request, const struct plan_place *place)
{
	return request->has_host && place->host_bytes > request->host_bytes;
}

static bool lacks_nvme(const struct plan_request *request, const struct plan_place *place)
{
	return request->has_nvme && place->nvme_bytes > request->nvme_bytes;
}

/* Where something is not known, what needs nothing of it, or lacks the other, can be judged all the same. */
static bool is_known(const struct plan_request *request, const struct plan_place *place)
{
	return lacks_host(request, place) || lacks_nvme(request, place) ||
	       (request->has_host && (request->has_nvme || place->nvme_bytes == 0));
}

static bool fits(const struct plan_request *request, const struct plan_place *place)
{
	return !lacks_host(request, place) && !lacks_nvme(request, place);
}

/* What a job with placement = auto would get now. */
static bool is_auto(const struct plan_request *request, unsigned stage, const struct plan_place *place)
{
	struct plan_place choice;

	return request->has_host && request->has_nvme &&
	       plan_choose(&request->model, stage, request->host_bytes, request->nvme_bytes, &choice) == 0 &&
	       choice.is_parameter_nvme == place->is_parameter_nvme &&
	       choice.is_optimizer_nvme == place->is_optimizer_nvme;
}

static bool is_wanted(const struct plan_request *request, unsigned stage)
{
	return request->stage < 0 || request->stage == (int)stage;
}

static bool has_days(const struct plan_request *request, unsigned stage, const struct plan_place *place)
{
	return request->step_ms > 0 && request->has_endurance &&
	       plan_written_per_day(&request->model, stage, place, request->step_ms) > 0;
}

static uint64_t days_of(const struct plan_request *request, unsigned stage, const struct plan_place *place)
{
	return (uint64_t)((double)request->endurance_bytes /
			  plan_written_per_day(&request->model, stage, place, request->step_ms));
}

static cJSON *place_json(const struct plan_request *request, unsigned stage, const struct plan_place *place)
{
	struct plan_traffic traffic = plan_traffic(&request->model, place);
	cJSON *json = cJSON_CreateObject();

	cJSON_AddStringToObject(json, "parameters", place->is_parameter_nvme ? "nvme" : "host");
	cJSON_AddStringToObject(json, "optimizer", place->is_optimizer_nvme ? "nvme" : "host");
	cJSON_AddStringToObject(json, "gradients", place->is_gradient_nvme ? "nvme" : "host");
	cJSON_AddNumberToObject(json, "host_bytes", (double)place->host_bytes);
	cJSON_AddNumberToObject(json, "host_parameter_bytes", (double)place->parameters_host);
	cJSON_AddNumberToObject(json, "host_gradient_bytes", (double)place->gradients_host);
	cJSON_AddNumberToObject(json, "host_optimizer_bytes", (double)place->optimizer_host);
	cJSON_AddNumberToObject(json, "host_buffer_bytes", (double)place->buffers_host);
	cJSON_AddNumberToObject(json, "nvme_bytes", (double)place->nvme_bytes);
	cJSON_AddNumberToObject(json, "update_read_bytes_per_parameter", traffic.update_read);
	cJSON_AddNumberToObject(json, "update_written_bytes_per_parameter", traffic.update_written);
	cJSON_AddNumberToObject(json, "gather_read_bytes_per_parameter", traffic.gather_read);
	cJSON_AddNumberToObject(json, "gradient_read_bytes_per_parameter", traffic.gradient_read);
	cJSON_AddNumberToObject(json, "gradient_written_bytes_per_parameter", traffic.gradient_written);
	if (request->step_ms > 0)
		cJSON_AddNumberToObject(
			json, "written_bytes_per_day",
			plan_written_per_day(&request->model, stage, place, request->step_ms));
	if (has_days(request, stage, place))
		cJSON_AddNumberToObject(json, "endurance_days", (double)days_of(request, stage, place));
	if (is_known(request, place))
		cJSON_AddBoolToObject(json, "fits", fits(request, place));
	if (request->has_host && request->has_nvme)
		cJSON_AddBoolToObject(json, "is_auto", is_auto(request, stage, place));
	return json;
}

static cJSON *stage_json(const struct plan_request *request, unsigned stage)
{
	struct plan_memory memory = plan_memory(&request->model, stage);
	cJSON *json = cJSON_CreateObject(), *places;
	struct plan_place place;

	cJSON_AddNumberToObject(json, "stage", stage);
	cJSON_AddNumberToObject(json, "parameter_bytes_per_rank", (double)memory.parameters);
	cJSON_AddNumberToObject(json, "gradient_bytes_per_rank", (double)memory.gradients);
	cJSON_AddNumberToObject(json, "optimizer_bytes_per_rank", (double)memory.optimizer);
	cJSON_AddNumberToObject(json, "bytes_per_rank", (double)memory.total);
	cJSON_AddNumberToObject(json, "communicated_elements_per_rank",
				(double)plan_communication(&request->model, stage));
	places = cJSON_AddArrayToObject(json, "placements");
	for (unsigned choice = 0; choice < 4; choice++)
		if (plan_place(&request->model, stage, choice & 2, choice & 1, &place) == 0)
			cJSON_AddItemToArray(places, place_json(request, stage, &place));
	return json;
}

static int print_json(const struct plan_request *request)
{
	const struct plan_model *model = &request->model;
	cJSON *json = cJSON_CreateObject(), *stages;

	cJSON_AddNumberToObject(json, "parameters", (double)model->parameters);
	cJSON_AddNumberToObject(json, "frozen_bytes", (double)model->frozen_bytes);
	cJSON_AddStringToObject(json, "format", plan_format_name(model->format));
	cJSON_AddStringToObject(json, "optimizer", model->optimizer);
	cJSON_AddStringToObject(json, "moments", plan_moments_name(model->moments));
	cJSON_AddNumberToObject(json, "world_size", model->world_size);
	cJSON_AddNumberToObject(json, "local_ranks", model->local_ranks);
	cJSON_AddNumberToObject(json, "largest_unit", (double)model->largest_unit);
	cJSON_AddNumberToObject(json, "micro_batches", model->micro_batches);
	cJSON_AddNumberToObject(json, "snapshots", model->snapshots);
	cJSON_AddBoolToObject(json, "is_durable", model->is_durable);
	if (request->has_host)
		cJSON_AddNumberToObject(json, "host_free_bytes", (double)request->host_bytes);
	if (request->has_nvme)
		cJSON_AddNumberToObject(json, "nvme_free_bytes", (double)request->nvme_bytes);
	if (request->connections > 0)
		cJSON_AddNumberToObject(json, "connections_per_user", request->connections);
	stages = cJSON_AddArrayToObject(json, "stages");
	for (unsigned stage = 0; stage < PLAN_STAGES; stage++)
		if (is_wanted(request, stage))
			cJSON_AddItemToArray(stages, stage_json(request, stage));
	return command_print_json(json);
}

static int print_memory(const struct plan_request *request)
{
	static const char *const titles[] = { ">STAGE", ">PARAMETERS",	  ">GRADIENTS", ">OPTIMIZER",
					      ">TOTAL", ">ELEMENTS SENT", NULL };
	_cleanup_(table_freep) struct table *table = table_new(titles);

	for (unsigned stage = 0; table && stage < PLAN_STAGES; stage++) {
		struct plan_memory memory = plan_memory(&request->model, stage);

		if (!is_wanted(request, stage))
			continue;
		table_add(table, "%u", stage);
		table_add_bytes(table, memory.parameters);
		table_add_bytes(table, memory.gradients);
		table_add_bytes(table, memory.optimizer);
		table_add_bytes(table, memory.total);
		table_add_count(table, plan_communication(&request->model, stage));
	}
	puts("Each rank, by the formulas of ZeRO; elements sent in a step:\n");
	return command_print_table(table);
}

static void add_fit(struct table *table, const struct plan_request *request, unsigned stage,
		    const struct plan_place *place)
{
	bool no_host = lacks_host(request, place), no_nvme = lacks_nvme(request, place);

	if (!is_known(request, place))
		table_add(table, "?");
	else if (fits(request, place))
		table_add(table, "yes%s", is_auto(request, stage, place) ? ", auto" : "");
	else
		table_add(table, "no: %s%s%s", no_host ? "host" : "", no_host && no_nvme ? ", " : "",
			  no_nvme ? "NVMe" : "");
}

/* Two decimals at most: "6", "4.03". */
static const char *text_traffic(double bytes, char text[TEXT_SIZE])
{
	snprintf(text, TEXT_SIZE, "%.10g", round(bytes * 100) / 100);
	return text;
}

static void add_traffic(struct table *table, double read, double written)
{
	char a[TEXT_SIZE], b[TEXT_SIZE];

	table_add(table, "%s + %s", text_traffic(read, a), text_traffic(written, b));
}

static void add_place(struct table *table, const struct plan_request *request, unsigned stage,
		      const struct plan_place *place)
{
	struct plan_traffic traffic = plan_traffic(&request->model, place);
	char text[TEXT_SIZE];

	table_add(table, "%u", stage);
	table_add(table, place->is_parameter_nvme ? "nvme" : "host");
	table_add(table, place->is_optimizer_nvme ? "nvme" : "host");
	table_add(table, place->is_gradient_nvme ? "nvme" : "host");
	table_add_bytes(table, place->host_bytes);
	table_add_bytes(table, place->nvme_bytes);
	add_traffic(table, traffic.update_read, traffic.update_written);
	table_add(table, "%s", text_traffic(traffic.gather_read, text));
	add_traffic(table, traffic.gradient_read, traffic.gradient_written);
	if (request->step_ms > 0)
		table_add_bytes(table, (uint64_t)plan_written_per_day(&request->model, stage, place,
								      request->step_ms));
	if (request->step_ms > 0 && has_days(request, stage, place))
		table_add_count(table, days_of(request, stage, place));
	else if (request->step_ms > 0)
		table_add(table, "-");
	add_fit(table, request, stage, place);
}

static int print_places(const struct plan_request *request)
{
	static const char *const titles[] = { ">STAGE",		"PARAMETERS",  "OPTIMIZER",
					      "3SUMS",		">HOST",       ">NVME",
					      "1>UPDATE R + W", "1>GATHERS R", "2>SUMS R + W",
					      "FITS",		NULL };
	static const char *const titles_by_day[] = {
		">STAGE",      "PARAMETERS",	 "OPTIMIZER",	"3SUMS",	">HOST",
		">NVME",       "2>UPDATE R + W", "2>GATHERS R", "2>SUMS R + W", "1>WRITTEN A DAY",
		">LASTS DAYS", "FITS",		 NULL
	};
	_cleanup_(table_freep) struct table *table = table_new(request->step_ms > 0 ? titles_by_day : titles);
	struct plan_place place;

	for (unsigned stage = 0; table && stage < PLAN_STAGES; stage++)
		for (unsigned choice = 0; is_wanted(request, stage) && choice < 4; choice++)
			if (plan_place(&request->model, stage, choice & 2, choice & 1, &place) == 0)
				add_place(table, request, stage, &place);
	puts("\nThis node, by placement; NVMe bytes moved per parameter and step:\n");
	return command_print_table(table);
}

/* Each rank has a connection. */
static void print_connections(const struct plan_request *request)
{
	unsigned ranks = request->model.local_ranks;

	if (request->connections == 0 || ranks <= request->connections)
		return;
	printf("\n%u ranks take a connection each, but a user may have %u here: connections_per_user in "
	       "tierd.conf(5) has to be raised\n",
	       ranks, request->connections);
}

static void print_model(const struct plan_model *model)
{
	bool has_moments = model->moments && model->slots > 0;
	char a[TEXT_SIZE], b[TEXT_SIZE];

	printf("%s parameters in %s with %s%s%s%s over %u rank%s, %u of them here; largest unit %s, %u "
	       "micro-batch%s",
	       text_count(model->parameters, a), plan_format_name(model->format), model->optimizer,
	       has_moments ? " (moments in " : "", has_moments ? plan_moments_name(model->moments) : "",
	       has_moments ? ")" : "", model->world_size, PLURAL(model->world_size), model->local_ranks,
	       text_count(model->largest_unit, b), model->micro_batches,
	       model->micro_batches == 1 ? "" : "es");
	if (model->frozen_bytes > 0)
		printf("; %s frozen", text_bytes(model->frozen_bytes, a));
	if (!model->is_durable)
		printf("; not durable");
	if (model->is_pushed_once)
		printf("; each unit pushed once%s",
		       model->world_size > 1		       ? ", which saves nothing with several ranks"
		       : strcmp(model->optimizer, "none") == 0 ? ", which saves nothing with none"
							       : "");
	putchar('\n');
}

static int print_tables(const struct plan_request *request)
{
	char a[TEXT_SIZE], b[TEXT_SIZE];
	int code;

	print_model(&request->model);
	if (request->has_host && request->has_nvme)
		printf("Free here (%s): %s of host memory, %s of NVMe\n\n", request->source,
		       text_bytes(request->host_bytes, a), text_bytes(request->nvme_bytes, b));
	else if (request->has_host)
		printf("Free here (%s): %s of host memory; no tierd answers, so --nvme would have to say "
		       "what else "
		       "there is\n\n",
		       request->source, text_bytes(request->host_bytes, a));
	else if (request->has_nvme)
		printf("Free here (%s): %s of NVMe; no tierd answers, so --host would have to say what else "
		       "there "
		       "is\n\n",
		       request->source, text_bytes(request->nvme_bytes, b));
	else
		printf("No tierd answers, so what fits is unknown; --host and --nvme say what there is\n\n");
	code = print_memory(request);
	if (code == COMMAND_DONE)
		code = print_places(request);
	if (code == COMMAND_DONE)
		print_connections(request);
	return code;
}

int command_plan(const struct command_context *context)
{
	struct plan_request request = {
		.model = { .micro_batches = 1, .gradient_buffers = 2, .format = PLAN_BF16 },
		.stage = -1,
		.is_durable = true,
	};
	int code;

	plan_set_optimizer(&request.model, "adamw");
	code = read_flags(&request, context);
	if (code == COMMAND_DONE)
		code = complete(&request);
	if (code != COMMAND_DONE)
		return code;
	look_at_node(context, &request);
	request.model.is_durable = request.is_durable && (!request.has_nvme || request.nvme_bytes > 0);
	return context->is_json ? print_json(&request) : print_tables(&request);
}
