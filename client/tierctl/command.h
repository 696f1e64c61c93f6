/* A command is a verb of tierctl: it asks the daemon, and prints a table or JSON. */
#ifndef TIERD_CLIENT_TIERCTL_COMMAND_H
#define TIERD_CLIENT_TIERCTL_COMMAND_H

#include <cjson/cJSON.h>
#include <stdbool.h>
#include <sys/types.h>

#include "client/tierctl/ask.h"
#include "client/tierctl/table.h"
#include "client/tierctl/verb.h"

enum { COMMAND_DONE = 0, COMMAND_FAILED = 1, COMMAND_USAGE = 2, COMMAND_UNREACHABLE = 3 };

/* What a verb is called with. */
struct command_context {
	const char *socket;
	bool is_json, wants_help, wants_version;
	const struct verb *verbs; /* all that there are */
	const struct verb *verb;
	const char *values[VERB_MAX_FLAGS]; /* of its flags, in their order; "" of one that takes none; NULL:
					     * not given */
	char **arguments;		    /* as many as the verb takes; NULL is behind them */
	int count;
};

/* The value of a flag of the verb; NULL: it was not given. */
const char *command_flag(const struct command_context *context, const char *name);
/* True: the text is a number, of digits alone, and at most that. */
bool command_read_number(const char *text, uint64_t most, uint64_t *ret_number);
/* A number, left as it is where the flag was not given. COMMAND_USAGE, after a message: it is none, or
 * outside. */
int command_flag_number(const struct command_context *context, const char *name, uint64_t least,
			uint64_t most, uint64_t *number);

/* They return an exit code, after saying on stderr what is wrong. */
int command_ping(const struct command_context *context);
int command_status(const struct command_context *context);
int command_tiers(const struct command_context *context);
int command_jobs(const struct command_context *context);
int command_snapshot(const struct command_context *context);
int command_snapshots(const struct command_context *context);
int command_diff(const struct command_context *context);
int command_reserve(const struct command_context *context);
int command_share(const struct command_context *context);
int command_retain(const struct command_context *context);
int command_rollback(const struct command_context *context);
int command_drop(const struct command_context *context);
int command_top(const struct command_context *context);
int command_metrics(const struct command_context *context);
int command_units(const struct command_context *context);
int command_tensors(const struct command_context *context);
int command_config(const struct command_context *context);
int command_doctor(const struct command_context *context);
int command_read(const struct command_context *context);
int command_export(const struct command_context *context);
int command_import(const struct command_context *context);
int command_inspect(const struct command_context *context);
int command_blobs(const struct command_context *context);
int command_leases(const struct command_context *context);
int command_evict(const struct command_context *context);
int command_release(const struct command_context *context);
int command_drain(const struct command_context *context);
int command_scrub(const struct command_context *context);
int command_verify(const struct command_context *context);
int command_fork(const struct command_context *context);
int command_trace(const struct command_context *context);
int command_watch(const struct command_context *context);
int command_plan(const struct command_context *context);
int command_help(const struct command_context *context);

/* Connects; an exit code and a message if that fails. */
int command_connect(const struct command_context *context, struct ask **ret_ask);
/* For a verb that has a time of its own: as ask_open(). */
int command_connect_until(const struct command_context *context, uint64_t end_ns, struct ask **ret_ask);
/* Says why it failed, as ask_open() has left it with r, and returns the code: nobody is there, or refuses. */
int command_fail_to_connect(const struct ask *ask, int r);
int command_ask(struct ask *ask, const Tierd__Wire__Request *request, const Tierd__Wire__Reply **ret_reply);
/* And fails if the reply is another one than expected. */
int command_ask_for(struct ask *ask, const Tierd__Wire__Request *request,
		    Tierd__Wire__Reply__BodyCase expected, const Tierd__Wire__Reply **ret_reply);

/* Says that a reply is another one than expected. */
int command_fail_reply(void);

/* The node's account of itself, in one go. */
int command_ask_node(struct ask *ask, const Tierd__Wire__NodeReply **ret_node);

/* The jobs that the user may see; says on stderr if they are not all. */
int command_ask_jobs(struct ask *ask, const Tierd__Wire__JobsReply **ret_jobs);

/* The user's name, or the number if there is none. */
const char *command_user_name(uid_t uid, char text[TEXT_SIZE]);

/* Prints and frees. */
int command_print_json(cJSON *json);
/* One of many values, each of which is a line. */
int command_print_json_line(cJSON *json);
int command_print_table(const struct table *table);

/* Says on stderr why, for people or as a line of JSON, and returns the code. */
int command_fail(int code, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* The same, where there is a negative errno. */
int command_fail_at(int code, int r, const char *format, ...) __attribute__((format(printf, 3, 4)));
/* From now on. */
void command_tell_errors(bool as_json);
int command_fail_memory(void);
/* As errno says, of the standard output: once, however often it is called. */
int command_fail_output(void);

#endif
