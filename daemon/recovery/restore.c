#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/little_endian.h"
#include "daemon/durability/durability.h"
#include "daemon/life/life.h"
#include "daemon/recovery/record_read.h"
#include "daemon/recovery/own.h"
#include "daemon/recovery/recovery.h"
#include "daemon/request/request.h"
#include "daemon/scrub/scrub.h"
#include "daemon/telemetry/telemetry.h"

struct restore *restore_new(struct node *node, const struct job_file *file)
{
	struct restore *restore = calloc(1, sizeof(*restore));

	if (!restore)
		return NULL;
	restore->node = node;
	restore->file = *file;
	queue_push(&node->recovery->restores, &restore->link);
	return restore;
}

void restore_free(struct restore *restore)
{
	struct node *node = restore->node;

	store_free(restore->store);
	free(restore->definition);
	free(restore->progress);
	scrub_history_free(restore->origin.scrub);
	queue_remove(&restore->link);
	free(restore);
	restore_go_on(node);
	/* It may have been what those behind it waited for. */
	restore_make_in_order(node);
}

/* ---- The end ---- */

static void tell(struct restore *restore, const struct job *job)
{
	struct restore_notice *notice = TAKE_PTR(restore->origin.notice);

	if (notice)
		notice->done(notice, job, restore->message);
}

void restore_give_up(struct restore *restore, const char *why)
{
	refuse(restore->message, sizeof(restore->message), 0, "%s", why);
	tell(restore, NULL);
	restore_free(restore);
}

/* What opening has said of it; of a job that others are in one store with, that is said once. */
static void tell_lost(const struct job *job)
{
	char message[SNAPSHOT_TEXT];

	if (snapshot_check_lost(job, message, sizeof(message)) < 0)
		events_of_job(job, EVENT_DAMAGED, &(struct log_fields){ .tier = "nvme" }, "%s%s%s",
			      store_message(job_nvme_store(job)),
			      store_message(job_nvme_store(job))[0] ? "; " : "", message);
}

static void tell_restored(const struct job *job)
{
	events_of_job(job, EVENT_RESTORED, &(struct log_fields){ .step = &job->step },
		      "it is back at step %llu, its last durable one: %u units, %llu MiB on NVMe",
		      (unsigned long long)job->step, job->catalog.unit_count,
		      (unsigned long long)(budget_nvme_bytes(job) / MIB));
	tell_lost(job);
}

/* Of one that has no place here: what is shown of it all the same. */
static void note_record(struct restore *restore, const struct job *job)
{
	restore->record.is_read = true;
	restore->record.world_size = job->options.world_size;
	restore->record.stage = job->options.stage;
	restore->record.optimizer = job->options.optimizer;
	restore->record.epoch = job->epoch.number;
	restore->record.step = job->step;
	restore->record.units = job->catalog.unit_count;
	restore->record.parameters = job->catalog.parameters;
}

static int make_job(struct restore *restore)
{
	struct record_source source = {
		.paths = &restore->paths,
		.name = restore->file.name,
		.owner = &restore->file.uid,
		.definition = { restore->definition + sizeof(struct record_header),
				restore->header.definition_bytes },
		.progress = { restore->progress + sizeof(struct progress_header),
			      get64((const uint8_t *)restore->progress) },
	};
	bool is_fork = restore->purpose == RESTORE_FORK;
	struct job *job;
	int r;

	if (source.progress.size > restore->header.progress_bytes)
		return refuse(restore->message, sizeof(restore->message), -EBADMSG,
			      "its progress says what cannot be");
	r = record_decode(restore->node, &source, &job, restore->message, sizeof(restore->message));
	if (r == -EPERM)
		restore->files = FILES_STRANGE;
	if (r < 0)
		return r;
	job->number = restore->file.number;
	memcpy(job->location.file, restore->file.file, sizeof(job->location.file));
	if (restore->origin.scrub)
		scrub_take_over(job, TAKE_PTR(restore->origin.scrub));
	r = setup_adopt(job, restore->store, is_fork, restore->message, sizeof(restore->message));
	if (r < 0) {
		note_record(restore, job);
		job_free(job);
		return r;
	}
	restore->store = NULL;
	restore->job = job;
	listing_note(job);
	retention_begin(job, is_fork ? job->step + 1 : job->step);
	/* A snapshot's may say what was taken back since. */
	share_restore(job, &restore->origin.sharing);
	/* Its record says its origin's name, as nothing else does; without memory it goes on saying so. */
	if (is_fork && durable_redefine_now(job) == 0)
		job_settle(job);
	return 0;
}

