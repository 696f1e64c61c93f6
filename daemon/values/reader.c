#include "daemon/values/reader.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "daemon/durability/durability.h"
#include "daemon/gradients/gradients.h"
#include "daemon/model/model.h"
#include "daemon/request/request.h"
#include "daemon/resources/resources.h"

/* ---- Memory ---- */

int reader_charge(struct reader *reader, uint64_t bytes, char *message, size_t size)
{
	int r = budget_take_reader(&reader->shortage, bytes, message, size);

	if (r == 0)
		reader->bytes += bytes;
	return r;
}

void reader_uncharge(struct reader *reader, uint64_t bytes)
{
	reader->bytes -= bytes;
	reader->node->memory.host_used -= bytes;
}

/* ---- Life ---- */

static bool is_in_use(const struct reader *reader)
{
	return reader_is_copying(reader) || reader->is_mapping || reader->is_opening ||
	       view_is_in_use(&reader->view);
}

static void reader_free(struct reader *reader)
{
	reader_values_clear(reader);
	reader_memory_clear(reader);
	store_free(reader->snapshot);
	reader_uncharge(reader, reader->bytes);
	disposal_start_shared(reader->node, reader->uid, false, &reader->window);
	memory_free(&reader->buffer);
	queue_remove(&reader->link);
	queue_remove(&reader->job_link);
	queue_remove(&reader->client_link);
	free(reader);
}

void reader_release(struct reader *reader)
{
	if (reader->is_closed && !is_in_use(reader))
		reader_free(reader);
}

/* What is in flight comes home. */
static void stop(struct reader *reader)
{
	reader->pending = NULL;
	shortage_end(&reader->shortage);
	view_cancel(&reader->view);
	reader_values_give_up(reader);
}

static void answer(struct reader *reader, int r, const char *message)
{
	struct pending *pending = reader->pending;

	stop(reader);
	if (pending)
		pending_error(pending, r, "job %s: %s", reader->job_name, message);
}

static void discard(struct reader *reader)
{
	queue_remove(&reader->client_link);
	queue_remove(&reader->job_link);
	queue_remove(&reader->kept.link);
	reader->is_closed = true;
	reader_release(reader);
}

void reader_fail(struct reader *reader, int r, const char *message)
{
	answer(reader, r, message);
	/* Its client has never heard of it. */
	if (reader->activity == OPENING)
		discard(reader);
}

void reader_close(struct reader *reader)
{
	answer(reader, -ECANCELED, "its reader was closed");
	discard(reader);
}

void readers_close_all(struct queue *client_readers)
{
	QUEUE_FOREACH (link, client_readers)
		reader_close(queue_entry(link, struct reader, client_link));
}

struct reader *reader_of(struct queue *client_readers, uint32_t handle)
{
	QUEUE_FOREACH (link, client_readers) {
		struct reader *reader = queue_entry(link, struct reader, client_link);

		if (reader->handle == handle)
			return reader;
	}
	return NULL;
}

/* ---- Checks ---- */

/* 0, or why the job cannot be read. */
static int look_at_job(const struct job *job, char *message, size_t size)
{
	int r = 0;

	if (!job || job->life.is_dropped)
		r = -ENOENT;
	else if (job->phase == JOB_BROKEN)
		r = -EIO;
	else if (job->phase < JOB_TRAINED)
		r = -EBUSY;
	else if (job->life.is_rolling_back)
		r = -EAGAIN;
	if (r == -EAGAIN)
		snprintf(message, size, "it is being rolled back; try again");
	else if (r == -EIO)
		snprintf(message, size, "it is broken: %s", job->reason);
	else if (r < 0)
		snprintf(message, size, "%s", r == -ENOENT ? "it is gone" : "it has no values yet");
	return r;
}

bool reader_check(struct reader *reader, struct pending *pending)
{
	char message[600];
	int r = look_at_job(reader->job, message, sizeof(message));

	if (r < 0)
		pending_error(pending, r, "job %s: %s", reader->job_name, message);
	else if (reader->pending)
		pending_error(pending, -EBUSY, "job %s: this reader waits for an answer already",
			      reader->job_name);
	else
		return true;
	return false;
}

/* ---- Units ---- */

void reader_units(struct reader *reader, struct pending *pending, const Tierd__Wire__ReaderUnits *units)
{
	if (reader_check(reader, pending))
		definition_report(pending, reader->job, units->unit, units->tensor);
}

/* ---- Open ---- */

