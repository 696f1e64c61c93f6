/* What a daemon makes of the list of jobs when it starts, and which of the paths are those that are on it. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/log.h"
#include "common/own.h"
#include "daemon/durability/listing_inside.h"
#include "daemon/durability/state_file.h"
#include "daemon/durability/job_file.h"
#include "daemon/durability/own.h"

/* ---- The file ---- */

static int read_file(struct listing *listing)
{
	_cleanup_free_ void *bytes = NULL;
	size_t length;
	int r = state_file_read_in(listing->directory, LISTING_NAME, JOB_LIST_MAX_BYTES, &bytes, &length);

	return r < 0 ? r : job_list_decode(&listing->list, bytes, length);
}

static int set_aside(struct listing *listing, int cause)
{
	char name[STATE_FILE_NAME];
	int r = state_file_set_aside(listing->directory, LISTING_NAME, name);

	if (r < 0) {
		log_error("the list of jobs, %s/" LISTING_NAME ", cannot be read (%s), nor set aside: %s; "
			  "move it elsewhere: jobs are looked for on the paths alone then",
			  listing->directory, cause == -EBADMSG ? "it is damaged" : strerror(-cause),
			  strerror(-r));
		return r;
	}
	log_error("the list of jobs, %s/" LISTING_NAME ", %s: it is called %s now, and a new one is made of "
		  "the jobs that the paths have; a job whose disk is not mounted is not known this time: "
		  "see that all are, before anybody opens jobs",
		  listing->directory, cause == -EBADMSG ? "is damaged" : "cannot be read", name);
	listing->is_behind = true;
	return 0;
}

int listing_read(struct listing *listing)
{
	int r = read_file(listing);

	if (r == 0)
		return 0;
	if (r == -ENOENT) {
		listing->is_behind = true;
		return 0;
	}
	if (r == -ENOMEM)
		log_error("no memory for the list of jobs; tierd cannot start");
	if (r == -EPROTONOSUPPORT)
		log_error("the list of jobs, %s/" LISTING_NAME ", was written by a later tierd: start that "
			  "one; or, if all disks of all jobs are mounted, move the list elsewhere, and a "
			  "new one is made of what they have",
			  listing->directory);
	return r == -ENOMEM || r == -EPROTONOSUPPORT ? r : set_aside(listing, r);
}

/* ---- The generations ---- */

static bool look_at_file(const struct node_path *path, struct job_list_store *store)
{
	_cleanup_close_ int fd = own_open(path->directory_fd, store->file, O_RDONLY, 0);
	static const uint8_t nothing[sizeof(store->store)];
	struct store_device says;

	/* What no flush has covered may be gone the next time. */
	if (fd < 0 || fdatasync(fd) < 0 || store_device_read(fd, &says) < 0)
		return false;
	if (memcmp(store->store, nothing, sizeof(nothing)) == 0)
		memcpy(store->store, says.store, sizeof(store->store));
	if (memcmp(store->store, says.store, sizeof(store->store)) != 0 ||
	    says.generation <= store->generation)
		return false;
	store->generation = says.generation;
	return true;
}

void listing_look_at_files(struct listing *listing)
{
	for (size_t i = 0; i < listing->list.store_count; i++)
		for (unsigned k = 0; k < listing->list.stores[i].path_count; k++) {
			int path = listing_find_path(listing->node, listing->list.stores[i].paths[k]);

			if (path >= 0 && look_at_file(&listing->node->paths[path], &listing->list.stores[i]))
				listing->is_behind = true;
		}
}

/* Its removal may have failed. */
static bool is_left(const struct node *node, const char *file)
{
	for (unsigned i = 0; i < node->path_count; i++)
		if (faccessat(node->paths[i].directory_fd, file, F_OK, AT_SYMLINK_NOFOLLOW) == 0)
			return true;
	return false;
}

/* Nothing of them can come any more. */
static void forget_given_up(struct listing *listing)
{
	for (size_t i = listing->list.store_count; i-- > 0;) {
		struct job_list_store *store = &listing->list.stores[i];

		if (!job_list_is_given_up(store) || !listing_are_paths_here(listing->node, store) ||
		    is_left(listing->node, store->file))
			continue;
		job_list_remove(&listing->list, store);
		listing->is_behind = true;
	}
}

void listing_settle(struct node *node)
{
	struct listing *listing = listing_of(node);

	if (!listing)
		return;
	forget_given_up(listing);
	listing_look_at_files(listing);
	listing->is_settled = true;
	/* There is nothing to be missed. */
	if (node->path_count == 0 && listing->list.store_count == 0)
		listing->is_behind = false;
	if (listing->is_behind)
		listing_save_now(listing);
}