/* It is there, or is tried by itself. */
static bool is_cared_for(const struct restore *restore, const char *name)
{
	return job_find(restore->node, restore->file.uid, name) ||
	       (strcmp(restore->file.name, name) != 0 &&
		restore_is_under_way(restore->node, restore->file.uid, name));
}

/* What else is in files that cannot be opened is known only of those that are on the list. */
static void lose_listed(const struct restore *restore, const struct loss *loss)
{
	struct job_file file = restore->file;
	struct job_list_store listed;

	if (!listing_copy(restore->node, file.file, &listed)) {
		lost_new(restore->node, &file, loss, restore->message);
		return;
	}
	for (unsigned i = 0; i < listed.job_count; i++) {
		memcpy(file.name, listed.jobs[i].name, sizeof(file.name));
		file.number = listed.jobs[i].number;
		if (!listed.jobs[i].is_given_up && !is_cared_for(restore, file.name))
			lost_new(restore->node, &file, loss, restore->message);
	}
}

/* Whatever it was that there was no room for, it may find some later; files that were cut off do not. */
static void lose(struct restore *restore, int r)
{
	bool is_explained = restore->files == FILES_EXPLAINED;
	bool is_unread = is_explained || restore->files == FILES_UNREAD;
	int error = r == -ENOSPC && is_unread ? -EBADMSG : r;
	const struct loss loss = { .error = error,
				   .lacking = error == -ENOMEM || error == -ENOSPC ? error : 0,
				   .is_asked = restore->origin.is_asked,
				   .is_unread = is_unread,
				   .is_explained = is_explained,
				   .record = restore->record };

	if (loss.is_unread)
		lose_listed(restore, &loss);
	else
		lost_new(restore->node, &restore->file, &loss, restore->message);
}

/* It may have been dropped meanwhile. */
static void on_listed(struct listing_wait *wait)
{
	struct restore *restore = container_of(wait, struct restore, listed);
	const struct job *job = job_find(restore->node, restore->file.uid, restore->file.name);

	if (!job) {
		restore_give_up(restore, "it was dropped meanwhile");
		return;
	}
	tell(restore, job);
	restore_free(restore);
}

/* Who has made a fork hears of it once it is on the list of jobs. */
static void end(struct restore *restore, int r)
{
	if (r == 0 && restore->purpose == RESTORE_FORK) {
		restore->listed.done = on_listed;
		listing_await(restore->node, &restore->listed);
		return;
	}
	if (restore->files == FILES_STRANGE)
		log_error("%s: %s", restore->file.file, restore->message);
	else if (r < 0)
		lose(restore, r);
	else
		tell_restored(restore->job);
	tell(restore, r < 0 ? NULL : restore->job);
	restore_free(restore);
}

int restore_explain(struct restore *restore, int r, const char *what)
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

/* It may have been dropped meanwhile, or is to be rolled back: both begin in its own turn. */
static void end_load(struct restore *restore, int r)
{
	struct job *job = restore->job;

	blobs_end_load(job);
	job_settle(job);
	if (job_is_ending(job)) {
		restore_give_up(restore, "it was dropped meanwhile");
		return;
	}
	if (r < 0) {
		restore_explain(restore, r, "its blobs cannot be read");
		/* It was there meanwhile, and may be looked at: it goes when nobody does. */
		life_step(job, LIFE_CLOSE);
	}
	end(restore, r);
}

static void on_blobs(struct store_transfer *transfer, int status)
{
	end_load(container_of(transfer, struct restore, transfer), status);
}

