#include "client/tierctl/plan_flags.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "common/size.h"

/* ---- Values ---- */

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
	return set_count(&request->size.parameters, value, PLAN_MAX_PARAMETERS);
}

static int set_like(struct plan_request *request, const char *value)
{
	request->like = value;
	return 0;
}

static int set_units(struct plan_request *request, const char *value)
{
	request->units = value;
	return 0;
}

static int set_layers(struct plan_request *request, const char *value)
{
	return set_count(&request->gpt.layers, value, 4096);
}

static int set_width(struct plan_request *request, const char *value)
{
	return set_count(&request->gpt.width, value, 65536);
}

static int set_context(struct plan_request *request, const char *value)
{
	return set_count(&request->gpt.context, value, 65536);
}

static int set_world_size(struct plan_request *request, const char *value)
{
	return set_small(&request->world_size, value, PLAN_MAX_RANKS);
}

static int set_local_ranks(struct plan_request *request, const char *value)
{
	return set_small(&request->local_ranks, value, PLAN_MAX_RANKS);
}

static int set_format(struct plan_request *request, const char *value)
{
	static const uint32_t formats[] = {
		[PLAN_BF16] = TIERD_BF16, [PLAN_FP16] = TIERD_FP16, [PLAN_FP32] = TIERD_FP32
	};
	enum plan_format format = PLAN_BF16;
	int r = plan_find_format(value, &format);

	request->has_format = true;
	request->size.format = request->gpt.format = formats[format];
	return r;
}

static int set_optimizer(struct plan_request *request, const char *value)
{
	request->optimizer = plan_find_optimizer(value);
	return request->optimizer ? 0 : -EINVAL;
}

static int set_moments(struct plan_request *request, const char *value)
{
	enum plan_moments moments = PLAN_MOMENTS_FP32;
	int r = plan_find_moments(value, &moments);

	request->moments = (int)moments;
	return r;
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
	return set_count(&request->size.largest_unit, value, PLAN_MAX_PARAMETERS);
}

static int set_micro_batches(struct plan_request *request, const char *value)
{
	return set_small(&request->micro_batches, value, PLAN_MAX_MICRO_BATCHES);
}

static int set_gradient_buffers(struct plan_request *request, const char *value)
{
	return set_small(&request->gradient_buffers, value, WIRE_MAX_GRADIENT_BUFFERS);
}

static int set_groups(struct plan_request *request, const char *value)
{
	return set_small(&request->groups, value, WIRE_MAX_GROUPS);
}

static int set_gradient_bytes(struct plan_request *request, const char *value)
{
	int r = plan_parse_bytes(value, &request->gradient_bytes);

	return r == 0 && request->gradient_bytes - 1 >= WIRE_MAX_GRADIENT_BYTES ? -EINVAL : r;
}

static int set_gradients(struct plan_request *request, const char *value)
{
	request->gradients = strcmp(value, "nvme") == 0 ? PLACEMENT_NVME : PLACEMENT_HOST;
	return strcmp(value, "nvme") == 0 || strcmp(value, "host") == 0 ? 0 : -EINVAL;
}

static int set_frozen(struct plan_request *request, const char *value)
{
	return plan_parse_bytes(value, &request->size.frozen_bytes);
}

static int set_blobs(struct plan_request *request, const char *value)
{
	request->has_blobs = true;
	return plan_parse_bytes(value, &request->blob_bytes);
}

static int set_snapshots(struct plan_request *request, const char *value)
{
	uint64_t number;

	if (!command_read_number(value, PLAN_MAX_SNAPSHOTS, &number))
		return -EINVAL;
	request->snapshots = (int)number;
	return 0;
}