static uint64_t buffer_bytes(const struct job *job)
{
	return job_nvme_store(job) ? COPY_BUFFER_BYTES : 0;
}

static int make_memory(struct reader *reader, char *message, size_t size)
{
	uint64_t buffer = buffer_bytes(reader->job);
	int r = memory_new_shared("tierd-window", WINDOW_BYTES, &reader->window);
	if (r == 0)
		r = memory_seal(&reader->window);
	if (r == 0 && buffer > 0)
		r = memory_new_private(buffer, &reader->buffer);
	return r < 0 ? refuse(message, size, r, "no memory to exchange values: %s", strerror(-r)) : 0;
}

/* Without memory. */
static struct reader *reader_new(struct job *job, struct port *port)
{
	struct reader *reader = calloc(1, sizeof(*reader));
	struct claim claim = { .node = job->node,
			       .uid = port->uid,
			       .host_maximum = access_quota(job->node, port).host_maximum };

	if (!reader)
		return NULL;
	*reader = (struct reader){ .node = job->node,
				   .job = job,
				   .uid = port->uid,
				   .port = port,
				   .may_read_all = access_may_train(job, port) || access_may_drop(job, port),
				   .window = MEMORY_INIT,
				   .buffer = MEMORY_INIT,
				   .memory = MEMORY_INIT,
				   .memory_fd = -1 };
	snprintf(reader->job_name, sizeof(reader->job_name), "%s", job->name);
	queue_init(&reader->client_link);
	queue_init(&reader->kept.link);
	queue_push(&job->node->values->readers, &reader->link);
	queue_push(&job->values->readers, &reader->job_link);
	shortage_init(&reader->shortage, claim, job);
	reader_values_init(reader);
	return reader;
}

static void note_kept(struct reader *reader)
{
	reader->kept.name = reader->snapshot_name;
	reader->kept.step = reader->step;
	reader->kept.seconds = (uint64_t)time(NULL);
	reader->kept.uid = reader->uid;
	pinned_step_begin(reader->job, &reader->kept);
}

static void reply_opened(struct reader *reader)
{
	struct pending *pending = reader->pending;
	Tierd__Wire__Reply reply = TIERD__WIRE__REPLY__INIT;
	Tierd__Wire__ReaderOpenReply body = TIERD__WIRE__READER_OPEN_REPLY__INIT;
	_cleanup_close_ int fd = memory_client_fd(&reader->window, MEMORY_WRITABLE);

	if (fd < 0) {
		reader_fail(reader, fd, "no descriptor for its exchange window");
		return;
	}
	reader->pending = NULL;
	reader->activity = READING;
	reader->step = reader->snapshot ? store_step(reader->snapshot) : reader->job->step;
	if (reader->snapshot)
		note_kept(reader);
	body.reader = reader->handle;
	body.step = reader->step;
	body.unit_count = reader->job->catalog.unit_count;
	body.window_bytes = WINDOW_BYTES;
	reply.body_case = TIERD__WIRE__REPLY__BODY_READER_OPEN;
	reply.reader_open = &body;
	pending_reply_fds(pending, &reply, &fd, 1);
}

/* ---- Open: a snapshot, or what would be one ---- */

static bool is_of_snapshot(const struct reader *reader)
{
	return reader->as_snapshot || reader->snapshot_name[0];
}

static int begin_snapshot(struct store_task *task, struct store *store)
{
	struct reader *reader = container_of(task, struct reader, opening);

	/* It has waited for a commit, and its client has not. */
	if (!reader->pending)
		return -ECANCELED;
	return store_open_snapshot(store, reader->as_snapshot ? NULL : reader->snapshot_name, &task->request,
				   &reader->snapshot);
}

static void fail_snapshot(struct reader *reader, const struct job *job, int status)
{
	char message[SNAPSHOT_TEXT];

	snapshot_explain(job, reader->snapshot_name, status, message, sizeof(message));
	pending_error(TAKE_PTR(reader->pending), status == -ESHUTDOWN ? -ENOENT : status, "%s", message);
	reader_fail(reader, status, message);
}

static void on_snapshot(struct store_task *task, int status)
{
	struct reader *reader = container_of(task, struct reader, opening);

	reader->is_opening = false;
	if (!reader->pending)
		reader_release(reader);
	else if (status < 0)
		fail_snapshot(reader, task->job, status);
	else
		reply_opened(reader);
}

