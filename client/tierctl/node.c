#include "client/tierctl/command.h"

#include <inttypes.h>
#include <stdio.h>

#include "client/tierctl/fields.h"
#include "client/tierctl/gpus.h"
#include "client/tierctl/limit.h"
#include "common/clock.h"
#include "common/plural.h"

/* The column in which the values of the node's account begin. */
#define INDENT 11

int command_ping(const struct command_context *context)
{
	_cleanup_(ask_freep) struct ask *ask = NULL;
	Tierd__Wire__Ping ping = TIERD__WIRE__PING__INIT;
	const Tierd__Wire__Reply *reply;
	uint64_t began;
	int code = command_connect(context, &ask);

	if (code != COMMAND_DONE)
		return code;
	began = clock_now_ns();
	code = command_ask(ask, WIRE_REQUEST(PING, ping, &ping), &reply);
	if (code != COMMAND_DONE)
		return code;

	double us = (double)(clock_now_ns() - began) / 1000;

	if (context->is_json) {
		cJSON *json = cJSON_CreateObject();

		cJSON_AddStringToObject(json, "daemon", ask_daemon(ask));
		cJSON_AddNumberToObject(json, "microseconds", us);
		return command_print_json(json);
	}
	text_say(0, "%s at %s answers in %.0f us", ask_daemon(ask), context->socket, us);
	return COMMAND_DONE;
}

static void add_tiers(cJSON *json, const Tierd__Wire__NodeReply *node)
{
	struct limit_load load = limit_of_node(node);
	cJSON *paths;

	cJSON_AddItemToObject(json, "host",
			      fields_json(&node->base,
					  "budget_bytes=host_budget_bytes "
					  "used_bytes=host_used_bytes cache_bytes=host_cache_bytes "
					  "withheld_bytes=host_withheld_bytes has_huge_pages "
					  "pinned_bytes"));
	paths = cJSON_AddArrayToObject(json, "nvme");
	for (size_t i = 0; i < node->n_paths; i++) {
		cJSON *path = fields_json(&node->paths[i]->base,
					  "path capacity_bytes used_bytes read_bytes written_bytes "
					  "is_direct is_absent written_today_bytes written_ever_bytes "
					  "?endurance_bytes ?days_left");

		limit_add_path_json(path, &load, i);
		cJSON_AddItemToArray(paths, path);
	}
}

static cJSON *status_json(const Tierd__Wire__NodeReply *node)
{
	cJSON *json = fields_json(
		&node->base, "version pid uptime_ms jobs clients ranks is_draining requests workers simd "
			     "io_engine io_engine_why store");
	struct limit_load load = limit_of_node(node);

	add_tiers(json, node);
	limit_add_json(json, &load);
	cJSON_AddItemToObject(json, "gpus", gpus_json(node));
	return json;
}

static int print_status(const struct command_context *context, const Tierd__Wire__NodeReply *node)
{
	struct limit_load load = limit_of_node(node);
	uint64_t capacity = 0, used = 0;
	int code;
	char a[TEXT_SIZE], b[TEXT_SIZE], c[TEXT_SIZE], d[TEXT_SIZE];

	for (size_t i = 0; i < node->n_paths; i++) {
		capacity += node->paths[i]->capacity_bytes;
		used += node->paths[i]->used_bytes;
	}
	text_say(2, "tierd %s at %s, pid %u, up %s", node->version, context->socket, node->pid,
		 text_duration(node->uptime_ms, a));
	printf("jobs       %u%s\n", node->jobs, node->is_draining ? ", no new ones: tierd drains" : "");
	printf("clients    %u\n", node->clients);
	printf("requests   %" PRIu64 "\n", node->requests);
	text_say(INDENT, "host       %s of %s%s, %s of it cache, %s pinned",
		 text_bytes(node->host_used_bytes, a), text_bytes(node->host_budget_bytes, b),
		 node->has_huge_pages ? ", huge pages" : "", text_bytes(node->host_cache_bytes, c),
		 text_bytes(node->pinned_bytes, d));
	if (node->host_withheld_bytes > 0)
		text_say(INDENT,
			 "withheld   %s of it: of jobs that have ended, and processes still have it open or "
			 "mapped",
			 text_bytes(node->host_withheld_bytes, a));
	if (node->n_paths == 0)
		printf("nvme       none configured\n");
	else
		printf("nvme       %s of %s on %zu path%s\n", text_bytes(used, a), text_bytes(capacity, b),
		       node->n_paths, PLURAL(node->n_paths));
	printf("workers    %u, %s\n", node->workers, node->simd);
	text_say(INDENT, "io engine  %s%s%s", node->io_engine, *node->io_engine_why ? ": " : "",
		 node->io_engine_why);
	text_say(INDENT, "store      %s", node->store);
	code = limit_print(&load, INDENT);
	return code == COMMAND_DONE ? gpus_print(node) : code;
}

int command_status(const struct command_context *context)
{
	_cleanup_(ask_freep) struct ask *ask = NULL;
	const Tierd__Wire__NodeReply *node;
	int code = command_connect(context, &ask);

	if (code == COMMAND_DONE)
		code = command_ask_node(ask, &node);
	if (code != COMMAND_DONE)
		return code;
	if (context->is_json)
		return command_print_json(status_json(node));
	return print_status(context, node);
}

static int print_tiers(const Tierd__Wire__NodeReply *node)
{
	static const char *const titles[] = { "TIER",	   ">USED",   ">CAPACITY", "2>READ",
					      "1>WRITTEN", "4>TODAY", "3>EVER",	   "1>DAYS LEFT",
					      "4DIRECT",   "~PATH",   NULL };
	_cleanup_(table_freep) struct table *table = table_new(titles);

	if (!table)
		return command_print_table(NULL);
	table_add(table, "host");
	table_add_bytes(table, node->host_used_bytes);
	table_add_bytes(table, node->host_budget_bytes);
	for (unsigned i = 0; i < 7; i++)
		table_add(table, "-");
	for (size_t i = 0; i < node->n_paths; i++) {
		const Tierd__Wire__Path *path = node->paths[i];

		table_add(table, "nvme");
		table_add_bytes(table, path->used_bytes);
		table_add_bytes(table, path->capacity_bytes);
		table_add_bytes(table, path->read_bytes);
		table_add_bytes(table, path->written_bytes);
		table_add_bytes(table, path->written_today_bytes);
		table_add_bytes(table, path->written_ever_bytes);
		if (path->has_days_left)
			table_add_count(table, path->days_left);
		else
			table_add(table, "?");
		table_add(table, path->is_direct ? "yes" : "no");
		table_add(table, "%s%s", path->path, path->is_absent ? " (not mounted)" : "");
	}
	return command_print_table(table);
}

int command_tiers(const struct command_context *context)
{
	_cleanup_(ask_freep) struct ask *ask = NULL;
	const Tierd__Wire__NodeReply *node;
	cJSON *json;
	int code = command_connect(context, &ask);

	if (code == COMMAND_DONE)
		code = command_ask_node(ask, &node);
	if (code != COMMAND_DONE)
		return code;
	if (!context->is_json)
		return print_tiers(node);
	json = cJSON_CreateObject();
	add_tiers(json, node);
	return command_print_json(json);
}
