#include "daemon/restore.h"

#include <errno.h>
#include <event2/event.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/little_endian.h"
#include "common/size.h"
#include "daemon/devices.h"
#include "daemon/durable.h"
#include "daemon/lost.h"
#include "daemon/record.h"
#include "daemon/refuse.h"
#include "daemon/setup.h"
#include "daemon/snapshot.h"
#include "offload/fault.h"
#include "offload/nvme.h"

/* Writes of a daemon that was killed may take as long to end. */
#define LOCK_MS 10000

/* What it has from the job that it was in this daemon, of which its store knows nothing. */
struct origin {
	bool is_asked; /* by who opens it */
	struct restore_notice *notice;
	struct scrub_state scrub;
};

struct restore {
	struct queue link; /* of the node's */
	struct node *node;
	struct stored_job file;
	struct path_list paths;
	struct work work;
	struct origin origin;
	struct store *store;
	struct job *job; /* once it is there, and its blobs are on their way */
	struct store_request opening;
	struct store_transfer transfer;
	struct record_header header;
	char *definition, *progress; /* with what is before them, page-aligned */
	bool is_read, is_made, is_forgotten;
	int status;
	char message[640];
};

static void restore_free(struct restore *restore)
{
	store_free(restore->store);
	free(restore->definition);
	free(restore->progress);
	queue_remove(&restore->link);
	free(restore);
}

/* ---- The end ---- */

static void tell(struct restore *restore, const struct job *job)
{
	struct restore_notice *notice = TAKE_PTR(restore->origin.notice);

	if (notice)
		notice->done(notice, job, restore->message);
}

/* What opening has said of it. */
static void tell_lost(const struct job *job)
{
	char message[SNAPSHOT_TEXT];

	if (snapshot_check_lost(job, message, sizeof(message)) < 0)
		events_of_job(job, EVENT_DAMAGED, &(struct log_fields){ .tier = "nvme" }, "%s; %s",
			      store_message(job_nvme_store(job)), message);
}

static void tell_restored(const struct job *job)
{
	events_of_job(job, EVENT_RESTORED, &(struct log_fields){ .step = &job->step },
		      "it is back at step %llu, its last durable one: %u units, %llu MiB on NVMe",
		      (unsigned long long)job->step, job->catalog.unit_count,
		      (unsigned long long)(job->nvme_bytes / MIB));
	tell_lost(job);
}

static bool is_its_own(const struct restore *restore, const struct job *job)
{
	return job->uid == restore->file.uid && strcmp(job->name, restore->file.name) == 0;
}

static int make_job(struct restore *restore)
{
	struct record_source source = {
		.paths = &restore->paths,
		.definition = { restore->definition + sizeof(struct record_header),
				restore->header.definition_bytes },
		.progress = { restore->progress + sizeof(struct progress_header),
			      get64((const uint8_t *)restore->progress) },
	};
	struct job *job;
	int r;

	if (source.progress.size > restore->header.progress_bytes)
		return refuse(restore->message, sizeof(restore->message), -EBADMSG,
			      "its progress says what cannot be");
	r = record_decode(restore->node, &source, &job, restore->message, sizeof(restore->message));
	if (r < 0)
		return r;
	job->number = restore->file.number;
	memcpy(job->file, restore->file.file, sizeof(job->file));
	job->scrub = restore->origin.scrub;
	if (!is_its_own(restore, job))
		r = refuse(restore->message, sizeof(restore->message), -EBADMSG,
			   "it is job %s of user %u, by another name", job->name, (unsigned)job->uid);
	if (r == 0)
		r = setup_adopt(job, restore->store, restore->message, sizeof(restore->message));
	if (r < 0) {
		job_free(job);
		return r;
	}
	restore->store = NULL;
	restore->job = job;
	return 0;
}

/* Whatever it was that there was no room for, it may find some later. */
static void lose(struct node *node, const struct stored_job *file, const struct origin *origin, int r,
		 const char *why)
{
	const struct loss loss = { .lacking = r == -ENOMEM || r == -ENOSPC ? r : 0,
				   .is_asked = origin->is_asked };

	lost_new(node, file, &loss, why);
}

static void end(struct restore *restore, int r)
{
	if (r < 0)
		lose(restore->node, &restore->file, &restore->origin, r, restore->message);
	else
		tell_restored(restore->job);
	tell(restore, r < 0 ? NULL : restore->job);
	restore_free(restore);
}

