#include "daemon/durability/store_task.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "daemon/durability/durable.h"
#include "daemon/durability/own.h"
#include "daemon/update/update.h"

/* ---- What a client asks for ---- */

bool store_task_check(struct pending *pending, int r, const char *message)
{
	if (r < 0)
		pending_error(pending, r, "%s", message);
	return r == 0;
}

void *store_task_new(size_t size, struct pending *pending, struct job *job, struct queue *requesters)
{
	struct store_task *task = calloc(1, size);

	if (!task) {
		pending_error(pending, -ENOMEM, "job %s: out of memory", job->name);
		return NULL;
	}
	task->job = job;
	requester_begin(&task->requester, pending, requesters);
	return task;
}

void store_task_free(struct store_task *task)
{
	requester_end(&task->requester);
	free(task);
}

void store_task_reply(struct store_task *task, Tierd__Wire__Reply *reply)
{
	if (task->requester.pending)
		pending_reply(task->requester.pending, reply);
}

void store_task_error(struct store_task *task, int r, const char *format, ...)
{
	char message[1024];
	va_list arguments;

	if (!task->requester.pending)
		return;
	va_start(arguments, format);
	vsnprintf(message, sizeof(message), format, arguments);
	va_end(arguments);
	pending_error(task->requester.pending, r, "%s", message);
}

/* ---- Their turns ---- */

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
