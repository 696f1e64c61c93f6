/* A reader does one thing at a time, for the one request that is unanswered:
 *
 *   REFRESHING  waits until no step is being applied, then stands at the last one; what it chose is copied
 *   READING     waits until no sweep is at the pack, then copies into the window, or takes what was kept
 *
 * Of a job at most VIEWS_AT_ONCE readers are copying, in the order in which they have asked: a sweep, which
 * has to save what is missing, is held up by no more than that. */
#include "daemon/reader.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/size.h"
#include "daemon/access.h"
#include "daemon/budget.h"
#include "daemon/definition.h"
#include "daemon/refuse.h"
#include "proto/name.h"

#define VIEWS_AT_ONCE 2

struct reader {
	struct queue link;	  /* of the node's */
	struct queue job_link;	  /* of the job's */
	struct queue client_link; /* of the client's */
	struct node *node;
	struct job *job; /* NULL: it is gone */
	char job_name[WIRE_MAX_JOB_NAME + 1];
	uint32_t handle;
	uid_t uid;
	uint64_t host_maximum; /* of its user; 0: none */
	uint64_t bytes;	       /* charged */
	bool may_read_all;     /* else parameters only */
	bool is_closed;
	uint64_t step;
	struct memory window;

	struct pending *pending; /* the request that it works for, or NULL */
	enum { REFRESHING, READING } activity;
	struct view view;
	struct selection chosen; /* for the next view, if has_chosen */
	bool has_chosen;
	struct copy copy; /* into the window */
	bool is_copying, is_working;
	const char *kept; /* what the work copies */
	uint64_t kept_bytes;
	struct work work;
};

/* ---- Memory ---- */

static int charge(struct reader *reader, uint64_t bytes, char *message, size_t size)
{
	int r = budget_take_reader(reader->node, reader->uid, reader->host_maximum, bytes, message, size);

	if (r == 0)
		reader->bytes += bytes;
	return r;
}

static void uncharge(struct reader *reader, uint64_t bytes)
{
	reader->bytes -= bytes;
	reader->node->host_used -= bytes;
}

/* ---- Life ---- */

static void free_chosen(struct reader *reader)
{
	uncharge(reader, selection_bytes(&reader->chosen));
	selection_clear(&reader->chosen);
	reader->has_chosen = false;
}

static void free_view(struct reader *reader)
{
	uncharge(reader, selection_bytes(&reader->view.selection) + reader->view.memory.length);
	view_clear(&reader->view, reader->node);
}

static bool is_in_use(const struct reader *reader)
{
	return reader->is_copying || reader->is_working || view_is_in_use(&reader->view);
}

static void reader_free(struct reader *reader)
{
	free_view(reader);
	free_chosen(reader);
	uncharge(reader, reader->bytes);
	memory_free(&reader->window);
	queue_remove(&reader->link);
	queue_remove(&reader->job_link);
	queue_remove(&reader->client_link);
	free(reader);
}

static void release(struct reader *reader)
{
	if (reader->is_closed && !is_in_use(reader))
		reader_free(reader);
}

/* What waits and has not begun is taken back; what is in flight comes home. */
static void stop(struct reader *reader)
{
	reader->pending = NULL;
	view_cancel(&reader->view);
	if (reader->is_copying && copy_cancel(&reader->copy))
		reader->is_copying = false;
}

static void fail(struct reader *reader, int r, const char *message)
{
	struct pending *pending = reader->pending;

	stop(reader);
	if (pending)
		pending_error(pending, r, "job %s: %s", reader->job_name, message);
}

void reader_close(struct reader *reader)
{
	fail(reader, -ECANCELED, "its reader was closed");
	queue_remove(&reader->client_link);
	queue_remove(&reader->job_link);
	reader->is_closed = true;
	release(reader);
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

	if (!job || job->is_dropped)
		r = -ENOENT;
	else if (job->phase == JOB_BROKEN)
		r = -EIO;
	else if (job->phase < JOB_TRAINED)
		r = -EBUSY;
	if (r == -EIO)
		snprintf(message, size, "its state is lost: %s", job->reason);
	else if (r < 0)
		snprintf(message, size, "%s",
			 r == -ENOENT ? "it is gone; close the reader" : "it has no values yet");
	return r;
}

static bool check(struct reader *reader, struct pending *pending)
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

/* ---- Refresh ---- */

