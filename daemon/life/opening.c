/* How a rank comes to a job: which one it means, whether it may have it, and what is made for it. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/clock.h"
#include "common/plural.h"
#include "daemon/durability/durability.h"
#include "daemon/gradients/gradients.h"
#include "daemon/life/idle.h"
#include "daemon/life/life.h"
#include "daemon/life/lost.h"
#include "daemon/life/member.h"
#include "daemon/life/own.h"
#include "daemon/life/replaced.h"
#include "daemon/life/reshape.h"
#include "daemon/life/share.h"
#include "daemon/model/model.h"
#include "daemon/request/request.h"
#include "daemon/resources/resources.h"
#include "daemon/telemetry/telemetry.h"
#include "daemon/update/update.h"
#include "daemon/values/values.h"

static inline void source_freep(struct source **source)
{
	source_free(*source);
}

static int create(struct node *node, const struct port *owner, const char *name,
		  const struct job_options *options, struct job **ret_job)
{
	struct quota quota = access_quota(node, owner);
	int r = job_new(node, owner->uid, &quota, name, options, ret_job);

	if (r < 0)
		return r;
	job_file_assign(*ret_job, ++node->jobs.created);
	events_of_job(*ret_job, EVENT_OPENED, NULL, "it is opened, for %u rank%s at stage %u",
		      options->world_size, PLURAL(options->world_size), options->stage);
	return 0;
}

static void reply_opened(struct pending *pending, struct member *member)
{
	struct job *job = member->job;
	Tierd__Wire__JobOpenReply open = TIERD__WIRE__JOB_OPEN_REPLY__INIT;
	_cleanup_close_ int fd = memory_client_fd(&member->window, MEMORY_WRITABLE);

	if (fd < 0) {
		pending_error(pending, fd, "job %s: no descriptor for the exchange window: %s", job->name,
			      strerror(-fd));
		queue_remove(&member->client_link);
		member->client = NULL;
		job_leave(member, true, "no descriptors");
		return;
	}
	open.job = member->handle;
	/* New is a job whose tensors need values; they have them once they are being stored. */
	open.status = job->state >= JOB_INITIALIZING ? JOB_RESUMED : JOB_NEW;
	open.step = job->step;
	open.loss_scale = update_loss_scale(job)->value;
	open.epoch = job->epoch.number;
	open.window_bytes = WINDOW_BYTES;
	pending_reply_fds(pending, WIRE_REPLY(JOB_OPEN, job_open, &open), &fd, 1);
}

/* The rank's place must be free, or be taken over; the last rank of a job without state takes the job with
 * it. */
static bool clear_rank(struct pending *pending, struct job *job, const Tierd__Wire__JobOpen *open)
{
	struct member *member = job ? job->members.ranks[open->rank] : NULL;
	const struct port *port = pending_port(pending);
	const char *why = "was taken over by another process";

	if (!member)
		return true;
	/* A trainer that is restarted at once may be faster than the news of its death. */
	if (port_is_dead(member->port)) {
		why = "is lost: its process died";
	} else if (member->port->uid != port->uid && job->uid != port->uid) {
		/* Of a shared job a rank is taken from its holder by himself, or by the job's owner. */
		pending_error(pending, -EBUSY, "rank %u of job %s is held by process %d of user %u",
			      open->rank, job->name, (int)member->pid, (unsigned)member->port->uid);
		return false;
	} else if (open->is_reconnect && member->pid == port->pid) {
		why = "has lost its connection";
	} else if (!open->takeover) {
		/* 0: of another namespace. */
		bool is_own = member->pid > 0 && member->pid == port->pid;

		pending_error(pending, -EBUSY, "rank %u of job %s is held by process %d%s", open->rank,
			      job->name, (int)member->pid,
			      is_own ? ", which is this one: close the job before it is opened again"
				     : "; end that, or take the rank from it (takeover)");
		return false;
	}
	epoch_lose(member, why);
	return true;
}

static void join(struct pending *pending, struct job *job, const Tierd__Wire__JobOpen *open,
		 struct memberships *client, uint32_t handle)
{
	struct member *member;
	char message[640];
	int r;

