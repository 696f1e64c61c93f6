#include "daemon/model/options.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/cleanup.h"
#include "common/plural.h"
#include "daemon/model/job.h"
#include "daemon/request/request.h"
#include "offload/device/schedule.h"
#include "proto/name.h"

static int set_group(const struct optimizer *optimizer, struct optimizer_group *group,
		     const Tierd__Wire__Group *wire, size_t index, char *message, size_t size)
{
	char why[128];
	int r;

	*group = (struct optimizer_group){ wire->learning_rate, wire->beta1,	    wire->beta2,
					   wire->epsilon,	wire->weight_decay, wire->momentum,
					   wire->dampening,	wire->nesterov,	    wire->moments };
	if (!isfinite(group->learning_rate) || !isfinite(group->weight_decay))
		return refuse(message, size, -EINVAL, "parameter group %zu: a rate is not finite", index);
	if (group->moments >= WIRE_MOMENTS)
		return refuse(message, size, -EINVAL,
			      "parameter group %zu: no format of moments %u; there are fp32 (0), bf16 (1) "
			      "and int8 (2)",
			      index, group->moments);
	r = optimizer->check(group, why, sizeof(why));
	return r < 0 ? refuse(message, size, r, "parameter group %zu: %s", index, why) : 0;
}

static int read_groups(const struct optimizer *optimizer, struct optimizer_group *groups, uint32_t *count,
		       Tierd__Wire__Group *const *wire, size_t wire_count, char *message, size_t size)
{
	if (wire_count > WIRE_MAX_GROUPS)
		return refuse(message, size, -EINVAL, "%zu parameter groups; at most %d are allowed",
			      wire_count, WIRE_MAX_GROUPS);
	for (size_t i = 0; i < wire_count; i++) {
		int r = set_group(optimizer, &groups[i], wire[i], i, message, size);

		if (r < 0)
			return r;
	}
	*count = (uint32_t)wire_count;
	return 0;
}

struct optimizer_group *options_new_groups(const struct job_options *options, unsigned count)
{
	return calloc((size_t)count * options->group_count, sizeof(struct optimizer_group));
}

int options_set_groups(const struct job_options *options, struct optimizer_group *groups, uint32_t *count,
		       Tierd__Wire__Group *const *wire, size_t wire_count, char *message, size_t size)
{
	int r = read_groups(options->optimizer, groups, count, wire, wire_count, message, size);

	if (r == 0 && optimizer_slots(options->optimizer, groups, *count) > options->slot_count)
		return refuse(
			message, size, -EINVAL,
			"the groups have a momentum, and the job keeps none: no group had one when it was "
			"opened");
	return r < 0 ? r : options_compare_moments(options, groups, *count, message, size);
}

int options_check_name(const char *name, char *message, size_t size)
{
	return name_is_word(name, WIRE_MAX_JOB_NAME)
		       ? 0
		       : refuse(message, size, -EINVAL,
				"job name \"%.*s\" is not allowed: 1 to %d of " NAME_RULE, name_fit(name, 80),
				name, WIRE_MAX_JOB_NAME);
}

static int check_ranks(const Tierd__Wire__JobOpen *open, char *message, size_t size)
{
	int r = options_check_name(open->name, message, size);

	if (r < 0)
		return r;
	if (open->world_size == 0 || open->world_size > WIRE_MAX_WORLD_SIZE)
		return refuse(message, size, -EINVAL, "world size %u; 1 to %d are allowed", open->world_size,
			      WIRE_MAX_WORLD_SIZE);
	if (open->rank >= open->world_size)
		return refuse(message, size, -EINVAL, "rank %u of world size %u; ranks count from 0",
			      open->rank, open->world_size);
	if (open->mode > MODE_REPLACE)
		return refuse(message, size, -EINVAL, "no open mode %u", open->mode);
	return 0;
}

