#include "client/tierctl/import_flags.h"

#include <errno.h>
#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "client/tierctl/flag_values.h"

#define MOST_SNAPSHOTS 14

/* ---- Rates ---- */

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

static bool is_text(const char *text, size_t length, const char *other)
{
	return strlen(other) == length && strncmp(text, other, length) == 0;
}

/* Takes a rate that is no number. */
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

static int set_clip(const struct flag_value *flag, const char *text, void *place)
{
	return parse_real(text, strlen(text), place);
}

static int set_group(const struct flag_value *flag, const char *text, void *place)
{
	struct import_flags *flags = place;
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

static const char *const optimizers[] = { [TIERD_ADAMW] = "adamw", [TIERD_ADAM] = "adam", [TIERD_SGD] = "sgd",
					  [TIERD_LION] = "lion",   [TIERD_NONE] = "none", NULL };
static const char *const places[] = {
	[TIERD_PLACE_HOST] = "host", [TIERD_PLACE_NVME] = "nvme", [TIERD_PLACE_AUTO] = "auto", NULL
};

#define RATES_HELP                                                                                           \
	"rates such as weight_decay=0.1,beta2=0.95; they are learning_rate, beta1, beta2, epsilon, "         \
	"weight_decay, momentum, dampening, moments (fp32, bf16 or int8), and nesterov, which has no value"
#define IN(member) offsetof(struct import_flags, member)

/* clang-format off */
static const struct flag_value values[] = {
	{ "optimizer", "adamw, adam, sgd, lion or none", flag_set_choice, IN(tensors.optimizer),
	  IN(tensors.is_trainable), .choices = optimizers },
	{ "stage", "0, 1, 2 or 3", flag_set_choice, IN(job.stage), .choices = flag_stages },
	{ "parameters-on", "host, nvme or auto", flag_set_choice, IN(job.parameter_placement), .choices = places },
	{ "durability", FLAG_DURABILITY_HELP, flag_set_durability, IN(job.durability) },
	{ "host-budget", FLAG_SIZE_HELP, flag_set_bytes, IN(job.host_budget) },
	{ "nvme-budget", FLAG_SIZE_HELP, flag_set_bytes, IN(job.nvme_budget) },
	{ "blobs", FLAG_SIZE_HELP, flag_set_bytes, IN(job.blob_bytes) },
}, values_of_training[] = {
	{ "format", "bf16, fp16 or fp32", flag_set_choice, IN(tensors.format), .choices = flag_formats },
	{ "group", RATES_HELP, set_group, 0 },
	{ "clip", "a norm such as 1.0", set_clip, IN(job.clip_norm) },
	{ "optimizer-on", "host, nvme or auto", flag_set_choice, IN(job.optimizer_placement), .choices = places },
	{ "gradients-on", "host or nvme", flag_set_choice, IN(job.gradient_placement), .choices = flag_places },
};
/* clang-format on */

static int read_values_of_training(const struct command_context *context, struct import_flags *flags)
{
	for (size_t i = 0; i < ARRAY_LENGTH(values_of_training) && !flags->tensors.is_trainable; i++)
		if (command_flag(context, values_of_training[i].name))
			return command_fail(COMMAND_USAGE,
					    "--%s is of what is trained; say with which --optimizer",
					    values_of_training[i].name);
	return flag_values_read(context, values_of_training, ARRAY_LENGTH(values_of_training), flags);
}

static int read_number(const struct command_context *context, const char *name, uint32_t least, uint32_t most,
		       uint32_t *number)
{
	uint64_t wide = *number;
	int code = command_flag_number(context, name, least, most, &wide);

	*number = (uint32_t)wide;
	return code;
}

/* A frozen job never changes: a snapshot would keep nothing. */
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
	int code;

	*flags = (struct import_flags){ .tensors = { .step = command_flag(context, "step"),
						     .ignored = command_flag(context, "ignore"),
						     .optimizer = TIERD_NONE },
					.job = TIERD_JOB_OPTIONS_INIT,
					.group = TIERD_GROUP_INIT };
	code = flag_values_read(context, values, ARRAY_LENGTH(values), flags);
	if (code == COMMAND_DONE)
		code = read_values_of_training(context, flags);
	if (code == COMMAND_DONE)
		code = read_numbers(context, &flags->job);
	flags->job.optimizer = flags->tensors.optimizer;
	flags->job.mode = command_flag(context, "replace") ? TIERD_REPLACE : TIERD_CREATE;
	place(&flags->job);
	return code;
}