static int set_durability(struct plan_request *request, const char *value)
{
	return plan_parse_durability(value, &request->durability);
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

static int set_host_budget(struct plan_request *request, const char *value)
{
	return plan_parse_bytes(value, &request->host_budget);
}

static int set_nvme_budget(struct plan_request *request, const char *value)
{
	return plan_parse_bytes(value, &request->nvme_budget);
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

/* ---- Flags ---- */

#define COUNT_HELP "a count such as 7B, 350M or 124000000, at most 2^44"
#define SIZE_HELP "a size such as 64G (K, M, G or T)"

static const struct plan_flag {
	const char *name;
	int (*set)(struct plan_request *request, const char *value);
	const char *takes;
} plan_flags[] = {
	{ "parameters", set_parameters, COUNT_HELP },
	{ "like", set_like, "the name of a job" },
	{ "layers", set_layers, "a number from 1 to 4096" },
	{ "width", set_width, "a number from 1 to 65536" },
	{ "context", set_context, "a number from 1 to 65536" },
	{ "units", set_units, "a file" },
	{ "world-size", set_world_size, "a number from 1 to 1024" },
	{ "local-ranks", set_local_ranks, "a number from 1 to 1024" },
	{ "format", set_format, "bf16, fp16 or fp32" },
	{ "optimizer", set_optimizer, "adamw, adam, lion, momentum, none or sgd" },
	{ "moments", set_moments, "fp32, bf16 or int8" },
	{ "stage", set_stage, "0, 1, 2 or 3" },
	{ "largest-unit", set_largest_unit, COUNT_HELP },
	{ "micro-batches", set_micro_batches, "a number from 1 to 65536" },
	{ "gradient-buffers", set_gradient_buffers, "a number from 1 to 64" },
	{ "gradient-bytes", set_gradient_bytes, SIZE_HELP },
	{ "gradients", set_gradients, "host or nvme" },
	{ "groups", set_groups, "a number from 1 to 1024" },
	{ "frozen", set_frozen, SIZE_HELP },
	{ "blobs", set_blobs, SIZE_HELP },
	{ "host-budget", set_host_budget, SIZE_HELP },
	{ "nvme-budget", set_nvme_budget, SIZE_HELP },
	{ "durability", set_durability, "step, none, or seconds from 1 to 86400" },
	{ "snapshots", set_snapshots, "a number from 0 to 14" },
	{ "step-ms", set_step_ms, "milliseconds, 1 to 4294967295" },
	{ "endurance", set_endurance, SIZE_HELP },
	{ "host", set_host, SIZE_HELP },
	{ "nvme", set_nvme, SIZE_HELP },
};

/* ---- Together ---- */

static int check_model(const struct plan_request *request)
{
	unsigned models = (request->size.parameters > 0) + (request->gpt.layers > 0) + !!request->like +
			  !!request->file + !!request->units;

	if (models == 1 && (request->size.parameters == 0 || request->world_size > 0))
		return COMMAND_DONE;
	if (models > 1)
		return command_fail(COMMAND_USAGE, "plan is of one model: --parameters, --layers, --like, "
						   "--units or FILE");
	return command_fail(
		COMMAND_USAGE,
		"plan needs %s, such as tierctl plan --parameters 7B --world-size 8; or units that "
		"are known: FILE, --like JOB, --units FILE, or --layers and --width",
		models == 0 ? "--parameters and --world-size" : "--world-size");
}

/* Flags of a model that is made up. */
static int check_size(const struct plan_request *request)
{
	const struct plan_size *size = &request->size;

	if (size->parameters == 0 && (size->largest_unit > 0 || size->frozen_bytes > 0))
		return command_fail(
			COMMAND_USAGE,
			"--largest-unit and --frozen are of a model of which only --parameters are "
			"known: units say that themselves");
	if (size->largest_unit > size->parameters)
		return command_fail(COMMAND_USAGE,
				    "--largest-unit %" PRIu64 " is more than --parameters %" PRIu64,
				    size->largest_unit, size->parameters);
	if (size->largest_unit > 0 && size_divide_up(size->parameters, size->largest_unit) > PLAN_MAX_UNITS)
		return command_fail(COMMAND_USAGE,
				    "--largest-unit %" PRIu64
				    " makes more than %d units of --parameters %" PRIu64,
				    size->largest_unit, PLAN_MAX_UNITS, size->parameters);
	if (size->frozen_bytes > PLAN_MAX_FROZEN_BYTES)
		return command_fail(COMMAND_USAGE, "--frozen %" PRIu64 " bytes are more than 64T",
				    size->frozen_bytes);
	return COMMAND_DONE;
}

static int check_job(const struct plan_request *request)
{
	if (request->world_size > 0 && request->local_ranks > request->world_size)
		return command_fail(COMMAND_USAGE, "--local-ranks %u are more than --world-size %u",
				    request->local_ranks, request->world_size);
	if (request->gradients == PLACEMENT_NVME && request->stage >= 0 && request->stage < 2)
		return command_fail(
			COMMAND_USAGE,
			"--gradients nvme needs stage 2 or 3: --stage %d keeps a sum for each rank",
			request->stage);
	if (request->is_pushed_once && request->micro_batches > 1)
		return command_fail(COMMAND_USAGE, "of %u --micro-batches each unit is pushed, not once",
				    request->micro_batches);
	if (request->durability == DURABILITY_NONE && request->snapshots > 0)
		return command_fail(COMMAND_USAGE,
				    "--snapshots are of jobs that are durable, and --durability is none");
	if (request->has_format && (request->like || request->units))
		return command_fail(COMMAND_USAGE, "--format is of parameters whose units do not say it");
	return COMMAND_DONE;
}

/* As the example has them. */
static void complete_gpt(struct plan_gpt *gpt)
{
	if (gpt->width == 0)
		gpt->width = 256;
	if (gpt->context == 0)
		gpt->context = 128;
}

int plan_flags_read(const struct command_context *context, struct plan_request *request)
{
	int code;

	for (size_t i = 0; i < ARRAY_LENGTH(plan_flags); i++) {
		const struct plan_flag *flag = &plan_flags[i];
		const char *value = command_flag(context, flag->name);

		if (value && flag->set(request, value) < 0)
			return command_fail(COMMAND_USAGE, "--%s cannot be '%s'; it takes %s", flag->name,
					    value, flag->takes);
	}
	request->file = context->count > 0 ? context->arguments[0] : NULL;
	request->is_pushed_once = command_flag(context, "pushed-once") != NULL;
	if (request->gpt.layers == 0 && (request->gpt.width > 0 || request->gpt.context > 0))
		return command_fail(COMMAND_USAGE, "--width and --context are of so many --layers");
	complete_gpt(&request->gpt);
	code = check_model(request);
	if (code == COMMAND_DONE)
		code = check_size(request);
	return code == COMMAND_DONE ? check_job(request) : code;
}