bool options_durability_lasts(uint32_t durability)
{
	return durability <= DURABILITY_MOST_SECONDS || durability == DURABILITY_STEP;
}

static const char *const optimizer_names[] = { [OPTIMIZER_ADAMW] = "adamw",
					       [OPTIMIZER_ADAM] = "adam",
					       [OPTIMIZER_SGD] = "sgd",
					       [OPTIMIZER_LION] = "lion",
					       [OPTIMIZER_NONE] = "none" };

static const struct optimizer *find_optimizer(uint32_t kind)
{
	return kind < ARRAY_LENGTH(optimizer_names) ? optimizer_find(optimizer_names[kind], simd_level())
						    : NULL;
}

static uint32_t optimizer_kind(const struct optimizer *optimizer)
{
	uint32_t kind = 0;

	while (strcmp(optimizer_names[kind], optimizer->name) != 0)
		kind++;
	return kind;
}

static int check_snapshots(const Tierd__Wire__JobOpen *open, char *message, size_t size)
{
	if (open->snapshots > WIRE_MAX_SNAPSHOTS)
		return refuse(message, size, -EINVAL, "room for %u snapshots; at most %d are possible",
			      open->snapshots, WIRE_MAX_SNAPSHOTS);
	if (open->snapshots > 0 && open->durability == DURABILITY_NONE)
		return refuse(message, size, -EINVAL,
			      "room for %u snapshot%s of a job that is not durable, and has none: leave "
			      "snapshots at 0, or take another durability than none",
			      open->snapshots, PLURAL(open->snapshots));
	if (open->snapshot_every > 0 && open->snapshots == 0)
		return refuse(message, size, -EINVAL,
			      "snapshot_every is %llu, and there is room for no snapshot: say for how many "
			      "(snapshots)",
			      (unsigned long long)open->snapshot_every);
	if (open->snapshot_keep > open->snapshots)
		return refuse(message, size, -EINVAL,
			      "snapshot_keep is %u, and there is room for %u snapshots", open->snapshot_keep,
			      open->snapshots);
	return 0;
}

static int check_values(const Tierd__Wire__JobOpen *open, char *message, size_t size)
{
	if (open->stage > 3)
		return refuse(message, size, -EINVAL, "stage %u; ZeRO has 0 to 3", open->stage);
	if (!find_optimizer(open->optimizer))
		return refuse(message, size, -EINVAL, "no optimizer %u", open->optimizer);
	if (!(open->clip_norm >= 0) || !isfinite(open->clip_norm))
		return refuse(message, size, -EINVAL, "clip_norm is %g; it is 0 (no clipping) or above",
			      (double)open->clip_norm);
	if (open->nonfinite > NONFINITE_REPORT)
		return refuse(message, size, -EINVAL, "no treatment %u of gradients that are not finite",
			      open->nonfinite);
	if (open->sharing > SHARING_TRAIN)
		return refuse(message, size, -EINVAL, "no sharing %u", open->sharing);
	if (open->parameter_placement > PLACEMENT_AUTO || open->optimizer_placement > PLACEMENT_AUTO ||
	    open->gradient_placement > PLACEMENT_AUTO)
		return refuse(message, size, -EINVAL, "no such placement");
	if (open->gradient_buffers > WIRE_MAX_GRADIENT_BUFFERS)
		return refuse(message, size, -EINVAL, "%u gradient buffers; at most %d are allowed",
			      open->gradient_buffers, WIRE_MAX_GRADIENT_BUFFERS);
	if (open->gradient_bytes > WIRE_MAX_GRADIENT_BYTES)
		return refuse(message, size, -EINVAL, "gradient_bytes is %llu; %llu are allowed at most",
			      (unsigned long long)open->gradient_bytes,
			      (unsigned long long)WIRE_MAX_GRADIENT_BYTES);
	if (!options_durability_lasts(open->durability) && open->durability != DURABILITY_NONE)
		return refuse(message, size, -EINVAL,
			      "durability is %u s; it is each step, none, or 1 to %d seconds",
			      open->durability, DURABILITY_MOST_SECONDS);
	if (open->blob_bytes > BLOBS_MOST_BYTES)
		return refuse(message, size, -EINVAL, "blob_bytes is %llu; %llu are allowed at most",
			      (unsigned long long)open->blob_bytes, (unsigned long long)BLOBS_MOST_BYTES);
	if (open->io_weight > SCHEDULE_MAX_WEIGHT)
		return refuse(message, size, -EINVAL, "io_weight is %u; 1 to %d are allowed, or 0 for %d",
			      open->io_weight, SCHEDULE_MAX_WEIGHT, SCHEDULE_DEFAULT_WEIGHT);
	return 0;
}

