/* Decoding: the bytes are what a client could have sent, for all we know, and go the same ways:
 * options_read(), job_add_unit(), options_set_groups(). */
#include "daemon/recovery/record_read.h"

#include <errno.h>

#include "common/clock.h"
#include "common/plural.h"
#include "daemon/model/model.h"
#include "daemon/update/update.h"
#include "daemon/durability/durability.h"
#include "daemon/request/request.h"
#include "daemon/life/life.h"
#include "proto/name.h"

/* A step beyond this is no number that anybody has counted to. */
#define STEP_MOST ((uint64_t)INT64_MAX)

/* ---- Definition ---- */

static int check_placement(const Tierd__Record__JobDefinition *definition, char *message, size_t size)
{
	bool has_nvme_parameters = definition->parameter_placement == PLACEMENT_NVME;

	if ((!has_nvme_parameters && definition->parameter_placement != PLACEMENT_HOST) ||
	    (has_nvme_parameters && definition->options->stage < 3) ||
	    (definition->optimizer_placement != PLACEMENT_NVME &&
	     definition->optimizer_placement != PLACEMENT_HOST))
		return refuse(message, size, -EBADMSG, "its definition says where no state can be");
	return 0;
}

static const char *name_of(const struct record_source *source, const Tierd__Record__JobDefinition *definition)
{
	return source->name ? source->name : definition->options->name;
}

static int check_node(struct node *node, const struct record_source *source,
		      const Tierd__Record__JobDefinition *definition, char *message, size_t size)
{
	unsigned paths = source->paths->count;

	/* The last number means "no change" to the kernel. */
	if (definition->uid == UINT32_MAX)
		return refuse(message, size, -EBADMSG, "its definition names no user");
	if (source->owner && *source->owner != definition->uid)
		return refuse(
			message, size, -EPERM,
			"it is a job of user %u, in the folder of user %u, who gets nothing of it; move "
			"the file to the folder %u beside that, and start tierd again",
			definition->uid, (unsigned)*source->owner, definition->uid);
	if (definition->devices != paths)
		return refuse(message, size, -EINVAL,
			      "its definition says that it lies on %u NVMe path%s, and it lies on %u",
			      definition->devices, PLURAL(definition->devices), paths);
	if (job_find(node, definition->uid, name_of(source, definition)))
		return refuse(message, size, -EEXIST, "user %u has a job %s already", definition->uid,
			      name_of(source, definition));
	return 0;
}

/* How many steps it would keep by itself was once said with more room: forks that are gone have left it some.
 */
static void limit_kept(Tierd__Wire__JobOpen *options)
{
	if (options->snapshot_every == 0 && options->snapshot_keep > options->snapshots)
		options->snapshot_keep = options->snapshots;
}

static int make_job(struct node *node, const struct record_source *source,
		    const Tierd__Record__JobDefinition *definition, struct job **ret_job, char *message,
		    size_t size)
{
	struct optimizer_group groups[WIRE_MAX_GROUPS];
	struct job_options options;
	struct quota quota;
	int r;

	if (!definition->options)
		return refuse(message, size, -EBADMSG, "its definition has no options");
	limit_kept(definition->options);
	r = options_read(&options, groups, definition->options, node->path_count > 0, message, size);
	if (r == 0 && !name_is_word(name_of(source, definition), WIRE_MAX_JOB_NAME))
		r = refuse(message, size, -EBADMSG, "its store gives it a name that no job can have");
	if (r == 0)
		r = check_placement(definition, message, size);
	if (r == 0 && !options_durability_lasts(definition->durability))
		r = refuse(message, size, -EBADMSG, "its definition says that it is not durable");
	if (r == 0)
		r = check_node(node, source, definition, message, size);
	if (r < 0)
		return r;
	quota = access_quota_of_user(node, definition->uid);
	r = job_new(node, definition->uid, &quota, name_of(source, definition), &options, ret_job);
	if (r < 0)
		return refuse(message, size, r, "out of memory");
	(*ret_job)->location.paths = *source->paths;
	(*ret_job)->location.record_format = definition->format;
	return 0;
}

static int add_unit(struct job *job, struct frame_arena *arena, const ProtobufCBinaryData *packed,
		    char *message, size_t size)
{
	ProtobufCMessage *unit;
	int r = frame_decode(arena, &tierd__wire__unit_define__descriptor, packed->data, packed->len, &unit);

	if (r < 0)
		return refuse(message, size, -EBADMSG, "its unit %u cannot be read", job->catalog.unit_count);
	return job_add_unit(job, (const Tierd__Wire__UnitDefine *)unit, message, size);
}

static int add_units(struct job *job, const Tierd__Record__JobDefinition *definition, char *message,
		     size_t size)
{
	struct frame_arena *arena;
	int r = frame_arena_new(&arena);

	if (r < 0)
		return refuse(message, size, r, "out of memory");
	/* What there is comes back, whatever the configured limits have become. */
	job->catalog.unit_maximum = CATALOG_MAX_UNITS;
	job->catalog.tensor_maximum = CATALOG_MAX_TENSORS;
	job->catalog.name_maximum = WIRE_MAX_NAME;
	job->catalog.dimension_maximum = WIRE_MAX_DIMENSIONS;
	job->catalog.is_kept = true;
	for (size_t i = 0; i < definition->n_units && r == 0; i++)
		r = add_unit(job, arena, &definition->units[i], message, size);
	frame_arena_free(arena);
	if (r == 0 && definition->n_units == 0)
		return refuse(message, size, -EBADMSG, "its definition has no units");
	return r;
}

