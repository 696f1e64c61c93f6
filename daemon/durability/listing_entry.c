/* How a new job comes onto the list: its store says what it is called, and the list is on the disk before
 * anything of the job is called durable. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>

#include "common/own.h"
#include "daemon/durability/listing_inside.h"
#include "daemon/request/request.h"

static void finish(struct listing_entry *entry, int r)
{
	struct job *job = entry->job;

	if (r < 0) {
		refuse(entry->message, entry->size, r,
		       "it cannot be written to the list of jobs, %s/" LISTING_NAME
		       ": %s; make room there, or "
		       "make it writable",
		       listing_of(job->node)->directory, strerror(-r));
		listing_forget(job->node, job->location.file, job->name);
	}
	entry->done(entry, r);
}

static void on_written(struct listing_write *write, int status)
{
	finish(container_of(write, struct listing_entry, write), status);
}

/* What the store is called: that it has its superblocks the caller has seen to. */
static void run_identify(struct work *work)
{
	struct listing_entry *entry = container_of(work, struct listing_entry, work);
	const struct job *job = entry->job;
	const struct node_path *path = &job->node->paths[job->location.paths.paths[0]];
	_cleanup_close_ int fd = own_open(path->directory_fd, job->location.file, O_RDONLY, 0);

	entry->status = fd < 0 ? fd : store_device_read(fd, &entry->says);
}

static void on_identified(struct work *work)
{
	struct listing_entry *entry = container_of(work, struct listing_entry, work);
	struct job *job = entry->job;
	struct listing *listing = listing_of(job->node);
	struct job_list_store *store;
	bool has_changed;
	int r;

	if (!listing) {
		entry->done(entry, 0);
		return;
	}
	r = listing_put(listing, job, &has_changed);
	store = r < 0 ? NULL : job_list_find(&listing->list, job->location.file);
	if (store && entry->status == 0) {
		memcpy(store->store, entry->says.store, sizeof(store->store));
		store->generation = entry->says.generation;
	}
	entry->write.done = on_written;
	if (r == 0)
		r = listing_write(listing, &entry->write);
	if (r < 0)
		finish(entry, r);
}

void listing_add(struct listing_entry *entry)
{
	entry->work = (struct work){ .run = run_identify, .done = on_identified, .urgency = WORK_NORMAL };
	workers_submit(entry->job->node->slow_workers, &entry->work);
}

/* ---- Waiting ---- */

static void run_nothing(struct work *work)
{
}

static void on_turn(struct work *work)
{
	struct listing_wait *wait = container_of(work, struct listing_wait, work);

	wait->done(wait);
}

/* Writes go in turn. */
void listing_await(struct node *node, struct listing_wait *wait)
{
	wait->work = (struct work){ .run = run_nothing, .done = on_turn, .urgency = WORK_NORMAL };
	workers_submit(node->slow_workers, &wait->work);
}
