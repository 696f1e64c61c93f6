#include "collectives/collective.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>

/* The least of a task: enough to be worth handing over. Tasks begin at whole blocks. */
#define TASK_ELEMENTS UINT64_C(65536)
#define BLOCK_ELEMENTS UINT64_C(256)
/* The most, of all ranks together: work that is more urgent, of whatever job, waits for what a worker has
 * begun. */
#define MOST_ELEMENTS (UINT64_C(1) << 20)
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

/* The next elements of the push, of which there are some, or it has none at all. */
static void start_task(struct collective_task *task)
{
	struct collective_push *push = task->push;
	uint64_t left = push->elements - push->started;

	task->first = push->started;
	task->count = left < push->each ? left : push->each;
	push->started += task->count;
	workers_submit(task->collective->workers, &task->work);
}

static void on_task_done(struct work *work)
{
	struct collective_task *task = container_of(work, struct collective_task, work);
	struct collective_push *push = task->push;

	if (push->worked)
		push->worked(push, work, task->count);
	if (push->started < push->elements)
		start_task(task);
	else if (--push->tasks_left == 0)
		push->done(push);
}

static uint64_t count_elements(const struct collective_push *push)
{
	uint64_t elements = 0;

	for (unsigned i = 0; i < push->segment_count; i++)
		elements += push->segments[i].count;
	return elements;
}

/* How many elements a task has at once, of as many tasks as are worth it: whole blocks. */
static uint64_t find_each(uint64_t elements, unsigned rank_count)
{
	uint64_t tasks = elements / TASK_ELEMENTS, most = MOST_ELEMENTS / rank_count, each;

	if (tasks > COLLECTIVE_TASKS)
		tasks = COLLECTIVE_TASKS;
	each = tasks > 0 ? (elements + tasks - 1) / tasks : elements;
	return ((each < most ? each : most) + BLOCK_ELEMENTS - 1) / BLOCK_ELEMENTS * BLOCK_ELEMENTS;
}

void collective_push(struct collective *collective, struct collective_push *push)
{
	assert(push->done && push->rank_count > 0 && push->rank_count <= REDUCE_MAX_RANKS);
	push->elements = count_elements(push);
	push->each = find_each(push->elements, push->rank_count);
	push->started = 0;
	push->tasks_left = 0;
	do {
		struct collective_task *task = &push->tasks[push->tasks_left++];

		*task = (struct collective_task){
			.work = { .run = run_task,
				  .done = on_task_done,
				  .urgency = WORK_NORMAL,
				  .is_brief = push->elements * push->rank_count <= BRIEF_ELEMENTS,
				  .is_timed = push->worked != NULL },
			.push = push,
			.collective = collective,
		};
		start_task(task);
	} while (push->tasks_left < COLLECTIVE_TASKS && push->started < push->elements);
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
