#include "daemon/durability/errand.h"

#include <errno.h>

#include "daemon/durability/durable.h"
#include "daemon/durability/own.h"
#include "daemon/update/update.h"

static struct errand *first_of(const struct job *job)
{
	struct queue *link = queue_first(&job->durability->errands);

	return link ? queue_entry(link, struct errand, link) : NULL;
}

bool errands_have_room(const struct job *job)
{
	unsigned count = 0;

	QUEUE_FOREACH (link, &job->durability->errands)
		count++;
	return count < ERRANDS_MAXIMUM;
}

static void end(struct errand *errand, int status)
{
	errand->is_under_way = false;
	queue_remove(&errand->link);
	errand->done(errand, status);
}

static void on_done(struct store_request *request, int status)
{
	struct errand *errand = container_of(request, struct errand, request);
	struct job *job = errand->job;

	end(errand, status);
	durable_advance(job);
	step_advance(job);
	job_settle(job);
	node_check_idle(job->node);
}

void errand_send(struct errand *errand)
{
	errand->request.done = on_done;
	errand->is_under_way = false;
	queue_push(&errand->job->durability->errands, &errand->link);
	if (errand->step > 0)
		durable_hurry(errand->job);
	job_settle(errand->job);
}

static bool can_go(const struct errand *errand)
{
	const struct job *job = errand->job;
	uint64_t step;

	if (!durable_has_step(job, &step) || step < errand->step || !durable_is_quiet(job))
		return false;
	if (errand->awaits_definition && durable_is_redefined(job))
		return false;
	return !errand->is_last || (job->member_count == 0 && job_is_quiet(job));
}

bool errands_advance(struct job *job)
{
	struct errand *errand;
	int r;

	while ((errand = first_of(job)) != NULL && !errand->is_under_way && can_go(errand)) {
		errand->is_under_way = true;
		r = errand->begin(errand, job_nvme_store(job));
		if (r < 0)
			end(errand, r);
	}
	return errand && errand->is_under_way;
}

bool errands_are_quiet(const struct job *job)
{
	const struct errand *errand = first_of(job);

	return !errand || !errand->is_under_way;
}

void errands_end(struct job *job)
{
	QUEUE_FOREACH (link, &job->durability->errands) {
		struct errand *errand = queue_entry(link, struct errand, link);

		if (!errand->is_under_way)
			end(errand, -ESHUTDOWN);
	}
}
