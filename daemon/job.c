/* A job's life. Its phases: FORMING (units are defined) → PLANNING → FILLING (values are written) →
 * INITIALIZING → TRAINED (→ RELEASED → RETURNING → TRAINED); BROKEN when a step cannot be finished. Beside
 * that, epochs: see epoch.c. */
#include "daemon/job.h"

#include <errno.h>
#include <event2/event.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/clock.h"
#include "common/plural.h"
#include "daemon/access.h"
#include "daemon/backup.h"
#include "daemon/budget.h"
#include "daemon/cache.h"
#include "daemon/disposal.h"
#include "daemon/durable.h"
#include "daemon/errand.h"
#include "daemon/idle.h"
#include "daemon/lost.h"
#include "daemon/reader.h"
#include "daemon/refuse.h"
#include "daemon/replaced.h"
#include "daemon/reserve.h"
#include "daemon/reshape.h"
#include "daemon/restore.h"
#include "daemon/source.h"
#include "daemon/spill.h"
#include "daemon/statistics.h"
#include "proto/name.h"

struct job *job_find(struct node *node, uid_t uid, const char *name)
{
	QUEUE_FOREACH (link, &node->jobs) {
		struct job *job = queue_entry(link, struct job, link);

		if (job->uid == uid && strcmp(job->name, name) == 0)
			return job;
	}
	return NULL;
}

const char *job_status_name(const struct job *job)
{
	/* Values may be written before all ranks are here. */
	if (job->phase < JOB_INITIALIZING && job->member_count < job->options.world_size)
		return "waiting for its ranks";
	switch (job->phase) {
	case JOB_FORMING:
		return "forming";
	case JOB_PLANNING:
	case JOB_RETURNING:
		return "planning";
	case JOB_FILLING:
		return "filling";
	case JOB_INITIALIZING:
		return "initializing";
	case JOB_BROKEN:
		return "broken";
	default:
		return job->is_live ? "training" : job_is_idle(job) ? "idle" : "waiting for its ranks";
	}
}

const char *job_describe_loss(const struct job *job, char *text, size_t size)
{
	uint64_t step;

	if (job->is_lost)
		snprintf(text, size,
			 "job %s cannot come back: %s; %s, or open the job with replace, which discards what "
			 "is left of it",
			 job->name, job->reason,
			 lost_lacks_room(job) ? "make room for it" : "mend that and open it again");
	else if (durable_has_step(job, &step))
		snprintf(text, size,
			 "job %s is broken: %s; close it and open it again: it goes on from there", job->name,
			 job->reason);
	else
		snprintf(text, size, "the state of job %s is lost: %s; open it with replace", job->name,
			 job->reason);
	return text;
}

struct store *job_nvme_store(const struct job *job)
{
	return job->parameter_store	 ? job->parameter_store
	       : job->has_nvme_optimizer ? job->optimizer_store
					 : NULL;
}

uint64_t job_path_moved(const struct job *job, unsigned path, enum tier_direction direction)
{
	const struct store *state = job_nvme_store(job), *sums = job->gradient_store;
	unsigned device = 0;

	while (device < job->paths.count && job->paths.paths[device] != path)
		device++;
	if (device == job->paths.count)
		return 0;
	return (state ? store_device_bytes(state, device, direction) : 0) +
	       (sums ? store_device_bytes(sums, device, direction) : 0);
}

bool job_is_idle(const struct job *job)
{
	return job->member_count == 0 && job->phase >= JOB_TRAINED;
}

/* ---- Creation and end ---- */

static void on_slot_timer(evutil_socket_t fd, short events, void *argument)
{
	struct job *job = argument;

	residency_serve(job);
	cache_go_on(job);
	if (queue_is_empty(&job->slot_wishes))
		return;
	residency_check_deadlock(job);
	/* Who holds the leases may wait for a gradient buffer, which frees no slot by itself. */
	if (job->loading_bytes == 0)
		gradient_unblock(job, true);
	job_watch_slots(job);
}

