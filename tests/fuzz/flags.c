/* Fuzzes the flags of tierd and of tierctl plan: a line for each argument. Any of them give a configuration
 * or a plan, or an error that says why. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "client/tierctl/arguments.h"
#include "client/tierctl/complete.h"
#include "client/tierctl/verbs.h"
#include "daemon/service/config.h"

#define MAX_ARGUMENTS 32

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length);

/* Other files than the input's are none of its business. */
static bool is_about_files(const char *argument)
{
	return strncmp(argument, "--co", 4) == 0 || strncmp(argument, "--un", 4) == 0 || argument[0] == '/' ||
	       argument[0] == '.';
}

static void configure(int count, char *arguments[])
{
	struct config_problem problem = { "" };
	struct config *config;
	int r = config_new(count, arguments, &config, &problem);

	if (r == 0)
		config_free(config);
	else
		assert(problem.text[0] != '\0');
}

/* What a node has free is given: else a daemon would be asked. Who plans is not there. */
static void plan(int count, char *lines[])
{
	char *arguments[MAX_ARGUMENTS + 6] = { (char *)"tierctl", (char *)"plan", (char *)"--host=1G",
					       (char *)"--nvme=1G" };
	struct command_context context = { .verbs = verbs };
	int code;

	memcpy(arguments + 4, lines, (size_t)count * sizeof(*lines));
	code = arguments_read(4 + count, arguments, &context);
	context.socket = "/nonexistent";
	if (code == COMMAND_DONE && !context.wants_help && !context.wants_version)
		code = context.verb->run(&context);
	assert(code == COMMAND_DONE || code == COMMAND_USAGE || code == COMMAND_FAILED ||
	       code == COMMAND_UNREACHABLE);
	fflush(stdout);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length)
{
	char *arguments[MAX_ARGUMENTS + 1] = { (char *)"program" };
	char *text = strndup((const char *)bytes, length), *rest = text, *argument;
	int count = 1;

	assert(text);
	setenv("XDG_CONFIG_HOME", "/nonexistent", 1);
	setenv("XDG_RUNTIME_DIR", "/nonexistent", 1);
	setenv("TIERD_SOCKET", "/nonexistent", 1);
	setenv("TIERD", "/nonexistent", 1);
	while ((argument = strsep(&rest, "\n")) && count < MAX_ARGUMENTS)
		if (!is_about_files(argument))
			arguments[count++] = argument;
	configure(count, arguments);
	plan(count - 1, arguments + 1);
	complete(verbs, count - 1, arguments + 1);
	fflush(stdout);
	free(text);
	return 0;
}