	if (job_is_live(job))
		job_abort(job, -ESTALE, "rank %u has joined job %s again", open->rank, job->name);
	/* Of a job that was brought back, the owner's groups were only looked up. */
	if (job->members.count == 0 && !budget_is_planned(job) && pending_port(pending)->uid == job->uid) {
		struct quota quota = access_quota(job->node, pending_port(pending));

		job_set_limits(job, &quota);
	}
	r = budget_charge_window(job, message, sizeof(message));
	if (r == 0) {
		r = member_new(job, client, pending_port(pending), open->rank, &member);
		if (r < 0)
			snprintf(message, sizeof(message), "%s", strerror(-r));
	}
	if (r < 0) {
		refusal_note(client->refusal, job, open->rank, r, message);
		pending_error(pending, r, "job %s: no memory for another member: %s", job->name, message);
		events_of_job(job, EVENT_REFUSED, &(struct log_fields){ .rank = &open->rank },
			      "rank %u (pid %d) cannot join it: %s", open->rank,
			      (int)pending_port(pending)->pid, message);
		if (job->members.count == 0 && !job_has_state(job))
			job_drop(job);
		return;
	}
	member->handle = handle;
	member->has_reconnected = open->is_reconnect;
	idle_end(job);
	member->joined_ns = member->heard_ns = clock_now_ns();
	job->members.ranks[open->rank] = member;
	refusal_forget(client->refusal, job, open->rank);
	job->members.count++;
	queue_push(&client->members, &member->client_link);
	events_of_job(job, EVENT_ATTACHED, &(struct log_fields){ .rank = &member->rank },
		      "rank %u (pid %d) has opened it", member->rank, (int)member->pid);
	reply_opened(pending, member);
}

static bool replace(struct pending *pending, struct job **job, struct replaced **ret_replaced)
{
	char message[SNAPSHOT_TEXT];
	int r = family_check_end(*job, message, sizeof(message));

	if (r < 0) {
		pending_error(pending, r, "%s", message);
		return false;
	}
	r = replaced_new(*job, ret_replaced);
	if (r < 0)
		pending_error(pending, r, "job %s cannot be replaced: out of memory", (*job)->name);
	else
		*job = NULL;
	return r == 0;
}

/* Whether the mode allows to join what exists; replaces it where it says so (*job becomes NULL). */
static bool check_mode(struct pending *pending, struct job **job, uint32_t mode, const char *name,
		       struct replaced **ret_replaced)
{
	char loss[JOB_LOSS_TEXT], message[SNAPSHOT_TEXT];
	int r;

	if (mode == MODE_RESUME && (!*job || !job_has_state(*job))) {
		pending_error(pending, -ENOENT,
			      "there is no job %s to resume; open it with create, or either", name);
		return false;
	}
	if (!*job || !job_has_state(*job))
		return true;
	if (mode == MODE_CREATE) {
		pending_error(
			pending, -EEXIST,
			"job %s exists at step %llu; resume it, or replace it, which destroys its state",
			name, (unsigned long long)(*job)->step);
		return false;
	}
	if (mode == MODE_REPLACE && (*job)->members.count > 0) {
		pending_error(pending, -EBUSY, "job %s cannot be replaced: %u of its ranks %s alive", name,
			      (*job)->members.count, (*job)->members.count == 1 ? "is" : "are");
		return false;
	}
	if (mode == MODE_REPLACE)
		return replace(pending, job, ret_replaced);
	if (job_is_lost(*job) && lost_try_again(*job)) {
		pending_error(pending, -EAGAIN, "job %s is looked for again; try again", name);
		return false;
	}
	if (job_is_broken(*job)) {
		pending_error(pending, -EIO, "%s", job_describe_loss(*job, loss, sizeof(loss)));
		return false;
	}
	r = snapshot_check_lost(*job, message, sizeof(message));
	if (r < 0)
		pending_error(pending, r, "%s", message);
	return r == 0;
}

static unsigned count_jobs(const struct node *node, uid_t uid)
{
	unsigned count = 0;

	QUEUE_FOREACH (link, &node->jobs.live)
		if (queue_entry(link, struct job, link)->uid == uid)
			count++;
	return count;
}

int job_check_count(const struct node *node, uid_t uid, char *message, size_t size)
{
	if (count_jobs(node, uid) < node->settings.jobs_per_user)
		return 0;
	return refuse(
		message, size, -EBUSY,
		"this user has %u job%s already (tierctl jobs): drop one whose state is not needed, since "
		"that destroys it, or ask an administrator to raise jobs_per_user",
		node->settings.jobs_per_user, PLURAL(node->settings.jobs_per_user));
}