/* What the store cannot give, with its place. */
static int explain(struct restore *restore, int r, const char *what)
{
	const struct store_transfer *transfer = &restore->transfer;
	const char *why = r == -EBADMSG ? "it is damaged" : strerror(-r);

	if (transfer->status < 0 && transfer->fault.device)
		refuse(restore->message, sizeof(restore->message), r, "%s: %s, at byte %llu of %s", what, why,
		       (unsigned long long)transfer->fault.device_offset, transfer->fault.device);
	else
		refuse(restore->message, sizeof(restore->message), r, "%s: %s", what, why);
	return r;
}

/* It may have been dropped meanwhile: then it goes in its own turn. */
static void end_load(struct restore *restore, int r)
{
	struct job *job = restore->job;

	job->blobs.is_loading = false;
	if (job->is_dropped) {
		job_settle(job);
		refuse(restore->message, sizeof(restore->message), 0, "it was dropped meanwhile");
		tell(restore, NULL);
		restore_free(restore);
		return;
	}
	if (r < 0) {
		explain(restore, r, "its blobs cannot be read");
		/* It was there meanwhile, and may be looked at: it goes when nobody does. */
		job->is_kept = true;
		job_drop(job);
	}
	end(restore, r);
}

static void on_blobs(struct store_transfer *transfer, int status)
{
	end_load(container_of(transfer, struct restore, transfer), status);
}

static void load_blobs(struct restore *restore)
{
	struct job *job = restore->job;
	int r = blobs_make_image(job);

	job->blobs.is_loading = true;
	restore->transfer =
		(struct store_transfer){ .direction = TIER_READ,
					 .priority = TIER_DEMAND,
					 .stream = job->streams.blobs,
					 .length = size_align(job->blobs.used, STORE_EXTENT_BYTES),
					 .buffer = job->blobs.image.base,
					 .done = on_blobs };
	if (r == 0)
		r = store_submit(job_nvme_store(job), &restore->transfer);
	if (r < 0)
		end_load(restore, r);
}

static void make(struct restore *restore)
{
	int r = restore->status;

	restore->is_made = true;
	if (restore->is_forgotten) {
		tell(restore, NULL);
		restore_free(restore);
		return;
	}
	if (r == 0)
		r = make_job(restore);
	if (r == 0 && restore->job->blobs.used > 0)
		load_blobs(restore);
	else
		end(restore, r);
}

/* Each after those that began before it: where there is not room for all, it is the same ones each time that
 * get it. */
static void make_in_order(struct node *node)
{
	QUEUE_FOREACH (link, &node->restores) {
		struct restore *restore = queue_entry(link, struct restore, link);

		if (!restore->is_read)
			return;
		if (!restore->is_made)
			make(restore);
	}
}

static void finish(struct restore *restore, int r)
{
	restore->is_read = true;
	restore->status = r;
	make_in_order(restore->node);
}

/* A daemon was killed before its first commit: there never was a state. */
static void forget(struct restore *restore)
{
	log_info("%s: nothing was ever committed; it is removed", restore->file.file);
	store_keep(restore->store, false);
	refuse(restore->message, sizeof(restore->message), 0, "nothing of it was ever committed");
	restore->is_forgotten = true;
	finish(restore, 0);
}

static void fail(struct restore *restore, int r, const char *what)
{
	finish(restore, explain(restore, r, what));
}

/* ---- The record ---- */

/* Into *place, of the restore, which may be gone when this returns. */
static void read_record(struct restore *restore, char **place, uint64_t offset, uint64_t length,
			void (*done)(struct store_transfer *transfer, int status))
{
	uint64_t padded = size_align(length, STORE_PAGE_BYTES);
	int r = -ENOMEM;

	*place = aligned_alloc(STORE_PAGE_BYTES, padded);
	restore->transfer = (struct store_transfer){ .direction = TIER_READ,
						     .priority = TIER_DEMAND,
						     .stream = RECORD_STREAM,
						     .offset = offset,
						     .length = padded,
						     .buffer = *place,
						     .done = done };
	if (*place)
		r = store_submit(restore->store, &restore->transfer);
	if (r < 0)
		fail(restore, r, "its record cannot be read");
}

static void on_progress(struct store_transfer *transfer, int status)
{
	struct restore *restore = container_of(transfer, struct restore, transfer);

	if (status < 0)
		fail(restore, status, "its progress cannot be read");
	else
		finish(restore, 0);
}

