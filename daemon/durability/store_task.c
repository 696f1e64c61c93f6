#include "daemon/durability/store_task.h"

#include <errno.h>

#include "daemon/durability/durable.h"
#include "daemon/durability/own.h"
#include "daemon/update/update.h"

static struct store_task *first_of(const struct job *job)
{
	struct queue *link = queue_first(&job->durability->tasks);

	return link ? queue_entry(link, struct store_task, link) : NULL;
}

bool store_tasks_have_room(const struct job *job)
{
	unsigned count = 0;

	QUEUE_FOREACH (link, &job->durability->tasks)
		count++;
	return count < STORE_TASKS_MAXIMUM;
}

static void end(struct store_task *task, int status)
{
	task->is_under_way = false;
	queue_remove(&task->link);
	task->done(task, status);
}

static void on_done(struct store_request *request, int status)
{
	struct store_task *task = container_of(request, struct store_task, request);
	struct job *job = task->job;

	end(task, status);
	durable_advance(job);
	step_advance(job);
	job_settle(job);
	node_check_idle(job->node);
}

void store_task_send(struct store_task *task)
{
	task->request.done = on_done;
	task->is_under_way = false;
	queue_push(&task->job->durability->tasks, &task->link);
	if (task->step > 0)
		durable_hurry(task->job);
	job_settle(task->job);
}

static bool can_go(const struct store_task *task)
{
	const struct job *job = task->job;
	uint64_t step;

	if (!durable_has_step(job, &step) || step < task->step || !durable_is_quiet(job))
		return false;
	if (task->awaits_definition && durable_is_redefined(job))
		return false;
	return !task->is_last || (job->members.count == 0 && job_is_quiet(job));
}

bool store_tasks_advance(struct job *job)
{
	struct store_task *task;
	int r;

	while ((task = first_of(job)) != NULL && !task->is_under_way && can_go(task)) {
		task->is_under_way = true;
		r = task->begin(task, job_nvme_store(job));
		if (r < 0)
			end(task, r);
	}
	return task && task->is_under_way;
}

bool store_tasks_are_quiet(const struct job *job)
{
	const struct store_task *task = first_of(job);

	return !task || !task->is_under_way;
}

bool job_is_rolling_back(const struct job *job)
{
	QUEUE_FOREACH (link, &job->durability->tasks)
		if (queue_entry(link, struct store_task, link)->is_last)
			return true;
	return false;
}

void store_tasks_end(struct job *job)
{
	QUEUE_FOREACH (link, &job->durability->tasks) {
		struct store_task *task = queue_entry(link, struct store_task, link);

		if (!task->is_under_way)
			end(task, -ESHUTDOWN);
	}
}
