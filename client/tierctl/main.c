#include <stdio.h>
#include <string.h>

#include "client/tierctl/arguments.h"
#include "client/tierctl/complete.h"
#include "client/tierctl/verbs.h"
#include "proto/socket_path.h"

static int run(const struct command_context *context)
{
	if (context->wants_version) {
		puts("tierctl " TIERD_VERSION);
		return COMMAND_DONE;
	}
	if (!context->wants_help)
		return context->verb->run(context);
	if (context->verb)
		verb_print_one(context->verb, stdout);
	else
		verb_print_all(context->verbs, stdout);
	return COMMAND_DONE;
}

/* Output that could not be written is an error. */
static int finish(int code)
{
	if (fflush(stdout) != 0 || ferror(stdout))
		return command_fail_output();
	return code;
}

int main(int argc, char *argv[])
{
	struct command_context context = { .verbs = verbs };
	char buffer[SOCKET_PATH_SIZE];
	int code;

	/* For shells, not for people: it is no verb. */
	if (argc > 1 && strcmp(argv[1], "complete") == 0) {
		complete(verbs, argc - 2, argv + 2);
		return COMMAND_DONE;
	}
	code = arguments_read(argc, argv, &context);
	if (code != COMMAND_DONE)
		return code;
	context.socket = socket_path_choose(context.socket, buffer);
	return finish(run(&context));
}
