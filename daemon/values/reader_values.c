/* A reader does one thing at a time, for the one request that is unanswered:
 *
 *   REFRESHING  waits until no step is being applied, then stands at the last one; what it chose is copied
 *   READING     waits until no sweep is at the pack, then copies to the window or to memory of the client's
 *               own, from where it lies or from what was kept; a few pieces at a time
 *   MAPPING     a worker looks at that memory (reader_memory.c)
 *
 * Of a job at most VIEWS_AT_ONCE readers are copying, in the order in which they have asked: a sweep, which
 * has to save what is missing, is held up by no more than that. */
#include "daemon/values/reader.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/size.h"
#include "daemon/residency/residency.h"
#include "daemon/request/request.h"

#define VIEWS_AT_ONCE 2

/* ---- What is kept ---- */

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

/* For the client bytes that are wrong are as good as none. */
static void fail_values(struct reader *reader, const char *which, const struct copy *copy, int status)
{
	const struct store_transfer *fault = copy_fault(copy);
	char text[DAMAGE_TEXT];

	reader_fail(reader, status == -EBADMSG ? -EIO : status,
		    damage_explain(copy->job, which, fault, status, text));
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

	if (status < 0)
		fail_values(reader, "what is to be kept", &view->copy, status);
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

static void go_on_refreshing(struct reader *reader)
{
	const struct job *job = reader->job;

	if (reader->view.is_begun)
		view_go_on(&reader->view);
	else if (!job->update.sweep && job->decided == job->step && !view_is_in_use(&reader->view) &&
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
		reader->node->memory.host_used += bytes;
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

/* ---- Read ---- */

static void free_pieces(struct reader *reader)
{
	free(TAKE_PTR(reader->pieces));
}

bool reader_is_copying(const struct reader *reader)
{
	for (unsigned i = 0; i < READER_LANES; i++)
		if (reader->lanes[i].is_copying)
			return true;
	return false;
}

void reader_values_give_up(struct reader *reader)
{
	for (unsigned i = 0; i < READER_LANES; i++)
		reader->lanes[i].is_given_up = reader->lanes[i].is_copying;
}

static bool has_given_up(const struct reader *reader)
{
	for (unsigned i = 0; i < READER_LANES; i++)
		if (reader->lanes[i].is_given_up)
			return true;
	return false;
}

static void go_on_reading(struct reader *reader);

static void end_piece(struct reader *reader)
{
	if (++reader->pieces_here < reader->piece_count)
		go_on_reading(reader);
	else
		pending_reply(TAKE_PTR(reader->pending), NULL);
}

/* The lane is free, and what it did was well done, or is for nobody. */
static void end_lane(struct reader_lane *lane)
{
	struct reader *reader = lane->reader;
	bool is_given_up = lane->is_given_up;

	lane->is_given_up = false;
	if (!is_given_up)
		end_piece(reader);
	else if (reader->pending)
		job_settle(reader->job);
	else
		reader_release(reader);
}

static void on_copied(struct copy *copy, int status)
{
	struct reader_lane *lane = container_of(copy, struct reader_lane, copy);

	lane->is_copying = false;
	if (status < 0 && !lane->is_given_up)
		fail_values(lane->reader, "the values", copy, status);
	else
		end_lane(lane);
}

/* A sweep is at it, or was. */
static bool look(struct reader *reader, const struct copy *copy)
{
	const struct job *job = reader->job;
	char message[160];
	enum copy_outlook outlook;

	if (copy->ready || reader->snapshot)
		return true;
	outlook = copy_look(job, &copy->range, reader->step);
	if (outlook == COPY_GONE) {
		snprintf(
			message, sizeof(message),
			"it has moved on to step %llu, and this reader is at %llu; refresh it, and keep what "
			"has to be of one step",
			(unsigned long long)job->decided, (unsigned long long)reader->step);
		reader_fail(reader, -ESTALE, message);
	}
	return outlook == COPY_POSSIBLE;
}

/* What reads two streams is alone with the buffer, in the first lane. */
static bool has_buffer(const struct reader_lane *lane)
{
	const struct reader_lane *lanes = lane->reader->lanes;
	unsigned others = 0;

	for (unsigned i = 0; i < READER_LANES; i++)
		if (lanes[i].is_copying)
			others += lanes[i].streams;
	return lane->streams == 0 ||
	       (lane->copy.buffer && others + lane->streams <= 2 && (lane->streams == 1 || lane == lanes));
}

/* If it can: else it waits, for another lane too, or the request is answered. */
static void begin_piece(struct reader_lane *lane)
{
	struct reader *reader = lane->reader;
	const struct reader_piece *piece = &reader->pieces[reader->piece];
	int r;

	lane->copy = (struct copy){ .job = reader->job,
				    .snapshot = reader->snapshot,
				    .ready = view_find(&reader->view, &piece->range),
				    .range = piece->range,
				    .target = piece->target,
				    .buffer = lane->copy.buffer,
				    .done = on_copied };
	lane->streams = copy_streams(&lane->copy);
	if (!look(reader, &lane->copy) || !has_buffer(lane))
		return;
	lane->is_copying = true;
	r = copy_start(&lane->copy);
	if (r == 0) {
		reader->piece++;
		return;
	}
	lane->is_copying = false;
	fail_values(reader, "the values", &lane->copy, r);
}

static void go_on_reading(struct reader *reader)
{
	/* What was given up goes to the same places, and a view's copy has the buffer. */
	if (has_given_up(reader) || reader->view.is_copying)
		return;
	/* Those without a buffer first: others may need it. */
	for (unsigned i = READER_LANES; i-- > 0 && reader->pending && reader->piece < reader->piece_count;)
		if (!reader->lanes[i].is_copying)
			begin_piece(&reader->lanes[i]);
}

/* With room for it where it goes. */
static int find_piece(const struct reader *reader, const Tierd__Wire__ReaderReadMany *many,
		      const Tierd__Wire__TensorPiece *read, struct reader_piece *ret_piece, char *message,
		      size_t size)
{
	const struct memory *place = many->to_memory ? &reader->memory : &reader->window;
	struct copy_range *range = &ret_piece->range;
	uint64_t at = read->at;
	int r = selection_find(reader->job, reader->may_read_all, read->unit, read->tensor, read->state,
			       read->first, read->count, range, message, size);
	uint64_t most;

	if (r < 0)
		return r;
	if (at % sizeof(float) != 0)
		return refuse(message, size, -EINVAL,
			      "a piece at byte %llu: numbers begin at multiples of %zu",
			      (unsigned long long)at, sizeof(float));
	if (!place->base)
		return refuse(message, size, -EINVAL, "its reader has no memory of its client's");
	most = at < place->length ? place->length - at : 0;
	if (most > WINDOW_BYTES)
		most = WINDOW_BYTES;
	if (read->count > most / copy_element_bytes(range->section, range->state))
		return refuse(message, size, -E2BIG,
			      "the %s has room for %llu bytes, and a piece has at most %llu",
			      place == &reader->window ? "window" : "memory",
			      (unsigned long long)place->length, (unsigned long long)WINDOW_BYTES);
	if (many->step != reader->step)
		return refuse(message, size, -ESTALE,
			      "its reader is at step %llu, and not at %llu; refresh it",
			      (unsigned long long)reader->step, (unsigned long long)many->step);
	ret_piece->target = place->base + at;
	return 0;
}

static void read_pieces(struct reader *reader, struct pending *pending)
{
	if (reader->piece_count == 0) {
		pending_reply(pending, NULL);
		return;
	}
	reader->pending = pending;
	reader->activity = READING;
	reader->piece = reader->pieces_here = 0;
	go_on_reading(reader);
}

static int find_pieces(struct reader *reader, const Tierd__Wire__ReaderReadMany *many, char *message,
		       size_t size)
{
	int r = 0;

	for (size_t i = 0; i < many->n_pieces && r == 0; i++) {
		r = find_piece(reader, many, many->pieces[i], &reader->pieces[reader->piece_count], message,
			       size);
		reader->piece_count += many->pieces[i]->count > 0;
	}
	return r;
}

/* So few that nobody is charged for them. */
void reader_read_many(struct reader *reader, struct pending *pending, const Tierd__Wire__ReaderReadMany *many)
{
	char message[400] = "out of memory";
	int r;

	if (!reader_check(reader, pending))
		return;
	if (many->n_pieces > WIRE_MAX_PIECES) {
		pending_error(pending, -E2BIG, "%zu pieces are more than %d", many->n_pieces,
			      WIRE_MAX_PIECES);
		return;
	}
	free_pieces(reader);
	reader->piece_count = 0;
	reader->pieces = calloc(many->n_pieces + 1, sizeof(*reader->pieces));
	r = reader->pieces ? find_pieces(reader, many, message, sizeof(message)) : -ENOMEM;
	if (r < 0)
		pending_error(pending, r, "job %s: %s", reader->job_name, message);
	else
		read_pieces(reader, pending);
}

void reader_read(struct reader *reader, struct pending *pending, const Tierd__Wire__ReaderRead *read)
{
	Tierd__Wire__TensorPiece piece = { .unit = read->unit,
					   .tensor = read->tensor,
					   .state = read->state,
					   .first = read->first,
					   .count = read->count,
					   .at = read->at };

	reader_read_many(
		reader, pending,
		&(Tierd__Wire__ReaderReadMany){ .step = read->step,
						.to_memory = read->to_memory,
						.n_pieces = 1,
						.pieces = (Tierd__Wire__TensorPiece *[]){ &piece } });
}

/* ---- For reader.c ---- */

void reader_values_init(struct reader *reader)
{
	view_init(&reader->view, reader->job);
	reader->view.buffer = reader->buffer.base;
	reader->view.done = on_view;
	reader->view.rest = on_rest;
	for (unsigned i = 0; i < READER_LANES; i++) {
		struct reader_lane *lane = &reader->lanes[i];

		*lane = (struct reader_lane){ .reader = reader };
		if (reader->buffer.base && i < 2)
			lane->copy.buffer = reader->buffer.base + i * COPY_BUFFER_BYTES / 2;
	}
}

void reader_values_clear(struct reader *reader)
{
	free_view(reader);
	free_chosen(reader);
	free_pieces(reader);
}

void reader_values_go_on(struct reader *reader)
{
	if (reader->activity == REFRESHING)
		go_on_refreshing(reader);
	else if (reader->activity == READING)
		go_on_reading(reader);
}
