#include "daemon/durability/devices.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>

#include "common/own.h"
#include "common/plural.h"
#include "daemon/durability/listing_inside.h"
#include "daemon/request/request.h"
#include "offload/store/store_device.h"

struct device {
	unsigned path;
	bool is_known; /* it says what it is */
	struct store_device says;
};

struct found {
	const struct node *node;
	const char *file;
	struct device devices[NODE_MAX_PATHS];
	unsigned count, members;
	uint32_t missing; /* paths without a file, by their bits */
};

/* ---- Files ---- */

/* What cannot be read is there: whoever opens it says why it cannot. */
static void look(struct found *found, unsigned path)
{
	_cleanup_close_ int fd = own_open(found->node->paths[path].directory_fd, found->file, O_RDONLY, 0);
	struct device *device = &found->devices[found->count];

	if (fd == -ENOENT) {
		found->missing |= UINT32_C(1) << path;
		return;
	}
	*device = (struct device){ .path = path };
	device->is_known = fd >= 0 && store_device_read(fd, &device->says) == 0;
	if (device->is_known && found->members == 0)
		found->members = device->says.member_count;
	found->count++;
}

/* ---- What is wrong with them ---- */

/* The first path in full: they may be long. */
static int refuse_missing(const struct found *found, char *message, size_t size)
{
	unsigned others = (unsigned)__builtin_popcount(found->missing);
	char more[40] = "";

	if (others == 0)
		return refuse(message, size, -ENOENT,
			      "its store lies on %u paths, and %u %s configured: configure those that it was "
			      "stored on",
			      found->members, found->count, found->count == 1 ? "is" : "are");
	if (--others > 0)
		snprintf(more, sizeof(more), ", nor on %u more of the paths", others);
	return refuse(
		message, size, -ENOENT,
		"%.400s/%s is not there%s; bring back what that path had, or configure the paths that it was "
		"stored on: it has files on %u of %u",
		found->node->paths[__builtin_ctz(found->missing)].folder, found->file, more, found->count,
		found->members);
}

static int refuse_surplus(const struct found *found, unsigned path, char *message, size_t size)
{
	return refuse(
		message, size, -EEXIST,
		"%.400s/%s is one file too many: its store has %u device%s, and each is there; move "
		"elsewhere what is a copy, or of another job of that name, made while a path was missing",
		found->node->paths[path].folder, found->file, found->members, PLURAL(found->members));
}

static const struct device *first_known(const struct found *found)
{
	for (unsigned i = 0; i < found->count; i++)
		if (found->devices[i].is_known)
			return &found->devices[i];
	return NULL;
}

static bool is_of_another_store(const struct device *device, const struct device *first)
{
	return device->is_known && memcmp(device->says.store, first->says.store, sizeof(first->says.store));
}

static bool has_strangers(const struct found *found)
{
	const struct device *first = first_known(found);

	for (unsigned i = 0; first && i < found->count; i++)
		if (is_of_another_store(&found->devices[i], first))
			return true;
	return false;
}

/* A long one is told by its end, in which paths differ, so that there is room for what is to be done. */
#define NAME_BYTES 64

/* Those that are of the store of the first, or those that are not. */
static void name_paths(const struct found *found, bool is_of_another, char *text, size_t size)
{
	const struct device *first = first_known(found);
	size_t used = 0;

	text[0] = '\0';
	for (unsigned i = 0; i < found->count && used < size; i++) {
		const struct device *device = &found->devices[i];

		const char *name = found->node->paths[device->path].folder;
		size_t length = strlen(name), skipped = length > NAME_BYTES ? length - NAME_BYTES : 0;

		if (device->is_known && is_of_another_store(device, first) == is_of_another)
			used += (size_t)snprintf(text + used, size - used, "%s%s%s", used ? ", " : "",
						 skipped ? "…" : "", name + skipped);
	}
}

/* Either may be the one that is wanted, and both be whole. */
static int refuse_strangers(const struct found *found, char *message, size_t size)
{
	char paths[160], others[160];

	name_paths(found, false, paths, sizeof(paths));
	name_paths(found, true, others, sizeof(others));
	return refuse(
		message, size, -EEXIST,
		"two jobs of one name and number lie on the paths: the file %s in %s is of one store, "
		"that in %s of another; move one of them elsewhere, from all of its paths, and open "
		"the job again, which is the other one then; to drop it as it is destroys the state of both",
		found->file, paths, others);
}

/* ---- Their order ---- */

/* NODE_MAX_PATHS: none. */
static unsigned choose_place(const struct found *found, const struct device *device, const bool *is_taken)
{
	unsigned member = device->says.member;

	if (device->is_known)
		return member < found->members && !is_taken[member] ? member : NODE_MAX_PATHS;
	for (unsigned i = 0; i < found->members; i++)
		if (!is_taken[i])
			return i;
	return NODE_MAX_PATHS;
}

