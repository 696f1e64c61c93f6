#include "client/tierctl/model_path.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "client/tierctl/command.h"
#include "common/cleanup.h"

static bool ends_with(const char *text, const char *end)
{
	size_t length = strlen(text), end_length = strlen(end);

	return length > end_length && strcmp(text + length - end_length, end) == 0;
}

/* How many files of the folder end so, and the first of them. */
static int scan(const char *path, const char *end, unsigned *ret_count, char **ret_name)
{
	DIR *folder = opendir(path);
	const struct dirent *entry;
	unsigned count = 0;

	if (!folder)
		return command_fail_at(COMMAND_FAILED, -errno, "%s: %s", path, strerror(errno));
	while ((entry = readdir(folder)))
		if (ends_with(entry->d_name, end) && count++ == 0)
			*ret_name = strdup(entry->d_name);
	closedir(folder);
	*ret_count = count;
	return count == 0 || *ret_name ? COMMAND_DONE : command_fail_memory();
}

/* Its index if it has one, else its file. */
static int find_in_folder(const char *path, char **ret_path)
{
	_cleanup_free_ char *index = NULL, *file = NULL;
	unsigned indexes, files;
	int code = scan(path, ".safetensors.index.json", &indexes, &index);

	if (code == COMMAND_DONE)
		code = scan(path, ".safetensors", &files, &file);
	if (code != COMMAND_DONE)
		return code;
	if (indexes == 0 && files == 0)
		return command_fail(COMMAND_FAILED, "%s has no file of tensors (.safetensors), and no index",
				    path);
	if (indexes > 1 || (indexes == 0 && files > 1))
		return command_fail(COMMAND_FAILED, "%s has %u %s; name the one that is meant", path,
				    indexes > 1 ? indexes : files, indexes > 1 ? "indexes" : "files");
	if (asprintf(ret_path, "%s/%s", path, index ? index : file) < 0) {
		*ret_path = NULL;
		return command_fail_memory();
	}
	return COMMAND_DONE;
}

int model_path_open(const char *path, struct safetensors_model **ret_model)
{
	_cleanup_free_ char *found = NULL;
	struct safetensors_problem problem = { "" };
	struct stat status;
	int code = COMMAND_DONE, r;

	if (stat(path, &status) == 0 && S_ISDIR(status.st_mode))
		code = find_in_folder(path, &found);
	if (code != COMMAND_DONE)
		return code;
	r = safetensors_model_open(found ? found : path, ret_model, &problem);
	return r < 0 ? command_fail_at(COMMAND_FAILED, r, "%s", problem.text) : COMMAND_DONE;
}
