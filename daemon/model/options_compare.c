/* What a rank says of its job, beside what the job is: the first thing in which they differ, by its name. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "common/cleanup.h"
#include "daemon/model/options.h"
#include "daemon/request/request.h"

#define NUMBER_TEXT 32

struct number {
	const char *name;
	uint64_t here, job;
	void (*print)(uint64_t value, char text[NUMBER_TEXT]); /* NULL: it is one */
};

static void print_plain(uint64_t value, char text[NUMBER_TEXT])
{
	snprintf(text, NUMBER_TEXT, "%llu", (unsigned long long)value);
}

static void print_placement(uint64_t value, char text[NUMBER_TEXT])
{
	static const char *const words[] = { [PLACEMENT_DEFAULT] = "default",
					     [PLACEMENT_HOST] = "host",
					     [PLACEMENT_NVME] = "nvme",
					     [PLACEMENT_AUTO] = "auto" };

	snprintf(text, NUMBER_TEXT, "%s", words[value]);
}

static void print_durability(uint64_t value, char text[NUMBER_TEXT])
{
	const char *word = value == DURABILITY_DEFAULT ? "default"
			   : value == DURABILITY_STEP  ? "step"
			   : value == DURABILITY_NONE  ? "none"
						       : NULL;

	if (word)
		snprintf(text, NUMBER_TEXT, "%s", word);
	else
		print_plain(value, text);
}

static int refuse_number(const struct number *number, char *message, size_t size)
{
	void (*print)(uint64_t value, char text[NUMBER_TEXT]) = number->print ? number->print : print_plain;
	char here[NUMBER_TEXT], job[NUMBER_TEXT];

	print(number->here, here);
	print(number->job, job);
	return refuse(message, size, -EINVAL, "%s is %s here, %s in the job", number->name, here, job);
}

/* As few digits as tell them apart. */
static void print_reals(const struct options_real *real, char here[NUMBER_TEXT], char other[NUMBER_TEXT])
{
	snprintf(here, NUMBER_TEXT, "%g", (double)real->here);
	snprintf(other, NUMBER_TEXT, "%g", (double)real->other);
	if (strcmp(here, other) != 0)
		return;
	snprintf(here, NUMBER_TEXT, "%.9g", (double)real->here);
	snprintf(other, NUMBER_TEXT, "%.9g", (double)real->other);
}

int options_compare_reals(const char *of, const struct options_real *reals, size_t count, const char *where,
			  char *message, size_t size)
{
	char here[NUMBER_TEXT], other[NUMBER_TEXT];

	for (size_t i = 0; i < count; i++) {
		if (memcmp(&reals[i].here, &reals[i].other, sizeof(float)) == 0)
			continue;
		print_reals(&reals[i], here, other);
		return refuse(message, size, -EINVAL, "%s%s is %s here, %s %s", of, reals[i].name, here,
			      other, where);
	}
	return 0;
}

static int compare_group(const char *of, const struct optimizer_group *here,
			 const struct optimizer_group *other, const char *where, char *message, size_t size)
{
	const struct options_real reals[] = {
		{ "learning rate", here->learning_rate, other->learning_rate },
		{ "beta1", here->beta1, other->beta1 },
		{ "beta2", here->beta2, other->beta2 },
		{ "epsilon", here->epsilon, other->epsilon },
		{ "weight decay", here->weight_decay, other->weight_decay },
		{ "momentum", here->momentum, other->momentum },
		{ "dampening", here->dampening, other->dampening },
	};
	int r = options_compare_reals(of, reals, ARRAY_LENGTH(reals), where, message, size);

	if (r == 0 && here->is_nesterov != other->is_nesterov)
		r = refuse(message, size, -EINVAL, "%snesterov is %s here, %s %s", of,
			   here->is_nesterov ? "true" : "false", other->is_nesterov ? "true" : "false",
			   where);
	return r;
}

int options_compare_groups(const struct optimizer_group *here, const struct optimizer_group *other,
			   uint32_t count, const char *where, char *message, size_t size)
{
	char of[NUMBER_TEXT];
	int r = 0;

	for (uint32_t i = 0; r == 0 && i < count; i++) {
		snprintf(of, sizeof(of), "parameter group %u: ", i);
		r = compare_group(of, &here[i], &other[i], where, message, size);
	}
	return r;
}