/* The timer is for those who release without ringing: a broken client, or one that has died. */
void job_watch_slots(struct job *job)
{
	static const struct timeval soon = { .tv_usec = 20000 };

	for (uint32_t rank = 0; rank < job->options.world_size; rank++)
		if (job->ranks[rank] && job->ranks[rank]->has_pages)
			atomic_store_explicit(&job->ranks[rank]->leases->is_release_wanted, 1,
					      memory_order_seq_cst);
	if (!event_pending(job->slot_timer, EV_TIMEOUT, NULL))
		event_add(job->slot_timer, &soon);
}

/* A dropped job is freed from here alone, so that nobody up a stack still uses it. */
static void on_turn(evutil_socket_t fd, short events, void *argument)
{
	struct job *job = argument;

	spill_serve(job);
	backup_go_on(job);
	sweep_go_on(job);
	residency_serve(job);
	readers_go_on(job);
	sources_go_on(job);
	cache_go_on(job);
	prefetch_bring_back(job);
	if (!job->is_dropped)
		job_go_on(job);
	else if (!job_is_quiet(job))
		return;
	else if (job->comes_back)
		restore_again(job);
	else
		job_free(job);
}

/* Once, however often it is asked for, and before the loop waits again. */
void job_settle(struct job *job)
{
	event_active(job->turn, EV_TIMEOUT, 0);
}

void job_settle_all(struct node *node)
{
	QUEUE_FOREACH (link, &node->jobs)
		job_settle(queue_entry(link, struct job, link));
}

static void set_limits(struct job *job, const struct quota *quota)
{
	job->host_budget = job->options.host_budget ? job->options.host_budget : quota->host_default;
	job->nvme_budget = job->options.nvme_budget ? job->options.nvme_budget : quota->nvme_default;
	job->host_maximum = quota->host_maximum;
	job->nvme_maximum = quota->nvme_maximum;
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
			     .epoch = 1,
			     .paths = node_all_paths(node),
			     .directory_memory = MEMORY_INIT,
			     .arena = MEMORY_INIT,
			     .cache = MEMORY_INIT,
			     .sums_memory = MEMORY_INIT,
			     .statistics = MEMORY_INIT };
	snprintf(job->name, sizeof(job->name), "%s", name);
	job->catalog.unit_maximum = node->units_per_job;
	job->catalog.tensor_maximum = node->tensors_per_job;
	job->catalog.name_maximum = node->name_length;
	job->catalog.dimension_maximum = node->dimensions_per_tensor;
	set_limits(job, quota);
	job->durability = options->durability ? options->durability : node->durability;
	shortage_init(&job->shortage, room_claim(job), job);
	memcpy(job->groups, options->groups, sizeof(job->groups));
	job->loss_scale.value = options->loss_scale.initial;
	blobs_init(&job->blobs);
	queue_init(&job->lingering);
	queue_init(&job->readers);
	queue_init(&job->takers);
	queue_init(&job->errands);
	queue_init(&job->slot_wishes);
	queue_init(&job->filling);
	queue_init(&job->state_writes);
	queue_init(&job->tensor_waiting);
	queue_init(&job->free_reductions);
	queue_init(&job->sums_waiting);
	queue_init(&job->free_held);
	queue_init(&job->all_held);
	queue_push(&node->jobs, &job->link);
	job->ranks = calloc(options->world_size, sizeof(struct member *));
	job->slot_timer = event_new(node->loop, -1, 0, on_slot_timer, job);
	job->turn = event_new(node->loop, -1, 0, on_turn, job);
	if (!job->ranks || !job->slot_timer || !job->turn) {
		job_free(job);
		return -ENOMEM;
	}
	*ret_job = job;
	return 0;
}

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
	(*ret_job)->number = ++node->jobs_created;
	events_of_job(*ret_job, EVENT_OPENED, NULL, "it is opened, for %u rank%s at stage %u",
		      options->world_size, PLURAL(options->world_size), options->stage);
	return 0;
}

