#include "daemon/telemetry/watch.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "daemon/model/model.h"
#include "daemon/telemetry/own.h"

void watch_init(struct watch *watch, struct port *port)
{
	watch->port = port;
	queue_init(&watch->link);
}

void watch_begin(struct watch *watch, struct pending *pending, const Tierd__Wire__Watch *request)
{
	struct node *node = pending_node(pending);

	if (strlen(request->job) > WIRE_MAX_JOB_NAME) {
		pending_error(pending, -EINVAL, "the name of a job has at most %d bytes", WIRE_MAX_JOB_NAME);
		return;
	}
	watch_end(watch);
	snprintf(watch->job, sizeof(watch->job), "%s", request->job);
	watch->has_owner = request->has_owner;
	watch->owner = request->owner;
	watch->with_steps = request->steps;
	watch->lost = 0;
	/* The answer comes first. */
	pending_reply(pending, NULL);
	queue_push(&node->telemetry->watches, &watch->link);
}

void watch_end(struct watch *watch)
{
	queue_remove(&watch->link);
}

/* ---- Sending ---- */

static void fill(const struct watch_news *news, Tierd__Wire__Event__Happened *happened)
{
	const struct log_fields *fields = news->fields;
	struct timespec now;

	clock_gettime(CLOCK_REALTIME, &now);
	tierd__wire__event__happened__init(happened);
	happened->time_ns = (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
	happened->event = (char *)news->event;
	happened->priority = news->level;
	happened->text = (char *)news->text;
	happened->job = (char *)(fields->job ? fields->job : "");
	happened->unit = (char *)(fields->unit ? fields->unit : "");
	happened->tier = (char *)(fields->tier ? fields->tier : "");
	happened->device = (char *)(fields->device ? fields->device : "");
	happened->has_user = fields->user != NULL;
	happened->user = fields->user ? *fields->user : 0;
	happened->has_rank = fields->rank != NULL;
	happened->rank = fields->rank ? *fields->rank : 0;
	happened->has_step = fields->step != NULL;
	happened->step = fields->step ? *fields->step : 0;
}

static void send_lost(struct watch *watch)
{
	Tierd__Wire__Event event = TIERD__WIRE__EVENT__INIT;
	Tierd__Wire__Event__Lost lost = TIERD__WIRE__EVENT__LOST__INIT;

	if (watch->lost == 0)
		return;
	lost.count = watch->lost;
	watch->lost = 0;
	event.body_case = TIERD__WIRE__EVENT__BODY_LOST;
	event.lost = &lost;
	watch->port->ops->event(watch->port, &event);
}

void watch_catch_up(struct watch *watch)
{
	if (port_has_room(watch->port))
		send_lost(watch);
}

/* ---- Whom it is for ---- */

static bool is_wanted(const struct watch *watch, const struct watch_news *news)
{
	if (news->is_step && !watch->with_steps)
		return false;
	if (watch->job[0] == '\0')
		return true;
	if (!news->job)
		return news->is_public;
	return strcmp(watch->job, news->job->name) == 0 &&
	       (!watch->has_owner || watch->owner == news->job->uid);
}

static bool is_allowed(const struct node *node, const struct watch *watch, const struct watch_news *news)
{
	if (news->job)
		return access_may_see(news->job, watch->port);
	return news->is_public || (news->fields->user && *news->fields->user == watch->port->uid) ||
	       access_may_rule(node, watch->port);
}

void watch_tell(struct node *node, const struct watch_news *news)
{
	Tierd__Wire__Event event = TIERD__WIRE__EVENT__INIT;
	Tierd__Wire__Event__Happened happened;

	fill(news, &happened);
	event.body_case = TIERD__WIRE__EVENT__BODY_HAPPENED;
	event.happened = &happened;
	QUEUE_FOREACH (link, &node->telemetry->watches) {
		struct watch *watch = queue_entry(link, struct watch, link);

		if (!is_wanted(watch, news) || !is_allowed(node, watch, news))
			continue;
		if (!port_has_room(watch->port)) {
			watch->lost++;
			continue;
		}
		send_lost(watch);
		watch->port->ops->event(watch->port, &event);
	}
}
