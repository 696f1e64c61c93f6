/* Refreshing: a reader waits until no step is being applied, then stands at the last one, and what it chose
 * is copied.
 *
 * Of a job at most VIEWS_AT_ONCE readers are copying, in the order in which they have asked: a sweep, which
 * has to save what is missing, is held up by no more than that. */
#include "daemon/update/update.h"
#include "daemon/values/reader.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "common/size.h"

#define VIEWS_AT_ONCE 2

static void free_chosen(struct reader *reader)
{
	reader_uncharge(reader, selection_bytes(&reader->chosen));
	selection_clear(&reader->chosen);
	reader->has_chosen = false;
}

static void free_view(struct reader *reader)
{
	reader_uncharge(reader, selection_bytes(&reader->view.selection) + reader->view.memory.length);
	view_clear(&reader->view, reader->node);
}

static void reply_refreshed(struct reader *reader)
{
	struct pending *pending = TAKE_PTR(reader->pending);
	Tierd__Wire__ReaderRefreshReply body = TIERD__WIRE__READER_REFRESH_REPLY__INIT;

	body.step = reader->step;
	pending_reply(pending, WIRE_REPLY(READER_REFRESH, reader_refresh, &body));
}

static void on_view(struct view *view, int status)
{
	struct reader *reader = container_of(view, struct reader, view);

	if (status < 0)
		reader_fail_values(reader, "what is to be kept", &view->copy, status);
	else
		reply_refreshed(reader);
}

static void on_rest(struct view *view)
{
	reader_release(container_of(view, struct reader, view));
}

/* What was chosen takes the place of what was kept so far. -EAGAIN: caches give up memory for it. */
static int choose(struct reader *reader, char *message, size_t size)
{
	char reason[READER_MESSAGE];
	uint64_t bytes;
	int r;

	if (!reader->has_chosen)
		return 0;
	free_view(reader);
	bytes = size_align(reader->chosen.bytes, 4096);
	r = reader_charge(reader, bytes, reason, sizeof(reason));
	if (r == -ENOMEM && shortage_await(&reader->shortage))
		return -EAGAIN;
	shortage_end(&reader->shortage);
	if (r < 0)
		snprintf(message, size, "%s; keep less at once", reason);
	if (r == 0) {
		r = view_choose(&reader->view, &reader->chosen);
		if (r < 0) {
			reader_uncharge(reader, bytes);
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
	char message[READER_MESSAGE + 32];
	int r = choose(reader, message, sizeof(message));

	if (r == -EAGAIN)
		return;
	if (r < 0) {
		reader_fail(reader, r, message);
		return;
	}
	reader->step = reader->job->step;
	/* Whoever has not begun yet was there before. */
	queue_remove(&reader->job_link);
	queue_push(&reader->job->values->readers, &reader->job_link);
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

	QUEUE_FOREACH (link, &job->values->readers)
		count += queue_entry(link, struct reader, job_link)->view.is_begun;
	return count;
}

void reader_go_on_refreshing(struct reader *reader)
{
	const struct job *job = reader->job;

	if (reader->view.is_begun)
		view_go_on(&reader->view);
	else if (!update_is_sweeping(job) && job->decided == job->step && !view_is_in_use(&reader->view) &&
		 !reader_is_copying(reader) && count_views(job) < VIEWS_AT_ONCE)
		begin(reader);
}

/* It is here already, and little beside what it chooses: what caches have of that is used ahead, and made up
 * for when the rest is waited for. */
static int charge_selection(struct reader *reader, uint64_t bytes, char *message, size_t size)
{
	int r = reader_charge(reader, bytes, message, size);

	if (r < 0 && shortage_can_be_covered(&reader->shortage, reader->shortage.bytes)) {
		reader->bytes += bytes;
		budget_force_reader(reader->node, bytes);
		r = 0;
	}
	return r;
}

static int take_choice(struct reader *reader, const Tierd__Wire__ReaderRefresh *refresh, char *message,
		       size_t size)
{
	struct selection chosen = { NULL };
	int r = selection_read(&chosen, reader->job, reader->may_read_all, refresh->pieces, refresh->n_pieces,
			       message, size);

	if (r == 0)
		r = charge_selection(reader, selection_bytes(&chosen), message, size);
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
	char message[READER_MESSAGE];
	int r = 0;

	if (!reader_check(reader, pending))
		return;
	/* Of a snapshot nothing has to be kept. */
	if (reader->snapshot) {
		reader->pending = pending;
		reply_refreshed(reader);
		return;
	}
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

void reader_view_init(struct reader *reader)
{
	view_init(&reader->view, reader->job);
	reader->view.done = on_view;
	reader->view.rest = on_rest;
}

void reader_view_clear(struct reader *reader)
{
	free_view(reader);
	free_chosen(reader);
}