void job_free(struct job *job)
{
	struct node *node = job->node;

	if (job->is_lost && !job->is_kept)
		lost_remove(job);
	replaced_inherit(job);
	readers_end_job(job);
	sources_end_job(job);
	job->source = source_free(job->source);
	for (struct queue *link = queue_first(&job->lingering); link; link = queue_first(&job->lingering)) {
		struct member *member = queue_entry(link, struct member, link);

		/* What a living process still reads stays mapped there. */
		queue_remove(&member->client_link);
		member->client = NULL;
		member_free(member);
	}
	setup_clear(job);
	blobs_free(job);
	job->replaced = job->is_kept ? replaced_leave(job->replaced) : replaced_bring_back(job->replaced);
	statistics_end_job(job);
	catalog_free(&job->catalog);
	budget_uncharge(job, job->charged_bytes);
	if (job->slot_timer)
		event_free(job->slot_timer);
	if (job->turn)
		event_free(job->turn);
	shortage_end(&job->shortage);
	idle_end(job);
	queue_remove(&job->link);
	free(job->ranks);
	free(job);
	disposal_start_trim(node);

	job_settle_all(node);
	node_check_idle(node);
}

void job_drop(struct job *job)
{
	errands_end(job);
	queue_remove(&job->link);
	queue_push(&job->node->dying, &job->link);
	job->is_dropped = true;
	shortage_end(&job->shortage);
	sweep_cancel(job);
	job_settle(job);
}

static bool members_are_quiet(const struct job *job)
{
	QUEUE_FOREACH (link, &job->lingering)
		if (queue_entry(link, struct member, link)->busy > 0)
			return false;
	return true;
}

bool job_is_quiet(const struct job *job)
{
	return job->phase != JOB_PLANNING && job->phase != JOB_RETURNING && !job->is_filling_tensor &&
	       source_is_quiet(job) && !job->blobs.is_loading && !job->sweep && durable_is_quiet(job) &&
	       errands_are_quiet(job) && job->snapshot_copies == 0 && job->reductions_running == 0 &&
	       job->cache_moves == 0 && job->scans == 0 && !job->norm && residency_is_quiet(job) &&
	       members_are_quiet(job);
}

/* ---- Opening ---- */

static bool has_state(const struct job *job)
{
	return job->phase >= JOB_TRAINED;
}

static void reply_opened(struct pending *pending, struct member *member)
{
	struct job *job = member->job;
	Tierd__Wire__Reply reply = TIERD__WIRE__REPLY__INIT;
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
	open.status = job->phase >= JOB_INITIALIZING ? JOB_RESUMED : JOB_NEW;
	open.step = job->step;
	open.loss_scale = job->loss_scale.value;
	open.epoch = job->epoch;
	open.window_bytes = WINDOW_BYTES;
	reply.body_case = TIERD__WIRE__REPLY__BODY_JOB_OPEN;
	reply.job_open = &open;
	pending_reply_fds(pending, &reply, &fd, 1);
}

/* The rank's place must be free, or be taken over; the last rank of a job without state takes the job with
 * it. */
static bool clear_rank(struct pending *pending, struct job *job, const Tierd__Wire__JobOpen *open)
{
	struct member *member = job ? job->ranks[open->rank] : NULL;
	char reason[128];

	if (!member)
		return true;
	/* A trainer that is restarted at once may be faster than the news of its death. */
	if (port_is_dead(member->port)) {
		snprintf(reason, sizeof(reason), "rank %u (pid %d) is lost: its process died", member->rank,
			 (int)member->pid);
		job_leave(member, false, reason);
		return true;
	}
	/* Of a shared job a rank is taken from its holder by himself, or by the job's owner. */
	if (member->port->uid != pending_port(pending)->uid && job->uid != pending_port(pending)->uid) {
		pending_error(pending, -EBUSY, "rank %u of job %s is held by process %d of user %u",
			      open->rank, job->name, (int)member->pid, (unsigned)member->port->uid);
		return false;
	}
	if (open->is_reconnect && member->pid == pending_port(pending)->pid) {
		snprintf(reason, sizeof(reason), "rank %u (pid %d) has lost its connection", member->rank,
			 (int)member->pid);
		job_leave(member, false, reason);
		return true;
	}
	if (!open->takeover) {
		pending_error(pending, -EBUSY,
			      "rank %u of job %s is held by process %d; end it, or open with takeover",
			      open->rank, job->name, (int)member->pid);
		return false;
	}
	snprintf(reason, sizeof(reason), "rank %u (pid %d) was taken over by another process", member->rank,
		 (int)member->pid);
	job_leave(member, false, reason);
	return true;
}