int job_check_name(const struct node *node, const char *name, char *message, size_t size)
{
	if (strlen(name) <= node->settings.job_name_length)
		return 0;
	return refuse(message, size, -EINVAL,
		      "the name of job %s has %zu bytes; at most %u are allowed (job_name_length)", name,
		      strlen(name), node->settings.job_name_length);
}

static bool is_foreign(const struct pending *pending, const Tierd__Wire__JobOpen *open)
{
	return open->has_owner && open->owner != pending_port(pending)->uid;
}

static void refuse_foreign(struct pending *pending, const Tierd__Wire__JobOpen *open)
{
	pending_error(pending, -ENOENT, "there is no job %s of user %u that is shared with you", open->name,
		      open->owner);
}

/* The caller's own, NULL if there is none; or another user's, which is there and shared with the caller,
 * whose own idea of sharing does not count. */
static bool find_to_open(struct pending *pending, const Tierd__Wire__JobOpen *open,
			 struct job_options *options, struct job **ret_job)
{
	const struct port *port = pending_port(pending);
	struct job *job;

	if (!is_foreign(pending, open)) {
		*ret_job = job_find(pending_node(pending), port->uid, open->name);
		return true;
	}
	job = job_find(pending_node(pending), open->owner, open->name);
	if (!job || !access_may_see(job, port)) {
		if (job || !access_refuse_returning(pending, open->name, open->owner))
			refuse_foreign(pending, open);
		return false;
	}
	if (!access_may_train(job, port) || open->mode == MODE_REPLACE) {
		pending_error(pending, -EPERM, "job %s of user %u is not yours to %s", open->name,
			      open->owner, open->mode == MODE_REPLACE ? "replace" : "train");
		return false;
	}
	options->sharing = job->options.sharing;
	options->share_group = job->options.share_group;
	*ret_job = job;
	return true;
}

/* Without its paths, it would be made where they are to be mounted, or not be durable, though it is to be. */
static int check_paths(const struct node *node, char *message, size_t size)
{
	if (node->path_count == 0 || node_all_paths(node).count > 0)
		return 0;
	return refuse(message, size, -ENODEV,
		      "the NVMe path %.300s is not mounted%s: mount it, and start tierd again; no job can be "
		      "made before",
		      node->paths[0].path, node->path_count > 1 ? ", nor is any other" : "");
}

/* NULL: it is answered, and what it was to replace comes back. */
static struct job *create_opened(struct pending *pending, const Tierd__Wire__JobOpen *open,
				 const struct job_options *options, struct replaced *replaced)
{
	struct node *node = pending_node(pending);
	struct job *job = NULL;
	char message[640];
	int r = job_check_count(node, pending_port(pending)->uid, message, sizeof(message));

	if (r == 0)
		r = check_paths(node, message, sizeof(message));
	if (is_foreign(pending, open))
		refuse_foreign(pending, open);
	else if (r < 0)
		pending_error(pending, r, "%s", message);
	else if (create(node, pending_port(pending), open->name, options, &job) < 0)
		pending_error(pending, -ENOMEM, "job %s: out of memory", open->name);
	if (job)
		job->life->replaced = replaced;
	else
		replaced_bring_back(replaced);
	return job;
}

/* What a rank asks for has to be what the others did; who comes to an idle job may say how many there are. */
static int agree(struct job *job, const struct job_options *options, const struct source *source,
		 bool is_drafted, char *message, size_t size)
{
	struct job_options asked = *options;
	int r;

	share_overlook(job, &asked);
	if (job_has_state(job)) {
		reserve_overlook(job, &asked);
		reshape_overlook(job, &asked);
		retain_overlook(job, &asked);
	}
	if (job_has_state(job) && reshape_is_asked(job, &asked))
		return reshape(job, &asked, message, size);
	r = options_compare(&asked, &job->options, message, size);
	if (r < 0 || job->state > JOB_FILLING)
		return r;
	return values_compare(job, source, is_drafted, message, size);
}

/* Who does not say for how many snapshots there is to be room means what the job has; of one that is to be
 * made, what its owner gets by default. */
static uint32_t resolve_snapshots(const Tierd__Wire__JobOpen *open, const struct job *job,
				  const struct quota *quota)
{
	if (open->snapshots == WIRE_NO_SNAPSHOTS)
		return 0;
	if (open->snapshots > 0 || open->durability == DURABILITY_NONE)
		return open->snapshots; /* a default is for those that can have some */
	return job ? job->options.snapshots : access_snapshots_default(quota);
}