/* They are part of its state: it is back when they are there. */
static void load_blobs(struct restore *restore)
{
	int r;

	restore->transfer = (struct store_transfer){ .done = on_blobs };
	r = blobs_load(restore->job, &restore->transfer);
	if (r == -ENODATA)
		end(restore, 0);
	else if (r < 0)
		end_load(restore, r);
}

/* Nothing is written to its store any more, as another job of it has found meanwhile: all begin again. */
static bool lets_go(struct restore *restore)
{
	struct store_family family;

	if (!restore->store)
		return false;
	store_get_family(restore->store, &family);
	if (!family.is_fenced)
		return false;
	restore->store = store_free(restore->store);
	free(TAKE_PTR(restore->definition));
	free(TAKE_PTR(restore->progress));
	restore_seek(restore);
	return true;
}

static void make(struct restore *restore)
{
	int r = restore->status;

	if (r == 0 && lets_go(restore))
		return;
	restore->state = RESTORE_MADE;
	if (restore->files == FILES_EMPTY) {
		tell(restore, NULL);
		restore_free(restore);
		return;
	}
	if (r == 0)
		r = make_job(restore);
	if (r == 0)
		load_blobs(restore);
	else
		end(restore, r);
}

/* Whoever waits for files is not waited for: that may take as long as others have them. */
static struct restore *next_to_make(const struct node *node)
{
	QUEUE_FOREACH (link, &node->recovery->restores) {
		struct restore *restore = queue_entry(link, struct restore, link);

		if (restore->state == RESTORE_SEEKING || restore->state == RESTORE_READING)
			return NULL;
		if (restore->state == RESTORE_READ)
			return restore;
	}
	return NULL;
}

void restore_make_in_order(struct node *node)
{
	struct restore *restore;

	while (!node->recovery->is_starting && (restore = next_to_make(node)) != NULL)
		make(restore);
}

/* Who asked for that has gone on. */
static void complain(const struct restore *restore)
{
	log_error("job %s of user %u: what is left of it in %s cannot be removed: %s", restore->file.name,
		  (unsigned)restore->file.uid, restore->file.file, restore->message);
}

void restore_finish(struct restore *restore, int r)
{
	if (restore->purpose == RESTORE_REMOVAL) {
		if (r < 0 && r != -ENOENT)
			complain(restore);
		restore_free(restore);
		return;
	}
	restore->state = RESTORE_READ;
	restore->status = r;
	restore_make_in_order(restore->node);
}

int restore_forget(struct restore *restore)
{
	log_info("%s: nothing was ever committed; it is removed", restore->file.file);
	listing_forget(restore->node, restore->file.file, restore->file.name);
	refuse(restore->message, sizeof(restore->message), 0, "nothing of it was ever committed");
	restore->files = FILES_EMPTY;
	return 0;
}

/* ---- Start ---- */

static void start(struct node *node, const struct job_file *file, struct origin *origin)
{
	struct restore *restore = restore_new(node, file);

	if (restore) {
		restore->origin = *origin;
		restore_seek(restore);
		return;
	}
	lost_new(node, file,
		 &(struct loss){ .error = -ENOMEM,
				 .lacking = -ENOMEM,
				 .is_asked = origin->is_asked,
				 .is_unread = true },
		 "out of memory");
	if (origin->notice)
		origin->notice->done(origin->notice, NULL, "out of memory");
	scrub_history_free(origin->scrub);
}

/* One that nobody has open. */
static void restore_file(struct node *node, const struct job_file *file)
{
	start(node, file, &(struct origin){ 0 });
}

void restore_and_end(struct node *node, const struct job_file *file)
{
	struct restore *restore = restore_new(node, file);

	if (!restore) {
		log_error("job %s of user %u: it was dropped, and stays in %s: out of memory; drop it again, "
			  "to destroy that, when tierd has been started again",
			  file->name, (unsigned)file->uid, file->file);
		return;
	}
	restore->purpose = RESTORE_REMOVAL;
	restore_seek(restore);
}

void restore_await(const struct job *job, struct restore_notice *notice)
{
	notice->job = job;
	queue_push(&job->node->recovery->notices, &notice->link);
}

