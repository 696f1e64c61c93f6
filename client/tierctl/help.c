#include <stdio.h>

#include "client/tierctl/command.h"
#include "client/tierctl/verb.h"

int command_help(const struct command_context *context)
{
	const struct verb *verb =
		context->count > 0 ? verb_find(context->verbs, context->arguments[0]) : NULL;

	if (context->count > 0 && !verb)
		return command_fail(COMMAND_USAGE, "there is no command '%s'; see tierctl help",
				    context->arguments[0]);
	if (verb)
		verb_print_one(verb, stdout);
	else
		verb_print_all(context->verbs, stdout);
	return COMMAND_DONE;
}
