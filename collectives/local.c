#include "collectives/collective.h"

#include <errno.h>
#include <stdlib.h>

/* The least of a piece: enough to be worth handing over. Pieces begin at whole blocks. */
#define PIECE_ELEMENTS UINT64_C(65536)
#define BLOCK_ELEMENTS UINT64_C(256)
/* Of all ranks together: they are summed in a microsecond or two, as soon as a worker would wake. */
#define BRIEF_ELEMENTS UINT64_C(16384)

struct local {
	struct collective collective;
	struct workers *workers;
	reduce_kernel *kernels[REDUCE_FORMATS];
};

/* Every shard is here already: only done() is owed, and not within the call. */
static void pull_run(struct work *work)
{
}

static void pull_done(struct work *work)
{
	struct collective_pull *pull = container_of(work, struct collective_pull, work);

	pull->op.done(&pull->op, 0);
}

static int local_pull(struct collective *collective, struct collective_pull *pull)
{
	struct local *local = container_of(collective, struct local, collective);

	pull->work = (struct work){ .run = pull_run, .done = pull_done, .urgency = WORK_URGENT };
	workers_submit(local->workers, &pull->work);
	return 0;
}

/* Adds the part of a segment from its element skip on; sum is where that part begins. */
static void sum_segment(const struct local *local, const struct collective_push *push,
			const struct collective_segment *segment, uint64_t skip, uint64_t count, float *sum)
{
	size_t element_size = reduce_element_bytes(segment->format);
	const void *contributions[REDUCE_MAX_RANKS];

	for (unsigned rank = 0; rank < push->rank_count; rank++)
		contributions[rank] = push->contributions[rank]
					      ? (const char *)push->contributions[rank] + segment->offset +
							skip * element_size
					      : NULL;
	local->kernels[segment->format](sum, push->is_added, contributions, push->rank_count, count);
}

static void push_run(struct work *work)
{
	const struct collective_piece *piece = container_of(work, struct collective_piece, work);
	const struct collective_push *push = piece->push;
	uint64_t end = piece->first + piece->count;
	uint64_t start = 0; /* of the segment */

	for (unsigned i = 0; i < push->segment_count && start < end; i++) {
		const struct collective_segment *segment = &push->segments[i];
		uint64_t first = start < piece->first ? piece->first : start;
		uint64_t next = start + segment->count;
		uint64_t last = next < end ? next : end;

		if (first < last)
			sum_segment(piece->backend, push, segment, first - start, last - first,
				    push->sum + first);
		start = next;
	}
}

static void push_done(struct work *work)
{
	struct collective_piece *piece = container_of(work, struct collective_piece, work);
	struct collective_push *push = piece->push;

	if (--push->pieces_left == 0)
		push->op.done(&push->op, 0);
}

static int local_push(struct collective *collective, struct collective_push *push)
{
	struct local *local = container_of(collective, struct local, collective);
	uint64_t elements = collective_push_elements(push);
	uint64_t pieces = elements / PIECE_ELEMENTS;
	uint64_t each;

	if (pieces == 0)
		pieces = 1;
	if (pieces > COLLECTIVE_PIECES)
		pieces = COLLECTIVE_PIECES;
	each = elements / pieces / BLOCK_ELEMENTS * BLOCK_ELEMENTS;
	push->piece_count = push->pieces_left = (unsigned)pieces;
	for (uint64_t i = 0; i < pieces; i++) {
		push->pieces[i] = (struct collective_piece){
			.work = { .run = push_run,
				  .done = push_done,
				  .urgency = WORK_NORMAL,
				  .is_brief = elements * push->rank_count <= BRIEF_ELEMENTS,
				  .is_timed = push->op.is_timed },
			.push = push,
			.backend = local,
			.first = i * each,
			.count = i + 1 < pieces ? each : elements - i * each,
		};
		workers_submit(local->workers, &push->pieces[i].work);
	}
	return 0;
}

static void local_free(struct collective *collective)
{
	free(container_of(collective, struct local, collective));
}

static const struct collective_ops local_ops = {
	.name = "local",
	.pull = local_pull,
	.push = local_push,
	.free = local_free,
};

int collective_new_local(struct workers *workers, struct collective **ret_collective)
{
	struct local *local = calloc(1, sizeof(*local));

	if (!local)
		return -ENOMEM;
	local->collective.ops = &local_ops;
	local->workers = workers;
	for (int format = 0; format < REDUCE_FORMATS; format++)
		local->kernels[format] = reduce_sum_kernel(simd_level(), format);

	*ret_collective = &local->collective;
	return 0;
}