int options_compare_moments(const struct job_options *job, const struct optimizer_group *groups,
			    uint32_t count, char *message, size_t size)
{
	static const char *const names[WIRE_MOMENTS] = {
		[MOMENTS_IN_FP32] = "fp32", [MOMENTS_IN_BF16] = "bf16", [MOMENTS_IN_INT8] = "int8"
	};

	for (uint32_t i = 0; i < count && i < job->group_count; i++)
		if (groups[i].moments != job->groups[i].moments)
			return refuse(message, size, -EINVAL,
				      "parameter group %u has moments in %s here, in %s in the job", i,
				      names[groups[i].moments], names[job->groups[i].moments]);
	return 0;
}

int options_difference(const struct job_options *here, const struct job_options *job, char *message,
		       size_t size)
{
	const struct number numbers[] = {
		{ "world size", here->world_size, job->world_size },
		{ "stage", here->stage, job->stage },
		{ "nonfinite", here->nonfinite, job->nonfinite },
		{ "parameter placement", here->parameter_placement, job->parameter_placement,
		  print_placement },
		{ "optimizer placement", here->optimizer_placement, job->optimizer_placement,
		  print_placement },
		{ "gradient placement", here->gradient_placement, job->gradient_placement, print_placement },
		{ "gradient buffers", here->gradient_buffers, job->gradient_buffers },
		{ "gradient_bytes", here->gradient_bytes, job->gradient_bytes },
		{ "io_weight", here->io_weight, job->io_weight },
		{ "durability", here->durability, job->durability, print_durability },
		{ "host budget", here->host_budget, job->host_budget },
		{ "sharing", here->sharing, job->sharing },
		{ "group that it is shared with", here->share_group, job->share_group },
		{ "NVMe budget", here->nvme_budget, job->nvme_budget },
		{ "blob_bytes", here->blob_bytes, job->blob_bytes },
		{ "seed", here->seed, job->seed },
		{ "number of snapshots", here->snapshots, job->snapshots },
		{ "snapshot_every", here->snapshot_every, job->snapshot_every },
		{ "snapshot_keep", here->snapshot_keep, job->snapshot_keep },
		{ "strict", here->is_strict, job->is_strict },
		{ "pushed_once", here->is_pushed_once, job->is_pushed_once },
		{ "loss_scale_interval", here->loss_scale.interval, job->loss_scale.interval },
		{ "number of parameter groups", here->group_count, job->group_count },
	};
	const struct options_real reals[] = {
		{ "clip_norm", here->clip_norm, job->clip_norm },
		{ "loss_scale", here->loss_scale.initial, job->loss_scale.initial },
		{ "loss_scale_growth", here->loss_scale.growth, job->loss_scale.growth },
		{ "loss_scale_backoff", here->loss_scale.backoff, job->loss_scale.backoff },
		{ "loss_scale_minimum", here->loss_scale.minimum, job->loss_scale.minimum },
	};
	int r;

	for (size_t i = 0; i < ARRAY_LENGTH(numbers); i++)
		if (numbers[i].here != numbers[i].job)
			return refuse_number(&numbers[i], message, size);
	if (here->optimizer != job->optimizer)
		return refuse(message, size, -EINVAL, "optimizer is %s here, %s in the job",
			      here->optimizer->name, job->optimizer->name);
	r = options_compare_reals("", reals, ARRAY_LENGTH(reals), "in the job", message, size);
	if (r == 0)
		r = options_compare_moments(job, here->groups, here->group_count, message, size);
	if (r == 0)
		r = options_compare_groups(here->groups, job->groups, job->group_count, "in the job", message,
					   size);
	return r;
}

int options_compare(const struct job_options *here, const struct job_options *job, char *message, size_t size)
{
	int r = options_difference(here, job, message, size);
	size_t used;

	if (r == 0)
		return 0;
	used = strlen(message);
	snprintf(message + used, size - used,
		 "; give it the job's options, or another name, with this job as its source");
	return r;
}