static void on_definition(struct store_transfer *transfer, int status)
{
	struct restore *restore = container_of(transfer, struct restore, transfer);
	struct store_layout *layout;
	uint64_t offset;
	int r = status;

	if (r == 0)
		r = durable_find_layout(&restore->header, store_extents(restore->store), &layout, &offset);
	if (r < 0) {
		fail(restore, r, "its definition cannot be read");
		return;
	}
	r = store_adopt(restore->store, layout);
	if (r < 0) {
		store_layout_free(layout);
		fail(restore, r, "its definition cannot be read");
		return;
	}
	read_record(restore, &restore->progress, offset,
		    sizeof(struct progress_header) + restore->header.progress_bytes, on_progress);
}

static int read_header(struct restore *restore)
{
	const uint8_t *bytes = (const uint8_t *)restore->definition;

	memcpy(restore->header.magic, bytes, sizeof(restore->header.magic));
	restore->header.definition_bytes = get64(bytes + 8);
	restore->header.progress_bytes = get64(bytes + 16);
	if (memcmp(restore->header.magic, RECORD_MAGIC, sizeof(restore->header.magic)) != 0 ||
	    restore->header.definition_bytes >
		    store_extents(restore->store) * STORE_EXTENT_BYTES - sizeof(struct record_header))
		return -EBADMSG;
	return 0;
}

/* Only its first extent: most are not longer. */
static void on_header(struct store_transfer *transfer, int status)
{
	struct restore *restore = container_of(transfer, struct restore, transfer);
	int r = status < 0 ? status : read_header(restore);
	uint64_t length;

	if (r < 0) {
		fail(restore, r, "its definition cannot be read");
		return;
	}
	length = size_align(sizeof(struct record_header) + restore->header.definition_bytes,
			    STORE_EXTENT_BYTES);
	if (length == STORE_EXTENT_BYTES) {
		on_definition(transfer, 0);
		return;
	}
	free(TAKE_PTR(restore->definition));
	read_record(restore, &restore->definition, 0, length, on_definition);
}

static void on_opened(struct store_request *request, int status)
{
	struct restore *restore = container_of(request, struct restore, opening);

	if (status == 0)
		read_record(restore, &restore->definition, 0, STORE_EXTENT_BYTES, on_header);
	else if (status == -ENOENT)
		forget(restore);
	else
		finish(restore, refuse(restore->message, sizeof(restore->message), status, "%s",
				       store_message(restore->store)));
}

/* ---- On a worker ---- */

static int open_tier(struct restore *restore, unsigned index, struct tier **ret_tier)
{
	struct node *node = restore->node;
	struct node_path *path = &node->paths[restore->paths.paths[index]];
	struct nvme_config config = { .engine = node->engine,
				      .directory_fd = path->directory_fd,
				      .directory = path->folder,
				      .name = restore->file.file,
				      .is_buffered = !path->is_direct,
				      .device = path->device,
				      .moved = path->moved };
	struct fault_config fault;
	int r = nvme_tier_open(&config, LOCK_MS, ret_tier);

	if (r < 0)
		return refuse(restore->message, sizeof(restore->message), r, "%s/%s cannot be opened: %s",
			      path->folder, restore->file.file,
			      r == -EBUSY ? "another process has locked it; end that one (fuser tells which)"
			      : r == -EINVAL
				      ? "it is no file of tierd's own: a regular one of 1 MiB or more, "
					"of mode 0600"
				      : strerror(-r));
	if (node->fault && fault_config_parse(node->fault, &fault) == 0)
		r = fault_tier_new(*ret_tier, &fault, ret_tier);
	return r;
}

static void run_open(struct work *work)
{
	struct restore *restore = container_of(work, struct restore, work);
	struct store_config config = { .workers = restore->node->workers, .name = restore->file.name };
	struct tier *tiers[NODE_MAX_PATHS];
	unsigned count = 0;

	restore->status = devices_find(restore->node, &restore->file, &restore->paths, restore->message,
				       sizeof(restore->message));
	while (restore->status == 0 && count < restore->paths.count) {
		restore->status = open_tier(restore, count, &tiers[count]);
		count += restore->status == 0;
	}
	if (restore->status == 0) {
		restore->status = store_new_found(&config, tiers, count, &restore->store);
		return;
	}
	while (count > 0)
		tier_free(tiers[--count]);
}

static void on_found(struct work *work)
{
	struct restore *restore = container_of(work, struct restore, work);
	int r = restore->status;

	restore->opening.done = on_opened;
	if (r == 0)
		r = store_open(restore->store, &restore->opening);
	if (r == 0)
		return;
	if (restore->message[0] == '\0')
		refuse(restore->message, sizeof(restore->message), r, "%s", strerror(-r));
	finish(restore, r);
}