static void open_snapshot(struct reader *reader)
{
	reader->is_opening = true;
	reader->opening =
		(struct store_task){ .job = reader->job, .begin = begin_snapshot, .done = on_snapshot };
	/* What is applied, and not only what was committed some time ago. */
	if (reader->as_snapshot)
		reader->opening.step = reader->job->step;
	store_task_send(&reader->opening);
}

/* What its map takes is what the job's takes. */
static uint64_t snapshot_bytes(const struct reader *reader)
{
	return is_of_snapshot(reader) ? store_host_bytes(job_nvme_store(reader->job)) : 0;
}

/* Waits for memory, if caches have it. */
static void go_on_opening(struct reader *reader)
{
	uint64_t bytes = sizeof(*reader) + WINDOW_BYTES + buffer_bytes(reader->job) + snapshot_bytes(reader);
	char message[READER_MESSAGE];
	int r = reader_charge(reader, bytes, message, sizeof(message));

	if (r == -ENOMEM && shortage_await(&reader->shortage))
		return;
	shortage_end(&reader->shortage);
	if (r == 0)
		r = make_memory(reader, message, sizeof(message));
	if (r < 0) {
		reader_fail(reader, r, message);
		return;
	}
	reader_values_init(reader);
	if (is_of_snapshot(reader))
		open_snapshot(reader);
	else
		reply_opened(reader);
}

/* False, and the request is answered. */
static bool check_room(struct pending *pending, const struct queue *client_readers)
{
	const struct port *port = pending_port(pending);
	unsigned of_client = 0, of_user = 0;

	QUEUE_FOREACH (link, client_readers)
		of_client++;
	QUEUE_FOREACH (link, &pending_node(pending)->values->readers)
		of_user += queue_entry(link, struct reader, link)->uid == port->uid;
	if (of_client >= READER_MAX_PER_CLIENT)
		pending_error(pending, -EBUSY, "this connection has %d readers; close one",
			      READER_MAX_PER_CLIENT);
	else if (of_user >= READER_MAX_PER_USER)
		pending_error(pending, -EBUSY, "this user has %d readers; close one", READER_MAX_PER_USER);
	else
		return true;
	return false;
}

static int check_snapshot_name(const struct job *job, const char *name, char *message, size_t size)
{
	struct store_snapshot snapshot;
	int r = snapshot_check_job(job, message, size);

	return r == 0 && !snapshot_find(job, name, &snapshot, message, size) ? -ENOENT : r;
}

static bool check_snapshot(struct pending *pending, const struct job *job,
			   const Tierd__Wire__ReaderOpen *open)
{
	char message[SNAPSHOT_TEXT];
	int r = 0;

	if (open->as_snapshot && open->snapshot[0])
		r = refuse(message, sizeof(message), -EINVAL,
			   "a reader of job %s reads a snapshot, or as if there were one", job->name);
	else if (open->as_snapshot)
		r = snapshot_check_take(job, pending_port(pending), message, sizeof(message));
	else if (open->snapshot[0])
		r = check_snapshot_name(job, open->snapshot, message, sizeof(message));
	if (r < 0)
		pending_error(pending, r, "%s", message);
	return r == 0;
}

void reader_open(struct pending *pending, const Tierd__Wire__ReaderOpen *open, struct queue *client_readers,
		 uint32_t handle)
{
	struct job *job = access_find(pending, open->name, open->has_owner, open->owner);
	struct reader *reader;
	char message[600];
	int r;

	if (!job || !check_room(pending, client_readers))
		return;
	r = look_at_job(job, message, sizeof(message));
	if (r < 0) {
		pending_error(pending, r, "job %s: %s", job->name, message);
		return;
	}
	if (!check_snapshot(pending, job, open))
		return;
	reader = reader_new(job, pending_port(pending));
	if (!reader) {
		pending_error(pending, -ENOMEM, "job %s: out of memory", job->name);
		return;
	}
	snprintf(reader->snapshot_name, sizeof(reader->snapshot_name), "%s", open->snapshot);
	reader->as_snapshot = open->as_snapshot;
	reader->handle = handle;
	reader->pending = pending;
	reader->activity = OPENING;
	queue_push(client_readers, &reader->client_link);
	go_on_opening(reader);
}

/* ---- For the job ---- */

static void go_on(struct reader *reader)
{
	char message[600];
	int r = look_at_job(reader->job, message, sizeof(message));

	if (r < 0)
		reader_fail(reader, r, message);
	else if (reader->is_opening)
		return;
	else if (reader->pending && reader->activity == OPENING)
		go_on_opening(reader);
	else if (reader->pending)
		reader_values_go_on(reader);
}

