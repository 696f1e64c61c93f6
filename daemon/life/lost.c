#include "daemon/life/lost.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/clock.h"
#include "common/size.h"
#include "daemon/durability/durability.h"
#include "daemon/life/life.h"
#include "daemon/life/own.h"
#include "daemon/life/replaced.h"
#include "daemon/model/model.h"
#include "daemon/telemetry/telemetry.h"

/* ---- What brings a broken job back ---- */

/* By what its store could not be opened for. The reason names the file. */
static const struct cause {
	int error;
	const char *remedy;
} causes[] = {
	{ ENOMEM,
	  "raise host_budget in tierd.conf and start tierd again, or let other jobs end (tierctl jobs "
	  "shows what they take)" },
	{ ENOSPC, "raise the size of its paths in tierd.conf and start tierd again, or let other jobs end "
		  "(tierctl jobs shows what they take)" },
	{ ENOENT, "mount the path, or put the file back" },
	{ ESTALE, "bring back the newer copy of the disk" },
	{ EEXIST, "move the file that is not wanted elsewhere (mv)" },
	{ EBUSY, "end the process that has the file (fuser -v FILE)" },
	{ EACCES, "give the file to the user that tierd runs as (chown), with mode 0600 (chmod)" },
	{ EPERM, "give the file and its folder to the user that tierd runs as (chown), and let nobody else "
		 "write to them (chmod go-w)" },
	{ EINVAL, "put the file back that was there, with mode 0600 (chmod)" },
	{ ENXIO, "put the file back that was there: no link, and nothing but a regular file" },
	{ EIO, "look at the disk (dmesg, smartctl -a), and put the file on another one if it fails" },
	{ EBADMSG, "put back a copy of its files that was made while tierd was stopped" },
	{ ENODATA, "put back a copy of its files that was made while tierd was stopped" },
	{ ENODEV, "put back the files that belong together, each on the path that it was on" },
	{ EPROTONOSUPPORT, "start the tierd that wrote it, or a newer one" },
};

static const char *find_remedy(int error)
{
	for (size_t i = 0; i < ARRAY_LENGTH(causes); i++)
		if (causes[i].error == -error)
			return causes[i].remedy;
	return "mend that";
}

const char *lost_remedy(const struct job *job, char text[static LOST_REMEDY_TEXT])
{
	uint64_t step;

	if (job_is_lost(job))
		snprintf(text, LOST_REMEDY_TEXT, "%s%s", find_remedy(job->life->loss.error),
			 job->life->loss.lacking < 0 ? "; it comes back when there is room"
						     : ", and open it again, or start tierd again");
	else if (durable_has_step(job, &step))
		snprintf(text, LOST_REMEDY_TEXT, "end its ranks: it comes back at step %llu then",
			 (unsigned long long)step);
	else
		snprintf(text, LOST_REMEDY_TEXT, "none: its state is lost; open it with replace, or drop it");
	return text;
}

/* ---- A lost job ---- */

static struct job *new_job(struct node *node, const struct job_file *file)
{
	Tierd__Wire__JobOpen open = TIERD__WIRE__JOB_OPEN__INIT;
	struct quota quota = access_quota_of_user(node, file->uid);
	struct optimizer_group groups[WIRE_MAX_GROUPS];
	struct job_options options;
	struct job *job;
	char message[128];

	open.name = (char *)file->name;
	open.world_size = 1;
	if (options_read(&options, groups, &open, true, message, sizeof(message)) < 0 ||
	    job_new(node, file->uid, &quota, file->name, &options, &job) < 0)
		return NULL;
	job->number = file->number;
	memcpy(job->location.file, file->file, sizeof(job->location.file));
	life_step(job, LIFE_LOSE);
	/* As far as anybody knows. */
	job->location.has_nvme_parameters = job->location.has_nvme_optimizer =
		job->location.has_stored_parameters = true;
	job->members.idle_since_ns = clock_now_ns();
	return job;
}

/* What is left of each budget. */
static void measure_room(const struct node *node, struct loss *loss)
{
	loss->host_room = size_rest(node->settings.host_budget, budget_host_used(node));
	for (unsigned i = 0; i < node->path_count; i++)
		loss->path_room[i] = size_rest(node->paths[i].capacity, node->paths[i].used);
}

