#include "client/tierctl/choice.h"
#include "client/tierctl/command.h"
#include "client/tierctl/fields.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <time.h>

#include "common/clock.h"
#include "proto/name.h"

#define INFO 6 /* the journal's priority */

struct watch_flags {
	struct choice choice;
	bool with_steps;
	uint64_t count;	    /* 0: no end */
	uint64_t timeout_s; /* 0: none */
	uint64_t end_ns;    /* of it */
};

static int read_flags(struct watch_flags *flags, const struct command_context *context)
{
	int code = choice_read(context, &flags->choice);

	if (code == COMMAND_DONE)
		code = command_flag_number(context, "count", 1, UINT32_MAX, &flags->count);
	if (code == COMMAND_DONE)
		code = command_flag_number(context, "timeout", 1, UINT32_MAX, &flags->timeout_s);
	flags->with_steps = command_flag(context, "steps") != NULL;
	if (flags->timeout_s > 0)
		flags->end_ns = clock_now_ns() + flags->timeout_s * 1000000000;
	return code;
}

/* ---- Lines -----------------------------------------------------------------------------------------------
 */

/* ISO 8601, to the millisecond, in the zone of who reads it. */
static const char *print_time(uint64_t time_ns, char text[48])
{
	time_t seconds = (time_t)(time_ns / 1000000000);
	char date[24], zone[8];
	struct tm local;

	localtime_r(&seconds, &local);
	strftime(date, sizeof(date), "%Y-%m-%dT%H:%M:%S", &local);
	strftime(zone, sizeof(zone), "%z", &local);
	snprintf(text, 48, "%s.%03u%.3s:%.2s", date, (unsigned)(time_ns / 1000000 % 1000), zone, zone + 3);
	return text;
}

static cJSON *event_json(const Tierd__Wire__Event__Happened *event)
{
	cJSON *json = cJSON_CreateObject();
	char text[48];

	cJSON_AddStringToObject(json, "time", print_time(event->time_ns, text));
	fields_add(json, &event->base, "event priority ?job ?uid=user ?rank ?step ?unit ?tier ?device text");
	return json;
}

static cJSON *lost_json(uint64_t count)
{
	cJSON *json = cJSON_CreateObject();

	cJSON_AddStringToObject(json, "event", "events-lost");
	cJSON_AddNumberToObject(json, "count", (double)count);
	return json;
}

static int print_event(const Tierd__Wire__Event__Happened *event)
{
	char time[48], user[TEXT_SIZE];

	name_make_printable(event->text);
	name_make_printable(event->job);
	printf("%s %s", print_time(event->time_ns, time), event->event);
	if (*event->job)
		printf(" %s (%s)", event->job, command_user_name(event->user, user));
	printf(": %s\n", event->text);
	return COMMAND_DONE;
}

static int print(const struct command_context *context, const Tierd__Wire__Event *event, bool *ret_counts)
{
	*ret_counts = event->body_case == TIERD__WIRE__EVENT__BODY_HAPPENED;
	if (*ret_counts)
		return context->is_json ? command_print_json_line(event_json(event->happened))
					: print_event(event->happened);
	if (event->body_case != TIERD__WIRE__EVENT__BODY_LOST)
		return COMMAND_DONE;
	if (context->is_json)
		return command_print_json_line(lost_json(event->lost->count));
	printf("%" PRIu64 " events were lost: they came faster than they were read\n", event->lost->count);
	return COMMAND_DONE;
}

/* ---- Watching --------------------------------------------------------------------------------------------
 */

/* Who waits for it may act now: nothing that happens from here on is missed. */
static int print_begin(const struct command_context *context)
{
	Tierd__Wire__Event__Happened event = TIERD__WIRE__EVENT__HAPPENED__INIT;
	struct timespec now;
	char text[64] = "what happens is told from now on";

	clock_gettime(CLOCK_REALTIME, &now);
	event.time_ns = (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
	event.event = (char *)"watching";
	event.priority = INFO;
	event.text = text;
	return context->is_json ? command_print_json_line(event_json(&event)) : print_event(&event);
}

static int ask_to_watch(struct ask *ask, const struct watch_flags *flags)
{
	Tierd__Wire__Watch watch = TIERD__WIRE__WATCH__INIT;
	const Tierd__Wire__Reply *reply;

	watch.job = (char *)(flags->choice.job ? flags->choice.job : "");
	watch.has_owner = flags->choice.has_user;
	watch.owner = flags->choice.user;
	watch.steps = flags->with_steps;
	return command_ask(ask, WIRE_REQUEST(WATCH, watch, &watch), &reply);
}

/* The time is up: that is how it was to end, unless so many events were waited for. */
static int end_of_time(const struct watch_flags *flags, uint64_t seen)
{
	if (flags->count == 0)
		return COMMAND_DONE;
	return command_fail_at(COMMAND_FAILED, -ETIMEDOUT,
			       "%" PRIu64 " of %" PRIu64 " events came within %" PRIu64 " s", seen,
			       flags->count, flags->timeout_s);
}

static int look_on(const struct command_context *context, struct ask *ask, const struct watch_flags *flags)
{
	uint64_t seen = 0;
	const Tierd__Wire__Event *event;
	int code = COMMAND_DONE;
	bool counts;

	fflush(stdout);
	while (code == COMMAND_DONE && (flags->count == 0 || seen < flags->count)) {
		int r = ask_event(ask, flags->end_ns, &event);

		if (r == -ETIMEDOUT && ask_is_connected(ask))
			return end_of_time(flags, seen);
		if (r < 0)
			return command_fail_at(COMMAND_UNREACHABLE, r, "%s", ask_message(ask));
		code = print(context, event, &counts);
		seen += counts;
		/* Who reads it may have gone; and wants each when it comes. */
		if (code == COMMAND_DONE && fflush(stdout) != 0)
			code = COMMAND_FAILED;
	}
	return code;
}

int command_watch(const struct command_context *context)
{
	_cleanup_(ask_freep) struct ask *ask = NULL;
	struct watch_flags flags = { { NULL } };
	int code = read_flags(&flags, context);

	if (code == COMMAND_DONE)
		code = command_connect_until(context, flags.end_ns, &ask);
	if (code == COMMAND_DONE)
		code = ask_to_watch(ask, &flags);
	if (code == COMMAND_DONE)
		code = print_begin(context);
	if (code == COMMAND_DONE)
		code = look_on(context, ask, &flags);
	return code;
}
