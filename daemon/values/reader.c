/* A reader does one thing at a time, for the one request that is unanswered: OPENING (reader_open.c),
 * REFRESHING (reader_refresh.c), READING (reader_read.c), or MAPPING, while a worker looks at memory of its
 * client's (reader_memory.c). */
#include "daemon/values/reader.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "daemon/durability/durability.h"
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
	budget_give_reader(reader->node, bytes);
}

/* ---- Life ---- */

static bool is_in_use(const struct reader *reader)
{
	return reader_is_copying(reader) || reader->is_mapping || reader->is_opening ||
	       view_is_in_use(&reader->view);
}

static void reader_free(struct reader *reader)
{
	reader_view_clear(reader);
	reader_free_pieces(reader);
	reader_memory_clear(reader);
	store_free(reader->snapshot);
	reader_uncharge(reader, reader->bytes);
	disposal_start_shared(reader->node, reader->uid, reader->keeps_window, &reader->window);
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
	reader->has_given_up = reader_is_copying(reader);
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

static int refuse_gone(bool comes_back, char *message, size_t size)
{
	if (comes_back)
		return refuse(message, size, -EAGAIN,
			      "it is opened again, as it is in its store; try again, with another reader");
	return refuse(message, size, -ENOENT, "it is gone");
}

int reader_check_job(const struct job *job, char *message, size_t size)
{
	if (job_is_ending(job))
		return refuse_gone(job->state == JOB_REOPENING, message, size);
	if (job_is_broken(job))
		return refuse(message, size, -EIO, "it is broken: %s", job->epoch.reason);
	if (!job_has_state(job))
		return refuse(message, size, -EBUSY, "it has no values yet");
	if (job_is_rolling_back(job))
		return refuse(message, size, -EAGAIN, "it is being rolled back; try again");
	return 0;
}

bool reader_check(struct reader *reader, struct pending *pending)
{
	char message[600];
	int r = reader->job ? reader_check_job(reader->job, message, sizeof(message))
			    : refuse_gone(reader->job_comes_back, message, sizeof(message));

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

/* ---- For the job ---- */

static void go_on(struct reader *reader)
{
	char message[600];
	int r = reader_check_job(reader->job, message, sizeof(message));

	if (r < 0)
		reader_fail(reader, r, message);
	else if (!reader->pending || reader->is_opening)
		return;
	else if (reader->activity == OPENING)
		reader_go_on_opening(reader);
	else if (reader->activity == REFRESHING)
		reader_go_on_refreshing(reader);
	else if (reader->activity == READING)
		reader_go_on_reading(reader);
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
	char message[128];

	QUEUE_FOREACH (link, &job->values->readers) {
		struct reader *reader = queue_entry(link, struct reader, job_link);

		queue_remove(&reader->job_link);
		queue_remove(&reader->kept.link);
		/* Before the store that it is a part of; nothing of the job is in flight. */
		reader->snapshot = store_free(reader->snapshot);
		reader->job_comes_back = job_is_rolling_back(job) || job->state == JOB_REOPENING;
		reader->job = NULL;
		reader_fail(reader, refuse_gone(reader->job_comes_back, message, sizeof(message)), message);
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
		reader->keeps_window = true;
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

static struct holder_bytes host_bytes(const struct node *node, uid_t uid)
{
	struct holder_bytes bytes = { 0 };

	QUEUE_FOREACH (link, &node->values->readers) {
		const struct reader *reader = queue_entry(link, struct reader, link);

		*(reader->uid == uid ? &bytes.own : &bytes.others) += reader->bytes;
	}
	return bytes;
}

const struct holder readers_holder = { .host_bytes = host_bytes };