/* A member's window is in the job's plan, once there is one. */
static int charge_window(struct job *job, char *message, size_t size)
{
	int r;

	if (job->has_plan || job->windows > job->member_count)
		return 0;
	r = budget_charge(job, WINDOW_BYTES, message, size);
	if (r == 0)
		job->windows++;
	return r;
}

static void join(struct pending *pending, struct job *job, const Tierd__Wire__JobOpen *open,
		 struct queue *client_members, uint32_t handle)
{
	struct member *member;
	char message[640];
	int r;

	if (job->is_live)
		job_abort(job, -ESTALE, "rank %u has joined job %s again", open->rank, job->name);
	/* Of a job that was brought back, the owner's groups were only looked up. */
	if (job->member_count == 0 && !job->has_plan && pending_port(pending)->uid == job->uid) {
		struct quota quota = access_quota(job->node, pending_port(pending));

		set_limits(job, &quota);
	}
	r = charge_window(job, message, sizeof(message));
	if (r == 0) {
		r = member_new(job, pending->client, pending_port(pending), open->rank, &member);
		if (r < 0)
			snprintf(message, sizeof(message), "%s", strerror(-r));
	}
	if (r < 0) {
		pending_error(pending, r, "job %s: no memory for another member: %s", job->name, message);
		events_of_job(job, EVENT_REFUSED, &(struct log_fields){ .rank = &open->rank },
			      "rank %u (pid %d) cannot join it: %s", open->rank,
			      (int)pending_port(pending)->pid, message);
		if (job->member_count == 0 && !has_state(job))
			job_drop(job);
		return;
	}
	member->handle = handle;
	member->has_reconnected = open->is_reconnect;
	idle_end(job);
	member->joined_ns = member->heard_ns = clock_now_ns();
	job->ranks[open->rank] = member;
	job->member_count++;
	queue_push(client_members, &member->client_link);
	events_of_job(job, EVENT_ATTACHED, &(struct log_fields){ .rank = &member->rank },
		      "rank %u (pid %d) has opened it", member->rank, (int)member->pid);
	reply_opened(pending, member);
}

static bool replace(struct pending *pending, struct job **job, struct replaced **ret_replaced)
{
	int r = replaced_new(*job, ret_replaced);

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
	char loss[JOB_LOSS_TEXT];

	if (mode == MODE_RESUME && (!*job || !has_state(*job))) {
		pending_error(pending, -ENOENT,
			      "there is no job %s to resume; open it with create, or either", name);
		return false;
	}
	if (!*job || !has_state(*job))
		return true;
	if (mode == MODE_CREATE) {
		pending_error(pending, -EEXIST, "job %s exists at step %llu; resume or replace it", name,
			      (unsigned long long)(*job)->step);
		return false;
	}
	if (mode == MODE_REPLACE && (*job)->member_count > 0) {
		pending_error(pending, -EBUSY, "job %s cannot be replaced: %u of its ranks %s alive", name,
			      (*job)->member_count, (*job)->member_count == 1 ? "is" : "are");
		return false;
	}
	if (mode == MODE_REPLACE)
		return replace(pending, job, ret_replaced);
	if ((*job)->is_lost && lost_try_again(*job)) {
		pending_error(pending, -EAGAIN, "job %s is looked for again; try again", name);
		return false;
	}
	if ((*job)->phase == JOB_BROKEN) {
		pending_error(pending, -EIO, "%s", job_describe_loss(*job, loss, sizeof(loss)));
		return false;
	}
	return true;
}

