/* A job's turns, and its beginning and end. What happens to it between them: daemon/life/state.c. */

#include <errno.h>
#include <event2/event.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/durability/durability.h"
#include "daemon/gpu/gpu.h"
#include "daemon/gradients/gradients.h"
#include "daemon/life/idle.h"
#include "daemon/life/life.h"
#include "daemon/life/lost.h"
#include "daemon/life/member.h"
#include "daemon/life/own.h"
#include "daemon/life/replaced.h"
#include "daemon/life/state.h"
#include "daemon/model/model.h"
#include "daemon/residency/residency.h"
#include "daemon/resources/resources.h"
#include "daemon/scrub/scrub.h"
#include "daemon/telemetry/telemetry.h"
#include "daemon/update/update.h"
#include "daemon/values/values.h"
#include "offload/device/schedule.h"

/* ---- Turns ---- */

static void on_slot_timer(evutil_socket_t fd, short events, void *argument)
{
	struct job *job = argument;

	residency_serve(job);
	gpu_serve(job);
	cache_go_on(job);
	if (!residency_awaits_slot(job))
		return;
	residency_check_deadlock(job);
	/* Who holds the leases may wait for a gradient buffer, which frees no slot by itself. */
	if (!residency_is_loading(job))
		gradient_unblock(job, true);
	job_watch_slots(job);
}

/* Far more than follow each other where each of them gets something done. */
#define TURNS_MOST 100000

static void count_turn(struct job *job)
{
	if (++job->life->turns_in_a_row != TURNS_MOST)
		return;
	log_about(LOG_LEVEL_ERROR, &(struct log_fields){ .job = job->name, .user = &job->uid },
		  "job %s of user %u: it takes one turn after the other and gets nothing done; this is a "
		  "mistake of tierd: please report it",
		  job->name, (unsigned)job->uid);
	job->node->life->mistakes++;
}

/* Who was thrown out and still reads keeps a place in a tier, which must not outlive the job. */
static bool gpus_are_gone(struct job *job)
{
	QUEUE_FOREACH (link, &job->members.lingering)
		gpu_forget(queue_entry(link, struct member, link));
	return gpu_is_gone(job);
}

/* A dropped job is freed from here alone, so that nobody up a stack still uses it. */
static void take_turn(struct job *job)
{
	spill_serve(job);
	backup_go_on(job);
	warm_flush_go_on(job);
	early_go_on(job);
	sweep_go_on(job);
	read_ahead_go_on(job);
	residency_serve(job);
	gpu_serve(job);
	values_go_on(job);
	cache_go_on(job);
	prefetch_bring_back(job);
	if (!job_is_ending(job))
		job_go_on(job);
	else if (!job_is_quiet(job) || !gpus_are_gone(job))
		return;
	else if (job->state == JOB_REOPENING)
		job->node->parts->recovery->bring_back(job);
	else if (!family_leave(job))
		job_free(job);
}

static void on_turn(evutil_socket_t fd, short events, void *argument)
{
	struct job *job = argument;
	struct node *node = job->node;

	count_turn(job);
	node->life->is_in_turn = true;
	take_turn(job);
	node->life->is_in_turn = false;
}

/* ---- What it does for the modules below ---- */

static const char *describe_loss(const struct job *job, char *text, size_t size)
{
	char remedy[LOST_REMEDY_TEXT];
	uint64_t step;

	if (job_is_lost(job) && job->life->loss.is_explained)
		snprintf(text, size, "job %s cannot come back: %s", job->name, job->epoch.reason);
	else if (job_is_lost(job))
		snprintf(text, size,
			 "job %s cannot come back: %s; %s; or open the job with replace, which destroys what "
			 "is left of it",
			 job->name, job->epoch.reason, lost_remedy(job, remedy));
	else if (durable_has_step(job, &step))
		snprintf(text, size,
			 "job %s is broken: %s; close it and open it again: it goes on from there", job->name,
			 job->epoch.reason);
	else
		snprintf(text, size, "the state of job %s is lost: %s; open it with replace", job->name,
			 job->epoch.reason);
	return text;
}

