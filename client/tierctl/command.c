#include "client/tierctl/command.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <pwd.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "proto/name.h"

int command_fail(int code, const char *format, ...)
{
	va_list arguments;

	fputs("tierctl: ", stderr);
	va_start(arguments, format);
	vfprintf(stderr, format, arguments);
	va_end(arguments);
	fputc('\n', stderr);
	return code;
}

int command_fail_memory(void)
{
	return command_fail(COMMAND_FAILED, "out of memory");
}

int command_fail_output(void)
{
	static bool is_said;

	if (!is_said)
		command_fail(COMMAND_FAILED, "writing the output: %s", strerror(errno));
	is_said = true;
	return COMMAND_FAILED;
}

const char *command_flag(const struct command_context *context, const char *name)
{
	int flag = verb_find_flag(context->verb->flags, name, strlen(name));

	assert(flag >= 0 && flag < VERB_MAX_FLAGS);
	return context->values[flag];
}

bool command_read_number(const char *text, uint64_t most, uint64_t *ret_number)
{
	unsigned long long number;
	char *end;

	errno = 0;
	number = strtoull(text, &end, 10);
	if (errno || *text < '0' || *text > '9' || *end != '\0' || number > most)
		return false;
	*ret_number = number;
	return true;
}

int command_flag_number(const struct command_context *context, const char *name, uint64_t least,
			uint64_t most, uint64_t *number)
{
	const char *text = command_flag(context, name);
	uint64_t value;

	if (!text)
		return COMMAND_DONE;
	if (!command_read_number(text, most, &value) || value < least)
		return command_fail(COMMAND_USAGE,
				    "--%s cannot be '%s'; it takes a number from %" PRIu64 " to %" PRIu64,
				    name, text, least, most);
	*number = value;
	return COMMAND_DONE;
}

int command_connect(const struct command_context *context, struct ask **ret_ask)
{
	return command_connect_until(context, 0, ret_ask);
}

int command_connect_until(const struct command_context *context, uint64_t end_ns, struct ask **ret_ask)
{
	struct ask *ask = NULL;
	int code;

	if (ask_open_until(context->socket, end_ns, &ask) == 0) {
		*ret_ask = ask;
		return COMMAND_DONE;
	}
	code = command_fail_to_connect(ask);
	ask_free(ask);
	return code;
}

int command_fail_to_connect(const struct ask *ask)
{
	if (!ask)
		return command_fail_memory();
	return command_fail(ask_was_refused(ask) ? COMMAND_FAILED : COMMAND_UNREACHABLE, "%s",
			    ask_message(ask));
}

int command_ask(struct ask *ask, const Tierd__Wire__Request *request, const Tierd__Wire__Reply **ret_reply)
{
	int r = ask_request(ask, request, ret_reply);

	if (r == 0)
		return COMMAND_DONE;
	return command_fail(ask_is_connected(ask) ? COMMAND_FAILED : COMMAND_UNREACHABLE, "%s",
			    ask_message(ask));
}

int command_fail_reply(void)
{
	return command_fail(COMMAND_FAILED, "tierd answered something else than was asked");
}

int command_ask_for(struct ask *ask, const Tierd__Wire__Request *request,
		    Tierd__Wire__Reply__BodyCase expected, const Tierd__Wire__Reply **ret_reply)
{
	int code = command_ask(ask, request, ret_reply);

	return code == COMMAND_DONE && (*ret_reply)->body_case != expected ? command_fail_reply() : code;
}

int command_ask_node(struct ask *ask, const Tierd__Wire__NodeReply **ret_node)
{
	Tierd__Wire__Request request = TIERD__WIRE__REQUEST__INIT;
	Tierd__Wire__NodeRead read = TIERD__WIRE__NODE_READ__INIT;
	const Tierd__Wire__Reply *reply;
	int code;

	request.body_case = TIERD__WIRE__REQUEST__BODY_NODE_READ;
	request.node_read = &read;
	code = command_ask_for(ask, &request, TIERD__WIRE__REPLY__BODY_NODE, &reply);
	if (code == COMMAND_DONE)
		*ret_node = reply->node;
	return code;
}

const char *command_user_name(uid_t uid, char text[TEXT_SIZE])
{
	const struct passwd *user = getpwuid(uid);

	if (user)
		snprintf(text, TEXT_SIZE, "%s", user->pw_name);
	else
		snprintf(text, TEXT_SIZE, "%u", (unsigned)uid);
	return text;
}

/* The path of a folder need not be UTF-8. Line ends and tabs are the printer's own. */
static void make_printable(char *text)
{
	while (*text) {
		char *end = text + strcspn(text, "\n\t");
		char mark = *end;

		*end = '\0';
		name_make_printable(text);
		*end = mark;
		text = mark ? end + 1 : end;
	}
}

static int print_json(char *text)
{
	if (!text)
		return command_fail_memory();
	make_printable(text);
	puts(text);
	cJSON_free(text);
	return COMMAND_DONE;
}

int command_print_json(cJSON *json)
{
	char *text = json ? cJSON_Print(json) : NULL;

	cJSON_Delete(json);
	return print_json(text);
}

int command_print_json_line(cJSON *json)
{
	char *text = json ? cJSON_PrintUnformatted(json) : NULL;

	cJSON_Delete(json);
	return print_json(text);
}

int command_print_table(const struct table *table)
{
	if (!table || table_print(table, stdout) < 0)
		return command_fail_memory();
	return COMMAND_DONE;
}
