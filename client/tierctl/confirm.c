#include "client/tierctl/confirm.h"

#include <stdarg.h>
#include <stdio.h>
#include <unistd.h>

#include "common/plural.h"

int confirm_unused(const struct command_context *context, const Tierd__Wire__JobEntry *job,
		   const char *destroyed)
{
	if (job->n_members == 0 || command_flag(context, "force"))
		return COMMAND_DONE;
	return command_fail(COMMAND_FAILED,
			    "job %s is in use by %zu rank%s; end them, or say --force, which destroys %s",
			    job->name, job->n_members, PLURAL(job->n_members), destroyed);
}

int confirm(const char *job, const char *destroyed, const char *question, ...)
{
	char answer[16];
	va_list arguments;

	if (!isatty(STDIN_FILENO))
		return command_fail(COMMAND_USAGE,
				    "there is no terminal to ask at; say --yes, which destroys %s",
				    destroyed);
	va_start(arguments, question);
	vfprintf(stderr, question, arguments);
	va_end(arguments);
	fputs("? [y/N] ", stderr);
	if (fgets(answer, sizeof(answer), stdin) && (answer[0] == 'y' || answer[0] == 'Y'))
		return COMMAND_DONE;
	return command_fail(COMMAND_FAILED, "job %s stays as it is", job);
}