static bool members_are_quiet(const struct job *job)
{
	QUEUE_FOREACH (link, &job->members.lingering)
		if (queue_entry(link, struct member, link)->busy > 0)
			return false;
	return true;
}

bool job_is_still(const struct job *job)
{
	return !job->life->setup && values_are_quiet(job) && update_is_still(job) &&
	       durability_is_quiet(job) && gradients_are_quiet(job) && cache_is_quiet(job) &&
	       residency_is_quiet(job) && gpu_is_quiet(job) && members_are_quiet(job);
}

bool job_is_at_rest(const struct job *job)
{
	return job_is_still(job) && update_is_at_rest(job);
}

static bool is_quiet(const struct job *job)
{
	return job_is_at_rest(job) && scrub_is_quiet(job);
}

/* The timer is for those who release without ringing: a broken client, or one that has died. */
static void watch_slots(struct job *job)
{
	static const struct timeval soon = { .tv_usec = 20000 };

	if (!event_pending(job->life->slot_timer, EV_TIMEOUT, NULL))
		event_add(job->life->slot_timer, &soon);
}

static void settle(struct job *job)
{
	/* Something has come from outside. */
	if (!job->node->life->is_in_turn)
		job->life->turns_in_a_row = 0;
	event_active(job->life->turn, EV_TIMEOUT, 0);
}

static bool replaces(const struct job *job)
{
	return job->life->replaced;
}

const struct job_callbacks life_callbacks = {
	.abort = epoch_abort,
	.break_down = epoch_break,
	.let_go = member_let_go,
	.throw_out = epoch_throw_out,
	.send_away = epoch_send_away,
	.describe_loss = describe_loss,
	.is_quiet = is_quiet,
	.settle = settle,
	.watch_slots = watch_slots,
	.replaces = replaces,
};

/* ---- Creation and end ---- */

void job_set_limits(struct job *job, const struct quota *quota)
{
	budget_set_limits(
		job, &(struct budget_limits){
			     .host_budget = job->options.host_budget ? job->options.host_budget
								     : quota->host_default,
			     .nvme_budget = job->options.nvme_budget ? job->options.nvme_budget
								     : quota->nvme_default,
			     .host_maximum = quota->host_maximum,
			     .nvme_maximum = quota->nvme_maximum,
			     .io_share = quota->io_share ? (unsigned)quota->io_share : SCHEDULE_DEFAULT_SHARE,
		     });
}

/* Its own, instead of the caller's. */
static int copy_groups(struct job *job)
{
	const struct optimizer_group *groups = job->options.groups;
	struct optimizer_group *own = options_new_groups(&job->options, 1);

	if (own)
		memcpy(own, groups, job->options.group_count * sizeof(*groups));
	job->options.groups = own;
	return own ? 0 : -ENOMEM;
}

int node_life_new(struct node *node)
{
	node->life = calloc(1, sizeof(*node->life));
	return node->life ? 0 : -ENOMEM;
}

void node_life_free(struct node *node)
{
	free(node->life);
	node->life = NULL;
}

const struct loss_record *life_lost_record(const struct job *job)
{
	return &job->life->loss.record;
}

bool life_is_asked_again(const struct job *job)
{
	return job->life->loss.is_asked;
}

static int make_life(struct job *job)
{
	job->life = calloc(1, sizeof(*job->life));
	return job->life ? 0 : -ENOMEM;
}

static void free_life(struct job *job)
{
	free(job->life);
}

/* What the modules keep of a job. Each frees what it has not made, too. */
static const struct {
	int (*make)(struct job *job);
	void (*free)(struct job *job);
} parts[] = {
	{ make_life, free_life },	   { budget_new, budget_free }, { telemetry_new, telemetry_free },
	{ residency_new, residency_free }, { gpu_new, gpu_free },	{ gradients_new, gradients_free },
	{ update_new, update_free },	   { values_new, values_free }, { durability_new, durability_free },
	{ scrub_new, scrub_free },
};

