/* Reads of many pieces at once, of a rank and of a reader. */
#include <string.h>

#include "client/library/calls/pieces.h"
#include "client/library/calls/reader.h"
#include "client/library/calls/tensor.h"
#include "client/library/pages/window.h"
#include "common/cleanup.h"

/* ---- A rank ---- */

static int find_of_job(const void *owner, const struct tierd_read *read, uint64_t *ret_bytes)
{
	const struct tierd_job *job = owner;
	int r = tensor_check_range(job, read->unit, read->tensor, read->first, read->count);

	if (r == 0)
		*ret_bytes = tensor_element_bytes(job, read->unit, read->tensor,
						  strcmp(read->state, "parameter") != 0);
	return r;
}

static int ask(struct tierd_job *job, struct pieces *pieces, uint64_t deadline)
{
	Tierd__Wire__TensorReadMany many = TIERD__WIRE__TENSOR_READ_MANY__INIT;

	many.job = job->number;
	many.version = job->awaited;
	many.n_pieces = pieces->filled;
	many.pieces = pieces->pointers;
	return window_call(job, WIRE_REQUEST(TENSOR_READ_MANY, tensor_read_many, &many), deadline, NULL);
}

/* The window is given back by who fails to ask. */
static int read_all(struct tierd_job *job, struct pieces *pieces)
{
	uint64_t deadline = connection_deadline(job->node, -1);
	int r = window_take(job, deadline);

	if (r < 0)
		return r;
	for (;;) {
		r = pieces_fill(pieces, &job->window_mapping, NULL, find_of_job, job);
		if (r < 0 || pieces->filled == 0)
			break;
		r = ask(job, pieces, deadline);
		if (r < 0)
			return r;
		job_exit(job);
		pieces_land(pieces, &job->window_mapping);
		pthread_mutex_lock(&job->node->lock);
	}
	window_give(job);
	return r;
}

/* From the beginning, should the connection be lost. */
static int read_once(struct tierd_job *job, struct pieces *pieces)
{
	int r = job_enter(job, JOB_STATE);

	if (r < 0)
		return r;
	pieces->next = pieces->done = 0;
	r = read_all(job, pieces);
	return job_finish(job, r);
}

int tierd_read_many(struct tierd_job *job, const struct tierd_read *reads, size_t count)
{
	_cleanup_free_ struct pieces *pieces = NULL;
	int r = CHECK_GIVEN(job);

	if (r == 0 && count > 0)
		r = CHECK_GIVEN(reads);
	if (r == 0)
		r = pieces_new(reads, count, &pieces);
	return r < 0 ? r : JOB_REPEAT(read_once(job, pieces));
}

/* ---- A reader ---- */

static int find_of_reader(const void *owner, const struct tierd_read *read, uint64_t *ret_bytes)
{
	const struct tierd_reader *reader = owner;
	int r = reader_check_range(reader, read->unit, read->tensor, read->first, read->count);

	if (r == 0)
		*ret_bytes =
			reader_element_bytes(&reader->units[read->unit].tensors[read->tensor], read->state);
	return r;
}

static int ask_reader(struct tierd_reader *reader, struct pieces *pieces, uint64_t deadline)
{
	Tierd__Wire__ReaderReadMany many = TIERD__WIRE__READER_READ_MANY__INIT;

	many.reader = reader->number;
	many.step = reader->step;
	many.n_pieces = pieces->filled;
	many.pieces = pieces->pointers;
	many.to_memory = pieces->to_memory;
	return reader_read_call(reader, WIRE_REQUEST(READER_READ_MANY, reader_read_many, &many), deadline);
}

/* With the reader taken. */
static int read_all_of(struct tierd_reader *reader, struct pieces *pieces, uint64_t deadline)
{
	int r;

	do {
		r = pieces_fill(pieces, &reader->window, &reader->memory, find_of_reader, reader);
		if (r < 0 || pieces->filled == 0)
			return r;
		r = ask_reader(reader, pieces, deadline);
		if (r < 0)
			return r;
		connection_exit(reader->node);
		pieces_land(pieces, &reader->window);
		pthread_mutex_lock(&reader->node->lock);
		r = reader_check(reader);
	} while (r == 0);
	return r;
}

int tierd_reader_read_many(struct tierd_reader *reader, const struct tierd_read *reads, size_t count)
{
	_cleanup_free_ struct pieces *pieces = NULL;
	uint64_t deadline;
	int r = CHECK_GIVEN(reader);

	if (r == 0 && count > 0)
		r = CHECK_GIVEN(reads);
	if (r == 0)
		r = pieces_new(reads, count, &pieces);
	if (r == 0)
		r = reader_enter(reader);
	if (r < 0)
		return r;
	deadline = connection_deadline(reader->node, -1);
	r = reader_take(reader, deadline);
	if (r == 0) {
		r = read_all_of(reader, pieces, deadline);
		reader_give(reader);
	}
	connection_exit(reader->node);
	return r;
}
