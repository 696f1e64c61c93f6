#include "collectives/collective.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>

/* The least of a task: enough to be worth handing over. Tasks begin at whole blocks. */
#define TASK_ELEMENTS UINT64_C(65536)
#define BLOCK_ELEMENTS UINT64_C(256)
/* Of all ranks together: they are summed in a microsecond or two, as soon as a worker would wake. */
#define BRIEF_ELEMENTS UINT64_C(16384)

struct collective {
	struct workers *workers;
	reduce_kernel *kernels[REDUCE_FORMATS];
};

/* Adds the part of a segment from its element skip on; sum is where that part begins. */
static void sum_segment(const struct collective *collective, const struct collective_push *push,
			const struct collective_segment *segment, uint64_t skip, uint64_t count, float *sum)
{
	size_t element_size = reduce_element_bytes(segment->format);
	const void *contributions[REDUCE_MAX_RANKS];

	for (unsigned rank = 0; rank < push->rank_count; rank++)
		contributions[rank] = push->contributions[rank]
					      ? (const char *)push->contributions[rank] + segment->offset +
							skip * element_size
					      : NULL;
	collective->kernels[segment->format](sum, push->is_added, contributions, push->rank_count, count);
}

static void run_task(struct work *work)
{
	const struct collective_task *task = container_of(work, struct collective_task, work);
	const struct collective_push *push = task->push;
	uint64_t end = task->first + task->count;
	uint64_t start = 0; /* of the segment */

	for (unsigned i = 0; i < push->segment_count && start < end; i++) {
		const struct collective_segment *segment = &push->segments[i];
		uint64_t first = start < task->first ? task->first : start;
		uint64_t next = start + segment->count;
		uint64_t last = next < end ? next : end;

		if (first < last)
			sum_segment(task->collective, push, segment, first - start, last - first,
				    push->sum + first);
		start = next;
	}
}

static void on_task_done(struct work *work)
{
	struct collective_push *push = container_of(work, struct collective_task, work)->push;

	if (--push->tasks_left == 0)
		push->done(push);
}

static uint64_t count_elements(const struct collective_push *push)
{
	uint64_t elements = 0;

	for (unsigned i = 0; i < push->segment_count; i++)
		elements += push->segments[i].count;
	return elements;
}

void collective_push(struct collective *collective, struct collective_push *push)
{
	uint64_t elements = count_elements(push);
	uint64_t tasks = elements / TASK_ELEMENTS;
	uint64_t each;

	assert(push->done && push->rank_count <= REDUCE_MAX_RANKS);
	if (tasks == 0)
		tasks = 1;
	if (tasks > COLLECTIVE_TASKS)
		tasks = COLLECTIVE_TASKS;
	each = elements / tasks / BLOCK_ELEMENTS * BLOCK_ELEMENTS;
	push->task_count = push->tasks_left = (unsigned)tasks;
	for (uint64_t i = 0; i < tasks; i++) {
		push->tasks[i] = (struct collective_task){
			.work = { .run = run_task,
				  .done = on_task_done,
				  .urgency = WORK_NORMAL,
				  .is_brief = elements * push->rank_count <= BRIEF_ELEMENTS,
				  .is_timed = push->is_timed },
			.push = push,
			.collective = collective,
			.first = i * each,
			.count = i + 1 < tasks ? each : elements - i * each,
		};
		workers_submit(collective->workers, &push->tasks[i].work);
	}
}

const struct work *collective_push_work(const struct collective_push *push, unsigned n)
{
	return n < push->task_count ? &push->tasks[n].work : NULL;
}

int collective_new(struct workers *workers, struct collective **ret_collective)
{
	struct collective *collective = calloc(1, sizeof(*collective));

	if (!collective)
		return -ENOMEM;
	collective->workers = workers;
	for (int format = 0; format < REDUCE_FORMATS; format++)
		collective->kernels[format] = reduce_sum_kernel(simd_level(), format);

	*ret_collective = collective;
	return 0;
}

struct collective *collective_free(struct collective *collective)
{
	free(collective);
	return NULL;
}