static uint32_t resolve_io_weight(const Tierd__Wire__JobOpen *open, const struct job *job,
				  const struct quota *quota)
{
	if (open->io_weight > 0)
		return open->io_weight;
	return job ? job->options.io_weight : access_io_weight_default(quota);
}

/* What is there may be opened whatever a limit has become. */
static int read_options(const struct pending *pending, const Tierd__Wire__JobOpen *open,
			struct job_options *options, struct optimizer_group groups[WIRE_MAX_GROUPS],
			char *message, size_t size)
{
	struct node *node = pending_node(pending);
	const struct port *port = pending_port(pending);
	const struct job *job = job_find(node, open->has_owner ? open->owner : port->uid, open->name);
	struct quota quota = access_quota(node, port);
	Tierd__Wire__JobOpen asked = *open;
	int r = 0;

	if (job && open->mode == MODE_REPLACE && job_has_state(job))
		job = NULL;
	asked.snapshots = resolve_snapshots(open, job, &quota);
	asked.io_weight = resolve_io_weight(open, job, &quota);
	if (!job)
		r = access_check_snapshots(&quota, asked.snapshots, message, size);
	if (r == 0)
		r = options_read(options, groups, &asked, node->path_count > 0, message, size);
	return r < 0 || job ? r : access_check_io_weight(&quota, asked.io_weight, message, size);
}

/* A job that has a state has its values. */
static bool needs_source(const struct job *job, const Tierd__Wire__JobOpen *open)
{
	return !job || !job_has_state(job) || open->mode == MODE_REPLACE;
}

/* Whether the job can be opened now, or one of that name be made. */
static int check_now(const struct pending *pending, const struct job *job, const Tierd__Wire__JobOpen *open,
		     char *message, size_t size)
{
	const struct node *node = pending_node(pending);

	if (job ? blobs_are_loading(job)
		: node->parts->recovery->is_under_way(node, pending_port(pending)->uid, open->name))
		return refuse(message, size, -EAGAIN, "job %s comes back from its store; try again",
			      open->name);
	if (job && job_is_rolling_back(job))
		return refuse(message, size, -EAGAIN, "job %s is being rolled back; try again", open->name);
	/* What is there may be opened, and replaced, whatever the limit has become. */
	if (!job && job_check_name(node, open->name, message, size) < 0)
		return -EINVAL;
	if (node->is_draining && (!job || job->members.count == 0))
		return refuse(message, size, -ESHUTDOWN,
			      "tierd drains: job %s cannot be opened until it has been started again, or "
			      "tierctl drain --undo",
			      open->name);
	return 0;
}

void job_open(struct pending *pending, const Tierd__Wire__JobOpen *open, struct memberships *client,
	      uint32_t handle)
{
	struct replaced *replaced = NULL;
	_cleanup_(source_freep) struct source *source = NULL;
	struct optimizer_group groups[WIRE_MAX_GROUPS];
	struct job_options options;
	struct job *job;
	char message[640];
	int r = read_options(pending, open, &options, groups, message, sizeof(message));

	if (r < 0) {
		pending_error(pending, r, "%s", message);
		return;
	}
	if (!find_to_open(pending, open, &options, &job))
		return;
	r = check_now(pending, job, open, message, sizeof(message));
	if (r < 0) {
		pending_error(pending, r, "%s", message);
		return;
	}
	if (needs_source(job, open)) {
		r = source_new(pending_node(pending), pending_port(pending), open, &source, message,
			       sizeof(message));
		if (r < 0) {
			pending_error(pending, r, "job %s, rank %u: %s", open->name, open->rank, message);
			return;
		}
	}
	if (!check_mode(pending, &job, open->mode, open->name, &replaced))
		return;
	r = job ? agree(job, &options, source, open->drafted, message, sizeof(message)) : 0;
	if (r < 0) {
		if (r != -EAGAIN)
			refusal_note(client->refusal, job, open->rank, r, message);
		pending_error(pending, r, "job %s, rank %u: %s", open->name, open->rank, message);
		return;
	}
	if (!clear_rank(pending, job, open))
		return;
	/* Its last rank may have just been taken from it. */
	if (job && job_is_ending(job))
		replaced = TAKE_PTR(job->life->replaced);
	if (!job || job_is_ending(job)) {
		job = create_opened(pending, open, &options, replaced);
		if (job) {
			if (source_has_state(source))
				(void)durable_note_earlier_updates(job);
			values_begin(job, TAKE_PTR(source), open->drafted);
		}
	}
	if (job)
		join(pending, job, open, client, handle);
}
