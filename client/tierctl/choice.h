/* A choice: which of the jobs that the user may see is meant. */
#ifndef TIERD_CLIENT_TIERCTL_CHOICE_H
#define TIERD_CLIENT_TIERCTL_CHOICE_H

#include <stdbool.h>
#include <sys/types.h>

#include "client/tierctl/command.h"

struct choice {
	const char *job;
	bool has_user;
	uid_t user;
};

/* The job is the first argument, or NULL; the user that of --user. Exit codes, after a message, as commands
 * return them. */
int choice_read(const struct command_context *context, struct choice *choice);

/* The named user's; else the caller's own, else the only one of that name. */
int choice_find(const struct choice *choice, const Tierd__Wire__JobsReply *jobs,
		const Tierd__Wire__JobEntry **ret_job);

#endif