static void reply_refreshed(struct reader *reader)
{
	struct pending *pending = TAKE_PTR(reader->pending);
	Tierd__Wire__Reply reply = TIERD__WIRE__REPLY__INIT;
	Tierd__Wire__ReaderRefreshReply body = TIERD__WIRE__READER_REFRESH_REPLY__INIT;

	body.step = reader->step;
	reply.body_case = TIERD__WIRE__REPLY__BODY_READER_REFRESH;
	reply.reader_refresh = &body;
	pending_reply(pending, &reply);
}

static void on_view(struct view *view, int status)
{
	struct reader *reader = container_of(view, struct reader, view);
	char message[128];

	if (status == 0) {
		reply_refreshed(reader);
		return;
	}
	snprintf(message, sizeof(message), "what is to be kept cannot be read: %s", store_error(status));
	fail(reader, status, message);
}

static void on_rest(struct view *view)
{
	release(container_of(view, struct reader, view));
}

/* What was chosen takes the place of what was kept so far. */
static int choose(struct reader *reader, char *message, size_t size)
{
	uint64_t bytes;
	int r;

	if (!reader->has_chosen)
		return 0;
	free_view(reader);
	bytes = size_align(reader->chosen.bytes, 4096);
	r = charge(reader, bytes, message, size);
	if (r == 0) {
		r = view_choose(&reader->view, &reader->chosen);
		if (r < 0) {
			uncharge(reader, bytes);
			snprintf(message, size, "no memory for what is to be kept: %s", strerror(-r));
		}
	}
	if (r < 0)
		free_chosen(reader);
	reader->has_chosen = false;
	return r;
}

static void begin(struct reader *reader)
{
	char message[800];
	int r = choose(reader, message, sizeof(message));

	if (r < 0) {
		fail(reader, r, message);
		return;
	}
	reader->step = reader->job->step;
	/* Whoever has not begun yet was there before. */
	queue_remove(&reader->job_link);
	queue_push(&reader->job->readers, &reader->job_link);
	if (reader->view.selection.count == 0) {
		reply_refreshed(reader);
		return;
	}
	view_begin(&reader->view, reader->step);
	job_settle(reader->job);
}

static unsigned count_views(const struct job *job)
{
	unsigned count = 0;

	QUEUE_FOREACH (link, &job->readers)
		count += queue_entry(link, struct reader, job_link)->view.is_begun;
	return count;
}

static void go_on_refreshing(struct reader *reader)
{
	const struct job *job = reader->job;

	if (reader->view.is_begun)
		view_go_on(&reader->view);
	else if (!job->sweep && job->decided == job->step && !view_is_in_use(&reader->view) &&
		 count_views(job) < VIEWS_AT_ONCE)
		begin(reader);
}

static int take_choice(struct reader *reader, const Tierd__Wire__ReaderRefresh *refresh, char *message,
		       size_t size)
{
	struct selection chosen = { NULL };
	int r = selection_read(&chosen, reader->job, reader->may_read_all, refresh->pieces, refresh->n_pieces,
			       message, size);

	if (r == 0)
		r = charge(reader, selection_bytes(&chosen), message, size);
	if (r < 0) {
		selection_clear(&chosen);
		return r;
	}
	free_chosen(reader);
	reader->chosen = chosen;
	reader->has_chosen = true;
	return 0;
}

void reader_refresh(struct reader *reader, struct pending *pending, const Tierd__Wire__ReaderRefresh *refresh)
{
	char message[800];
	int r = 0;

	if (!check(reader, pending))
		return;
	if (refresh->has_pieces)
		r = take_choice(reader, refresh, message, sizeof(message));
	if (r < 0) {
		pending_error(pending, r, "job %s: %s", reader->job_name, message);
		return;
	}
	reader->pending = pending;
	reader->activity = REFRESHING;
	job_settle(reader->job);
}

/* ---- Read ---- */

static void reply_read(struct reader *reader)
{
	struct pending *pending = TAKE_PTR(reader->pending);

	if (pending)
		pending_reply(pending, NULL);
	release(reader);
}

static void run_kept(struct work *work)
{
	struct reader *reader = container_of(work, struct reader, work);

	memcpy(reader->window.base, reader->kept, reader->kept_bytes);
}

static void on_kept(struct work *work)
{
	struct reader *reader = container_of(work, struct reader, work);

	reader->is_working = false;
	reply_read(reader);
}

static void read_kept(struct reader *reader)
{
	reader->is_working = true;
	reader->work = (struct work){ .run = run_kept, .done = on_kept, .urgency = WORK_SOON };
	workers_submit(reader->node->workers, &reader->work);
}

static void fail_read(struct reader *reader, int status)
{
	char message[128];

	snprintf(message, sizeof(message), "the values cannot be read: %s", store_error(status));
	fail(reader, status, message);
}