/* ---- Progress ---- */

static void restore_unit(struct unit *unit, const Tierd__Record__JobProgress *progress, uint32_t index)
{
	unit->updates = progress->updates[index];
	unit->last_update = progress->last_updates[index];
	for (uint32_t i = 0; i < unit->tensor_count; i++)
		unit->tensors[i].missed = record_missed(progress, unit, i);
}

static int restore_updates(struct job *job, const Tierd__Record__JobProgress *progress, char *message,
			   size_t size)
{
	int r = record_check_updates(job, progress, message, size);

	for (uint32_t i = 0; i < job->catalog.unit_count && r == 0; i++)
		restore_unit(&job->catalog.units[i], progress, i);
	return r;
}

static int restore_groups(struct job *job, const Tierd__Record__JobProgress *progress, char *message,
			  size_t size)
{
	for (uint32_t u = 0; u < job->catalog.unit_count && progress->n_tensor_groups > 0; u++) {
		struct unit *unit = &job->catalog.units[u];
		const uint32_t *groups = &progress->tensor_groups[unit->first_tensor];
		char why[256];

		if (groups_check(job, unit, groups, why, sizeof(why)) < 0)
			return refuse(message, size, -EBADMSG, "its progress cannot be: %s", why);
		for (uint32_t i = 0; i < unit->tensor_count; i++)
			unit->tensors[i].group = (uint16_t)groups[i];
	}
	return 0;
}

static int restore_rates(struct job *job, const Tierd__Record__JobProgress *progress, char *message,
			 size_t size)
{
	struct loss_scale past = { progress->loss_scale, progress->loss_scale_steps };

	return update_restore(job, progress->groups, progress->n_groups, &past, message, size);
}

static int restore_blobs(struct job *job, const Tierd__Record__JobProgress *progress, char *message,
			 size_t size)
{
	int r = 0;

	for (size_t i = 0; i < progress->n_blobs && r == 0; i++) {
		const Tierd__Record__Blob *blob = progress->blobs[i];

		r = blobs_restore(job, blob->key, blob->is_shared ? BLOB_SHARED : blob->rank, blob->size,
				  blob->step);
	}
	return r == -EBADMSG ? refuse(message, size, r, "its blobs cannot be")
	       : r < 0	     ? refuse(message, size, r, "out of memory")
			     : 0;
}

static int restore_progress(struct job *job, const Tierd__Record__JobProgress *progress, char *message,
			    size_t size)
{
	int r = record_check_job(job, progress, message, size);

	if (r < 0)
		return r;
	if (progress->step > STEP_MOST || progress->epoch == 0 || progress->epoch == UINT32_MAX)
		return refuse(message, size, -EBADMSG, "it cannot be at step %llu, in epoch %u",
			      (unsigned long long)progress->step, progress->epoch);
	r = restore_updates(job, progress, message, size);
	if (r == 0)
		r = restore_groups(job, progress, message, size);
	if (r == 0)
		r = restore_rates(job, progress, message, size);
	job->step = job->decided = progress->step;
	job->epoch.number = progress->epoch;
	return r < 0 ? r : restore_blobs(job, progress, message, size);
}

/* ---- The job ---- */

static int fill_job(struct job *job, const Tierd__Record__JobDefinition *definition,
		    const Tierd__Record__JobProgress *progress, char *message, size_t size)
{
	int r = add_units(job, definition, message, size);

	record_take_definition(job, definition);
	job->options.is_sharing_set = definition->is_sharing_set;
	if (r == 0)
		r = restore_progress(job, progress, message, size);
	if (r < 0)
		return r;
	job->location.has_nvme_parameters = definition->parameter_placement == PLACEMENT_NVME;
	job->location.has_nvme_optimizer = definition->optimizer_placement == PLACEMENT_NVME;
	job->location.durability = definition->durability;
	/* Its ranks come back to its values. */
	epoch_step(job, EPOCH_RESUME);
	job->members.idle_since_ns = clock_now_ns();
	return setup_restore(job, definition->layout, message, size);
}

int record_decode(struct node *node, const struct record_source *source, struct job **ret_job, char *message,
		  size_t size)
{
	_cleanup_(record_free_message) ProtobufCMessage *defined = NULL, *reached = NULL;
	struct job *job;
	int r = record_unpack("definition", &tierd__record__job_definition__descriptor, source->definition,
			      &defined, message, size);

	if (r == 0)
		r = record_unpack("progress", &tierd__record__job_progress__descriptor, source->progress,
				  &reached, message, size);
	if (r == 0)
		r = make_job(node, source, (const Tierd__Record__JobDefinition *)defined, &job, message,
			     size);
	if (r < 0)
		return r;
	r = fill_job(job, (const Tierd__Record__JobDefinition *)defined,
		     (const Tierd__Record__JobProgress *)reached, message, size);
	if (r < 0) {
		job_free(job);
		return r;
	}
	*ret_job = job;
	return 0;
}
