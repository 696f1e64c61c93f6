#include "client/tierctl/export_old.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client/safetensors/list.h"
#include "client/safetensors/model.h"

#define INDEX_SUFFIX ".index.json"
#define SUFFIX ".safetensors"

void export_old_clear(struct export_old *old)
{
	for (size_t i = 0; i < old->count; i++)
		free(old->paths[i]);
	free(old->paths);
	*old = (struct export_old){ NULL };
}

/* path: taken over; NULL: no memory. */
static int add(struct export_old *old, char *path)
{
	char **grown;

	if (!path)
		return command_fail_memory();
	grown = safetensors_list_grow(old->paths, old->count, &old->capacity, sizeof(*grown));
	if (!grown) {
		free(path);
		return command_fail_memory();
	}
	old->paths = grown;
	grown[old->count++] = path;
	return COMMAND_DONE;
}

static bool is_new(const struct export_files *files, const char *path)
{
	for (size_t i = 0; i < files->count; i++)
		if (strcmp(files->files[i].path, path) == 0)
			return true;
	return false;
}

/* "STEM-00001-of-00002.safetensors": an index is a file like any other, and may say what it likes. */
static bool is_shard(const char *file, const char *stem, size_t length)
{
	unsigned number, count;
	int end = 0;

	return strncmp(file, stem, length) == 0 &&
	       sscanf(file + length, "-%5u-of-%5u" SUFFIX "%n", &number, &count, &end) == 2 && end > 0 &&
	       file[length + (size_t)end] == '\0';
}

static int add_shards(struct export_old *old, const struct export_files *files, const char *target,
		      const struct safetensors_index *index)
{
	const char *name = basename(target);
	size_t length = strlen(name), suffix = strlen(SUFFIX);
	int code = COMMAND_DONE;

	if (length > suffix && strcmp(name + length - suffix, SUFFIX) == 0)
		length -= suffix;
	for (size_t i = 0; i < index->count && code == COMMAND_DONE; i++) {
		const char *file = index->entries[i].file;
		char *path;

		if ((i > 0 && strcmp(index->entries[i - 1].file, file) == 0) || !is_shard(file, name, length))
			continue;
		if (asprintf(&path, "%.*s%s", (int)(name - target), target, file) < 0)
			return command_fail_memory();
		if (is_new(files, path))
			free(path);
		else
			code = add(old, path);
	}
	return code;
}

/* A file that is no index, or cannot be read, names no shards. */
static int find_shards(struct export_old *old, const struct export_files *files, const char *target,
		       const char *index_path)
{
	struct safetensors_index index = SAFETENSORS_INDEX_INIT;
	struct safetensors_problem problem;
	int code = COMMAND_DONE, r = safetensors_model_read_index(index_path, &index, &problem);

	if (r == -ENOMEM)
		return command_fail(COMMAND_FAILED, "%s", problem.text);
	if (r == 0 && !files->index_path)
		code = add(old, strdup(index_path));
	if (r == 0 && code == COMMAND_DONE)
		code = add_shards(old, files, target, &index);
	safetensors_index_clear(&index);
	return code;
}

int export_old_find(struct export_old *old, const struct export_files *files)
{
	_cleanup_free_ char *target = NULL, *index_path = NULL;

	if (files->index_path)
		target = strndup(files->index_path, strlen(files->index_path) - strlen(INDEX_SUFFIX));
	else
		target = strdup(files->files[0].path);
	if (!target || asprintf(&index_path, "%s" INDEX_SUFFIX, target) < 0) {
		index_path = NULL;
		return command_fail_memory();
	}
	/* Loaders take it before they look for an index. */
	if (files->index_path && access(target, F_OK) == 0) {
		int code = add(old, strdup(target));

		if (code != COMMAND_DONE)
			return code;
	}
	return find_shards(old, files, target, index_path);
}

int export_old_remove(const struct export_old *old)
{
	int code = COMMAND_DONE;

	for (size_t i = 0; i < old->count; i++)
		if (unlink(old->paths[i]) < 0 && errno != ENOENT)
			code = command_fail(COMMAND_FAILED,
					    "%s is of an earlier export, and cannot be removed: %s; the new "
					    "one is complete: remove it by hand",
					    old->paths[i], strerror(errno));
	return code;
}
