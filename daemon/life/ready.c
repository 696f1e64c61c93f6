/* An epoch begins when all ranks wait in tierd_job_ready and nothing of the last one is in flight. What a job
 * waits for is looked at in one place, job_go_on(), in the turn of the loop that job_settle() asks for. */
#include <errno.h>
#include <event2/event.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>

#include "common/plural.h"
#include "daemon/durability/durability.h"
#include "daemon/gradients/gradients.h"
#include "daemon/life/life.h"
#include "daemon/life/lost.h"
#include "daemon/life/member.h"
#include "daemon/life/reshape.h"
#include "daemon/life/setup.h"
#include "daemon/model/model.h"
#include "daemon/residency/residency.h"
#include "daemon/telemetry/telemetry.h"
#include "daemon/update/update.h"
#include "daemon/values/values.h"

static void name_missing(const struct job *job, char *text, size_t size)
{
	size_t used = 0;

	text[0] = '\0';
	for (uint32_t rank = 0; rank < job->options.world_size && used + 48 < size; rank++) {
		const struct member *member = job->members.ranks[rank];

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
	bool lacks_memory = budget_shortage(job)->since_ns > 0;
	char missing[400];

	name_missing(job, missing, sizeof(missing));
	pending->member->ready = NULL;
	pending_error(pending, -ETIMEDOUT, "job %s: still waiting for %s", job->name,
		      missing[0]	  ? missing
		      : lacks_memory	  ? "other jobs to give up memory, their caches or idle ones"
		      : draft_exists(job) ? "its values to be written where they belong"
					  : "its memory to be prepared");
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
		if (!job->members.ranks[rank] || !job->members.ranks[rank]->ready)
			return false;
	return true;
}

static void fail_ready(struct member *member, int r, const char *message)
{
	struct pending *pending = member->ready;

	if (!pending)
		return;
	member->ready = NULL;
	refusal_note(member->client->refusal, member->job, member->rank, r, message);
	pending_error(pending, r, "job %s: %s", member->job->name, message);
}

void job_fail_ready(struct job *job, int r, const char *message)
{
	for (uint32_t rank = 0; rank < job->options.world_size; rank++)
		if (job->members.ranks[rank])
			fail_ready(job->members.ranks[rank], r, message);
}

/* A rank that has defined fewer units than another. */
static bool fail_incomplete(struct job *job)
{
	bool has_failed = false;
	char message[256];

	for (uint32_t rank = 0; rank < job->options.world_size; rank++) {
		struct member *member = job->members.ranks[rank];

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
	char loss[JOB_LOSS_TEXT];

	if (job_is_broken(job))
		pending_error(pending, -EIO, "%s", job_describe_loss(job, loss, sizeof(loss)));
	else if (job->catalog.unit_count == 0)
		pending_error(pending, -EINVAL, "job %s has no units", job->name);
	else if (member->ready)
		pending_error(pending, -EBUSY, "job %s: rank %u waits in tierd_job_ready already", job->name,
			      member->rank);
	else if (job_is_live(job) && member->epoch == job->epoch.number)
		pending_error(pending, -EINVAL, "job %s: rank %u is ready already", job->name, member->rank);
	else if (refusal_answer(pending))
		return;
	else if (!start_timeout(pending, timeout_ms))
		pending_error(pending, -ENOMEM, "job %s: out of memory", job->name);
	else {
		member->ready = pending;
		job_settle(job);
	}
}

/* False: there are no descriptors for it, and the epoch cannot be. */
static bool reply_ready(struct member *member, bool is_first_epoch)
{
	struct job *job = member->job;
	struct pending *pending = TAKE_PTR(member->ready);
	Tierd__Wire__JobReadyReply ready = TIERD__WIRE__JOB_READY_REPLY__INIT;
	int fds[] = { -1, -1, -1, -1, -1, -1 };
	struct arena_shared shared = arena_share(job);
	unsigned count = shared.cache->length > 0 ? 6 : 5;
	bool is_first = member->epoch == 0;

	if (is_first) {
		fds[0] = memory_client_fd(shared.directory, MEMORY_READ_ONLY);
		fds[1] = memory_client_fd(shared.arena, MEMORY_READ_ONLY);
		fds[2] = memory_client_fd(&member->page, MEMORY_WRITABLE);
		fds[3] = memory_client_fd(&member->gradients, MEMORY_WRITABLE);
		fds[4] = fcntl(member->doorbell_fd, F_DUPFD_CLOEXEC, 0);
		if (count == 6)
			fds[5] = memory_client_fd(shared.cache, MEMORY_READ_ONLY);
	}
	ready.status = is_first_epoch ? JOB_NEW : JOB_RESUMED;
	ready.step = job->step;
	ready.loss_scale = update_loss_scale(job)->value;
	ready.epoch = job->epoch.number;
	ready.unit_count = job->catalog.unit_count;
	ready.directory_bytes = shared.directory->length;
	ready.arena_bytes = shared.arena->length;
	ready.cache_offset = slots_cache_offset(residency_slots(job));
	ready.cache_bytes = shared.cache->length;
	ready.durability_seconds = durable_has_store(job) ? pace_seconds(job) : 0;
	ready.lease_bytes = member->page.length;
	ready.gradient_buffers = member->buffer_count;
	ready.gradient_buffer_bytes = job->gradient_buffers.bytes;
	ready.last_buffer_bytes = job->gradient_buffers.last_bytes;
	ready.gradient_room = job->gradient_buffers.room;
	bool is_complete = true;

	for (unsigned i = 0; is_first && i < count; i++)
		is_complete &= fds[i] >= 0;
	if (is_complete) {
		member->epoch = job->epoch.number;
		member->refused_pushes = 0;
		refusal_forget(member->client->refusal, job, member->rank);
		pending_reply_fds(pending, WIRE_REPLY(JOB_READY, job_ready, &ready), fds,
				  is_first ? count : 0);
	} else {
		pending_error(pending, -EIO, "job %s: no descriptors left for its memory", job->name);
	}
	for (unsigned i = 0; i < ARRAY_LENGTH(fds); i++)
		fd_close(fds[i]);
	return is_complete;
}

static void begin_epoch(struct job *job)
{
	for (uint32_t rank = 0; rank < job->options.world_size; rank++) {
		int r = member_make_pages(job->members.ranks[rank]);

		if (r < 0) {
			job_fail_ready(job, r, "no memory for the pages of its ranks");
			return;
		}
	}
	bool is_first = job->epoch.state == EPOCH_NONE;

	epoch_step(job, EPOCH_BEGIN);
	figures_of(job)->epochs++;
	job->members.departed[0] = '\0';
	arena_show_epoch(job);
	bool is_complete = true;

	for (uint32_t rank = 0; rank < job->options.world_size; rank++)
		is_complete &= reply_ready(job->members.ranks[rank], is_first);
	events_of_job(job, EVENT_READY, NULL, "epoch %u begins at step %llu, with %u rank%s",
		      job->epoch.number, (unsigned long long)job->step, job->options.world_size,
		      PLURAL(job->options.world_size));
	if (!is_complete)
		job_abort(job, -ESTALE, "tierd has no descriptors left for all ranks of job %s", job->name);
}

static void start_initializing(struct job *job)
{
	char message[1024];
	int r = values_complete(job, message, sizeof(message));

	if (r < 0)
		job_fail_ready(job, r, message);
	if (r != 0)
		return;
	life_step(job, LIFE_INITIALIZE);
	r = sweep_start(job, true);
	if (r < 0)
		job_break(job, NULL, "its values cannot be stored: %s", strerror(-r));
}

/* Without ranks nobody needs what is left of it in memory. */
static void come_back(struct job *job)
{
	uint64_t step;

	if (job_is_lost(job))
		lost_go_on(job);
	if (job->members.count > 0 || job->node->is_stopping || !durable_has_step(job, &step))
		return;
	life_step(job, LIFE_REOPEN);
}

void job_go_on(struct job *job)
{
	bool can_start = all_are_ready(job) && !fail_incomplete(job);

	if (job->members.count == 0)
		gradient_give_spares_back(job);
	durable_advance(job);
	switch (job->state) {
	case JOB_FORMING:
		/* What is written needs its place, too. */
		if (!draft_go_on(job, setup_check) && (can_start || tensor_has_waiting(job)) &&
		    node_has_settled(job->node, job->uid))
			setup_start(job);
		break;
	case JOB_RELEASED:
		reshape_undo(job);
		/* Another definition may be on its way. */
		if (can_start && node_has_settled(job->node, job->uid) && durable_is_quiet(job))
			setup_start(job);
		break;
	case JOB_FILLING:
		/* A draft that is written has such writes, too. */
		if (!values_write_on(job) && can_start)
			start_initializing(job);
		break;
	case JOB_TRAINED:
		if (!writing_go_on(job) && can_start && update_is_over(job) && gradients_are_quiet(job) &&
		    reduced_copies(job) == 0)
			begin_epoch(job);
		break;
	case JOB_BROKEN:
	case JOB_LOST:
		draft_give_up(job);
		come_back(job);
		break;
	default:
		break;
	}
}

void job_planned(struct job *job, int r, const char *message)
{
	struct pending *filling;

	if (r < 0) {
		/* Each rank may try, and is told; the log needs it once. */
		if (strcmp(job->epoch.reason, message) != 0)
			events_of_job(job, EVENT_REFUSED, NULL,
				      "it cannot be prepared: %s; its ranks are told, and may try again",
				      message);
		snprintf(job->epoch.reason, sizeof(job->epoch.reason), "%s", message);
		job_fail_ready(job, r, message);
		while ((filling = tensor_take_waiting(job))) {
			refusal_note(filling->member->client->refusal, job, filling->member->rank, r,
				     message);
			pending_error(filling, r, "job %s: %s", job->name, message);
		}
	} else if (!job_is_ending(job)) {
		tensor_fill_waiting(job);
	}
	job_settle(job);
}
