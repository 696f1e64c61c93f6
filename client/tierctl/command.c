#include "client/tierctl/command.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <pwd.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "common/cleanup.h"
#include "proto/name.h"

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

/* Characters that cannot be printed are in strings of JSON, where an escape means the same. */
static char *json_text(cJSON *json, bool is_line)
{
	_cleanup_free_ char *text = NULL;
	char *escaped = NULL;

	if (json)
		text = is_line ? cJSON_PrintUnformatted(json) : cJSON_Print(json);
	cJSON_Delete(json);
	if (text)
		escaped = text_escape_json(text);
	return escaped;
}

/* ---- Errors ---- */

static bool errors_are_json;

void command_tell_errors(bool as_json)
{
	errors_are_json = as_json;
}

static cJSON *error_json(int code, int r, const char *message)
{
	static const char *const kinds[] = {
		[COMMAND_FAILED] = "failed",
		[COMMAND_USAGE] = "usage",
		[COMMAND_UNREACHABLE] = "unreachable",
	};
	const char *name = strerrorname_np(code == COMMAND_USAGE && r == 0 ? EINVAL : -r);
	cJSON *json = cJSON_CreateObject();

	cJSON_AddStringToObject(json, "error", kinds[code]);
	if (r < 0 || code == COMMAND_USAGE)
		cJSON_AddStringToObject(json, "code", name ? name : "unknown");
	else
		cJSON_AddNullToObject(json, "code");
	cJSON_AddStringToObject(json, "message", message);
	cJSON_AddNumberToObject(json, "exit_status", code);
	return json;
}

/* As a line; false: there is no memory for it. */
static bool print_json_line(cJSON *json, FILE *stream)
{
	_cleanup_free_ char *text = json_text(json, true);

	if (text)
		fprintf(stream, "%s\n", text);
	return text;
}

/* Without memory for JSON the message is told as text. */
static void tell(int code, int r, const char *format, va_list arguments)
{
	_cleanup_free_ char *message = NULL;

	if (vasprintf(&message, format, arguments) < 0) {
		message = NULL;
		fputs("tierctl: out of memory\n", stderr);
	} else if (!errors_are_json || !print_json_line(error_json(code, r, message), stderr)) {
		make_printable(message);
		fprintf(stderr, "tierctl: %s\n", message);
	}
}

int command_fail(int code, const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	tell(code, 0, format, arguments);
	va_end(arguments);
	return code;
}

int command_fail_at(int code, int r, const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	tell(code, r, format, arguments);
	va_end(arguments);
	return code;
}

static void warn(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Tells what does not end the command. */
static void warn(const char *format, ...)
{
	_cleanup_free_ char *message = NULL;
	cJSON *json = NULL;
	va_list arguments;

	va_start(arguments, format);
	if (vasprintf(&message, format, arguments) < 0)
		message = NULL;
	va_end(arguments);
	if (message && errors_are_json && (json = cJSON_CreateObject()))
		cJSON_AddStringToObject(json, "warning", message);
	if (message)
		make_printable(message);
	if (!print_json_line(json, stderr))
		fprintf(stderr, "tierctl: %s\n", message ? message : "out of memory");
}

int command_fail_memory(void)
{
	return command_fail_at(COMMAND_FAILED, -ENOMEM, "out of memory");
}

int command_fail_output(void)
{
	static bool is_said;

	if (!is_said)
		command_fail_at(COMMAND_FAILED, -errno, "writing the output: %s", strerror(errno));
	is_said = true;
	return COMMAND_FAILED;
}

/* ---- Flags ---- */

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

/* ---- The daemon ---- */

int command_connect(const struct command_context *context, struct ask **ret_ask)
{
	return command_connect_until(context, 0, ret_ask);
}

int command_connect_until(const struct command_context *context, uint64_t end_ns, struct ask **ret_ask)
{
	struct ask *ask = NULL;
	int r = ask_open(context->socket, ASK_TIMEOUT_MS, end_ns, &ask), code;

	if (r == 0) {
		*ret_ask = ask;
		return COMMAND_DONE;
	}
	code = command_fail_to_connect(ask, r);
	ask_free(ask);
	return code;
}

int command_fail_to_connect(const struct ask *ask, int r)
{
	if (!ask)
		return command_fail_memory();
	return command_fail_at(ask_was_refused(ask) ? COMMAND_FAILED : COMMAND_UNREACHABLE, r, "%s",
			       ask_message(ask));
}

int command_ask(struct ask *ask, const Tierd__Wire__Request *request, const Tierd__Wire__Reply **ret_reply)
{
	int r = ask_request(ask, request, ret_reply);

	if (r == 0)
		return COMMAND_DONE;
	return command_fail_at(ask_is_connected(ask) ? COMMAND_FAILED : COMMAND_UNREACHABLE, r, "%s",
			       ask_message(ask));
}

int command_fail_reply(void)
{
	return command_fail_at(COMMAND_FAILED, -EPROTO, "tierd answered something else than was asked");
}

int command_ask_for(struct ask *ask, const Tierd__Wire__Request *request,
		    Tierd__Wire__Reply__BodyCase expected, const Tierd__Wire__Reply **ret_reply)
{
	int code = command_ask(ask, request, ret_reply);

	return code == COMMAND_DONE && (*ret_reply)->body_case != expected ? command_fail_reply() : code;
}

int command_ask_node(struct ask *ask, const Tierd__Wire__NodeReply **ret_node)
{
	Tierd__Wire__NodeRead read = TIERD__WIRE__NODE_READ__INIT;
	const Tierd__Wire__Reply *reply;
	int code;

	code = command_ask_for(ask, WIRE_REQUEST(NODE_READ, node_read, &read), TIERD__WIRE__REPLY__BODY_NODE,
			       &reply);
	if (code == COMMAND_DONE)
		*ret_node = reply->node;
	return code;
}

/* Beside the table or the JSON: whoever reads only those must not take them for all. */
static void tell_missing(const Tierd__Wire__JobsReply *jobs)
{
	if (jobs->total > jobs->n_jobs)
		warn("%zu of %u jobs are shown; more do not fit into an answer", jobs->n_jobs, jobs->total);
}

int command_ask_jobs(struct ask *ask, const Tierd__Wire__JobsReply **ret_jobs)
{
	Tierd__Wire__JobsRead read = TIERD__WIRE__JOBS_READ__INIT;
	const Tierd__Wire__Reply *reply;
	int code;

	code = command_ask_for(ask, WIRE_REQUEST(JOBS_READ, jobs_read, &read), TIERD__WIRE__REPLY__BODY_JOBS,
			       &reply);
	if (code != COMMAND_DONE)
		return code;
	tell_missing(reply->jobs);
	*ret_jobs = reply->jobs;
	return COMMAND_DONE;
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

/* ---- What is printed ---- */

int command_print_json(cJSON *json)
{
	_cleanup_free_ char *text = json_text(json, false);

	if (!text)
		return command_fail_memory();
	puts(text);
	return COMMAND_DONE;
}

int command_print_json_line(cJSON *json)
{
	return print_json_line(json, stdout) ? COMMAND_DONE : command_fail_memory();
}

int command_print_table(const struct table *table)
{
	if (!table || table_print(table, stdout) < 0)
		return command_fail_memory();
	return COMMAND_DONE;
}