static unsigned count_jobs(const struct node *node, uid_t uid)
{
	unsigned count = 0;

	QUEUE_FOREACH (link, &node->jobs)
		if (queue_entry(link, struct job, link)->uid == uid)
			count++;
	return count;
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

/* NULL: it is answered, and what it was to replace comes back. */
static struct job *create_opened(struct pending *pending, const Tierd__Wire__JobOpen *open,
				 const struct job_options *options, struct replaced *replaced)
{
	struct node *node = pending_node(pending);
	struct job *job = NULL;
	int r = 0;

	if (is_foreign(pending, open))
		refuse_foreign(pending, open);
	else if (count_jobs(node, pending_port(pending)->uid) >= node->jobs_per_user)
		pending_error(
			pending, -EBUSY,
			"this user has %u job%s already: drop one that is not needed (tierctl jobs), or "
			"ask an administrator to raise jobs_per_user",
			node->jobs_per_user, PLURAL(node->jobs_per_user));
	else
		r = create(node, pending_port(pending), open->name, options, &job);
	if (r < 0)
		pending_error(pending, r, "job %s: out of memory", open->name);
	if (job)
		job->replaced = replaced;
	else
		replaced_bring_back(replaced);
	return job;
}

/* What a rank asks for has to be what the others did; who comes to an idle job may say how many there are. */
static int agree(struct job *job, const struct job_options *options, const struct source *source,
		 char *message, size_t size)
{
	struct job_options asked = *options;
	int r;

	if (has_state(job))
		reserve_overlook(job, &asked);
	if (has_state(job) && reshape_is_asked(job, &asked))
		return reshape(job, &asked, message, size);
	r = options_compare(&asked, &job->options, message, size);
	return r < 0 || job->phase > JOB_FILLING ? r : source_compare(source, job->source, message, size);
}

/* A job that has a state has its values. */
static bool needs_source(const struct job *job, const Tierd__Wire__JobOpen *open)
{
	return !job || !has_state(job) || open->mode == MODE_REPLACE;
}

void job_open(struct pending *pending, const Tierd__Wire__JobOpen *open, struct queue *client_members,
	      uint32_t handle)
{
	struct replaced *replaced = NULL;
	struct node *node = pending_node(pending);
	_cleanup_(source_freep) struct source *source = NULL;
	struct job_options options;
	struct job *job;
	char message[640];
	int r = options_read(&options, open, node->path_count > 0, message, sizeof(message));

	if (r < 0) {
		pending_error(pending, r, "%s", message);
		return;
	}
	if (node->is_stopping) {
		pending_error(pending, -ESHUTDOWN, "tierd is stopping; no job can be opened");
		return;
	}
	if (!find_to_open(pending, open, &options, &job))
		return;
	if (job ? job->blobs.is_loading
		: restore_is_under_way(node, pending_port(pending)->uid, open->name)) {
		pending_error(pending, -EAGAIN, "job %s comes back from its store; try again", open->name);
		return;
	}
	if (job && job->is_rolling_back) {
		pending_error(pending, -EAGAIN, "job %s is being rolled back; try again", open->name);
		return;
	}
	/* What is there may be opened, and replaced, whatever the limit has become. */
	if (!job && strlen(open->name) > node->job_name_length) {
		pending_error(pending, -EINVAL,
			      "the name of job %s has %zu bytes; at most %u are allowed (job_name_length)",
			      open->name, strlen(open->name), node->job_name_length);
		return;
	}
	if (node->is_draining && (!job || job->member_count == 0)) {
		pending_error(pending, -ESHUTDOWN,
			      "tierd drains: job %s cannot be opened until it has been started again, or "
			      "tierctl drain --undo",
			      open->name);
		return;
	}
	if (needs_source(job, open)) {
		r = source_new(node, pending_port(pending), open, &source, message, sizeof(message));
		if (r < 0) {
			pending_error(pending, r, "job %s, rank %u: %s", open->name, open->rank, message);
			return;
		}
	}
	if (!check_mode(pending, &job, open->mode, open->name, &replaced))
		return;
	r = job ? agree(job, &options, source, message, sizeof(message)) : 0;
	if (r < 0) {
		pending_error(pending, r, "job %s, rank %u: %s", open->name, open->rank, message);
		return;
	}
	if (!clear_rank(pending, job, open))
		return;
	/* Its last rank may have just been taken from it. */
	if (job && job->is_dropped)
		replaced = TAKE_PTR(job->replaced);
	if (!job || job->is_dropped) {
		job = create_opened(pending, open, &options, replaced);
		if (job) {
			job->has_earlier_updates = source_has_state(source);
			job->source = TAKE_PTR(source);
		}
	}
	if (job)
		join(pending, job, open, client_members, handle);
}

/* ---- Units ---- */

static void reply_defined(struct pending *pending, uint32_t unit)
{
	Tierd__Wire__Reply reply = TIERD__WIRE__REPLY__INIT;
	Tierd__Wire__UnitDefineReply define = TIERD__WIRE__UNIT_DEFINE_REPLY__INIT;

	define.unit = unit;
	reply.body_case = TIERD__WIRE__REPLY__BODY_UNIT_DEFINE;
	reply.unit_define = &define;
	pending_reply(pending, &reply);
}

int job_add_unit(struct job *job, const Tierd__Wire__UnitDefine *definition, char *message, size_t size)
{
	uint64_t bytes = catalog_definition_bytes(definition);
	char reason[640];
	int r = budget_charge(job, bytes, reason, sizeof(reason));

	if (r < 0)
		return refuse(message, size, r, "unit \"%.*s\": %s", name_fit(definition->name, 80),
			      definition->name, reason);
	r = catalog_define(&job->catalog, definition, job->options.group_count, message, size);
	if (r < 0)
		budget_uncharge(job, bytes);
	return r;
}

/* Values that were given are there, whatever a later rank would have begun with. */
static void forget_initializers(const struct job *job, uint32_t index,
				const Tierd__Wire__UnitDefine *definition)
{
	const struct unit *unit = &job->catalog.units[index];

	for (size_t i = 0; i < unit->tensor_count && i < definition->n_tensors; i++) {
		if (!job->has_begun || unit->tensors[i].initializer != INITIALIZE_NONE)
			continue;
		definition->tensors[i]->initializer = INITIALIZE_NONE;
		definition->tensors[i]->a = unit->tensors[i].a;
		definition->tensors[i]->b = unit->tensors[i].b;
	}
}

void job_define(struct pending *pending, const Tierd__Wire__UnitDefine *definition)
{
	struct member *member = pending->member;
	struct job *job = member->job;
	char message[832];
	int r;

	if (member->defined < job->catalog.unit_count) {
		forget_initializers(job, member->defined, definition);
		r = catalog_compare(&job->catalog, member->defined, definition, message, sizeof(message));
	} else if (job->phase != JOB_FORMING) {
		r = -EINVAL;
		snprintf(message, sizeof(message), "unit \"%.*s\" is one too many: the job has %u unit%s",
			 name_fit(definition->name, 80), definition->name, job->catalog.unit_count,
			 PLURAL(job->catalog.unit_count));
	} else {
		r = job_add_unit(job, definition, message, sizeof(message));
		if (r == -ENOMEM)
			events_of_job(job, EVENT_REFUSED, NULL, "%s", message);
	}
	if (r < 0)
		pending_error(pending, r, "job %s, rank %u: %s", job->name, member->rank, message);
	else
		reply_defined(pending, member->defined++);
}

/* ---- Checks ---- */

bool job_check_live(struct pending *pending, uint32_t epoch)
{
	const struct member *member = pending->member;
	const struct job *job = member->job;
	char loss[JOB_LOSS_TEXT];

	if (job->phase == JOB_BROKEN)
		pending_error(pending, -EIO, "%s", job_describe_loss(job, loss, sizeof(loss)));
	else if (member->epoch == 0 && member->has_reconnected)
		pending_error(pending, -ESTALE,
			      "job %s: this rank has lost its connection; call tierd_job_ready", job->name);
	else if (member->epoch == 0)
		pending_error(pending, -EINVAL, "job %s: this rank has not called tierd_job_ready",
			      job->name);
	else if (!job->is_live || member->epoch != job->epoch || epoch != job->epoch)
		pending_error(pending, -ESTALE, "%s; call tierd_job_ready",
			      job->reason[0] ? job->reason : "the epoch has ended");
	else
		return true;
	return false;
}

bool job_check_unit(struct pending *pending, uint32_t unit)
{
	const struct job *job = pending->member->job;

	if (unit < job->catalog.unit_count)
		return true;
	pending_error(pending, -EINVAL, "job %s has no unit %u; it has %u", job->name, unit,
		      job->catalog.unit_count);
	return false;
}
