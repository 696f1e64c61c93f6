#include "client/tierctl/choice.h"

#include <errno.h>
#include <getopt.h>
#include <pwd.h>
#include <string.h>

#include "client/tierctl/command.h"

int choice_read_user(struct choice *choice, const char *text)
{
	const struct passwd *user = getpwnam(text);
	char *end;
	unsigned long number;

	if (user) {
		choice->has_user = true;
		choice->user = user->pw_uid;
		return COMMAND_DONE;
	}
	errno = 0;
	number = strtoul(text, &end, 10);
	if (errno || *text < '0' || *text > '9' || *end != '\0' || number >= UINT32_MAX)
		return command_fail(COMMAND_USAGE, "there is no user '%s'", text);
	choice->has_user = true;
	choice->user = (uid_t)number;
	return COMMAND_DONE;
}

int choice_read_flags(struct choice *choice, int count, char *arguments[])
{
	static const struct option known[] = {
		{ "user", required_argument, NULL, 'u' },
		{ NULL, 0, NULL, 0 },
	};
	int flag, code = COMMAND_DONE;

	optind = 0;
	while (code == COMMAND_DONE && (flag = getopt_long(count, arguments, ":", known, NULL)) != -1)
		code = flag == 'u' ? choice_read_user(choice, optarg)
				   : command_fail(COMMAND_USAGE,
						  flag == ':' ? "%s needs a value" : "unknown flag %s of %s",
						  arguments[optind - 1], arguments[0]);
	choice->job = arguments[optind];
	return code;
}

int choice_find(const struct choice *choice, const Tierd__Wire__JobsReply *jobs,
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
		return command_fail(COMMAND_FAILED, "there is no job %s%s that you may see", choice->job,
				    choice->has_user ? " of that user" : "");
	if (others > 1)
		return command_fail(COMMAND_FAILED, "%u users have a job %s; say whose with --user", others,
				    choice->job);
	*ret_job = found;
	return COMMAND_DONE;
}
