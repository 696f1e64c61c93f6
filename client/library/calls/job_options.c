/* The options of a job: checked, and encoded for the request that opens it. */
#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "client/library/calls/calls.h"
#include "client/library/connection/structure.h"
#include "proto/name.h"
#include "proto/vocabulary.h"

static_assert(TIERD_MAX_NAME == WIRE_MAX_NAME && TIERD_MAX_JOB_NAME == WIRE_MAX_JOB_NAME &&
		      TIERD_MAX_SNAPSHOT_NAME == WIRE_MAX_SNAPSHOT_NAME &&
		      TIERD_MAX_GROUPS == WIRE_MAX_GROUPS && TIERD_MAX_WORLD_SIZE == WIRE_MAX_WORLD_SIZE &&
		      TIERD_MAX_DIMENSIONS == WIRE_MAX_DIMENSIONS,
	      "limits of tierd.h and the wire");
static_assert((int)TIERD_REPLACE == MODE_REPLACE && (int)TIERD_NONE == OPTIMIZER_NONE &&
		      (int)TIERD_PLACE_NVME == PLACEMENT_NVME &&
		      (int)TIERD_NONFINITE_REPORT == NONFINITE_REPORT && (int)TIERD_RESUMED == JOB_RESUMED &&
		      (int)TIERD_SHARE_TRAIN == SHARING_TRAIN && (int)TIERD_BYTES == FORMAT_BYTES &&
		      (int)TIERD_MOMENTS_INT8 == MOMENTS_IN_INT8 &&
		      (int)TIERD_INITIALIZE_UNIFORM == INITIALIZE_UNIFORM &&
		      TIERD_DURABILITY_STEP == DURABILITY_STEP && TIERD_DURABILITY_NONE == DURABILITY_NONE &&
		      TIERD_NO_SNAPSHOTS == WIRE_NO_SNAPSHOTS,
	      "enumerations of tierd.h and the wire");

void wire_groups_free(struct wire_groups *groups)
{
	free(groups->values);
}

/* Allocates both arrays in one piece, values first. */
static int allocate_groups(uint32_t count, struct wire_groups *ret_groups)
{
	*ret_groups = (struct wire_groups){ NULL, NULL };
	if (count == 0)
		return 0;
	ret_groups->values = calloc(count, sizeof(*ret_groups->values) + sizeof(*ret_groups->pointers));
	if (!ret_groups->values)
		return message_fail_memory();
	ret_groups->pointers = (Tierd__Wire__Group **)(ret_groups->values + count);
	return 0;
}

int job_encode_groups(const struct tierd_group *groups, uint32_t count, struct wire_groups *ret_groups)
{
	int r = allocate_groups(count, ret_groups);

	if (r < 0)
		return r;
	for (uint32_t i = 0; i < count; i++) {
		struct tierd_group group = TIERD_GROUP_INIT;

		r = STRUCTURE_TAKE_NTH(&group, groups, i, "group", TIERD_GROUP_INIT);
		if (r < 0)
			return r;
		tierd__wire__group__init(&ret_groups->values[i]);
		ret_groups->values[i].learning_rate = group.learning_rate;
		ret_groups->values[i].beta1 = group.beta1;
		ret_groups->values[i].beta2 = group.beta2;
		ret_groups->values[i].epsilon = group.epsilon;
		ret_groups->values[i].weight_decay = group.weight_decay;
		ret_groups->values[i].momentum = group.momentum;
		ret_groups->values[i].dampening = group.dampening;
		ret_groups->values[i].nesterov = group.nesterov;
		ret_groups->values[i].moments = group.moments;
		ret_groups->pointers[i] = &ret_groups->values[i];
	}
	return 0;
}

