#include "client/tierctl/import_flags.h"

#include <errno.h>
#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "client/tierctl/plan.h"

#define MOST_SECONDS 86400
#define MOST_SNAPSHOTS 14

/* ---- Values ---- */

/* names: a choice is its index; NULL: there is none of that number. */
static int choose(const char *const *names, size_t count, const char *text, uint32_t *choice)
{
	for (uint32_t i = 0; i < count; i++)
		if (names[i] && strcmp(names[i], text) == 0) {
			*choice = i;
			return 0;
		}
	return -EINVAL;
}

#define CHOOSE(names, text, choice) choose(names, ARRAY_LENGTH(names), text, choice)

static int parse_real(const char *text, size_t length, float *real)
{
	char digits[40];
	char *end;

	if (length == 0 || length >= sizeof(digits))
		return -EINVAL;
	snprintf(digits, sizeof(digits), "%.*s", (int)length, text);
	*real = strtof(digits, &end);
	return *end == '\0' && isfinite(*real) ? 0 : -EINVAL;
}

static int set_optimizer(struct import_flags *flags, const char *text)
{
	static const char *const names[] = { [TIERD_ADAMW] = "adamw",
					     [TIERD_ADAM] = "adam",
					     [TIERD_SGD] = "sgd",
					     [TIERD_LION] = "lion",
					     [TIERD_NONE] = "none" };

	flags->tensors.is_trainable = true;
	return CHOOSE(names, text, &flags->tensors.optimizer);
}

static int set_format(struct import_flags *flags, const char *text)
{
	static const char *const names[] = {
		[TIERD_FP32] = "fp32", [TIERD_BF16] = "bf16", [TIERD_FP16] = "fp16"
	};

	return CHOOSE(names, text, &flags->tensors.format);
}

static int set_stage(struct import_flags *flags, const char *text)
{
	static const char *const names[] = { "0", "1", "2", "3" };

	return CHOOSE(names, text, &flags->job.stage);
}

static int set_placement(const char *text, uint32_t *placement)
{
	static const char *const names[] = {
		[TIERD_PLACE_HOST] = "host", [TIERD_PLACE_NVME] = "nvme", [TIERD_PLACE_AUTO] = "auto"
	};

	return CHOOSE(names, text, placement);
}

static int set_parameters_on(struct import_flags *flags, const char *text)
{
	return set_placement(text, &flags->job.parameter_placement);
}

static int set_optimizer_on(struct import_flags *flags, const char *text)
{
	return set_placement(text, &flags->job.optimizer_placement);
}

static int set_gradients_on(struct import_flags *flags, const char *text)
{
	int r = set_placement(text, &flags->job.gradient_placement);

	return r == 0 && flags->job.gradient_placement == TIERD_PLACE_AUTO ? -EINVAL : r;
}

static int set_durability(struct import_flags *flags, const char *text)
{
	uint64_t seconds = 0;

	if (strcmp(text, "step") == 0)
		flags->job.durability = TIERD_DURABILITY_STEP;
	else if (strcmp(text, "none") == 0)
		flags->job.durability = TIERD_DURABILITY_NONE;
	else if (plan_parse_count(text, &seconds) == 0 && seconds >= 1 && seconds <= MOST_SECONDS)
		flags->job.durability = (uint32_t)seconds;
	else
		return -EINVAL;
	return 0;
}

static int set_host_budget(struct import_flags *flags, const char *text)
{
	return plan_parse_bytes(text, &flags->job.host_budget);
}

static int set_nvme_budget(struct import_flags *flags, const char *text)
{
	return plan_parse_bytes(text, &flags->job.nvme_budget);
}

static int set_blobs(struct import_flags *flags, const char *text)
{
	return plan_parse_bytes(text, &flags->job.blob_bytes);
}

static int set_clip(struct import_flags *flags, const char *text)
{
	return parse_real(text, strlen(text), &flags->job.clip_norm);
}

static bool is_text(const char *text, size_t length, const char *other)
{
	return strlen(other) == length && strncmp(text, other, length) == 0;
}

/* What is no number. */
static bool set_choice(struct tierd_group *group, const char *text, size_t length)
{
	if (is_text(text, length, "nesterov"))
		group->nesterov = true;
	else if (is_text(text, length, "moments=fp32"))
		group->moments = TIERD_MOMENTS_FP32;
	else if (is_text(text, length, "moments=bf16"))
		group->moments = TIERD_MOMENTS_BF16;
	else if (is_text(text, length, "moments=int8"))
		group->moments = TIERD_MOMENTS_INT8;
	else
		return false;
	return true;
}

/* NAME=X, by the names that they have in tierd.h. */
static int set_rate(struct tierd_group *group, const char *text, size_t length)
{
	static const struct {
		const char *name;
		size_t offset;
	} rates[] = {
		{ "learning_rate", offsetof(struct tierd_group, learning_rate) },
		{ "beta1", offsetof(struct tierd_group, beta1) },
		{ "beta2", offsetof(struct tierd_group, beta2) },
		{ "epsilon", offsetof(struct tierd_group, epsilon) },
		{ "weight_decay", offsetof(struct tierd_group, weight_decay) },
		{ "momentum", offsetof(struct tierd_group, momentum) },
		{ "dampening", offsetof(struct tierd_group, dampening) },
	};
	size_t name = strcspn(text, "=");

	if (set_choice(group, text, length))
		return 0;
	for (size_t i = 0; i < ARRAY_LENGTH(rates) && name < length; i++)
		if (strlen(rates[i].name) == name && strncmp(rates[i].name, text, name) == 0)
			return parse_real(text + name + 1, length - name - 1,
					  (float *)((char *)group + rates[i].offset));
	return -EINVAL;
}

