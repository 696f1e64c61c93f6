#include "client/tierctl/mounts.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "common/cleanup.h"

/* Blanks and the like stand in the table as "\040". */
static void unescape(char *text)
{
	char *to = text;

	for (const char *from = text; *from; to++) {
		unsigned code;

		if (from[0] == '\\' && sscanf(from + 1, "%3o", &code) == 1) {
			*to = (char)code;
			from += 4;
		} else {
			*to = *from++;
		}
	}
	*to = '\0';
}

bool mounts_is_under(const char *path, const char *folder)
{
	size_t length = strlen(folder);

	while (length > 0 && folder[length - 1] == '/')
		length--;
	return strncmp(path, folder, length) == 0 && (path[length] == '\0' || path[length] == '/');
}

/* "36 35 98:0 /root /point rw,noatime shared:1 - ext4 /dev/x rw,data=ordered": optional fields before the
 * "-". */
static bool read_line(char *line, char **ret_point, struct mount *ret_mount)
{
	char *rest = NULL, *fields[6], *type, *super;

	for (unsigned i = 0; i < ARRAY_LENGTH(fields); i++)
		if (!(fields[i] = strtok_r(i ? NULL : line, " \n", &rest)))
			return false;
	for (char *word = strtok_r(NULL, " \n", &rest); !word || strcmp(word, "-") != 0;
	     word = strtok_r(NULL, " \n", &rest))
		if (!word)
			return false;
	type = strtok_r(NULL, " \n", &rest);
	strtok_r(NULL, " \n", &rest);
	super = strtok_r(NULL, " \n", &rest);
	unescape(fields[4]);
	*ret_point = fields[4];
	snprintf(ret_mount->type, sizeof(ret_mount->type), "%s", type ? type : "");
	snprintf(ret_mount->options, sizeof(ret_mount->options), ",%s,%s,", fields[5], super ? super : "");
	return true;
}

/* The deepest mount counts, and of those on one point the last. */
static int search(FILE *stream, const char *folder, struct mount *ret_mount)
{
	_cleanup_free_ char *line = NULL;
	size_t size = 0, deepest = 0;
	int r = -ENOENT;

	while (getline(&line, &size, stream) > 0) {
		struct mount mount;
		char *point;

		if (!read_line(line, &point, &mount) || !mounts_is_under(folder, point) ||
		    strlen(point) < deepest)
			continue;
		deepest = strlen(point);
		*ret_mount = mount;
		r = 0;
	}
	return r;
}

int mounts_find(pid_t process, const char *folder, struct mount *ret_mount)
{
	_cleanup_free_ char *real = realpath(folder, NULL);
	char table[64] = "/proc/self/mountinfo";
	FILE *stream;
	int r;

	if (!real)
		return -errno;
	if (process > 0)
		snprintf(table, sizeof(table), "/proc/%d/mountinfo", (int)process);
	stream = fopen(table, "re");
	if (!stream)
		return -errno;
	r = search(stream, real, ret_mount);
	fclose(stream);
	return r;
}
