/* tierd_read_many() and tierd_reader_read_many(): many pieces with few requests. */
#include <string.h>

#include "client/library/calls/calls.h"
#include "client/library/calls/pieces.h"
#include "client/library/calls/reader.h"
#include "client/library/pages/window.h"
#include "common/cleanup.h"

/* Where the pieces come from. */
struct source {
	struct tierd_node *node;
	void *owner; /* a job, or a reader */
	const struct mapping *window, *memory;
	int (*find)(const void *owner, const struct tierd_read *read, uint64_t *ret_bytes);
	int (*ask)(void *owner, struct pieces *pieces, uint64_t deadline);
};

/* ret_is_asking: whether it was a request that failed. */
static int read_all(const struct source *source, struct pieces *pieces, uint64_t deadline,
		    bool *ret_is_asking)
{
	for (;;) {
		int r = pieces_fill(pieces, source->window, source->memory, source->find, source->owner);

		*ret_is_asking = false;
		if (r < 0 || pieces->filled == 0)
			return r;
		r = source->ask(source->owner, pieces, deadline);
		*ret_is_asking = r < 0;
		if (r < 0)
			return r;
		connection_exit(source->node);
		pieces_land(pieces, source->window);
		pthread_mutex_lock(&source->node->lock);
	}
}

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

static int ask_job(void *owner, struct pieces *pieces, uint64_t deadline)
{
	struct tierd_job *job = owner;
	Tierd__Wire__TensorReadMany many = TIERD__WIRE__TENSOR_READ_MANY__INIT;

	many.job = job->number;
	many.version = job->awaited;
	many.n_pieces = pieces->filled;
	many.pieces = pieces->pointers;
	return window_call(job, WIRE_REQUEST(TENSOR_READ_MANY, tensor_read_many, &many), deadline, NULL);
}

/* Called again after a lost connection, it begins anew. A request that fails has given the window back. */
static int read_of_job(struct tierd_job *job, struct pieces *pieces)
{
	const struct source source = { job->node, job, &job->window_mapping, NULL, find_of_job, ask_job };
	uint64_t deadline = connection_deadline(job->node, -1);
	bool is_asking;
	int r = window_take(job, deadline);

	if (r < 0)
		return r;
	pieces->next = pieces->done = 0;
	r = read_all(&source, pieces, deadline, &is_asking);
	if (r == 0)
		r = job_check_copied(job);
	if (!is_asking)
		window_give(job);
	return r;
}

int tierd_read_many(struct tierd_job *job, const struct tierd_read *reads, size_t count)
{
	_cleanup_free_ struct pieces *pieces = NULL;
	int r = CHECK_GIVEN(job);

	if (r == 0 && count > 0)
		r = CHECK_GIVEN(reads);
	if (r == 0)
		r = pieces_new(reads, count, &pieces);
	return r < 0 ? r : JOB_CALL(job, JOB_STATE, read_of_job(job, pieces));
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

static int ask_reader(void *owner, struct pieces *pieces, uint64_t deadline)
{
	struct tierd_reader *reader = owner;
	Tierd__Wire__ReaderReadMany many = TIERD__WIRE__READER_READ_MANY__INIT;

	many.reader = reader->number;
	many.step = reader->step;
	many.n_pieces = pieces->filled;
	many.pieces = pieces->pointers;
	many.to_memory = pieces->to_memory;
	return reader_call(reader, &reader_read_kind, WIRE_REQUEST(READER_READ_MANY, reader_read_many, &many),
			   deadline);
}

int tierd_reader_read_many(struct tierd_reader *reader, const struct tierd_read *reads, size_t count)
{
	_cleanup_free_ struct pieces *pieces = NULL;
	uint64_t deadline;
	bool is_asking;
	int r = CHECK_GIVEN(reader);

	if (r == 0 && count > 0)
		r = CHECK_GIVEN(reads);
	if (r == 0)
		r = pieces_new(reads, count, &pieces);
	if (r == 0)
		r = reader_take(reader, &deadline);
	if (r < 0)
		return r;
	const struct source source = { reader->node,	reader,		&reader->window,
				       &reader->memory, find_of_reader, ask_reader };

	r = read_all(&source, pieces, deadline, &is_asking);
	if (r == 0)
		r = reader_check_copied(reader);
	reader_give(reader);
	return r;
}