void readers_go_on(struct job *job)
{
	QUEUE_FOREACH (link, &job->values->readers)
		go_on(queue_entry(link, struct reader, job_link));
}

bool readers_are_copying(const struct job *job)
{
	QUEUE_FOREACH (link, &job->values->readers)
		if (queue_entry(link, struct reader, job_link)->view.is_begun)
			return true;
	return false;
}

void readers_enlist(struct job *job, struct queue *watches)
{
	QUEUE_FOREACH (link, &job->values->readers) {
		struct reader *reader = queue_entry(link, struct reader, job_link);

		if (reader->view.is_begun)
			queue_push(watches, &reader->view.watch.link);
	}
}

static void raise_copy(struct copy *copy, uint32_t pack)
{
	if (copy->range.pack == pack)
		copy_raise(copy);
}

void readers_raise(struct job *job, uint32_t pack)
{
	QUEUE_FOREACH (link, &job->values->readers) {
		struct reader *reader = queue_entry(link, struct reader, job_link);

		if (reader->view.is_copying)
			raise_copy(&reader->view.copy, pack);
		for (unsigned i = 0; i < READER_LANES; i++)
			if (reader->lanes[i].is_copying)
				raise_copy(&reader->lanes[i].copy, pack);
	}
}

void readers_end_job(struct job *job)
{
	QUEUE_FOREACH (link, &job->values->readers) {
		struct reader *reader = queue_entry(link, struct reader, job_link);

		queue_remove(&reader->job_link);
		queue_remove(&reader->kept.link);
		/* Before the store that it is a part of; nothing of the job is in flight. */
		reader->snapshot = store_free(reader->snapshot);
		reader->job = NULL;
		reader_fail(reader, -ENOENT, "it is gone");
	}
}

static bool has_state(const struct selection *selection)
{
	for (uint32_t i = 0; i < selection->count; i++)
		if (selection->pieces[i].range.state != STATE_PARAMETER)
			return true;
	return false;
}

/* It keeps, or reads just now, what is no parameter. */
static bool reads_state(const struct reader *reader)
{
	for (size_t i = 0; reader->pending && reader->activity == READING && i < reader->piece_count; i++)
		if (reader->pieces[i].range.state != STATE_PARAMETER)
			return true;
	return has_state(&reader->view.selection) || (reader->has_chosen && has_state(&reader->chosen));
}

static bool is_denied(struct reader *reader)
{
	const struct job *job = reader->job;

	if (!access_may_see(job, reader->port))
		return true;
	if (access_may_train(job, reader->port) || access_may_drop(job, reader->port)) {
		reader->may_read_all = true;
		return false;
	}
	if (reader->may_read_all && reads_state(reader))
		return true;
	reader->may_read_all = false;
	return false;
}

unsigned readers_end_denied(struct job *job, const char *reason)
{
	unsigned count = 0;

	QUEUE_FOREACH (link, &job->values->readers) {
		struct reader *reader = queue_entry(link, struct reader, job_link);

		if (!is_denied(reader))
			continue;
		port_note_farewell(reader->port, reader->handle, reason);
		answer(reader, -EPERM, reason);
		discard(reader);
		count++;
	}
	return count;
}

unsigned readers_count(const struct job *job)
{
	unsigned count = 0;

	QUEUE_FOREACH (link, &job->values->readers)
		count++;
	return count;
}

uint64_t readers_bytes(const struct job *job)
{
	uint64_t bytes = 0;

	QUEUE_FOREACH (link, &job->values->readers)
		bytes += queue_entry(link, struct reader, job_link)->bytes;
	return bytes;
}

static uint64_t user_bytes(const struct node *node, uid_t uid)
{
	uint64_t bytes = 0;

	QUEUE_FOREACH (link, &node->values->readers) {
		const struct reader *reader = queue_entry(link, struct reader, link);

		if (reader->uid == uid)
			bytes += reader->bytes;
	}
	return bytes;
}

static uint64_t all_bytes(const struct node *node)
{
	uint64_t bytes = 0;

	QUEUE_FOREACH (link, &node->values->readers)
		bytes += queue_entry(link, struct reader, link)->bytes;
	return bytes;
}

const struct holder readers_holder = {
	.user_bytes = user_bytes,
	.all_bytes = all_bytes,
};
