#include "daemon/values/operation.h"

#include <errno.h>
#include <stdlib.h>

#include "common/size.h"

struct batch {
	struct member *member;
	struct pending *pending;	 /* NULL: nobody is left to answer */
	struct queue operations;	 /* that have not ended */
	unsigned left;			 /* these, and who begins them */
	struct tensor_operation *failed; /* the first that has; it is kept to be told */
	bool is_cut;			 /* some will not come */
};

/* ---- The end ---- */

static struct tensor_operation *finish(struct batch *batch, struct tensor_operation *last)
{
	struct tensor_operation *told = batch->failed ? batch->failed : last;

	if (last && last != told)
		operation_free(last);
	if (told->status == 0 && batch->is_cut)
		told->status = -ESTALE;
	told->pending = batch->pending;
	told->batch = NULL;
	batch->member->batch = NULL;
	free(batch);
	return told;
}

struct tensor_operation *batch_collect(struct tensor_operation *operation)
{
	struct batch *batch = operation->batch;

	queue_remove(&operation->batch_link);
	if (operation->status < 0 && !batch->failed)
		batch->failed = operation;
	if (--batch->left == 0)
		return finish(batch, operation);
	if (operation != batch->failed)
		operation_free(operation);
	return NULL;
}

/* ---- What is asked for ---- */

static bool check_piece(struct pending *pending, const Tierd__Wire__TensorReadMany *many,
			const Tierd__Wire__TensorPiece *piece, int *ret_state)
{
	const Tierd__Wire__TensorRead read = { .unit = piece->unit,
					       .tensor = piece->tensor,
					       .state = piece->state,
					       .first = piece->first,
					       .count = piece->count,
					       .version = many->version };
	uint64_t end;

	if (!tensor_check_read(pending, &read, ret_state))
		return false;
	if (*ret_state == READ_GRADIENT)
		pending_error(pending, -EINVAL, "gradients are not read together with others");
	else if (piece->at % sizeof(float) != 0)
		pending_error(pending, -EINVAL, "a piece at byte %llu: numbers begin at multiples of %zu",
			      (unsigned long long)piece->at, sizeof(float));
	else if (!size_add(piece->at, tensor_window_bytes(pending->member->job, &read, *ret_state), &end) ||
		 end > WINDOW_BYTES)
		pending_error(pending, -E2BIG, "a piece at byte %llu goes beyond the window, which has %llu",
			      (unsigned long long)piece->at, (unsigned long long)WINDOW_BYTES);
	else
		return true;
	return false;
}

static int add(struct batch *batch, const Tierd__Wire__TensorPiece *piece, int state)
{
	struct member *member = batch->member;
	struct tensor_operation *operation;

	if (piece->count == 0)
		return 0;
	operation = operation_new(member->job, NULL, OPERATION_READ, piece->unit, piece->tensor, piece->first,
				  piece->count);
	if (!operation)
		return -ENOMEM;
	operation->member = member;
	operation->state = state;
	operation->window_at = piece->at;
	operation->batch = batch;
	operation->waiter.blocked = member;
	member->busy++;
	queue_push(&batch->operations, &operation->batch_link);
	batch->left++;
	return 0;
}

static struct batch *batch_free(struct batch *batch)
{
	if (!batch)
		return NULL;
	for (struct queue *link = queue_pop(&batch->operations); link; link = queue_pop(&batch->operations))
		operation_free(queue_entry(link, struct tensor_operation, batch_link));
	free(batch);
	return NULL;
}
DEFINE_FREEP(struct batch *, batch_free)

/* NULL, and the request is answered. */
static struct batch *make(struct pending *pending, const Tierd__Wire__TensorReadMany *many)
{
	_cleanup_(batch_freep) struct batch *batch = calloc(1, sizeof(*batch));
	int state, r = batch ? 0 : -ENOMEM;

	if (batch) {
		*batch = (struct batch){ .member = pending->member, .pending = pending };
		queue_init(&batch->operations);
	}
	for (size_t i = 0; r == 0 && i < many->n_pieces; i++) {
		if (!check_piece(pending, many, many->pieces[i], &state))
			return NULL;
		r = add(batch, many->pieces[i], state);
	}
	if (r == 0)
		return TAKE_PTR(batch);
	pending_error(pending, r, "out of memory");
	return NULL;
}

/* What ends before it is let go does not end it; but for what is dropped, that has failed. */
static void hold(struct batch *batch)
{
	batch->left++;
}

static void let_go(struct batch *batch)
{
	if (--batch->left == 0)
		operation_end(finish(batch, NULL));
}

static void start(struct batch *batch, uint64_t version)
{
	hold(batch);
	QUEUE_FOREACH (link, &batch->operations) {
		struct tensor_operation *operation = queue_entry(link, struct tensor_operation, batch_link);

		operation_want_pack(operation, operation->tensor->is_frozen ? 0 : version);
	}
	let_go(batch);
}

void batch_read(struct pending *pending, const Tierd__Wire__TensorReadMany *many)
{
	struct member *member = pending->member;
	struct batch *batch;

	if (many->n_pieces > WIRE_MAX_PIECES) {
		pending_error(pending, -E2BIG, "%zu pieces are more than %d", many->n_pieces,
			      WIRE_MAX_PIECES);
		return;
	}
	batch = make(pending, many);
	if (!batch)
		return;
	if (queue_is_empty(&batch->operations)) {
		batch_free(batch);
		pending_reply(pending, NULL);
		return;
	}
	member->batch = batch;
	start(batch, tensor_version_for(member, many->version));
}

/* ---- Members that go ---- */

/* False: it is over, and nobody is told. */
static bool drop(struct batch *batch, bool (*is_dropped)(const struct tensor_operation *operation))
{
	QUEUE_FOREACH (link, &batch->operations) {
		struct tensor_operation *operation = queue_entry(link, struct tensor_operation, batch_link);

		if (!is_dropped(operation))
			continue;
		queue_remove(&operation->batch_link);
		operation_free(operation);
		batch->left--;
		batch->is_cut = true;
	}
	if (batch->left > 0)
		return true;
	batch->member->batch = NULL;
	if (batch->failed)
		operation_free(batch->failed);
	free(batch);
	return false;
}

bool batch_is_under_way(struct member *member, const struct pending *pending)
{
	struct batch *batch = member->batch;

	return batch && batch->pending == pending && drop(batch, operation_only_waits);
}

static bool is_not_in_flight(const struct tensor_operation *operation)
{
	return operation->stage != IN_FLIGHT;
}

void batch_forget(struct member *member)
{
	if (!member->batch)
		return;
	member->batch->pending = NULL;
	drop(member->batch, is_not_in_flight);
}

void batch_fail_refused(struct member *member)
{
	struct batch *batch = member->batch;

	if (!batch)
		return;
	hold(batch);
	QUEUE_FOREACH (link, &batch->operations)
		operation_refuse_version(queue_entry(link, struct tensor_operation, batch_link));
	let_go(batch);
}