static void tell(const struct job *job, const char *why)
{
	char remedy[LOST_REMEDY_TEXT], more[LOST_REMEDY_TEXT + 200] = "";

	if (!job->life->loss.is_explained)
		snprintf(more, sizeof(more),
			 ": %s; or open it with replace, or drop it, which both destroy what is left%s",
			 lost_remedy(job, remedy),
			 job->life->loss.is_unread
				 ? "; what else is in it, such as forks, nobody can say before that"
				 : "");
	events_of_job(job, EVENT_BROKEN, NULL,
		      "its store %s cannot be opened: %s; nothing of it is touched%s", job->location.file,
		      why, more);
}

void lost_new(struct node *node, const struct job_file *file, const struct loss *loss, const char *why)
{
	struct job *job = job_find(node, file->uid, file->name) ? NULL : new_job(node, file);

	if (!job) {
		log_error("%s: %s; it is left alone", file->file, why);
		return;
	}
	job->life->loss = *loss;
	measure_room(node, &job->life->loss);
	snprintf(job->epoch.reason, sizeof(job->epoch.reason), "%.500s", why);
	tell(job, why);
}

/* ---- Another try ---- */

/* Or it would be tried again and again. */
static bool has_more_room(const struct job *job)
{
	struct loss now;

	measure_room(job->node, &now);
	if (job->life->loss.lacking == -ENOMEM)
		return now.host_room > job->life->loss.host_room;
	for (unsigned i = 0; i < job->node->path_count; i++)
		if (now.path_room[i] > job->life->loss.path_room[i])
			return true;
	return false;
}

static void try_again(struct job *job)
{
	life_step(job, LIFE_REOPEN);
}

void lost_go_on(struct job *job)
{
	if (job->life->loss.lacking < 0 && has_more_room(job) && !job->node->is_stopping)
		try_again(job);
}

bool lost_try_again(struct job *job)
{
	job->life->loss.is_asked = !job->life->loss.is_asked;
	if (job->life->loss.is_asked)
		try_again(job);
	return job->life->loss.is_asked;
}

/* ---- What is given up ---- */

struct removal {
	struct work work;
	struct node *node;
	struct job_file file;
};

static void run_removal(struct work *work)
{
	const struct removal *removal = container_of(work, struct removal, work);

	job_file_remove(removal->node, &removal->file);
}

static void on_removed(struct work *work)
{
	struct removal *removal = container_of(work, struct removal, work);

	node_end_work(removal->node);
	free(removal);
}

static bool is_among(const struct queue *jobs, const struct job_file *file)
{
	FAMILY_FOREACH (job, jobs, file->file)
		if (strcmp(job->name, file->name) != 0)
			return true;
	QUEUE_FOREACH (link, jobs) {
		const struct job *job = queue_entry(link, struct job, link);

		if (replaced_has_file(job->life->replaced, file->file) && strcmp(job->name, file->name) != 0)
			return true;
	}
	return false;
}

/* Another one than this job of this name has them, or will: they are not to be removed. */
static bool has_file(const struct node *node, const struct job_file *file)
{
	return is_among(&node->jobs.live, file) || is_among(&node->jobs.dying, file) ||
	       node->parts->recovery->has_file(node, file->file);
}

void lost_remove_file(struct node *node, const struct job_file *file)
{
	struct removal *removal;

	listing_give_up(node, file->file, file->name);
	if (has_file(node, file)) {
		node->parts->recovery->remove_file(node, file);
		return;
	}
	removal = calloc(1, sizeof(*removal));
	if (!removal) {
		log_error("%s cannot be removed: out of memory; remove it when tierd has ended", file->file);
		return;
	}
	removal->node = node;
	removal->file = *file;
	removal->work = (struct work){ .run = run_removal, .done = on_removed, .urgency = WORK_NORMAL };
	node_begin_work(node);
	workers_submit(node->slow_workers, &removal->work);
}

bool lost_has_files(const struct job *job)
{
	return job->life->loss.error < 0;
}

void lost_remove(const struct job *job)
{
	struct job_file file;

	job_file_get(job, &file);
	lost_remove_file(job->node, &file);
}