static struct restore_notice *take_notice(const struct job *job)
{
	QUEUE_FOREACH (link, &job->node->recovery->notices) {
		struct restore_notice *notice = queue_entry(link, struct restore_notice, link);

		if (notice->job == job) {
			queue_remove(&notice->link);
			return notice;
		}
	}
	return NULL;
}

/* A job of which nothing is in flight any more, from its last durable step; the job is freed. */
static void restore_again(struct job *job)
{
	struct node *node = job->node;
	struct origin origin = { .is_asked = life_is_asked_again(job),
				 .notice = take_notice(job),
				 .scrub = TAKE_PTR(job->scrub),
				 .sharing = share_of(job) };
	struct job_file file;

	job_file_get(job, &file);
	job_free(job);
	start(node, &file, &origin);
}

/* ---- A fork ---- */

struct restore *restore_begin_fork(const struct job *origin, const struct job_file *file,
				   struct restore_notice *notice)
{
	struct restore *restore = restore_new(origin->node, file);

	if (!restore)
		return NULL;
	restore->paths = origin->location.paths;
	restore->origin.notice = notice;
	restore->origin.sharing = share_of(origin);
	restore->purpose = RESTORE_FORK;
	restore->state = RESTORE_SEEKING;
	return restore;
}

void restore_end_fork(struct restore *restore, struct store *store)
{
	restore->store = store;
	restore_read(restore);
}

/* ---- What is under way ---- */

static const struct job *find_dying(const struct node *node, uid_t uid, const char *name)
{
	QUEUE_FOREACH (link, &node->jobs.dying) {
		const struct job *job = queue_entry(link, struct job, link);

		if ((job->state == JOB_REOPENING || job_replaces(job)) && job->uid == uid &&
		    strcmp(job->name, name) == 0)
			return job;
	}
	return NULL;
}

static const struct restore *find_restore(const struct node *node, uid_t uid, const char *name)
{
	QUEUE_FOREACH (link, &node->recovery->restores) {
		const struct restore *restore = queue_entry(link, struct restore, link);

		if (restore->file.uid == uid && strcmp(restore->file.name, name) == 0)
			return restore;
	}
	return NULL;
}

bool restore_is_under_way(const struct node *node, uid_t uid, const char *name)
{
	return find_dying(node, uid, name) || find_restore(node, uid, name);
}

bool restore_comes_back(const struct node *node, uid_t uid, const char *name, uint32_t *ret_sharing,
			uint32_t *ret_share_group)
{
	const struct job *job = find_dying(node, uid, name);
	const struct restore *restore = job ? NULL : find_restore(node, uid, name);

	if (!job && (!restore || restore->purpose == RESTORE_REMOVAL))
		return false;
	*ret_sharing = job ? job->options.sharing : restore->origin.sharing.sharing;
	*ret_share_group = job ? job->options.share_group : restore->origin.sharing.group;
	return true;
}

/* Somebody is on his way into or out of these files. */
static bool restore_has_file(const struct node *node, const char *file)
{
	QUEUE_FOREACH (link, &node->recovery->restores)
		if (strcmp(queue_entry(link, struct restore, link)->file.file, file) == 0)
			return true;
	return false;
}

/* ---- The module ---- */

int recovery_open(struct node *node)
{
	node->recovery = calloc(1, sizeof(*node->recovery));
	if (!node->recovery)
		return -ENOMEM;
	queue_init(&node->recovery->restores);
	queue_init(&node->recovery->notices);
	return 0;
}

void recovery_close(struct node *node)
{
	free(node->recovery);
	node->recovery = NULL;
}

bool recovery_is_under_way(const struct node *node)
{
	return node->recovery && !queue_is_empty(&node->recovery->restores);
}

const struct life_recovery recovery_of_life = {
	.bring_back = restore_again,
	.bring_back_file = restore_file,
	.remove_file = restore_and_end,
	.go_on = restore_go_on,
	.is_under_way = restore_is_under_way,
	.has_file = restore_has_file,
};