/* ---- Start ---- */

/* It has left the file. */
static const struct origin another_daemon;

static int start(struct node *node, const struct stored_job *file, const struct origin *origin)
{
	struct restore *restore = calloc(1, sizeof(*restore));

	if (!restore)
		return -ENOMEM;
	restore->node = node;
	restore->file = *file;
	restore->origin = *origin;
	restore->work = (struct work){ .run = run_open, .done = on_found, .urgency = WORK_NORMAL };
	queue_push(&node->restores, &restore->link);
	workers_submit(node->slow_workers, &restore->work);
	return 0;
}

/* ---- What was replaced ---- */

struct outdated {
	struct queue link;
	struct stored_job file;
};

/* The latest first. */
static int remember_outdated(struct queue *all, const struct stored_job *file)
{
	struct outdated *outdated = calloc(1, sizeof(*outdated));

	if (!outdated)
		return -ENOMEM;
	outdated->file = *file;
	queue_push_front(all, &outdated->link);
	return 0;
}

/* Only once what has replaced it is there: a name alone proves nothing. */
static void remove_outdated(struct node *node, const struct job *job, const struct stored_job *file)
{
	if (job->is_lost) {
		log_warning(
			"job %s of user %u: %s is left as it is, because a later file of the job cannot be "
			"opened; move the one that is not wanted elsewhere, and start tierd again",
			file->name, (unsigned)file->uid, file->file);
		return;
	}
	log_info("job %s of user %u: %s is removed: a later job has replaced it", file->name,
		 (unsigned)file->uid, file->file);
	stored_remove(node, file);
}

static int on_stored(struct node *node, const struct stored_job *file, void *argument)
{
	if (file->is_unfinished) {
		log_info("job %s of user %u: %s is removed: a daemon has died before anything in it was to "
			 "outlive it",
			 file->name, (unsigned)file->uid, file->file);
		stored_remove(node, file);
		return 0;
	}
	if (file->is_outdated)
		return remember_outdated(argument, file);
	return start(node, file, &another_daemon);
}

static void await_all(struct node *node)
{
	while (!queue_is_empty(&node->restores))
		event_base_loop(node->loop, EVLOOP_ONCE);
}

/* What was to replace it may have never been committed. */
static int look_at_outdated(struct node *node, const struct stored_job *file)
{
	const struct job *job = job_find(node, file->uid, file->name);
	int r = 0;

	if (job)
		remove_outdated(node, job, file);
	else
		r = start(node, file, &another_daemon);
	await_all(node);
	return r;
}

int restore_all(struct node *node)
{
	struct queue outdated;
	int r;

	queue_init(&outdated);
	r = stored_find(node, on_stored, &outdated);
	await_all(node);
	for (struct queue *link = queue_pop(&outdated); link; link = queue_pop(&outdated)) {
		struct outdated *one = queue_entry(link, struct outdated, link);

		if (r == 0)
			r = look_at_outdated(node, &one->file);
		free(one);
	}
	return r;
}

static void start_or_lose(struct node *node, const struct stored_job *file, const struct origin *origin)
{
	int r = start(node, file, origin);

	if (r == 0)
		return;
	lose(node, file, origin, r, "out of memory");
	if (origin->notice)
		origin->notice->done(origin->notice, NULL, "out of memory");
}

void restore_file(struct node *node, const struct stored_job *file)
{
	start_or_lose(node, file, &another_daemon);
}

void restore_again(struct job *job)
{
	struct node *node = job->node;
	struct origin origin = { .is_asked = job->loss.is_asked, .notice = job->notice, .scrub = job->scrub };
	struct stored_job file;

	stored_name(job, &file);
	job->is_kept = true;
	job_free(job);
	start_or_lose(node, &file, &origin);
}

bool restore_is_under_way(const struct node *node, uid_t uid, const char *name)
{
	QUEUE_FOREACH (link, &node->dying) {
		const struct job *job = queue_entry(link, struct job, link);

		if ((job->comes_back || job->replaced) && job->uid == uid && strcmp(job->name, name) == 0)
			return true;
	}
	QUEUE_FOREACH (link, &node->restores) {
		const struct restore *restore = queue_entry(link, struct restore, link);

		if (restore->file.uid == uid && strcmp(restore->file.name, name) == 0)
			return true;
	}
	return false;
}
