/* Reading: pieces go to the window, or to memory of the client's own, from where they lie or from what was
 * kept; a few at a time. A piece waits as long as a sweep is at its pack. */
#include "daemon/values/reader.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/residency/residency.h"

/* For the client bytes that are wrong are as good as none. */
void reader_fail_values(struct reader *reader, const char *which, const struct copy *copy, int status)
{
	const struct store_transfer *fault = copy_fault(copy);
	char text[DAMAGE_TEXT];

	reader_fail(reader, status == -EBADMSG ? -EIO : status,
		    damage_explain(copy->job, which, fault, status, text));
}

void reader_free_pieces(struct reader *reader)
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

static void end_piece(struct reader *reader)
{
	if (++reader->pieces_here < reader->piece_count)
		reader_go_on_reading(reader);
	else
		pending_reply(TAKE_PTR(reader->pending), NULL);
}

/* A lane has ended what is for nobody. */
static void end_given_up(struct reader *reader)
{
	reader->has_given_up = reader_is_copying(reader);
	if (reader->pending)
		job_settle(reader->job);
	else
		reader_release(reader);
}

static void on_copied(struct copy *copy, int status)
{
	struct reader_lane *lane = container_of(copy, struct reader_lane, copy);
	struct reader *reader = lane->reader;

	lane->is_copying = false;
	if (reader->has_given_up)
		end_given_up(reader);
	else if (status < 0)
		reader_fail_values(reader, "the values", copy, status);
	else
		end_piece(reader);
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
	reader_fail_values(reader, "the values", &lane->copy, r);
}

void reader_go_on_reading(struct reader *reader)
{
	/* What was given up goes to the same places, and a view's copy has the buffer. */
	if (reader->has_given_up || reader->view.is_copying)
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
	reader_go_on_reading(reader);
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
	reader_free_pieces(reader);
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

void reader_buffer_init(struct reader *reader)
{
	reader->view.buffer = reader->buffer.base;
	for (unsigned i = 0; i < READER_LANES; i++) {
		struct reader_lane *lane = &reader->lanes[i];

		*lane = (struct reader_lane){ .reader = reader };
		if (reader->buffer.base && i < 2)
			lane->copy.buffer = reader->buffer.base + i * COPY_BUFFER_BYTES / 2;
	}
}
