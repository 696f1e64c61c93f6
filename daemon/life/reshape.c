#include "daemon/life/reshape.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/plural.h"
#include "daemon/durability/durability.h"
#include "daemon/gradients/gradients.h"
#include "daemon/life/idle.h"
#include "daemon/life/own.h"
#include "daemon/request/request.h"
#include "daemon/resources/resources.h"
#include "daemon/telemetry/telemetry.h"

bool reshape_is_asked(const struct job *job, const struct job_options *options)
{
	const struct job_options *own = &job->options;

	return options->world_size != own->world_size || options->stage != own->stage ||
	       options->is_pushed_once != own->is_pushed_once || options->host_budget != own->host_budget ||
	       options->gradient_buffers != own->gradient_buffers ||
	       options->gradient_bytes != own->gradient_bytes;
}

void reshape_overlook(const struct job *job, struct job_options *asked)
{
	if (!placement_may_release(job) && !job->options.is_pushed_once)
		asked->is_pushed_once = false;
}

/* ---- Whether it can be ---- */

/* Trainers that are started anew at once may be faster than the news of the others' deaths. */
static void let_dead_leave(struct job *job)
{
	for (uint32_t rank = 0; rank < job->options.world_size; rank++) {
		struct member *member = job->members.ranks[rank];

		if (member && port_is_dead(member->port))
			epoch_lose(member, "is lost: its process died");
	}
}

static int check_ranks(const struct job *job, const char *difference, char *message, size_t size)
{
	char ranks[256];

	if (job->members.count == 0)
		return 0;
	members_describe(job, ranks, sizeof(ranks));
	return refuse(message, size, -EBUSY, "%s, which is in use by %s; end them, or open it as they do",
		      difference, ranks);
}

static int check_state(const struct job *job, const char *difference, char *message, size_t size)
{
	if (placement_may_release(job))
		return 0;
	return refuse(message, size, -EINVAL,
		      "%s, which keeps what it has, because some of its state lives in host memory alone",
		      difference);
}

static int check(const struct job *job, const struct job_options *options, char *message, size_t size)
{
	struct job_options same = *options;
	char difference[128];
	int r;

	same.world_size = job->options.world_size;
	same.stage = job->options.stage;
	same.is_pushed_once = job->options.is_pushed_once;
	same.host_budget = job->options.host_budget;
	same.gradient_buffers = job->options.gradient_buffers;
	same.gradient_bytes = job->options.gradient_bytes;
	/* Another stage may have another default. */
	if (options->stage != job->options.stage)
		same.parameter_placement = job->options.parameter_placement;
	r = options_compare(&same, &job->options, message, size);
	options_difference(options, &job->options, difference, sizeof(difference));
	if (r == 0)
		r = check_state(job, difference, message, size);
	return r < 0 ? r : check_ranks(job, difference, message, size);
}

/* What was planned for the former ranks goes; the state stays on NVMe. */
static int come_to_rest(struct job *job, char *message, size_t size)
{
	if (job->state == JOB_TRAINED && !idle_release(job))
		return idle_refuse(job, message, size);
	if (job->state != JOB_RELEASED)
		return refuse(message, size, -EAGAIN, "it has not come to rest yet; try again");
	return 0;
}

/* ---- The shape ---- */

/* Nobody is there; and a shape that is undone needs no memory. */
static int make_places(struct job *job, uint32_t world_size)
{
	uint32_t most = world_size > job->options.world_size ? world_size : job->options.world_size;
	struct member **ranks = calloc(most, sizeof(struct member *));

	if (!ranks)
		return -ENOMEM;
	free(job->members.ranks);
	job->members.ranks = ranks;
	return 0;
}

static struct job_shape shape_of(const struct job_options *options, uint64_t host_budget,
				 bool has_nvme_parameters)
{
	return (struct job_shape){ .world_size = options->world_size,
				   .stage = options->stage,
				   .parameter_placement = options->parameter_placement,
				   .gradient_buffers = options->gradient_buffers,
				   .gradient_bytes = options->gradient_bytes,
				   .asked_budget = options->host_budget,
				   .host_budget = host_budget,
				   .is_pushed_once = options->is_pushed_once,
				   .has_nvme_parameters = has_nvme_parameters };
}

