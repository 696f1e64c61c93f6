#include "client/tierctl/plan_flags.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "client/tierctl/flag_values.h"
#include "common/size.h"

static int set_optimizer(const struct flag_value *flag, const char *text, void *place)
{
	const struct plan_optimizer *optimizer = plan_find_optimizer(text);

	*(const struct plan_optimizer **)place = optimizer;
	return optimizer ? 0 : -EINVAL;
}

static int set_snapshots(const struct flag_value *flag, const char *text, void *place)
{
	uint64_t number;

	if (!command_read_number(text, PLAN_MAX_SNAPSHOTS, &number))
		return -EINVAL;
	*(int *)place = (int)number;
	return 0;
}

static int set_gpus(const struct flag_value *flag, const char *text, void *place)
{
	return plan_gpus_parse(text, place);
}

/* In GB/s. */
static int set_rate(const struct flag_value *flag, const char *text, void *place)
{
	char giga[24];
	uint64_t rate;

	if (snprintf(giga, sizeof(giga), "%sG", text) >= (int)sizeof(giga) ||
	    plan_parse_count(giga, &rate) < 0 || rate < PLAN_PCIE_LEAST || rate > PLAN_PCIE_MOST)
		return -EINVAL;
	*(uint64_t *)place = rate;
	return 0;
}

static const char *const moments[] = {
	[PLAN_MOMENTS_FP32] = "fp32", [PLAN_MOMENTS_BF16] = "bf16", [PLAN_MOMENTS_INT8] = "int8", NULL
};

#define COUNT_HELP "a count such as 7B, 350M or 124000000, at most 2^44"
#define IN(member) offsetof(struct plan_request, member)

/* clang-format off */
static const struct flag_value values[] = {
	{ "parameters", COUNT_HELP, flag_set_count, IN(size.parameters), .most = PLAN_MAX_PARAMETERS },
	{ "like", "the name of a job", flag_set_text, IN(like) },
	{ "layers", "a number from 1 to 4096", flag_set_count, IN(gpt.layers), .most = 4096 },
	{ "width", "a number from 1 to 65536", flag_set_count, IN(gpt.width), .most = 65536 },
	{ "context", "a number from 1 to 65536", flag_set_count, IN(gpt.context), .most = 65536 },
	{ "units", "a file", flag_set_text, IN(units) },
	{ "world-size", "a number from 1 to 1024", flag_set_number, IN(world_size), .most = PLAN_MAX_RANKS },
	{ "local-ranks", "a number from 1 to 1024", flag_set_number, IN(local_ranks), .most = PLAN_MAX_RANKS },
	{ "format", "bf16, fp16 or fp32", flag_set_choice, IN(size.format), IN(has_format), .choices = flag_formats },
	{ "optimizer", "adamw, adam, lion, momentum, none or sgd", set_optimizer, IN(optimizer) },
	{ "moments", "fp32, bf16 or int8", flag_set_choice, IN(moments), .choices = moments },
	{ "stage", "0, 1, 2 or 3", flag_set_choice, IN(stage), .choices = flag_stages },
	{ "largest-unit", COUNT_HELP, flag_set_count, IN(size.largest_unit), .most = PLAN_MAX_PARAMETERS },
	{ "micro-batches", "a number from 1 to 65536", flag_set_number, IN(micro_batches),
	  .most = PLAN_MAX_MICRO_BATCHES },
	{ "gradient-buffers", "a number from 1 to 64", flag_set_number, IN(gradient_buffers),
	  .most = WIRE_MAX_GRADIENT_BUFFERS },
	{ "gradient-bytes", FLAG_SIZE_HELP, flag_set_bytes, IN(gradient_bytes), .most = WIRE_MAX_GRADIENT_BYTES },
	{ "gradients", "host or nvme", flag_set_choice, IN(gradients), .choices = flag_places },
	{ "groups", "a number from 1 to 1024", flag_set_number, IN(groups), .most = WIRE_MAX_GROUPS },
	{ "frozen", FLAG_SIZE_HELP, flag_set_bytes, IN(size.frozen_bytes) },
	{ "blobs", FLAG_SIZE_HELP, flag_set_bytes, IN(blob_bytes), IN(has_blobs) },
	{ "host-budget", FLAG_SIZE_HELP, flag_set_bytes, IN(host_budget) },
	{ "nvme-budget", FLAG_SIZE_HELP, flag_set_bytes, IN(nvme_budget) },
	{ "durability", FLAG_DURABILITY_HELP, flag_set_durability, IN(durability) },
	{ "snapshots", "a number from 0 to 14", set_snapshots, IN(snapshots) },
	{ "step-ms", "milliseconds, 1 to 4294967295", flag_set_count, IN(step_ms), .most = UINT32_MAX },
	{ "endurance", FLAG_SIZE_HELP, flag_set_bytes, IN(endurance_bytes), IN(has_endurance) },
	{ "gpu", "how many there are and the memory of each, such as 4x24G, or 24G of one for each rank", set_gpus, IN(gpus) },
	{ "activations", FLAG_SIZE_HELP, flag_set_bytes, IN(gpus.activation_bytes), .most = PLAN_MAX_FROZEN_BYTES },
	{ "pcie", "GB/s from 0.1 to 1000, such as 25", set_rate, IN(gpus.pcie_rate) },
	{ "host", FLAG_SIZE_HELP, flag_set_bytes, IN(host_bytes), IN(has_host) },
	{ "nvme", FLAG_SIZE_HELP, flag_set_bytes, IN(nvme_bytes), IN(has_nvme) },
};
/* clang-format on */

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

static int check_gpus(struct plan_gpus *gpus)
{
	if (gpus->bytes == 0 && (gpus->activation_bytes > 0 || gpus->pcie_rate > 0))
		return command_fail(COMMAND_USAGE, "--activations and --pcie are of GPUs: --gpu COUNTxSIZE "
						   "says which, such as 4x24G");
	if (gpus->pcie_rate == 0)
		gpus->pcie_rate = PLAN_PCIE_USUAL;
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
	int code = flag_values_read(context, values, ARRAY_LENGTH(values), request);

	if (code != COMMAND_DONE)
		return code;
	request->gpt.format = request->size.format;
	request->file = context->count > 0 ? context->arguments[0] : NULL;
	request->is_pushed_once = command_flag(context, "pushed-once") != NULL;
	if (request->gpt.layers == 0 && (request->gpt.width > 0 || request->gpt.context > 0))
		return command_fail(COMMAND_USAGE, "--width and --context are of so many --layers");
	complete_gpt(&request->gpt);
	code = check_model(request);
	if (code == COMMAND_DONE)
		code = check_size(request);
	if (code == COMMAND_DONE)
		code = check_job(request);
	return code == COMMAND_DONE ? check_gpus(&request->gpus) : code;
}
