#include "client/tierctl/command.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "common/clock.h"

#define LOOK_NS 100000000

struct drain_flags {
	bool is_undone;
	uint64_t end_ns; /* 0: none */
};

static int read_flags(struct drain_flags *flags, const struct command_context *context)
{
	uint64_t seconds = 0;
	int code = command_flag_number(context, "timeout", 0, UINT32_MAX, &seconds);

	flags->is_undone = command_flag(context, "undo") != NULL;
	if (command_flag(context, "timeout"))
		flags->end_ns = clock_now_ns() + seconds * 1000000000;
	return code;
}

/* Waits until there are no ranks or the time is up; gives the number that is left. */
static int wait_for_ranks(struct ask *ask, const struct drain_flags *flags, uint32_t *ret_ranks)
{
	static const struct timespec pause = { .tv_nsec = LOOK_NS };
	const Tierd__Wire__NodeReply *node;

	for (;;) {
		int code = command_ask_node(ask, &node);

		if (code != COMMAND_DONE)
			return code;
		*ret_ranks = node->ranks;
		if (node->ranks == 0 || !node->is_draining ||
		    (flags->end_ns > 0 && clock_now_ns() >= flags->end_ns))
			return COMMAND_DONE;
		nanosleep(&pause, NULL);
	}
}

static int print(const struct command_context *context, bool is_draining, uint32_t ranks)
{
	cJSON *json;

	if (!context->is_json)
		return COMMAND_DONE;
	json = cJSON_CreateObject();
	cJSON_AddBoolToObject(json, "is_draining", is_draining);
	cJSON_AddNumberToObject(json, "ranks", ranks);
	return command_print_json(json);
}

int command_drain(const struct command_context *context)
{
	_cleanup_(ask_freep) struct ask *ask = NULL;
	Tierd__Wire__NodeDrain drain = TIERD__WIRE__NODE_DRAIN__INIT;
	const Tierd__Wire__Reply *reply;
	struct drain_flags flags = { 0 };
	uint32_t ranks = 0;
	int code = read_flags(&flags, context);

	if (code == COMMAND_DONE)
		code = command_connect_until(context, flags.end_ns, &ask);
	if (code != COMMAND_DONE)
		return code;
	drain.undo = flags.is_undone;
	code = command_ask(ask, WIRE_REQUEST(NODE_DRAIN, node_drain, &drain), &reply);
	if (code == COMMAND_DONE)
		code = wait_for_ranks(ask, &flags, &ranks);
	if (code == COMMAND_DONE)
		code = print(context, !flags.is_undone, ranks);
	if (code == COMMAND_DONE && ranks > 0 && !flags.is_undone)
		return command_fail_at(COMMAND_FAILED, -ETIMEDOUT, "%u rank%s not left; see tierctl jobs",
				       ranks, ranks == 1 ? " has" : "s have");
	return code;
}