static int set_group(struct import_flags *flags, const char *text)
{
	int r;

	for (const char *rate = text;; rate++) {
		size_t length = strcspn(rate, ",");

		r = set_rate(&flags->group, rate, length);
		rate += length;
		if (r < 0 || !*rate)
			break;
	}
	flags->job.groups = &flags->group;
	flags->job.group_count = 1;
	flags->tensors.has_momentum = flags->group.momentum != 0;
	return r;
}

/* ---- Flags ---- */

#define SIZE_HELP "a size such as 64G (K, M, G or T)"

static const struct import_flag {
	const char *name;
	int (*set)(struct import_flags *flags, const char *text);
	const char *takes;
	bool is_of_training;
} import_flags[] = {
	{ "optimizer", set_optimizer, "adamw, adam, sgd, lion or none", false },
	{ "format", set_format, "bf16, fp16 or fp32", true },
	{ "group", set_group,
	  "rates such as weight_decay=0.1,beta2=0.95; they are learning_rate, beta1, beta2, epsilon, "
	  "weight_decay, momentum, dampening, moments (fp32, bf16 or int8), and nesterov, which has no value",
	  true },
	{ "clip", set_clip, "a norm such as 1.0", true },
	{ "stage", set_stage, "0, 1, 2 or 3", false },
	{ "parameters-on", set_parameters_on, "host, nvme or auto", false },
	{ "optimizer-on", set_optimizer_on, "host, nvme or auto", true },
	{ "gradients-on", set_gradients_on, "host or nvme", true },
	{ "durability", set_durability, "step, none, or seconds from 1 to 86400", false },
	{ "host-budget", set_host_budget, SIZE_HELP, false },
	{ "nvme-budget", set_nvme_budget, SIZE_HELP, false },
	{ "blobs", set_blobs, SIZE_HELP, false },
};

static int read_flag(const struct command_context *context, const struct import_flag *flag,
		     struct import_flags *flags)
{
	const char *text = command_flag(context, flag->name);

	if (!text)
		return COMMAND_DONE;
	if (flag->is_of_training && !flags->tensors.is_trainable)
		return command_fail(COMMAND_USAGE, "--%s is of what is trained; say with which --optimizer",
				    flag->name);
	if (flag->set(flags, text) < 0)
		return command_fail(COMMAND_USAGE, "--%s cannot be '%s'; it takes %s", flag->name, text,
				    flag->takes);
	return COMMAND_DONE;
}

static int read_number(const struct command_context *context, const char *name, uint32_t least, uint32_t most,
		       uint32_t *number)
{
	uint64_t wide = *number;
	int code = command_flag_number(context, name, least, most, &wide);

	*number = (uint32_t)wide;
	return code;
}

/* Of a frozen job nothing ever changes that a snapshot would keep. */
static int read_snapshots(const struct command_context *context, struct tierd_job_options *job)
{
	bool is_said = command_flag(context, "snapshots") != NULL;
	int code = read_number(context, "snapshots", 0, MOST_SNAPSHOTS, &job->snapshots);

	if (job->snapshots == 0 && (is_said || !command_flag(context, "optimizer")))
		job->snapshots = TIERD_NO_SNAPSHOTS;
	return code;
}

static int read_numbers(const struct command_context *context, struct tierd_job_options *job)
{
	int code = read_number(context, "world-size", 1, TIERD_MAX_WORLD_SIZE, &job->world_size);

	if (code == COMMAND_DONE)
		code = read_snapshots(context, job);
	if (code == COMMAND_DONE)
		code = command_flag_number(context, "snapshot-every", 1, UINT64_MAX, &job->snapshot_every);
	return code == COMMAND_DONE
		       ? read_number(context, "snapshot-keep", 1, MOST_SNAPSHOTS, &job->snapshot_keep)
		       : code;
}

/* All on NVMe, as far as the stage allows: it is there when the importer has gone, and the daemon, too. */
static void place(struct tierd_job_options *job)
{
	if (job->parameter_placement == TIERD_PLACE_DEFAULT)
		job->parameter_placement = job->stage == 3 ? TIERD_PLACE_NVME : TIERD_PLACE_HOST;
	if (job->optimizer_placement == TIERD_PLACE_DEFAULT)
		job->optimizer_placement = TIERD_PLACE_NVME;
}

int import_flags_read(const struct command_context *context, struct import_flags *flags)
{
	int code = COMMAND_DONE;

	*flags = (struct import_flags){ .tensors = { .step = command_flag(context, "step"),
						     .ignored = command_flag(context, "ignore"),
						     .optimizer = TIERD_NONE },
					.job = TIERD_JOB_OPTIONS_INIT,
					.group = TIERD_GROUP_INIT };
	for (size_t i = 0; i < ARRAY_LENGTH(import_flags) && code == COMMAND_DONE; i++)
		code = read_flag(context, &import_flags[i], flags);
	if (code == COMMAND_DONE)
		code = read_numbers(context, &flags->job);
	flags->job.optimizer = flags->tensors.optimizer;
	flags->job.mode = command_flag(context, "replace") ? TIERD_REPLACE : TIERD_CREATE;
	place(&flags->job);
	return code;
}