static int make_parts(struct job *job)
{
	int r = 0;

	for (size_t i = 0; i < ARRAY_LENGTH(parts) && r == 0; i++)
		r = parts[i].make(job);
	return r;
}

static void free_parts(struct job *job)
{
	for (size_t i = ARRAY_LENGTH(parts); i-- > 0;)
		parts[i].free(job);
}

int job_new(struct node *node, uid_t uid, const struct quota *quota, const char *name,
	    const struct job_options *options, struct job **ret_job)
{
	struct job *job = calloc(1, sizeof(*job));

	if (!job)
		return -ENOMEM;
	*job = (struct job){ .node = node,
			     .uid = uid,
			     .options = *options,
			     .epoch.number = 1,
			     .location.record_format = RECORD_FORMAT,
			     .location.paths = node_all_paths(node) };
	if (make_parts(job) < 0) {
		free_parts(job);
		free(job);
		return -ENOMEM;
	}
	snprintf(job->name, sizeof(job->name), "%s", name);
	job->catalog.unit_maximum = node->settings.units_per_job;
	job->catalog.tensor_maximum = node->settings.tensors_per_job;
	job->catalog.name_maximum = node->settings.name_length;
	job->catalog.dimension_maximum = node->settings.dimensions_per_tensor;
	listeners_set(job);
	job_set_limits(job, quota);
	job->location.durability = options->durability ? options->durability : node->settings.durability;
	queue_init(&job->members.lingering);
	queue_push(&node->jobs.live, &job->link);
	job->members.ranks = calloc(options->world_size, sizeof(struct member *));
	job->life->slot_timer = event_new(node->loop, -1, 0, on_slot_timer, job);
	job->life->turn = event_new(node->loop, -1, 0, on_turn, job);
	if (copy_groups(job) < 0 || !job->members.ranks || !job->life->slot_timer || !job->life->turn) {
		job_free(job);
		return -ENOMEM;
	}
	*ret_job = job;
	return 0;
}

void job_free(struct job *job)
{
	bool is_left_behind = family_is_left_behind(job), is_read = false;
	struct node *node = job->node;
	struct job_file file;

	job_file_get(job, &file);
	if (lost_has_files(job) && !job_keeps_store(job))
		lost_remove(job);
	replaced_inherit(job);
	trace_leave_job(job);
	values_free(job);
	for (struct queue *link = queue_first(&job->members.lingering); link;
	     link = queue_first(&job->members.lingering)) {
		struct member *member = queue_entry(link, struct member, link);

		/* What a living process still reads stays there. */
		is_read |= member->client && member_has_leases(member);
		queue_remove(&member->client_link);
		member->client = NULL;
		member_free(member);
	}
	setup_clear(job, is_read);
	job->life->replaced = job_keeps_store(job) ? replaced_leave(job->life->replaced)
						   : replaced_bring_back(job->life->replaced);
	figures_add(figures_past(node), figures_of(job));
	/* Who looks at its page sees how the job ended. */
	disposal_start_shared(node, job->uid, true, telemetry_page(job));
	catalog_free(&job->catalog);
	if (job->life->slot_timer)
		event_free(job->life->slot_timer);
	if (job->life->turn)
		event_free(job->life->turn);
	idle_end(job);
	queue_remove(&job->link);
	free_parts(job);
	free(job->members.ranks);
	free((struct optimizer_group *)job->options.groups);
	free(job);
	disposal_start_trim(node);

	if (is_left_behind)
		node->parts->recovery->remove_file(node, &file);
	family_charge_again(node, file.file);
	/* The node of a plan has nobody who waits. */
	if (node->parts->recovery)
		node->parts->recovery->go_on(node);
	job_settle_all(node);
	node_check_idle(node);
}
