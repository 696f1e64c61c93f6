/* What a daemon finds when it starts. All of it is read before any of it becomes a job: which of two jobs of
 * one name is the later one say their stores, not the names of their files. */
#include <errno.h>
#include <event2/event.h>
#include <string.h>

#include "common/log.h"
#include "daemon/durability/durability.h"
#include "daemon/recovery/own.h"

/* More than there ever are between two starts. */
#define UNREAD_NUMBERS (UINT64_C(1) << 32)

static int on_stored(struct node *node, const struct job_file *file, void *argument)
{
	struct restore *restore;

	if (file->is_unfinished) {
		log_info("job %s of user %u: %s is removed: a daemon has died before anything in it was to "
			 "outlive it",
			 file->name, (unsigned)file->uid, file->file);
		listing_forget(node, file->file, file->name);
		job_file_remove(node, file);
		return 0;
	}
	if (file->is_given_up) {
		log_info("job %s of user %u: it was given up, and %s goes as far as it is here", file->name,
			 (unsigned)file->uid, file->file);
		job_file_remove(node, file);
		return 0;
	}
	restore = restore_new(node, file);
	if (!restore)
		return -ENOMEM;
	restore->purpose = RESTORE_FIRST;
	restore_seek(restore);
	return 0;
}

static bool is_reading(const struct node *node)
{
	QUEUE_FOREACH (link, &node->recovery->restores)
		if (queue_entry(link, struct restore, link)->state < RESTORE_READ)
			return true;
	return false;
}

static void await_all(struct node *node)
{
	while (!queue_is_empty(&node->recovery->restores))
		event_base_loop(node->loop, EVLOOP_ONCE);
}

/* ---- What was replaced ---- */

static bool is_later(const struct restore *restore, const struct restore *other)
{
	return restore->file.uid == other->file.uid && strcmp(restore->file.name, other->file.name) == 0 &&
	       restore->file.number > other->file.number && restore->files != FILES_EMPTY;
}

static bool is_outdated(const struct restore *restore)
{
	QUEUE_FOREACH (link, &restore->node->recovery->restores)
		if (is_later(queue_entry(link, struct restore, link), restore))
			return true;
	return false;
}

/* Only once what has replaced it is there: that something is called so proves nothing. */
static void end_outdated(struct restore *restore, const struct job *later)
{
	const struct job_file *file = &restore->file;

	if (job_is_lost(later)) {
		log_warning(
			"job %s of user %u: %s is left as it is, because a later file of the job cannot be "
			"opened; move the one that is not wanted elsewhere, and start tierd again",
			file->name, (unsigned)file->uid, file->file);
		restore_free(restore);
	} else if (restore->status < 0) {
		log_warning(
			"job %s of user %u: a later job has replaced it, and %s cannot be opened: %s; it "
			"is left as it is, because there may be forks in it: remove the file, which destroys "
			"those too, if there are none",
			file->name, (unsigned)file->uid, file->file, restore->message);
		restore_free(restore);
	} else {
		log_info("job %s of user %u: it is removed from %s: a later job has replaced it", file->name,
			 (unsigned)file->uid, file->file);
		restore->state = RESTORE_MADE;
		restore->purpose = RESTORE_REMOVAL;
		restore_end_head(restore);
	}
}

/* What was to replace it may have been lost. */
static void look_at_outdated(struct restore *restore)
{
	struct node *node = restore->node;
	const struct job *later = job_find(node, restore->file.uid, restore->file.name);

	queue_push(&node->recovery->restores, &restore->link);
	if (later)
		end_outdated(restore, later);
	else
		restore_make_in_order(node);
	await_all(node);
}

/* The latest first. */
static void put(struct queue *outdated, struct restore *restore)
{
	struct queue *place = outdated->next;

	while (place != outdated &&
	       queue_entry(place, struct restore, link)->file.number > restore->file.number)
		place = place->next;
	queue_push(place, &restore->link);
}

/* Each has a later one among those that are not. */
static void set_aside(struct node *node, struct queue *outdated)
{
	QUEUE_FOREACH (link, &node->recovery->restores) {
		struct restore *restore = queue_entry(link, struct restore, link);

		if (!is_outdated(restore))
			continue;
		queue_remove(&restore->link);
		put(outdated, restore);
	}
}

/* What could not be read may have jobs with numbers that only its table knows: no later job gets one of
 * those. */
static void skip_unread(struct node *node)
{
	QUEUE_FOREACH (link, &node->recovery->restores) {
		const struct restore *restore = queue_entry(link, struct restore, link);

		if (restore->purpose == RESTORE_FIRST && restore->files != FILES_EMPTY) {
			node->jobs.created += UNREAD_NUMBERS;
			return;
		}
	}
}

int restore_all(struct node *node)
{
	struct queue outdated;
	int r;

	queue_init(&outdated);
	node->recovery->is_starting = true;
	r = job_files_find(node, on_stored, NULL);
	while (is_reading(node))
		event_base_loop(node->loop, EVLOOP_ONCE);
	node->recovery->is_starting = false;
	skip_unread(node);
	set_aside(node, &outdated);
	restore_make_in_order(node);
	await_all(node);
	for (struct queue *link = queue_pop(&outdated); link; link = queue_pop(&outdated))
		look_at_outdated(queue_entry(link, struct restore, link));
	listing_settle(node);
	return r;
}