/* They are in the store in any case: what changes is whether they come back from there once, to stay in host
 * memory, or when they are wanted. The lower stages keep them. */
static bool will_be_on_nvme(const struct job *job, const struct job_options *options)
{
	if (options->stage == job->options.stage || options->parameter_placement == PLACEMENT_AUTO)
		return job->location.has_nvme_parameters && options->stage == 3;
	return options->parameter_placement == PLACEMENT_NVME;
}

/* Windows of ranks that came when there was no room for it are not those of as many as come now. */
static void set_shape(struct job *job, struct job_shape shape)
{
	struct budget_limits limits = *budget_limits(job);

	budget_release_host(job);
	job->options.world_size = shape.world_size;
	job->options.stage = shape.stage;
	job->options.parameter_placement = shape.parameter_placement;
	job->options.gradient_buffers = shape.gradient_buffers;
	job->options.gradient_bytes = shape.gradient_bytes;
	job->options.host_budget = shape.asked_budget;
	job->options.is_pushed_once = shape.is_pushed_once;
	limits.host_budget = shape.host_budget;
	budget_set_limits(job, &limits);
	job->location.has_nvme_parameters = shape.has_nvme_parameters;
}

#define SHAPE_TEXT 160

static const char *describe(const struct job_shape *shape, char text[SHAPE_TEXT])
{
	char budget[16], room[16];

	snprintf(text, SHAPE_TEXT,
		 "%u rank%s at stage %u%s, with %u gradient buffer%s each%s%s and host_budget %s",
		 shape->world_size, PLURAL(shape->world_size), shape->stage,
		 shape->is_pushed_once ? " (pushed_once)" : "", shape->gradient_buffers,
		 PLURAL(shape->gradient_buffers), shape->gradient_bytes ? " in " : "",
		 shape->gradient_bytes ? budget_print(shape->gradient_bytes, room) : "",
		 shape->asked_budget ? budget_print(shape->asked_budget, budget) : "0");
	return text;
}

int reshape(struct job *job, const struct job_options *options, char *message, size_t size)
{
	struct job_shape former, asked;
	char now[SHAPE_TEXT], then[SHAPE_TEXT];
	int r;

	let_dead_leave(job);
	reshape_undo(job);
	if (!reshape_is_asked(job, options))
		return options_compare(options, &job->options, message, size);
	r = check(job, options, message, size);
	if (r == 0)
		r = come_to_rest(job, message, size);
	if (r < 0)
		return r;
	if (make_places(job, options->world_size) < 0)
		return refuse(message, size, -ENOMEM, "out of memory");
	former = shape_of(&job->options, budget_limits(job)->host_budget, job->location.has_nvme_parameters);
	job->location.former_shape = former;
	/* A default is looked up when its owner joins. */
	asked = shape_of(options, options->host_budget ? options->host_budget : former.host_budget,
			 will_be_on_nvme(job, options));
	set_shape(job, asked);
	events_of_job(job, EVENT_OPENED, NULL, "it is opened for %s; it had %s", describe(&asked, now),
		      describe(&former, then));
	/* If nobody joins it after all. */
	job_settle(job);
	return 0;
}

int reshape_keep(struct job *job)
{
	int r = job->location.former_shape.world_size > 0 ? durable_redefine(job) : 0;

	if (r == 0)
		job->location.former_shape.world_size = 0;
	return r;
}

void reshape_undo(struct job *job)
{
	struct job_shape former = job->location.former_shape;
	char text[SHAPE_TEXT];

	if (former.world_size == 0 || job->members.count > 0 || job->state != JOB_RELEASED)
		return;
	job->location.former_shape.world_size = 0;
	set_shape(job, former);
	events_of_job(job, EVENT_OPENED, NULL, "its ranks have left before they were ready: it has %s again",
		      describe(&former, text));
}
