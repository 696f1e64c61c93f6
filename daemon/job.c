/* A job's life. Its phases: FORMING (units are defined) → PLANNING → FILLING (values are written) →
 * INITIALIZING → TRAINED; BROKEN when the state is lost.
 *
 * Beside that, epochs. An epoch begins when all ranks wait in tierd_job_ready and nothing of the last one is
 * in flight; it ends when a rank is lost. What a job waits for is looked at in one place, job_settle(), which
 * is called whenever something in flight has come home. */
#include "daemon/job.h"

#include <errno.h>
#include <event2/event.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/log.h"

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
	switch (job->phase) {
	case JOB_FORMING:
		return "forming";
	case JOB_PLANNING:
		return "planning";
	case JOB_FILLING:
		return "filling";
	case JOB_INITIALIZING:
		return "initializing";
	case JOB_BROKEN:
		return "broken";
	default:
		return job->is_live ? "training" : "waiting for its ranks";
	}
}

/* ---- Creation and end ---- */

static void on_slot_timer(evutil_socket_t fd, short events, void *argument)
{
	struct job *job = argument;

	residency_serve(job);
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

static int job_new(struct node *node, uid_t uid, const char *name, const struct job_options *options,
		   struct job **ret_job)
{
	struct job *job = calloc(1, sizeof(*job));

	if (!job)
		return -ENOMEM;
	*job = (struct job){ .node = node,
			     .uid = uid,
			     .options = *options,
			     .epoch = 1,
			     .directory_memory = MEMORY_INIT,
			     .arena = MEMORY_INIT,
			     .sums_memory = MEMORY_INIT };
	snprintf(job->name, sizeof(job->name), "%s", name);
	memcpy(job->groups, options->groups, sizeof(job->groups));
	queue_init(&job->lingering);
	queue_init(&job->slot_wishes);
	queue_init(&job->filling);
	queue_init(&job->tensor_waiting);
	queue_init(&job->free_reductions);
	queue_init(&job->sums_waiting);
	queue_init(&job->free_held);
	queue_init(&job->all_held);
	queue_push(&node->jobs, &job->link);
	job->ranks = calloc(options->world_size, sizeof(struct member *));
	job->slot_timer = event_new(node->loop, -1, 0, on_slot_timer, job);
	if (!job->ranks || !job->slot_timer) {
		job_free(job);
		return -ENOMEM;
	}
	node->jobs_created++;
	*ret_job = job;
	return 0;
}

void job_free(struct job *job)
{
	struct node *node = job->node;

	for (struct queue *link = queue_first(&job->lingering); link; link = queue_first(&job->lingering)) {
		struct member *member = queue_entry(link, struct member, link);

		/* What a living process still reads stays mapped there. */
		queue_remove(&member->client_link);
		member->client = NULL;
		member_free(member);
	}
	setup_clear(job);
	catalog_free(&job->catalog);
	if (job->slot_timer)
		event_free(job->slot_timer);
	queue_remove(&job->link);
	free(job->ranks);
	free(job);

	/* Others may have waited for its memory or disk. */
	QUEUE_FOREACH (link, &node->jobs)
		job_settle(queue_entry(link, struct job, link));
	node_check_idle(node);
}

void job_drop(struct job *job)
{
	queue_remove(&job->link);
	queue_push(&job->node->dying, &job->link);
	job->is_dropped = true;
	job_settle(job);
}

static bool residences_are_quiet(const struct job *job)
{
	for (uint32_t pack = 0; job->residences && pack < job->catalog.pack_count; pack++) {
		const struct residence *residence = &job->residences[pack];

		if (residence->state == DIRECTORY_LOADING || residence->writes > 0 || residence->pins > 0)
			return false;
	}
	return true;
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
	return job->phase != JOB_PLANNING && !job->is_filling_tensor && !job->sweep &&
	       job->reductions_running == 0 && !job->norm && residences_are_quiet(job) &&
	       members_are_quiet(job);
}

/* ---- Opening ---- */

static void reply_opened(struct pending *pending, struct member *member)
{
	struct job *job = member->job;
	Tierd__Wire__Reply reply = TIERD__WIRE__REPLY__INIT;
	Tierd__Wire__JobOpenReply open = TIERD__WIRE__JOB_OPEN_REPLY__INIT;
	_cleanup_close_ int fd = memory_client_fd(&member->window, MEMORY_WRITABLE);

	if (fd < 0) {
		pending_error(pending, fd, "job %s: no descriptor for the exchange window: %s", job->name,
			      strerror(-fd));
		return;
	}
	open.job = member->handle;
	/* New is a job whose tensors need values; they have them once they are being stored. */
	open.status = job->phase >= JOB_INITIALIZING ? JOB_RESUMED : JOB_NEW;
	open.step = job->step;
	open.epoch = job->epoch;
	open.window_bytes = WINDOW_BYTES;
	reply.body_case = TIERD__WIRE__REPLY__BODY_JOB_OPEN;
	reply.job_open = &open;
	pending_reply_fds(pending, &reply, &fd, 1);
}

/* The rank's place must be free, or be taken over. */
static bool clear_rank(struct pending *pending, struct job *job, const Tierd__Wire__JobOpen *open)
{
	struct member *member = job->ranks[open->rank];
	char reason[128];

	if (!member)
		return true;
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

static void join(struct pending *pending, struct job *job, const Tierd__Wire__JobOpen *open,
		 struct queue *client_members, uint32_t handle)
{
	struct member *member;
	int r;

	if (!clear_rank(pending, job, open))
		return;
	if (job->is_live)
		job_abort(job, -ESTALE, "rank %u has joined job %s again", open->rank, job->name);
	r = member_new(job, pending->client, pending_port(pending), open->rank, &member);
	if (r < 0) {
		pending_error(pending, r, "job %s: no memory for another member: %s", job->name,
			      strerror(-r));
		return;
	}
	member->handle = handle;
	job->ranks[open->rank] = member;
	job->member_count++;
	queue_push(client_members, &member->client_link);
	reply_opened(pending, member);
}

static bool has_state(const struct job *job)
{
	return job->phase == JOB_TRAINED || job->phase == JOB_BROKEN;
}

/* Whether the mode allows to join what exists; replaces it where it says so (*job becomes NULL). */
static bool check_mode(struct pending *pending, struct job **job, uint32_t mode, const char *name)
{
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
		pending_error(pending, -EBUSY, "job %s cannot be replaced: %u of its ranks are alive", name,
			      (*job)->member_count);
		return false;
	}
	if (mode == MODE_REPLACE) {
		job_drop(*job);
		*job = NULL;
	} else if ((*job)->phase == JOB_BROKEN) {
		pending_error(pending, -EIO, "the state of job %s is lost: %s; open it with replace", name,
			      (*job)->reason);
		return false;
	}
	return true;
}

void job_open(struct pending *pending, const Tierd__Wire__JobOpen *open, struct queue *client_members,
	      uint32_t handle)
{
	struct node *node = pending_node(pending);
	struct job_options options;
	struct job *job;
	char message[512];
	int r = options_read(&options, open, node->path_count > 0, message, sizeof(message));

	if (r < 0) {
		pending_error(pending, r, "%s", message);
		return;
	}
	if (node->is_stopping) {
		pending_error(pending, -ESHUTDOWN, "tierd is stopping; no job can be opened");
		return;
	}
	job = job_find(node, pending_port(pending)->uid, open->name);
	if (!check_mode(pending, &job, open->mode, open->name))
		return;
	if (job && options_compare(&options, &job->options, message, sizeof(message)) < 0) {
		pending_error(pending, -EINVAL, "job %s, rank %u: %s", open->name, open->rank, message);
		return;
	}
	if (!job) {
		r = job_new(node, pending_port(pending)->uid, open->name, &options, &job);
		if (r < 0) {
			pending_error(pending, r, "job %s: out of memory", open->name);
			return;
		}
	}
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

void job_define(struct pending *pending, const Tierd__Wire__UnitDefine *definition)
{
	struct member *member = pending->member;
	struct job *job = member->job;
	char message[512];
	int r;

	if (member->defined < job->catalog.unit_count) {
		r = catalog_compare(&job->catalog, member->defined, definition, message, sizeof(message));
	} else if (job->phase != JOB_FORMING) {
		r = -EINVAL;
		snprintf(message, sizeof(message), "unit \"%.80s\" is one too many: the job has %u units",
			 definition->name, job->catalog.unit_count);
	} else {
		r = catalog_define(&job->catalog, definition, job->options.group_count, message,
				   sizeof(message));
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

	if (job->phase == JOB_BROKEN)
		pending_error(pending, -EIO, "the state of job %s is lost: %s", job->name, job->reason);
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

/* ---- Ready ---- */

static void name_missing(const struct job *job, char *text, size_t size)
{
	size_t used = 0;

	text[0] = '\0';
	for (uint32_t rank = 0; rank < job->options.world_size && used + 48 < size; rank++) {
		const struct member *member = job->ranks[rank];

		if (member && member->ready)
			continue;
		used += (size_t)snprintf(text + used, size - used, "%srank %u (%s)", used ? ", " : "", rank,
					 member ? "has not called tierd_job_ready" : "has not joined");
	}
}

static void on_ready_timeout(evutil_socket_t fd, short events, void *argument)
{
	struct pending *pending = argument;
	struct job *job = pending->member->job;
	char missing[400];

	name_missing(job, missing, sizeof(missing));
	pending->member->ready = NULL;
	pending_error(pending, -ETIMEDOUT, "job %s: still waiting for %s", job->name,
		      missing[0] ? missing : "its memory to be prepared");
}

static bool start_timeout(struct pending *pending, int timeout_ms)
{
	struct timeval timeout = { timeout_ms / 1000, timeout_ms % 1000 * 1000 };

	if (timeout_ms < 0)
		return true;
	pending->timer = event_new(pending_node(pending)->loop, -1, 0, on_ready_timeout, pending);
	return pending->timer && event_add(pending->timer, &timeout) == 0;
}

static bool all_are_ready(const struct job *job)
{
	for (uint32_t rank = 0; rank < job->options.world_size; rank++)
		if (!job->ranks[rank] || !job->ranks[rank]->ready)
			return false;
	return true;
}

static void fail_ready(struct member *member, int r, const char *message)
{
	struct pending *pending = member->ready;

	if (!pending)
		return;
	member->ready = NULL;
	pending_error(pending, r, "job %s: %s", member->job->name, message);
}

static void fail_all_ready(struct job *job, int r, const char *message)
{
	job->is_starting = false;
	for (uint32_t rank = 0; rank < job->options.world_size; rank++)
		if (job->ranks[rank])
			fail_ready(job->ranks[rank], r, message);
}

/* A rank that has defined fewer units than another. */
static bool fail_incomplete(struct job *job)
{
	bool has_failed = false;
	char message[256];

	for (uint32_t rank = 0; rank < job->options.world_size; rank++) {
		struct member *member = job->ranks[rank];

		if (member->defined == job->catalog.unit_count)
			continue;
		snprintf(message, sizeof(message),
			 "rank %u has defined %u of %u units; unit \"%s\" is missing", rank, member->defined,
			 job->catalog.unit_count, job->catalog.units[member->defined].name);
		fail_ready(member, -EINVAL, message);
		has_failed = true;
	}
	return has_failed;
}

void job_ready(struct pending *pending, int timeout_ms)
{
	struct member *member = pending->member;
	struct job *job = member->job;

	if (job->phase == JOB_BROKEN)
		pending_error(pending, -EIO, "the state of job %s is lost: %s; open it with replace",
			      job->name, job->reason);
	else if (job->catalog.unit_count == 0)
		pending_error(pending, -EINVAL, "job %s has no units", job->name);
	else if (member->ready)
		pending_error(pending, -EBUSY, "job %s: rank %u waits in tierd_job_ready already", job->name,
			      member->rank);
	else if (job->is_live && member->epoch == job->epoch)
		pending_error(pending, -EINVAL, "job %s: rank %u is ready already", job->name, member->rank);
	else if (!start_timeout(pending, timeout_ms))
		pending_error(pending, -ENOMEM, "job %s: out of memory", job->name);
	else {
		member->ready = pending;
		job_settle(job);
	}
}

static void reply_ready(struct member *member)
{
	struct job *job = member->job;
	struct pending *pending = TAKE_PTR(member->ready);
	Tierd__Wire__Reply reply = TIERD__WIRE__REPLY__INIT;
	Tierd__Wire__JobReadyReply ready = TIERD__WIRE__JOB_READY_REPLY__INIT;
	int fds[5] = { -1, -1, -1, -1, -1 };
	bool is_first = member->epoch == 0;

	if (is_first) {
		fds[0] = memory_client_fd(&job->directory_memory, MEMORY_READ_ONLY);
		fds[1] = memory_client_fd(&job->arena, MEMORY_READ_ONLY);
		fds[2] = memory_client_fd(&member->page, MEMORY_WRITABLE);
		fds[3] = memory_client_fd(&member->gradients, MEMORY_WRITABLE);
		fds[4] = dup(member->doorbell_fd);
	}
	ready.status = job->has_begun ? JOB_RESUMED : JOB_NEW;
	ready.step = job->step;
	ready.epoch = job->epoch;
	ready.unit_count = job->catalog.unit_count;
	ready.directory_bytes = job->directory_memory.length;
	ready.arena_bytes = job->arena.length;
	ready.lease_bytes = member->page.length;
	ready.gradient_buffers = member->buffer_count;
	ready.gradient_buffer_bytes = job->catalog.gradient_bytes_maximum;
	reply.body_case = TIERD__WIRE__REPLY__BODY_JOB_READY;
	reply.job_ready = &ready;
	member->epoch = job->epoch;
	if (is_first && (fds[0] < 0 || fds[1] < 0 || fds[2] < 0 || fds[3] < 0 || fds[4] < 0))
		pending_error(pending, -EIO, "job %s: no descriptors left for its memory", job->name);
	else
		pending_reply_fds(pending, &reply, fds, is_first ? 5 : 0);
	for (unsigned i = 0; i < ARRAY_LENGTH(fds); i++)
		fd_close(fds[i]);
}

static void begin_epoch(struct job *job)
{
	for (uint32_t rank = 0; rank < job->options.world_size; rank++) {
		int r = member_make_pages(job->ranks[rank]);

		if (r < 0) {
			fail_all_ready(job, r, "no memory for the pages of its ranks");
			return;
		}
	}
	job->is_starting = false;
	job->is_live = true;
	job->departed[0] = '\0';
	atomic_store(&job->directory->epoch, job->epoch);
	for (uint32_t rank = 0; rank < job->options.world_size; rank++)
		reply_ready(job->ranks[rank]);
	job->has_begun = true;
	log_debug("job %s: epoch %u begins at step %llu", job->name, job->epoch,
		  (unsigned long long)job->step);
}

static void start_initializing(struct job *job)
{
	char names[256], message[400];
	unsigned unwritten = catalog_unwritten(&job->catalog, names, sizeof(names));

	if (unwritten > 0) {
		snprintf(message, sizeof(message), "%u tensors have no values and no initializer: %s%s",
			 unwritten, names, unwritten > 4 ? ", …" : "");
		fail_all_ready(job, -ENODATA, message);
		return;
	}
	if (tensor_initialize(job) || !residences_are_quiet(job))
		return;
	job->phase = JOB_INITIALIZING;
	int r = sweep_start(job, true);

	if (r < 0)
		job_break(job, r, "its values cannot be stored: %s", strerror(-r));
}

void job_settle(struct job *job)
{
	if (job->is_dropped) {
		if (job_is_quiet(job))
			job_free(job);
		return;
	}
	if (!job->is_starting && (!all_are_ready(job) || fail_incomplete(job)))
		return;
	job->is_starting = true;
	switch (job->phase) {
	case JOB_FORMING:
		if (queue_is_empty(&job->node->dying))
			setup_start(job);
		break;
	case JOB_FILLING:
		if (all_are_ready(job))
			start_initializing(job);
		else
			job->is_starting = false;
		break;
	case JOB_TRAINED:
		if (!all_are_ready(job))
			job->is_starting = false;
		else if (!job->sweep && job->reductions_running == 0 && !job->norm)
			begin_epoch(job);
		break;
	default:
		break;
	}
}

void job_planned(struct job *job, int r, const char *message)
{
	if (r < 0) {
		log_info("job %s cannot be prepared: %s", job->name, message);
		fail_all_ready(job, r, message);
		for (struct queue *link = queue_pop(&job->filling); link; link = queue_pop(&job->filling))
			pending_error(queue_entry(link, struct pending, link), r, "job %s: %s", job->name,
				      message);
	} else if (!job->is_dropped) {
		tensor_fill_waiting(job);
	}
	job_settle(job);
}

/* ---- The end of an epoch ---- */

static void announce_end(struct job *job, struct member *member, int r)
{
	Tierd__Wire__Event event = TIERD__WIRE__EVENT__INIT;
	Tierd__Wire__Event__EpochEnded ended = TIERD__WIRE__EVENT__EPOCH_ENDED__INIT;
	Tierd__Wire__Status status = TIERD__WIRE__STATUS__INIT;

	if (!member->port || member->epoch == 0)
		return;
	status.code = status_from_errno(r);
	status.message = job->reason;
	ended.job = member->handle;
	ended.epoch = member->epoch;
	ended.reason = &status;
	event.body_case = TIERD__WIRE__EVENT__BODY_EPOCH_ENDED;
	event.epoch_ended = &ended;
	member->port->ops->event(member->port, &event);
}

/* A decided step goes on: its ticket, and reads that are under way, are answered when they are done. */
static bool outlives_epoch(const struct job *job, const struct member *member, const struct pending *pending)
{
	if (pending == member->step)
		return job->decided > job->step && job->phase != JOB_BROKEN;
	return pending == member->ready || tensor_is_operating(member, pending);
}

static void end_for_member(struct job *job, struct member *member, int r)
{
	announce_end(job, member, r);
	member->next_step = NULL;
	member->is_closed = false;
	member->has_begun = false;
	if (member->pushed)
		memset(member->pushed, 0, job->catalog.unit_count * sizeof(*member->pushed));
	gradient_forget_member(member);
	QUEUE_FOREACH (link, &member->pendings) {
		struct pending *pending = queue_entry(link, struct pending, member_link);

		if (outlives_epoch(job, member, pending))
			continue;
		if (pending == member->step)
			member->step = NULL;
		if (pending == member->ready)
			member->ready = NULL;
		pending_error(pending, r, "%s", job->reason);
	}
}

static void end_epoch(struct job *job, int r)
{
	bool was_live = job->is_live;

	job->is_live = false;
	job->closed_count = 0;
	if (was_live)
		job->epoch++;
	if (job->directory)
		atomic_store(&job->directory->epoch, job->epoch);
	for (uint32_t rank = 0; rank < job->options.world_size; rank++)
		if (job->ranks[rank])
			end_for_member(job, job->ranks[rank], r);
	if (was_live) {
		gradient_abort(job);
		step_abort(job);
	}
}

void job_abort(struct job *job, int r, const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(job->reason, sizeof(job->reason), format, arguments);
	va_end(arguments);
	if (!job->is_live)
		return;
	log_info("job %s: epoch %u ends at step %llu: %s", job->name, job->epoch,
		 (unsigned long long)job->decided, job->reason);
	end_epoch(job, r);
}

void job_break(struct job *job, int r, const char *format, ...)
{
	va_list arguments;

	if (job->phase == JOB_BROKEN)
		return;
	va_start(arguments, format);
	vsnprintf(job->reason, sizeof(job->reason), format, arguments);
	va_end(arguments);
	log_error("job %s is broken at step %llu: %s", job->name, (unsigned long long)job->step, job->reason);
	job->phase = JOB_BROKEN;
	job->is_starting = false;
	end_epoch(job, -EIO);
	fail_all_ready(job, -EIO, job->reason);
}

/* ---- Leaving ---- */

static void drop_pendings(struct member *member)
{
	member->ready = member->step = member->next_step = NULL;
	gradient_forget_pendings(member);
	tensor_forget(member);
	for (struct queue *link = queue_first(&member->pendings); link; link = queue_first(&member->pendings))
		pending_drop(queue_entry(link, struct pending, member_link));
}

/* A rank that leaves in good order disturbs those who need it for the open step. */
static bool is_needed(const struct job *job, const struct member *leaving)
{
	if (leaving->is_closed || gradient_has_pushed(leaving))
		return true;
	for (uint32_t rank = 0; rank < job->options.world_size; rank++)
		if (job->ranks[rank] &&
		    (job->ranks[rank]->is_closed || gradient_has_pushed(job->ranks[rank])))
			return true;
	return false;
}

void job_leave(struct member *member, bool is_orderly, const char *reason)
{
	struct job *job = member->job;

	drop_pendings(member);
	member->has_left = true;
	member->port = NULL;
	job->ranks[member->rank] = NULL;
	job->member_count--;
	queue_push(&job->lingering, &member->link);

	if (!is_orderly || is_needed(job, member))
		job_abort(job, -ESTALE, "%s", reason);
	else
		snprintf(job->departed, sizeof(job->departed), "%s", reason);
	gradient_forget_member(member);
	member_release(member);
	if (job->member_count > 0) {
		residency_serve(job);
		return;
	}
	job->is_live = false;
	job->is_starting = false;
	if (job->phase != JOB_TRAINED && !job->is_dropped)
		job_drop(job);
}