int job_options_check(const struct tierd_job_options *options)
{
	if (!name_is_word(options->name, TIERD_MAX_JOB_NAME))
		return message_fail(-EINVAL, "a job's name is 1 to %d of " NAME_RULE, TIERD_MAX_JOB_NAME);
	if (options->world_size < 1 || options->world_size > TIERD_MAX_WORLD_SIZE)
		return message_fail(-EINVAL, "world size %u is not within 1 to %d", options->world_size,
				    TIERD_MAX_WORLD_SIZE);
	if (options->rank >= options->world_size)
		return message_fail(-EINVAL, "rank %u is not below the world size, %u", options->rank,
				    options->world_size);
	if (options->stage > 3)
		return message_fail(-EINVAL, "stage %u is not within 0 to 3", options->stage);
	/* In a request 0 means that none was given. */
	if (options->loss_scale == 0)
		return message_fail(-EINVAL, "loss_scale is 0; it is above 0 and finite");
	if (options->owner > UINT32_MAX)
		return message_fail(-EINVAL, "owner %lld is no user", (long long)options->owner);
	if (options->source_owner > UINT32_MAX)
		return message_fail(-EINVAL, "source_owner %lld is no user",
				    (long long)options->source_owner);
	if (options->gpu < -1)
		return message_fail(-EINVAL, "gpu is %d; it is a GPU's number, from 0 on, or -1 for none",
				    (int)options->gpu);
	if (options->gpu_update != TIERD_AS_MEASURED &&
	    !(options->gpu_update >= 0 && options->gpu_update <= 1))
		return message_fail(-EINVAL,
				    "gpu_update is %g; it is a fraction, from 0 to 1, or TIERD_AS_MEASURED",
				    (double)options->gpu_update);
	if (options->group_count > TIERD_MAX_GROUPS)
		return message_fail(-EINVAL, "%u parameter groups are more than %d", options->group_count,
				    TIERD_MAX_GROUPS);
	if (options->group_count > 0 && !options->groups)
		return message_fail(-EINVAL, "group_count is %u, but groups is NULL", options->group_count);
	return 0;
}

void job_options_encode(const struct tierd_job_options *options, struct wire_groups *groups,
			Tierd__Wire__JobOpen *ret_open)
{
	ret_open->name = (char *)options->name;
	ret_open->rank = options->rank;
	ret_open->world_size = options->world_size;
	ret_open->stage = options->stage;
	ret_open->mode = options->mode;
	ret_open->optimizer = options->optimizer;
	ret_open->clip_norm = options->clip_norm;
	ret_open->nonfinite = options->nonfinite;
	ret_open->parameter_placement = options->parameter_placement;
	ret_open->optimizer_placement = options->optimizer_placement;
	ret_open->gradient_placement = options->gradient_placement;
	ret_open->host_budget = options->host_budget;
	ret_open->gradient_buffers = options->gradient_buffers;
	ret_open->gradient_bytes = options->gradient_bytes;
	ret_open->strict = options->strict;
	ret_open->pushed_once = options->pushed_once;
	ret_open->takeover = options->takeover;
	ret_open->drafted = options->drafted;
	ret_open->source = (char *)(options->source ? options->source : "");
	ret_open->partial = options->partial;
	ret_open->with_optimizer = options->with_optimizer;
	ret_open->has_source_owner = options->source_owner >= 0;
	ret_open->source_owner = options->source_owner >= 0 ? (uint32_t)options->source_owner : 0;
	ret_open->seed = options->seed;
	ret_open->loss_scale = options->loss_scale;
	ret_open->loss_scale_interval = options->loss_scale_interval;
	ret_open->loss_scale_growth = options->loss_scale_growth;
	ret_open->loss_scale_backoff = options->loss_scale_backoff;
	ret_open->loss_scale_minimum = options->loss_scale_minimum;
	ret_open->has_owner = options->owner >= 0;
	ret_open->owner = options->owner >= 0 ? (uint32_t)options->owner : 0;
	ret_open->sharing = options->sharing;
	ret_open->share_group = options->share_group;
	ret_open->nvme_budget = options->nvme_budget;
	ret_open->blob_bytes = options->blob_bytes;
	ret_open->io_weight = options->io_weight;
	ret_open->durability = options->durability;
	ret_open->snapshots = options->snapshots;
	ret_open->snapshot_every = options->snapshot_every;
	ret_open->snapshot_keep = options->snapshot_keep;
	ret_open->n_groups = options->group_count;
	ret_open->groups = groups->pointers;
}
