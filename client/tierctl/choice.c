#include "client/tierctl/choice.h"

#include <errno.h>
#include <pwd.h>
#include <string.h>

static int read_user(struct choice *choice, const char *text)
{
	const struct passwd *user = getpwnam(text);
	uint64_t number;

	if (user) {
		choice->has_user = true;
		choice->user = user->pw_uid;
		return COMMAND_DONE;
	}
	if (!command_read_number(text, UINT32_MAX - 1, &number))
		return command_fail(COMMAND_USAGE, "there is no user '%s'", text);
	choice->has_user = true;
	choice->user = (uid_t)number;
	return COMMAND_DONE;
}

static int take_user(const struct command_context *context, struct choice *choice)
{
	const char *user = command_flag(context, "user");

	*choice = (struct choice){ .job = context->count > 0 ? context->arguments[0] : NULL };
	if (!user)
		return COMMAND_DONE;
	if (!choice->job)
		return command_fail(COMMAND_USAGE, "--user says whose job: tierctl %s JOB --user USER",
				    context->verb->name);
	return read_user(choice, user);
}

int choice_read(const struct command_context *context, struct choice *choice)
{
	int code = take_user(context, choice);
	const char *snapshot = choice->job ? strchr(choice->job, '@') : NULL;

	if (code == COMMAND_DONE && snapshot)
		return command_fail(
			COMMAND_USAGE,
			"tierctl %s takes a job, and no snapshot ('%s') of one: read and export do",
			context->verb->name, snapshot + 1);
	return code;
}

int choice_read_source(const struct command_context *context, struct choice *choice)
{
	char *snapshot = strchr(context->arguments[0], '@');
	int code;

	if (snapshot)
		*snapshot++ = '\0';
	code = take_user(context, choice);
	choice->snapshot = snapshot;
	if (code == COMMAND_DONE && snapshot && !*snapshot)
		return command_fail(COMMAND_USAGE,
				    "no snapshot is named behind '%s@'; see tierctl snapshots %s",
				    choice->job, choice->job);
	return code;
}

int choice_read_named(const struct command_context *context, const char *job, struct choice *choice)
{
	const char *user = command_flag(context, "user");

	*choice = (struct choice){ .job = job };
	return user ? read_user(choice, user) : COMMAND_DONE;
}

/* The list has no job that comes back just now: a request that names it hears of that. */
static int fail_absent(struct ask *ask, const struct choice *choice, uid_t wanted)
{
	Tierd__Wire__UnitsRead read = TIERD__WIRE__UNITS_READ__INIT;
	const Tierd__Wire__Reply *reply;
	int r;

	read.job = (char *)choice->job;
	read.first = UINT32_MAX;
	read.has_owner = true;
	read.owner = wanted;
	r = ask_request(ask, WIRE_REQUEST(UNITS_READ, units_read, &read), &reply);
	if (r == -EAGAIN)
		return command_fail_at(COMMAND_FAILED, r, "%s", ask_message(ask));
	if (r == 0)
		return command_fail_at(COMMAND_FAILED, -EAGAIN, "job %s came back just now; try again",
				       choice->job);
	return command_fail_at(COMMAND_FAILED, -ENOENT, "there is no job %s%s that you may see", choice->job,
			       choice->has_user ? " of that user" : "");
}

int choice_find(struct ask *ask, const struct choice *choice, const Tierd__Wire__JobsReply *jobs,
		const Tierd__Wire__JobEntry **ret_job)
{
	const Tierd__Wire__JobEntry *found = NULL;
	uid_t wanted = choice->has_user ? choice->user : geteuid();
	unsigned others = 0;

	for (size_t i = 0; i < jobs->n_jobs; i++) {
		const Tierd__Wire__JobEntry *job = jobs->jobs[i];

		if (strcmp(job->name, choice->job) != 0)
			continue;
		if (job->uid == wanted) {
			*ret_job = job;
			return COMMAND_DONE;
		}
		found = job;
		others++;
	}
	if (choice->has_user || others == 0)
		return fail_absent(ask, choice, wanted);
	if (others > 1)
		return command_fail_at(COMMAND_FAILED, -ENOTUNIQ,
				       "%u users have a job %s; say whose with --user", others, choice->job);
	*ret_job = found;
	return COMMAND_DONE;
}

int choice_find_owner(struct ask *ask, const struct choice *choice, uid_t *ret_owner)
{
	const Tierd__Wire__JobEntry *job;
	const Tierd__Wire__JobsReply *jobs;
	int code = command_ask_jobs(ask, &jobs);

	if (code == COMMAND_DONE)
		code = choice_find(ask, choice, jobs, &job);
	if (code == COMMAND_DONE)
		*ret_owner = job->uid;
	return code;
}

int choice_ask_job(const struct command_context *context, struct ask **ret_ask,
		   const Tierd__Wire__JobEntry **ret_job)
{
	const Tierd__Wire__JobsReply *jobs;
	struct choice choice;
	int code = choice_read(context, &choice);

	if (code == COMMAND_DONE)
		code = command_connect(context, ret_ask);
	if (code == COMMAND_DONE)
		code = command_ask_jobs(*ret_ask, &jobs);
	return code == COMMAND_DONE ? choice_find(*ret_ask, &choice, jobs, ret_job) : code;
}

int choice_ask_owner(const struct command_context *context, struct ask **ret_ask, char **ret_job,
		     protobuf_c_boolean *ret_has_owner, uint32_t *ret_owner)
{
	const Tierd__Wire__JobEntry *job;
	int code = choice_ask_job(context, ret_ask, &job);

	if (code == COMMAND_DONE)
		*ret_owner = job->uid;
	*ret_job = context->arguments[0];
	*ret_has_owner = true;
	return code;
}