/* Those that are known go first. */
static int put_in_order(const struct found *found, struct path_list *paths, char *message, size_t size)
{
	bool is_taken[NODE_MAX_PATHS] = { false };

	paths->count = found->members;
	for (int is_known = 1; is_known >= 0; is_known--)
		for (unsigned i = 0; i < found->count; i++) {
			const struct device *device = &found->devices[i];
			unsigned place;

			if (device->is_known != is_known)
				continue;
			place = choose_place(found, device, is_taken);
			if (place == NODE_MAX_PATHS)
				return refuse_surplus(found, device->path, message, size);
			is_taken[place] = true;
			paths->paths[place] = (uint8_t)device->path;
		}
	return 0;
}

/* ---- What the list of jobs says ---- */

#define GIVE_UP "or give the job up: tierctl drop --lost destroys what is left of it"

static bool is_configured(const struct node *node, const char *path)
{
	for (unsigned i = 0; i < node->path_count; i++)
		if (strcmp(node->paths[i].path, path) == 0)
			return true;
	return false;
}

/* path: of the list; it is the first one that lacks the file, and others may, too. */
static int refuse_listed(const struct node *node, unsigned path, const char *file, unsigned others,
			 char *message, size_t size)
{
	const char *name = listing_list(node)->paths[path].path;
	int place = listing_find_path(node, path);
	char more[48] = "";

	if (others > 0)
		snprintf(more, sizeof(more), ", nor on %u more of its paths", others);
	if (place >= 0)
		return refuse(
			message, size, -ENOENT,
			"%.300s/%s is not there%s: somebody has removed it; put it back and open the job "
			"again, " GIVE_UP,
			node->paths[place].folder, file, more);
	return refuse(message, size, -ENOENT,
		      "%.300s/tierd/%s is not there%s: that path is not %s and start tierd again, " GIVE_UP,
		      name, file, more,
		      is_configured(node, name) ? "mounted; mount it" : "configured any more; configure it");
}

static int check_paths(const struct found *found, const struct job_list_store *listed, char *message,
		       size_t size)
{
	unsigned missing = 0, first = 0;

	for (unsigned i = 0; i < listed->path_count; i++) {
		int place = listing_find_path(found->node, listed->paths[i]);

		if (place >= 0 && !(found->missing >> place & 1))
			continue;
		if (missing++ == 0)
			first = listed->paths[i];
	}
	return missing > 0 ? refuse_listed(found->node, first, found->file, missing - 1, message, size) : 0;
}

/* found: the newest of its files. */
static int check_store(const struct job_list_store *listed, const char *folder,
		       const struct store_device *found, char *message, size_t size)
{
	static const uint8_t nothing[sizeof(listed->store)];

	if (memcmp(listed->store, nothing, sizeof(nothing)) == 0)
		return 0;
	if (memcmp(listed->store, found->store, sizeof(listed->store)) != 0)
		return refuse(message, size, -EEXIST,
			      "%.300s/%s is of another job, of the same name and number: of another machine, "
			      "say; move it elsewhere, and bring back the one that was there, " GIVE_UP,
			      folder, listed->file);
	if (found->generation > 0 && found->generation < listed->generation)
		return refuse(
			message, size, -ESTALE,
			"%.300s/%s is an older copy, of %llu commits, and it has had %llu; bring back the "
			"newer one, go on from the older one (docs/administration.md), " GIVE_UP,
			folder, listed->file, (unsigned long long)found->generation,
			(unsigned long long)listed->generation);
	return 0;
}

/* A commit that was cut off is on some of them only. */
static const struct device *newest(const struct found *found)
{
	const struct device *newest = first_known(found);

	for (unsigned i = 0; i < found->count; i++)
		if (found->devices[i].is_known && found->devices[i].says.generation > newest->says.generation)
			newest = &found->devices[i];
	return newest;
}

static int check_listed(const struct found *found, const struct job_list_store *listed, char *message,
			size_t size)
{
	const struct device *device = newest(found);
	int r = 0;

	if (found->count < found->members)
		r = check_paths(found, listed, message, size);
	if (r == 0 && device)
		r = check_store(listed, found->node->paths[device->path].folder, &device->says, message,
				size);
	return r;
}

int devices_find(const struct node *node, const struct job_file *job, const struct job_list_store *listed,
		 struct path_list *ret_paths, char *message, size_t size)
{
	struct found found = { .node = node, .file = job->file };
	struct path_list paths;
	int r = 0;

	for (unsigned i = 0; i < node->path_count; i++)
		look(&found, i);
	if (has_strangers(&found))
		return refuse_strangers(&found, message, size);
	if (found.members == 0 || found.members > NODE_MAX_PATHS)
		found.members = listed && listed->path_count > 0 ? listed->path_count : node->path_count;
	if (listed)
		r = check_listed(&found, listed, message, size);
	if (r == 0 && found.count < found.members)
		r = refuse_missing(&found, message, size);
	if (r == 0)
		r = put_in_order(&found, &paths, message, size);
	if (r == 0)
		*ret_paths = paths;
	return r;
}
