#include "daemon/durability/presence.h"

#include <errno.h>
#include <event2/event.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>

#include "daemon/model/model.h"
#include "daemon/durability/listing_inside.h"
#include "daemon/durability/own.h"
#include "daemon/request/request.h"
#include "daemon/telemetry/telemetry.h"

#define LOOK_S 2

/* What cannot be looked at may be there. */
static bool is_there(struct job *job, unsigned path)
{
	ino_t *inode = &job->durability->files.inodes[path];
	struct stat status;

	if (fstatat(job->node->paths[path].directory_fd, job->location.file, &status, AT_SYMLINK_NOFOLLOW) <
	    0)
		return errno != ENOENT && errno != ENOTDIR;
	if (*inode == 0)
		*inode = status.st_ino;
	return *inode == status.st_ino;
}

static void tell(const struct job *job)
{
	char text[PRESENCE_TEXT];

	if (job->durability->files.is_removed)
		events_of_job(job, EVENT_REMOVED,
			      &(struct log_fields){
				      .tier = "nvme",
				      .device = job->node->paths[job->durability->files.removed].path },
			      "%s", presence_describe(job, text, sizeof(text)));
	else
		events_of_job(job, EVENT_MENDED, &(struct log_fields){ .tier = "nvme" },
			      "its store %s is back in its place: steps are durable again",
			      job->location.file);
}

bool presence_check(struct job *job)
{
	bool was_removed = job->durability->files.is_removed;

	job->durability->files.is_removed = false;
	for (unsigned i = 0; i < job->location.paths.count && !job->durability->files.is_removed; i++) {
		job->durability->files.removed = job->location.paths.paths[i];
		job->durability->files.is_removed = !is_there(job, job->durability->files.removed);
	}
	if (job->durability->files.is_removed != was_removed)
		tell(job);
	return !job->durability->files.is_removed;
}

const char *presence_describe(const struct job *job, char *text, size_t size)
{
	text[0] = '\0';
	if (job->durability->files.is_removed)
		snprintf(text, size,
			 "its store %.300s/%s has been removed: no step is durable any more, and all of its "
			 "state is gone when tierd ends; export it before (tierctl export %s)",
			 job->node->paths[job->durability->files.removed].folder, job->location.file,
			 job->name);
	return text;
}

int presence_refuse(const struct job *job, char *message, size_t size)
{
	char text[PRESENCE_TEXT];

	if (!job->durability->files.is_removed)
		return 0;
	return refuse(message, size, -EIO, "job %s: %s", job->name,
		      presence_describe(job, text, sizeof(text)));
}

/* One that is being made, or has ended, has no files that anybody knows. */
static bool has_files(const struct job *job)
{
	return job->durability->durable && job_nvme_store(job) && !job_is_broken(job);
}

static void on_timer(evutil_socket_t fd, short events, void *argument)
{
	struct node *node = argument;

	QUEUE_FOREACH (link, &node->jobs.live) {
		struct job *job = queue_entry(link, struct job, link);

		if (has_files(job))
			presence_check(job);
	}
	listing_retry(node);
}

int presence_open(struct node *node)
{
	static const struct timeval period = { .tv_sec = LOOK_S };
	struct event *timer = event_new(node->loop, -1, EV_PERSIST, on_timer, node);

	node->durability->presence = timer;
	return timer && event_add(timer, &period) == 0 ? 0 : -ENOMEM;
}

void presence_close(struct node *node)
{
	if (node->durability->presence)
		event_free(node->durability->presence);
}