static int read_loss_scale(struct job_options *options, const Tierd__Wire__JobOpen *open, char *message,
			   size_t size)
{
	options->loss_scale = (struct loss_scale_options){
		.initial = open->loss_scale != 0 ? open->loss_scale : 1,
		.interval = open->loss_scale_interval,
		.growth = open->loss_scale_growth,
		.backoff = open->loss_scale_backoff,
		.minimum = open->loss_scale_minimum,
	};
	if (loss_scale_is_dynamic(&options->loss_scale) && options->nonfinite == NONFINITE_REPORT)
		return refuse(
			message, size, -EINVAL,
			"a dynamic loss scale skips steps whose gradients are not finite; nonfinite cannot "
			"report them");
	return loss_scale_check(&options->loss_scale, message, size);
}

static int resolve_placement(struct job_options *options, bool has_paths, char *message, size_t size)
{
	uint32_t preferred = has_paths ? PLACEMENT_NVME : PLACEMENT_HOST;

	if (options->optimizer_placement == PLACEMENT_DEFAULT)
		options->optimizer_placement = preferred;
	if (options->parameter_placement == PLACEMENT_DEFAULT)
		options->parameter_placement = options->stage == 3 ? preferred : PLACEMENT_HOST;
	if (options->parameter_placement == PLACEMENT_NVME && options->stage < 3)
		return refuse(message, size, -EINVAL,
			      "parameters on NVMe at stage %u: only stage 3 partitions parameters; the lower "
			      "stages keep them resident",
			      options->stage);
	if (options->gradient_placement == PLACEMENT_NVME && options->stage < 2)
		return refuse(
			message, size, -EINVAL,
			"gradient sums on NVMe at stage %u: only stages 2 and 3 partition gradients; the "
			"lower stages keep a sum of each rank in host memory until the step",
			options->stage);
	if (!has_paths &&
	    (options->parameter_placement == PLACEMENT_NVME ||
	     options->optimizer_placement == PLACEMENT_NVME || options->gradient_placement == PLACEMENT_NVME))
		return refuse(message, size, -EINVAL,
			      "this daemon has no NVMe path; configure one, or place the job in host memory");
	return 0;
}

