#include "daemon/durability/listing_inside.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/log.h"
#include "daemon/durability/state_file.h"
#include "daemon/durability/own.h"
#include "daemon/resources/resources.h"

/* ---- The file ---- */

static void note_result(struct listing *listing, int r)
{
	if (r < 0 && !listing->has_failed)
		log_error("the list of jobs cannot be written to %s/" LISTING_NAME ": %s; no job can be made "
			  "until it can: make room there, or make it writable",
			  listing->directory, strerror(-r));
	listing->has_failed = r < 0;
	listing->is_behind |= r < 0;
}

static int encode(struct listing *listing, void **ret_bytes, size_t *ret_length)
{
	if (listing->node->jobs.created > listing->list.highest)
		listing->list.highest = listing->node->jobs.created;
	listing->is_behind = false;
	return job_list_encode(&listing->list, ret_bytes, ret_length);
}

void listing_save_now(struct listing *listing)
{
	_cleanup_free_ void *bytes = NULL;
	size_t length;
	int r = encode(listing, &bytes, &length);

	if (r == 0)
		r = state_file_write_in(listing->directory, LISTING_NAME, bytes, length);
	note_result(listing, r);
}

static void run_write(struct work *work)
{
	struct listing_write *write = container_of(work, struct listing_write, work);

	write->status =
		state_file_write_in(write->listing->directory, LISTING_NAME, write->bytes, write->length);
}

static void on_written(struct work *work)
{
	struct listing_write *write = container_of(work, struct listing_write, work);

	note_result(write->listing, write->status);
	free(write->bytes);
	write->done(write, write->status);
}

int listing_write(struct listing *listing, struct listing_write *write)
{
	int r = encode(listing, &write->bytes, &write->length);

	if (r < 0)
		return r;
	write->listing = listing;
	write->work = (struct work){ .run = run_write, .done = on_written, .urgency = WORK_NORMAL };
	workers_submit(listing->node->slow_workers, &write->work);
	return 0;
}

static void on_saved(struct listing_write *write, int status)
{
	node_end_work(write->listing->node);
	free(write);
}

static void save_soon(struct listing *listing)
{
	struct listing_write *write;
	int r;

	listing->is_behind = true;
	if (!listing->is_settled)
		return;
	write = calloc(1, sizeof(*write));
	if (write)
		write->done = on_saved;
	r = write ? listing_write(listing, write) : -ENOMEM;
	if (r < 0) {
		free(write);
		note_result(listing, r);
		return;
	}
	node_begin_work(listing->node);
}

/* A plan's node keeps nothing. */
struct listing *listing_of(const struct node *node)
{
	return node->durability ? node->durability->listing : NULL;
}

void listing_retry(struct node *node)
{
	struct listing *listing = listing_of(node);

	if (listing && listing->is_settled && listing->is_behind)
		save_soon(listing);
}

/* ---- What is on it ---- */

const struct job_list *listing_list(const struct node *node)
{
	return listing_of(node) ? &listing_of(node)->list : NULL;
}

static struct job_list_store *find(const struct node *node, const char *file)
{
	struct listing *listing = listing_of(node);

	return listing ? job_list_find(&listing->list, file) : NULL;
}

bool listing_copy(const struct node *node, const char *file, struct job_list_store *ret_store)
{
	const struct job_list_store *store = find(node, file);

	if (store)
		*ret_store = *store;
	return store;
}

int listing_find_path(const struct node *node, unsigned path)
{
	const struct listing *listing = listing_of(node);

	for (unsigned i = 0; listing && i < node->path_count; i++)
		if (listing->places[i] == (int)path)
			return (int)i;
	return -1;
}

bool listing_is_given_up(const struct node *node, const char *file, const char *name)
{
	const struct job_list_store *store = find(node, file);
	const struct job_list_job *job = store ? job_list_find_job(store, name) : NULL;

	return job && job->is_given_up;
}

bool listing_are_paths_here(const struct node *node, const struct job_list_store *store)
{
	for (unsigned i = 0; i < store->path_count; i++)
		if (listing_find_path(node, store->paths[i]) < 0)
			return false;
	return true;
}

bool listing_has_paths(const struct node *node, const char *file)
{
	const struct job_list_store *store = find(node, file);

	return !store || listing_are_paths_here(node, store);
}

