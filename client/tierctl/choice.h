/* A choice: which of the jobs that the user may see is meant. */
#ifndef TIERD_CLIENT_TIERCTL_CHOICE_H
#define TIERD_CLIENT_TIERCTL_CHOICE_H

#include <stdbool.h>
#include <sys/types.h>

#include "client/tierctl/command.h"

struct choice {
	const char *job, *snapshot; /* NULL: the job as it is now */
	bool has_user;
	uid_t user;
};

/* The job is the first argument, or NULL; the user that of --user. Exit codes, after a message, as commands
 * return them. */
int choice_read(const struct command_context *context, struct choice *choice);

/* The same of a job that a flag names. */
int choice_read_named(const struct command_context *context, const char *job, struct choice *choice);

/* The same of a command that takes JOB@SNAPSHOT, too: the argument is split there. */
int choice_read_source(const struct command_context *context, struct choice *choice);

/* The named user's; else the caller's own, else the only one of that name. jobs: the last answer; of one that
 * comes back just now -EAGAIN is told. */
int choice_find(struct ask *ask, const struct choice *choice, const Tierd__Wire__JobsReply *jobs,
		const Tierd__Wire__JobEntry **ret_job);

/* Asks for the jobs, and says whose the chosen one is. */
int choice_find_owner(struct ask *ask, const struct choice *choice, uid_t *ret_owner);

/* Connects, and finds the job that the first argument and --user mean; it is valid until the next answer. */
int choice_ask_job(const struct command_context *context, struct ask **ret_ask,
		   const Tierd__Wire__JobEntry **ret_job);

/* Connects, finds whose job the first argument is, and fills in what a request says of it. */
int choice_ask_owner(const struct command_context *context, struct ask **ret_ask, char **ret_job,
		     protobuf_c_boolean *ret_has_owner, uint32_t *ret_owner);

#endif