int options_read(struct job_options *options, struct optimizer_group groups[WIRE_MAX_GROUPS],
		 const Tierd__Wire__JobOpen *open, bool has_paths, char *message, size_t size)
{
	int r = check_ranks(open, message, size);

	if (r == 0)
		r = check_values(open, message, size);
	if (r == 0)
		r = check_snapshots(open, message, size);
	if (r < 0)
		return r;
	*options = (struct job_options){
		.world_size = open->world_size,
		.stage = open->stage,
		.nonfinite = open->nonfinite,
		.parameter_placement = open->parameter_placement,
		.optimizer_placement = open->optimizer_placement,
		/* Their default is that tierd chooses. */
		.gradient_placement = open->gradient_placement == PLACEMENT_AUTO ? PLACEMENT_DEFAULT
										 : open->gradient_placement,
		.gradient_buffers = open->gradient_buffers ? open->gradient_buffers
				    : open->gradient_bytes ? WIRE_MAX_GRADIENT_BUFFERS
							   : 2,
		.gradient_bytes = open->gradient_bytes,
		.io_weight = open->io_weight ? open->io_weight : SCHEDULE_DEFAULT_WEIGHT,
		.durability = open->durability,
		.clip_norm = open->clip_norm,
		.host_budget = open->host_budget,
		.nvme_budget = open->nvme_budget,
		.blob_bytes = open->blob_bytes,
		.sharing = open->sharing,
		.share_group = open->sharing == SHARING_NONE ? 0 : open->share_group,
		.seed = open->seed,
		.snapshots = open->snapshots,
		.snapshot_every = open->snapshot_every,
		.snapshot_keep = open->snapshot_keep ? open->snapshot_keep : open->snapshots,
		.is_strict = open->strict,
		.is_pushed_once = open->pushed_once,
		.optimizer = find_optimizer(open->optimizer),
		.group_count = 1,
		.groups = groups,
	};
	groups[0] = (struct optimizer_group){ 1.0f, 0.9f, 0.999f, 1e-8f, 0.01f };
	if (open->n_groups > 0) {
		r = read_groups(options->optimizer, groups, &options->group_count, open->groups,
				open->n_groups, message, size);
		if (r < 0)
			return r;
	}
	options->slot_count = optimizer_slots(options->optimizer, options->groups, options->group_count);
	r = read_loss_scale(options, open, message, size);
	return r < 0 ? r : resolve_placement(options, has_paths, message, size);
}

void options_write_groups(const struct optimizer_group *groups, uint32_t count,
			  struct options_groups *storage)
{
	for (uint32_t i = 0; i < count; i++) {
		Tierd__Wire__Group *wire = storage->pointers[i] = &storage->groups[i];

		tierd__wire__group__init(wire);
		wire->learning_rate = groups[i].learning_rate;
		wire->beta1 = groups[i].beta1;
		wire->beta2 = groups[i].beta2;
		wire->epsilon = groups[i].epsilon;
		wire->weight_decay = groups[i].weight_decay;
		wire->momentum = groups[i].momentum;
		wire->dampening = groups[i].dampening;
		wire->nesterov = groups[i].is_nesterov;
		wire->moments = groups[i].moments;
	}
}

void options_write(const struct job_options *options, Tierd__Wire__JobOpen *open,
		   struct options_groups *storage)
{
	tierd__wire__job_open__init(open);
	open->world_size = options->world_size;
	open->stage = options->stage;
	open->optimizer = optimizer_kind(options->optimizer);
	open->clip_norm = options->clip_norm;
	open->nonfinite = options->nonfinite;
	open->parameter_placement = options->parameter_placement;
	open->optimizer_placement = options->optimizer_placement;
	open->gradient_placement = options->gradient_placement;
	open->host_budget = options->host_budget;
	open->nvme_budget = options->nvme_budget;
	open->blob_bytes = options->blob_bytes;
	open->gradient_buffers = options->gradient_buffers;
	open->gradient_bytes = options->gradient_bytes;
	open->io_weight = options->io_weight;
	open->durability = options->durability;
	open->strict = options->is_strict;
	open->pushed_once = options->is_pushed_once;
	open->seed = options->seed;
	open->snapshots = options->snapshots;
	open->snapshot_every = options->snapshot_every;
	open->snapshot_keep = options->snapshot_keep;
	open->sharing = options->sharing;
	open->share_group = options->share_group;
	open->loss_scale = options->loss_scale.initial;
	open->loss_scale_interval = options->loss_scale.interval;
	open->loss_scale_growth = options->loss_scale.growth;
	open->loss_scale_backoff = options->loss_scale.backoff;
	open->loss_scale_minimum = options->loss_scale.minimum;
	options_write_groups(options->groups, options->group_count, storage);
	open->n_groups = options->group_count;
	open->groups = storage->pointers;
}
