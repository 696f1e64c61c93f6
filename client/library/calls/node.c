#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "client/library/calls/calls.h"
#include "client/library/calls/reader.h"
#include "client/library/connection/connection.h"
#include "client/library/connection/structure.h"

#define RECONNECT_VARIABLE "TIERD_RECONNECT_MS"

/* ---- What comes over the connection ---- */

static struct tierd_job *find_job(const struct tierd_node *node, uint32_t number)
{
	QUEUE_FOREACH (link, &node->jobs) {
		struct tierd_job *job = queue_entry(link, struct tierd_job, link);

		if (job->number == number)
			return job;
	}
	return job_being_opened(node, number);
}

static void end_epoch(struct tierd_node *node, const Tierd__Wire__Event__EpochEnded *event)
{
	struct tierd_job *job = find_job(node, event->job);

	if (job)
		job_epoch_ended(job, event);
}

static void lose(struct tierd_node *node)
{
	QUEUE_FOREACH (link, &node->jobs) {
		struct tierd_job *job = queue_entry(link, struct tierd_job, link);

		if (node->is_lost || node->is_reconnecting)
			job_lose(job);
		else
			job_poison(job);
	}
	ticket_fail_all(node, node->error, node->error_text);
}

static const struct connection_listener listener = {
	.answer = ticket_answer,
	.end_epoch = end_epoch,
	.lose = lose,
};

/* ---- Connecting ---- */

static int choose_path(struct tierd_node *node, const char *given)
{
	char buffer[SOCKET_PATH_SIZE];
	const char *path = socket_path_choose(given, buffer);

	if (strlen(path) >= SOCKET_PATH_SIZE)
		return message_fail(-ENAMETOOLONG, "the socket's path is longer than %zu bytes: %s",
				    SOCKET_PATH_SIZE - 1, path);
	strcpy(node->socket_path, path);
	return 0;
}

static int choose_reconnect(struct tierd_node *node, int given)
{
	const char *text = given < 0 ? getenv(RECONNECT_VARIABLE) : NULL;
	char *end;
	long value;

	node->reconnect_ms = given < 0 ? 0 : given;
	if (!text || *text == '\0')
		return 0;
	errno = 0;
	value = strtol(text, &end, 10);
	if (errno || *end || value < 0 || value > INT_MAX)
		return message_fail(-EINVAL,
				    RECONNECT_VARIABLE " is \"%.32s\"; it is a number of milliseconds", text);
	node->reconnect_ms = (int)value;
	return 0;
}

int tierd_connect_with(const struct tierd_connect_options *options, struct tierd_node **ret_node)
{
	struct tierd_connect_options own = TIERD_CONNECT_OPTIONS_INIT;
	_cleanup_(connection_freep) struct tierd_node *node = NULL;
	int r = CHECK_GIVEN(options, ret_node);

	if (r < 0)
		return r;
	r = STRUCTURE_TAKE(&own, options, "the options of the connection have", TIERD_CONNECT_OPTIONS_INIT);
	if (r < 0)
		return r;
	r = connection_new(&listener, &node);
	if (r < 0)
		return message_fail(r, "connecting to tierd: %s", strerror(-r));
	node->is_interrupted = own.is_interrupted;
	node->interrupt_argument = own.argument;
	r = choose_path(node, own.socket_path);
	if (r == 0)
		r = choose_reconnect(node, own.reconnect_ms);
	if (r == 0)
		r = reconnect_first(node);
	if (r < 0)
		return r;
	*ret_node = TAKE_PTR(node);
	return 0;
}

int tierd_connect(const char *socket_path, struct tierd_node **ret_node)
{
	struct tierd_connect_options options = TIERD_CONNECT_OPTIONS_INIT;

	options.socket_path = socket_path;
	if (!ret_node)
		return CHECK_GIVEN(ret_node);
	return tierd_connect_with(&options, ret_node);
}

struct tierd_node *tierd_disconnect(struct tierd_node *node)
{
	if (!node)
		return NULL;
	QUEUE_FOREACH (link, &node->jobs)
		job_drop(queue_entry(link, struct tierd_job, link));
	QUEUE_FOREACH (link, &node->readers)
		reader_free(queue_entry(link, struct tierd_reader, link));
	if (node->generation == connection_generation)
		ticket_leave_node(node);
	return connection_free(node);
}

int tierd_set_timeout(struct tierd_node *node, int timeout_ms)
{
	int r = CHECK_GIVEN(node);

	if (r == 0)
		r = connection_enter(node);
	if (r < 0)
		return r;
	node->timeout_ms = timeout_ms;
	connection_exit(node);
	return 0;
}