static void on_copied(struct copy *copy, int status)
{
	struct reader *reader = container_of(copy, struct reader, copy);

	reader->is_copying = false;
	/* Of one that was given up nobody wants to know. */
	if (status == -EAGAIN && reader->pending)
		job_settle(copy->job);
	else if (status < 0 && reader->pending)
		fail_read(reader, status);
	else
		reply_read(reader);
}

static void go_on_reading(struct reader *reader)
{
	const struct job *job = reader->job;
	enum copy_outlook outlook;
	char message[160];
	int r;

	if (reader->is_copying || reader->is_working)
		return;
	outlook = copy_look(job, &reader->copy.range, reader->step);
	if (outlook == COPY_GONE) {
		snprintf(
			message, sizeof(message),
			"it has moved on to step %llu, and this reader is at %llu; refresh it, and keep what "
			"has to be of one step",
			(unsigned long long)job->decided, (unsigned long long)reader->step);
		fail(reader, -ESTALE, message);
	}
	if (outlook != COPY_POSSIBLE)
		return;
	reader->is_copying = true;
	r = copy_start(&reader->copy);
	if (r == 0)
		return;
	reader->is_copying = false;
	fail_read(reader, r);
}

static int find_range(const struct reader *reader, const Tierd__Wire__ReaderRead *read,
		      struct copy_range *ret_range, char *message, size_t size)
{
	int r = selection_find(reader->job, reader->may_read_all, read->unit, read->tensor, read->state,
			       read->first, read->count, ret_range, message, size);

	if (r < 0)
		return r;
	if (read->count > WINDOW_BYTES / copy_element_bytes(ret_range->section, ret_range->state))
		return refuse(message, size, -E2BIG, "the window has room for %llu bytes",
			      (unsigned long long)WINDOW_BYTES);
	if (read->step != reader->step)
		return refuse(message, size, -ESTALE,
			      "its reader is at step %llu, and not at %llu; refresh it",
			      (unsigned long long)reader->step, (unsigned long long)read->step);
	return 0;
}

void reader_read(struct reader *reader, struct pending *pending, const Tierd__Wire__ReaderRead *read)
{
	struct copy_range range;
	char message[400];
	int r;

	if (!check(reader, pending))
		return;
	r = find_range(reader, read, &range, message, sizeof(message));
	if (r < 0) {
		pending_error(pending, r, "job %s: %s", reader->job_name, message);
		return;
	}
	if (range.count == 0) {
		pending_reply(pending, NULL);
		return;
	}
	reader->pending = pending;
	reader->activity = READING;
	reader->kept = view_find(&reader->view, &range);
	reader->kept_bytes = range.count * copy_element_bytes(range.section, range.state);
	reader->copy = (struct copy){ .job = reader->job,
				      .range = range,
				      .version = reader->step,
				      .target = reader->window.base,
				      .done = on_copied };
	if (reader->kept)
		read_kept(reader);
	else
		go_on_reading(reader);
}

/* ---- Units ---- */

void reader_units(struct reader *reader, struct pending *pending, const Tierd__Wire__ReaderUnits *units)
{
	if (check(reader, pending))
		definition_report(pending, reader->job, units->unit, units->tensor);
}

/* ---- Open ---- */

static int make_window(struct reader *reader, char *message, size_t size)
{
	int r = charge(reader, sizeof(*reader) + WINDOW_BYTES, message, size);

	if (r < 0)
		return r;
	r = memory_new_shared("tierd-window", WINDOW_BYTES, &reader->window);
	if (r == 0)
		r = memory_seal(&reader->window, MEMORY_WRITABLE, false);
	return r < 0 ? refuse(message, size, r, "no exchange window: %s", strerror(-r)) : 0;
}

static int reader_new(struct job *job, const struct port *port, struct reader **ret_reader, char *message,
		      size_t size)
{
	struct reader *reader = calloc(1, sizeof(*reader));
	int r;

	if (!reader)
		return refuse(message, size, -ENOMEM, "out of memory");
	*reader = (struct reader){ .node = job->node,
				   .job = job,
				   .uid = port->uid,
				   .host_maximum = access_quota(job->node, port).host_maximum,
				   .may_read_all = access_may_train(job, port) || access_may_drop(job, port),
				   .step = job->step,
				   .window = MEMORY_INIT };
	snprintf(reader->job_name, sizeof(reader->job_name), "%s", job->name);
	view_init(&reader->view, job);
	reader->view.done = on_view;
	reader->view.rest = on_rest;
	queue_init(&reader->client_link);
	queue_push(&job->node->readers, &reader->link);
	queue_push(&job->readers, &reader->job_link);
	r = make_window(reader, message, size);
	if (r < 0)
		reader_free(reader);
	else
		*ret_reader = reader;
	return r;
}

