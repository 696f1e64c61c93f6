/* Mounts: which file system a folder is on, and how it is mounted. */
#ifndef TIERD_CLIENT_TIERCTL_MOUNTS_H
#define TIERD_CLIENT_TIERCTL_MOUNTS_H

#include <stdbool.h>
#include <sys/types.h>

struct mount {
	char type[64];
	char options[1024]; /* of the mount and of the file system, between commas: ",rw,noatime,…," */
};

/* As the process sees it; 0: as we do. -ENOENT, or what reading says. */
int mounts_find(pid_t process, const char *folder, struct mount *ret_mount);

/* Whether the absolute path is the folder or below it. */
bool mounts_is_under(const char *path, const char *folder);

#endif
