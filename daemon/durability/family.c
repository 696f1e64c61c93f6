#include "daemon/durability/family.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "daemon/resources/resources.h"
#include "daemon/durability/durable.h"
#include "daemon/request/request.h"
#include "daemon/durability/snapshot.h"
#include "daemon/durability/own.h"

struct job *family_next(const struct queue *jobs, const char *file, const struct job *job)
{
	for (struct queue *link = job ? job->link.next : jobs->next; link != jobs; link = link->next) {
		struct job *next = queue_entry(link, struct job, link);

		if (strcmp(next->location.file, file) == 0)
			return next;
	}
	return NULL;
}

void family_get(const struct job *job, struct store_family *ret_family)
{
	const struct store *store = job_nvme_store(job);

	*ret_family = (struct store_family){ .jobs = 1 };
	if (store)
		store_get_family(store, ret_family);
}

const char *family_name_others(const struct job *job, char *text, size_t size)
{
	struct store_job jobs[STORE_MAX_SNAPSHOTS + 1];
	unsigned count = job_nvme_store(job) ? store_jobs(job_nvme_store(job), jobs) : 0;
	size_t used = 0;

	text[0] = '\0';
	for (unsigned i = 0; i < count && used < size; i++)
		if (strcmp(jobs[i].name, job->name) != 0)
			used += (size_t)snprintf(text + used, size - used, "%s%s", used ? ", " : "",
						 jobs[i].name);
	return text;
}

/* ---- Bytes on the paths ---- */

void family_measure(const struct job *job, uint64_t *ret_own_bytes, uint64_t *ret_shared_bytes)
{
	struct store_family family;

	family_get(job, &family);
	*ret_own_bytes = family.held_bytes - family.shared_bytes;
	*ret_shared_bytes = family.shared_bytes;
}

/* The first of them that is not lost is charged for what all share. */
static const char *name_first(const struct store_job *jobs)
{
	while (jobs->is_lost)
		jobs++;
	return jobs->name;
}

/* Bytes on each path. */
static uint64_t charge_of(const struct job *job)
{
	struct store_job jobs[STORE_MAX_SNAPSHOTS + 1];
	struct store_family family;

	family_get(job, &family);
	if (store_jobs(job_nvme_store(job), jobs) > 1 && strcmp(name_first(jobs), job->name) != 0)
		return family.own_bytes;
	return family.device_bytes - (family.jobs - 1) * family.own_bytes;
}

unsigned family_asked_snapshots(const struct job *job)
{
	unsigned most = job->durability->snapshots_asked;

	FAMILY_FOREACH (other, &job->node->jobs.live, job->location.file)
		if (other->durability->snapshots_asked > most)
			most = other->durability->snapshots_asked;
	return most;
}

int family_charge(struct job *job, bool is_fork, char *message, size_t size)
{
	if (!is_fork)
		return budget_take_found(job, charge_of(job), message, size);
	budget_set_state(job, charge_of(job));
	family_charge_again(job->node, job->location.file);
	return 0;
}

void family_charge_again(struct node *node, const char *file)
{
	FAMILY_FOREACH (job, &node->jobs.live, file) {
		if (!job->durability->durable || !job_nvme_store(job))
			continue;
		budget_set_state(job, charge_of(job));
		job->options.snapshots = store_reserved(job_nvme_store(job));
	}
}

/* ---- The files ---- */

static bool may_host(const struct job *job)
{
	struct store_family family;
	uint64_t step;

	if (job_is_broken(job) || !job_nvme_store(job) || !durable_has_step(job, &step))
		return false;
	family_get(job, &family);
	return !family.is_fenced;
}

struct job *family_find_host(const struct node *node, const char *file)
{
	FAMILY_FOREACH (job, &node->jobs.live, file)
		if (may_host(job))
			return job;
	return NULL;
}

/* ---- What cannot be read ---- */

static const char *find_lost(const struct job *job, struct store_job jobs[STORE_MAX_SNAPSHOTS + 1])
{
	unsigned count = store_jobs(job_nvme_store(job), jobs);

	for (unsigned i = 0; i < count; i++)
		if (jobs[i].is_lost)
			return jobs[i].name;
	return NULL;
}

int family_check_lost(const struct job *job, char *message, size_t size)
{
	struct store_job jobs[STORE_MAX_SNAPSHOTS + 1];
	struct store_family family;
	char others[FAMILY_TEXT];
	const char *lost;

	family_get(job, &family);
	if (!family.has_lost || family.jobs < 2)
		return 0;
	lost = find_lost(job, jobs);
	if (lost)
		return refuse(message, size, -EIO,
			      "job %s can only be read as long as job %s is in the same store, whose map "
			      "cannot be read: nobody knows which places on the disk it has; bring back the "
			      "disk as it was and start tierd again, or give that job up (tierctl drop %s "
			      "destroys its state)",
			      job->name, lost, lost);
	return refuse(
		message, size, -EIO,
		"job %s can only be read as long as a snapshot of a job in the same store is there whose "
		"map cannot be read: bring back the disk as it was and start tierd again, or destroy that "
		"snapshot for good (tierctl snapshots says which it is, of: %s)",
		job->name, family_name_others(job, others, sizeof(others)));
}

int family_check_end(const struct job *job, char *message, size_t size)
{
	struct store_family family;

	family_get(job, &family);
	return family.has_lost && family.jobs > 1 ? snapshot_check_lost(job, message, size) : 0;
}

/* ---- The end of one ---- */

static void on_left(struct store_request *request, int status)
{
	struct job *job = container_of(request, struct job_durability, leaving)->job;

	/* The last one takes the files with it. */
	job_store_step(job, status == 0 ? JOB_STORE_REMOVED : JOB_STORE_KEPT);
	job_settle(job);
}

/* Others may be on their way out, and have the store still: it has to know of each that ends. */
static bool is_alone(const struct job *job)
{
	struct store_family family;

	family_get(job, &family);
	return family.jobs < 2 && family.others == 0;
}

bool family_leave(struct job *job)
{
	int r;

	if (job_keeps_store(job) || job->durability->store != JOB_STORE_COMMITTED || is_alone(job))
		return false;
	job->durability->leaving.done = on_left;
	job_store_step(job, JOB_STORE_LEAVE);
	r = store_drop(job_nvme_store(job), &job->durability->leaving);
	if (r < 0)
		job_store_step(job, JOB_STORE_KEPT);
	return r == 0;
}

bool family_is_left_behind(const struct job *job)
{
	return job->durability->store == JOB_STORE_ABANDONED;
}