static void reply_opened(struct pending *pending, struct reader *reader)
{
	Tierd__Wire__Reply reply = TIERD__WIRE__REPLY__INIT;
	Tierd__Wire__ReaderOpenReply body = TIERD__WIRE__READER_OPEN_REPLY__INIT;
	_cleanup_close_ int fd = memory_client_fd(&reader->window, MEMORY_WRITABLE);

	if (fd < 0) {
		pending_error(pending, fd, "job %s: no descriptor for the exchange window: %s",
			      reader->job_name, strerror(-fd));
		reader_close(reader);
		return;
	}
	body.reader = reader->handle;
	body.step = reader->step;
	body.unit_count = reader->job->catalog.unit_count;
	body.window_bytes = WINDOW_BYTES;
	reply.body_case = TIERD__WIRE__REPLY__BODY_READER_OPEN;
	reply.reader_open = &body;
	pending_reply_fds(pending, &reply, &fd, 1);
}

/* False, and the request is answered. */
static bool check_room(struct pending *pending, const struct queue *client_readers)
{
	const struct port *port = pending_port(pending);
	unsigned of_client = 0, of_user = 0;

	QUEUE_FOREACH (link, client_readers)
		of_client++;
	QUEUE_FOREACH (link, &pending_node(pending)->readers)
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

void reader_open(struct pending *pending, const Tierd__Wire__ReaderOpen *open, struct queue *client_readers,
		 uint32_t handle)
{
	struct job *job = access_find(pending, open->name, open->has_owner, open->owner);
	struct reader *reader = NULL;
	char message[800];
	int r;

	if (!job || !check_room(pending, client_readers))
		return;
	r = look_at_job(job, message, sizeof(message));
	if (r == 0)
		r = reader_new(job, pending_port(pending), &reader, message, sizeof(message));
	if (r < 0) {
		pending_error(pending, r, "job %s: %s", job->name, message);
		return;
	}
	reader->handle = handle;
	queue_push(client_readers, &reader->client_link);
	reply_opened(pending, reader);
}

/* ---- For the job ---- */

static void go_on(struct reader *reader)
{
	char message[600];
	int r = look_at_job(reader->job, message, sizeof(message));

	if (r < 0)
		fail(reader, r, message);
	else if (reader->pending && reader->activity == REFRESHING)
		go_on_refreshing(reader);
	else if (reader->pending)
		go_on_reading(reader);
}

void readers_go_on(struct job *job)
{
	QUEUE_FOREACH (link, &job->readers)
		go_on(queue_entry(link, struct reader, job_link));
}

void readers_enlist(struct job *job, struct queue *views)
{
	QUEUE_FOREACH (link, &job->readers) {
		struct reader *reader = queue_entry(link, struct reader, job_link);

		if (reader->view.is_begun)
			queue_push(views, &reader->view.sweep_link);
	}
}

void readers_raise(struct job *job, uint32_t pack)
{
	QUEUE_FOREACH (link, &job->readers) {
		struct reader *reader = queue_entry(link, struct reader, job_link);
		struct copy *copies[] = { &reader->copy, &reader->view.copy };
		const bool is_copying[] = { reader->is_copying, reader->view.is_copying };

		for (size_t i = 0; i < ARRAY_LENGTH(copies); i++)
			if (is_copying[i] && copies[i]->range.pack == pack)
				copy_raise(copies[i]);
	}
}

void readers_end_job(struct job *job)
{
	QUEUE_FOREACH (link, &job->readers) {
		struct reader *reader = queue_entry(link, struct reader, job_link);

		fail(reader, -ENOENT, "it is gone; close the reader");
		queue_remove(&reader->job_link);
		reader->job = NULL;
	}
}

unsigned readers_count(const struct job *job)
{
	unsigned count = 0;

	QUEUE_FOREACH (link, &job->readers)
		count++;
	return count;
}

uint64_t readers_bytes(const struct job *job)
{
	uint64_t bytes = 0;

	QUEUE_FOREACH (link, &job->readers)
		bytes += queue_entry(link, struct reader, job_link)->bytes;
	return bytes;
}

uint64_t readers_user_bytes(const struct node *node, uid_t uid)
{
	uint64_t bytes = 0;

	QUEUE_FOREACH (link, &node->readers) {
		const struct reader *reader = queue_entry(link, struct reader, link);

		if (reader->uid == uid)
			bytes += reader->bytes;
	}
	return bytes;
}
