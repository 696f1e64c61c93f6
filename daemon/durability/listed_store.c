#include "daemon/durability/listed_store.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "daemon/durability/listing_inside.h"
#include "daemon/request/request.h"

#define GIVE_UP "or give the job up: tierctl drop --lost destroys what is left of it"

static bool is_configured(const struct node *node, const char *path)
{
	for (unsigned i = 0; i < node->path_count; i++)
		if (strcmp(node->paths[i].path, path) == 0)
			return true;
	return false;
}

/* path: of the list; it is the first one that lacks the file, and others may, too. */
static int refuse_missing(const struct node *node, unsigned path, const char *file, unsigned others,
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
	if (is_configured(node, name))
		return refuse(
			message, size, -ENOENT,
			"%.300s/tierd/%s is not there%s: that path is not mounted; mount it and start tierd "
			"again, " GIVE_UP,
			name, file, more);
	return refuse(
		message, size, -ENOENT,
		"%.300s/tierd/%s is not there%s: that path is not configured any more; configure it and "
		"start tierd again, " GIVE_UP,
		name, file, more);
}

int listed_store_check_paths(const struct node *node, const struct job_list_store *listed, uint32_t is_found,
			     char *message, size_t size)
{
	unsigned missing = 0, first = 0;

	for (unsigned i = 0; i < listed->path_count; i++) {
		int place = listing_find_path(node, listed->paths[i]);

		if (place >= 0 && is_found >> place & 1)
			continue;
		if (missing++ == 0)
			first = listed->paths[i];
	}
	return missing > 0 ? refuse_missing(node, first, listed->file, missing - 1, message, size) : 0;
}

int listed_store_check(const struct job_list_store *listed, const char *folder,
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
