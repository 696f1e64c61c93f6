/* Opening: a reader waits for its memory, and, of a snapshot, until that is open. */
#include "daemon/values/reader.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "daemon/gradients/gradients.h"

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
	reader_view_init(reader);
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
	pending_reply_fds(pending, WIRE_REPLY(READER_OPEN, reader_open, &body), &fd, 1);
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
void reader_go_on_opening(struct reader *reader)
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
	reader_buffer_init(reader);
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

static bool check_snapshot(struct pending *pending, const struct job *job,
			   const Tierd__Wire__ReaderOpen *open)
{
	struct store_snapshot snapshot;
	char message[SNAPSHOT_TEXT];
	int r = 0;

	if (open->as_snapshot && open->snapshot[0])
		r = refuse(message, sizeof(message), -EINVAL,
			   "a reader of job %s reads a snapshot, or as if there were one", job->name);
	else if (open->as_snapshot)
		r = snapshot_check_take(job, pending_port(pending), message, sizeof(message));
	else if (open->snapshot[0])
		r = snapshot_find(job, open->snapshot, &snapshot, message, sizeof(message));
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
	r = reader_check_job(job, message, sizeof(message));
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
	reader_go_on_opening(reader);
}
