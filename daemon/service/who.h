/* Who is meant where the configuration names users: a user, a group, or everyone. */
#ifndef TIERD_DAEMON_WHO_H
#define TIERD_DAEMON_WHO_H

#include <stdint.h>

enum who_kind { WHO_USER, WHO_GROUP, WHO_EVERYONE };

struct who {
	enum who_kind kind;
	uint32_t id; /* uid or gid */
};

/* "alice", "1001", "@research", "@2001", "*". -EINVAL: none of these; -ENOENT: there is no such user or group
 * here (a number need not have a name). */
int who_parse(const char *text, struct who *ret_who);

#define WHO_LIST_MAX 32

/* Such as "root, @wheel"; '*' is not taken. The text is owned. */
struct who_list {
	char *text;
	struct who entries[WHO_LIST_MAX];
	unsigned count;
};

/* Replaces what the list has, unless it fails: -EINVAL, -ENOENT, -ENOMEM. An empty text is an empty list. */
int who_list_set(struct who_list *list, const char *text);
void who_list_clear(struct who_list *list);

#endif
