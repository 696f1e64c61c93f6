#include "daemon/values/operation.h"

#include <errno.h>
#include <stdlib.h>

#include "common/size.h"

struct bundle {
	struct member *member;
	struct pending *pending;	 /* NULL: nobody is left to answer */
	struct queue operations;	 /* that have not ended */
	unsigned left;			 /* these, and who begins them */
	struct tensor_operation *failed; /* the first that has; it is kept to be told */
	bool is_cut;			 /* some will not come */
};

/* ---- The end ---- */

static struct tensor_operation *finish(struct bundle *bundle, struct tensor_operation *last)
{
	struct tensor_operation *told = bundle->failed ? bundle->failed : last;

	if (last && last != told)
		operation_free(last);
	if (told->status == 0 && bundle->is_cut)
		told->status = -ESTALE;
	told->pending = bundle->pending;
	told->bundle = NULL;
	bundle->member->bundle = NULL;
	free(bundle);
	return told;
}

struct tensor_operation *bundle_collect(struct tensor_operation *operation)
{
	struct bundle *bundle = operation->bundle;

	queue_remove(&operation->bundle_link);
	if (operation->status < 0 && !bundle->failed)
		bundle->failed = operation;
	if (--bundle->left == 0)
		return finish(bundle, operation);
	if (operation != bundle->failed)
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

static int add(struct bundle *bundle, const Tierd__Wire__TensorPiece *piece, int state)
{
	struct member *member = bundle->member;
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
	operation->bundle = bundle;
	operation->waiter.blocked = member;
	member->busy++;
	queue_push(&bundle->operations, &operation->bundle_link);
	bundle->left++;
	return 0;
}

static struct bundle *bundle_free(struct bundle *bundle)
{
	if (!bundle)
		return NULL;
	for (struct queue *link = queue_pop(&bundle->operations); link; link = queue_pop(&bundle->operations))
		operation_free(queue_entry(link, struct tensor_operation, bundle_link));
	free(bundle);
	return NULL;
}
DEFINE_FREEP(struct bundle *, bundle_free)

/* NULL, and the request is answered. */
static struct bundle *make(struct pending *pending, const Tierd__Wire__TensorReadMany *many)
{
	_cleanup_(bundle_freep) struct bundle *bundle = calloc(1, sizeof(*bundle));
	int state, r = bundle ? 0 : -ENOMEM;

	if (bundle) {
		*bundle = (struct bundle){ .member = pending->member, .pending = pending };
		queue_init(&bundle->operations);
	}
	for (size_t i = 0; r == 0 && i < many->n_pieces; i++) {
		if (!check_piece(pending, many, many->pieces[i], &state))
			return NULL;
		r = add(bundle, many->pieces[i], state);
	}
	if (r == 0)
		return TAKE_PTR(bundle);
	pending_error(pending, r, "out of memory");
	return NULL;
}

/* What ends before it is let go does not end it; but for what is dropped, that has failed. */
static void hold(struct bundle *bundle)
{
	bundle->left++;
}

static void let_go(struct bundle *bundle)
{
	if (--bundle->left == 0)
		operation_end(finish(bundle, NULL));
}

static void start(struct bundle *bundle, uint64_t version)
{
	hold(bundle);
	QUEUE_FOREACH (link, &bundle->operations) {
		struct tensor_operation *operation = queue_entry(link, struct tensor_operation, bundle_link);

		operation_want_pack(operation, operation->tensor->is_frozen ? 0 : version);
	}
	let_go(bundle);
}

void bundle_read(struct pending *pending, const Tierd__Wire__TensorReadMany *many)
{
	struct member *member = pending->member;
	struct bundle *bundle;

	if (many->n_pieces > WIRE_MAX_PIECES) {
		pending_error(pending, -E2BIG, "%zu pieces are more than %d", many->n_pieces,
			      WIRE_MAX_PIECES);
		return;
	}
	bundle = make(pending, many);
	if (!bundle)
		return;
	if (queue_is_empty(&bundle->operations)) {
		bundle_free(bundle);
		pending_reply(pending, NULL);
		return;
	}
	member->bundle = bundle;
	start(bundle, tensor_version_for(member, many->version));
}

/* ---- Members that go ---- */

/* False: it is over, and nobody is told. */
static bool drop(struct bundle *bundle, bool (*is_dropped)(const struct tensor_operation *operation))
{
	QUEUE_FOREACH (link, &bundle->operations) {
		struct tensor_operation *operation = queue_entry(link, struct tensor_operation, bundle_link);

		if (!is_dropped(operation))
			continue;
		queue_remove(&operation->bundle_link);
		operation_free(operation);
		bundle->left--;
		bundle->is_cut = true;
	}
	if (bundle->left > 0)
		return true;
	bundle->member->bundle = NULL;
	if (bundle->failed)
		operation_free(bundle->failed);
	free(bundle);
	return false;
}

bool bundle_is_under_way(struct member *member, const struct pending *pending)
{
	struct bundle *bundle = member->bundle;

	return bundle && bundle->pending == pending && drop(bundle, operation_only_waits);
}

static bool is_not_in_flight(const struct tensor_operation *operation)
{
	return operation->stage != IN_FLIGHT;
}

void bundle_forget(struct member *member)
{
	if (!member->bundle)
		return;
	member->bundle->pending = NULL;
	drop(member->bundle, is_not_in_flight);
}

void bundle_fail_refused(struct member *member)
{
	struct bundle *bundle = member->bundle;

	if (!bundle)
		return;
	hold(bundle);
	QUEUE_FOREACH (link, &bundle->operations)
		operation_refuse_version(queue_entry(link, struct tensor_operation, bundle_link));
	let_go(bundle);
}