/* ---- Paths ---- */

struct found_mark {
	uint8_t mark[MARK_BYTES];
	bool is_there;
};

static bool is_used(const struct job_list *list, unsigned path, bool counts_given_up)
{
	for (size_t i = 0; i < list->store_count; i++)
		for (unsigned k = 0; k < list->stores[i].path_count; k++)
			if (list->stores[i].paths[k] == path &&
			    (counts_given_up || !job_list_is_given_up(&list->stores[i])))
				return true;
	return false;
}

static bool is_among(const struct found_mark *found, unsigned count, const uint8_t mark[MARK_BYTES])
{
	for (unsigned i = 0; i < count; i++)
		if (found[i].is_there && memcmp(found[i].mark, mark, MARK_BYTES) == 0)
			return true;
	return false;
}

/* Jobs lie on what was there, and that is not here. */
static bool is_missed(const struct job_list *list, const struct found_mark *found, const struct node *node,
		      unsigned path)
{
	for (unsigned i = 0; i < list->path_count; i++)
		if (strcmp(list->paths[i].path, node->paths[path].path) == 0 && is_used(list, i, false) &&
		    !is_among(found, node->path_count, list->paths[i].mark))
			return true;
	return false;
}

static void look_for_mark(const struct node_path *path, struct found_mark *found)
{
	int r = mark_read(path->directory_fd, found->mark);

	found->is_there = r == 0;
	if (r < 0 && r != -ENOENT)
		log_warning("%s/" MARK_NAME " cannot be read: %s; it gets a new one", path->folder,
			    r == -EBADMSG ? "it is damaged" : strerror(-r));
}

static void refuse_copy(const struct node_path *path, struct found_mark *found, unsigned index)
{
	if (!found[index].is_there || !is_among(found, index, found[index].mark))
		return;
	log_warning("%s/" MARK_NAME " is that of another path, of which it is a copy: it gets a new one",
		    path->folder);
	found[index].is_there = false;
}

static void make_mark(const struct node_path *path, struct found_mark *found)
{
	int r = mark_make(path->directory_fd, found->mark);

	found->is_there = r == 0;
	if (r < 0)
		log_warning("%s/" MARK_NAME " cannot be written: %s; if nothing is mounted there when tierd "
			    "starts, it takes that for an empty path: make room there",
			    path->folder, strerror(-r));
}

static void look_at_path(struct listing *listing, struct found_mark *found, unsigned index)
{
	struct node_path *path = &listing->node->paths[index];

	if (found[index].is_there)
		return;
	path->is_absent = job_files_are_absent(listing->node, index) &&
			  is_missed(&listing->list, found, listing->node, index);
	if (path->is_absent)
		log_error(
			"NVMe path %s: nothing of tierd is there, and jobs lie on the file system that was: "
			"it is not mounted; mount it, and start tierd again; until then those jobs are "
			"broken, and no new one is put there",
			path->path);
	else
		make_mark(path, &found[index]);
}

/* Those that nobody has or needs. */
static void prune(struct listing *listing, const struct found_mark *found)
{
	for (unsigned i = listing->list.path_count; i-- > 0;)
		if (!is_used(&listing->list, i, true) &&
		    !is_among(found, listing->node->path_count, listing->list.paths[i].mark))
			job_list_remove_path(&listing->list, i);
}

static void take_places(struct listing *listing, const struct found_mark *found)
{
	for (unsigned i = 0; i < listing->node->path_count; i++) {
		const char *path = listing->node->paths[i].path;
		int place = job_list_find_path(&listing->list, found[i].mark);

		if (!found[i].is_there)
			continue;
		listing->is_behind |= place < 0 || strcmp(listing->list.paths[place].path, path) != 0;
		place = job_list_set_path(&listing->list, found[i].mark, path);
		if (place < 0)
			log_warning("NVMe path %s is not on the list of jobs: %s", path, strerror(-place));
		listing->places[i] = place < 0 ? -1 : place;
	}
}

void listing_look_at_paths(struct listing *listing)
{
	struct found_mark found[NODE_MAX_PATHS] = { 0 };

	for (unsigned i = 0; i < listing->node->path_count; i++) {
		look_for_mark(&listing->node->paths[i], &found[i]);
		refuse_copy(&listing->node->paths[i], found, i);
	}
	for (unsigned i = 0; i < listing->node->path_count; i++)
		look_at_path(listing, found, i);
	prune(listing, found);
	take_places(listing, found);
}
