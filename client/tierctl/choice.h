/* A choice: which of the jobs that the user may see is meant. */
#ifndef TIERD_CLIENT_TIERCTL_CHOICE_H
#define TIERD_CLIENT_TIERCTL_CHOICE_H

#include <stdbool.h>
#include <sys/types.h>

#include "proto/frame.h"

struct choice {
	const char *job;
	bool has_user;
	uid_t user;
};

/* Exit codes, after a message, as commands return them. */
int choice_read_user(struct choice *choice, const char *text);

/* For verbs that have no other flag than --user. The job is the first argument beside it, or NULL; getopt's
 * optind says where that is. */
int choice_read_flags(struct choice *choice, int count, char *arguments[]);

/* The named user's; else the caller's own, else the only one of that name. */
int choice_find(const struct choice *choice, const Tierd__Wire__JobsReply *jobs,
		const Tierd__Wire__JobEntry **ret_job);

#endif