/* ---- Changes ---- */

static bool set_paths(const struct listing *listing, struct job_list_store *store,
		      const struct path_list *paths)
{
	struct job_list_store former = *store;

	store->path_count = 0;
	for (unsigned i = 0; i < paths->count; i++)
		if (listing->places[paths->paths[i]] >= 0)
			store->paths[store->path_count++] = (uint8_t)listing->places[paths->paths[i]];
	return former.path_count != store->path_count ||
	       memcmp(former.paths, store->paths, store->path_count) != 0;
}

int listing_put(struct listing *listing, const struct job *job, bool *ret_has_changed)
{
	struct job_list_store *store = job_list_find(&listing->list, job->location.file);
	const struct job_list_job *listed = store ? job_list_find_job(store, job->name) : NULL;
	bool has_changed = !listed || listed->number != job->number;
	int r = 0;

	store = store ?: job_list_add(&listing->list, job->location.file);
	if (!store)
		return -ENOMEM;
	has_changed |= set_paths(listing, store, &job->location.paths);
	if (has_changed)
		r = job_list_add_job(store, job->name, job->number);
	*ret_has_changed = has_changed;
	return r;
}

void listing_note(const struct job *job)
{
	struct listing *listing = listing_of(job->node);
	bool has_changed = false;
	int r = listing && job->location.is_durable ? listing_put(listing, job, &has_changed) : 0;

	if (r < 0)
		log_error("job %s of user %u is not on the list of jobs: %s; if its disk is not mounted when "
			  "tierd starts, nobody will know of it",
			  job->name, (unsigned)job->uid, strerror(-r));
	if (has_changed)
		save_soon(listing);
}

void listing_forget(struct node *node, const char *file, const char *name)
{
	struct job_list_store *store = find(node, file);

	if (!store || !job_list_find_job(store, name))
		return;
	job_list_remove_job(store, name);
	if (store->job_count == 0)
		job_list_remove(&listing_of(node)->list, store);
	/* Files go at once when tierd starts. */
	if (listing_of(node)->is_settled)
		save_soon(listing_of(node));
	else
		listing_save_now(listing_of(node));
}

static bool is_among(const struct store_job *jobs, unsigned count, const char *name)
{
	for (unsigned i = 0; i < count; i++)
		if (strcmp(jobs[i].name, name) == 0)
			return true;
	return false;
}

/* A daemon may have died between the end of a job in its store and that on the list. */
void listing_match(struct node *node, const char *file, const struct store_job *jobs, unsigned count)
{
	struct job_list_store listed;

	if (!listing_copy(node, file, &listed))
		return;
	for (unsigned i = 0; i < listed.job_count; i++)
		if (!is_among(jobs, count, listed.jobs[i].name))
			listing_forget(node, file, listed.jobs[i].name);
}

void listing_give_up(struct node *node, const char *file, const char *name)
{
	struct job_list_store *store = find(node, file);
	struct job_list_job *job = store ? job_list_find_job(store, name) : NULL;

	if (!job)
		return;
	if (listing_are_paths_here(node, store)) {
		listing_forget(node, file, name);
		return;
	}
	job->is_given_up = true;
	save_soon(listing_of(node));
}

/* ---- Life ---- */

int listing_new(struct node *node, const char *directory, struct listing **ret_listing)
{
	struct listing *listing;
	int r;

	if (!directory) {
		*ret_listing = NULL;
		return 0;
	}
	listing = calloc(1, sizeof(*listing));
	if (!listing)
		return -ENOMEM;
	listing->node = node;
	listing->directory = directory;
	for (unsigned i = 0; i < NODE_MAX_PATHS; i++)
		listing->places[i] = -1;
	r = listing_read(listing);
	if (r < 0) {
		free(listing);
		return r;
	}
	listing_look_at_paths(listing);
	*ret_listing = listing;
	return 0;
}

struct listing *listing_free(struct listing *listing)
{
	if (!listing)
		return NULL;
	/* One that has not begun knows less than the file. */
	if (listing->is_settled) {
		listing_look_at_files(listing);
		if (listing->is_behind)
			listing_save_now(listing);
	}
	job_list_clear(&listing->list);
	free(listing);
	return NULL;
}
