#include "client/tierctl/command.h"

#include <inttypes.h>
#include <stdio.h>

#include "common/clock.h"
#include "common/plural.h"

/* Of what stands behind a name in the account of the node. */
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

static cJSON *path_json(const Tierd__Wire__Path *path)
{
	cJSON *json = cJSON_CreateObject();

	cJSON_AddStringToObject(json, "path", path->path);
	cJSON_AddNumberToObject(json, "capacity_bytes", (double)path->capacity_bytes);
	cJSON_AddNumberToObject(json, "used_bytes", (double)path->used_bytes);
	cJSON_AddNumberToObject(json, "read_bytes", (double)path->read_bytes);
	cJSON_AddNumberToObject(json, "written_bytes", (double)path->written_bytes);
	cJSON_AddBoolToObject(json, "is_direct", path->is_direct);
	cJSON_AddBoolToObject(json, "is_absent", path->is_absent);
	cJSON_AddNumberToObject(json, "written_today_bytes", (double)path->written_today_bytes);
	cJSON_AddNumberToObject(json, "written_ever_bytes", (double)path->written_ever_bytes);
	if (path->endurance_bytes > 0)
		cJSON_AddNumberToObject(json, "endurance_bytes", (double)path->endurance_bytes);
	if (path->has_days_left)
		cJSON_AddNumberToObject(json, "days_left", (double)path->days_left);
	return json;
}

static void add_tiers(cJSON *json, const Tierd__Wire__NodeReply *node)
{
	cJSON *host = cJSON_AddObjectToObject(json, "host");
	cJSON *paths;

	cJSON_AddNumberToObject(host, "budget_bytes", (double)node->host_budget_bytes);
	cJSON_AddNumberToObject(host, "used_bytes", (double)node->host_used_bytes);
	cJSON_AddNumberToObject(host, "cache_bytes", (double)node->host_cache_bytes);
	cJSON_AddNumberToObject(host, "withheld_bytes", (double)node->host_withheld_bytes);
	cJSON_AddBoolToObject(host, "has_huge_pages", node->has_huge_pages);
	cJSON_AddNumberToObject(host, "pinned_bytes", (double)node->pinned_bytes);
	paths = cJSON_AddArrayToObject(json, "nvme");
	for (size_t i = 0; i < node->n_paths; i++)
		cJSON_AddItemToArray(paths, path_json(node->paths[i]));
}

static cJSON *status_json(const Tierd__Wire__NodeReply *node)
{
	cJSON *json = cJSON_CreateObject();

	cJSON_AddStringToObject(json, "version", node->version);
	cJSON_AddNumberToObject(json, "pid", node->pid);
	cJSON_AddNumberToObject(json, "uptime_ms", (double)node->uptime_ms);
	cJSON_AddNumberToObject(json, "jobs", node->jobs);
	cJSON_AddNumberToObject(json, "clients", node->clients);
	cJSON_AddNumberToObject(json, "ranks", node->ranks);
	cJSON_AddBoolToObject(json, "is_draining", node->is_draining);
	cJSON_AddNumberToObject(json, "requests", (double)node->requests);
	cJSON_AddNumberToObject(json, "workers", node->workers);
	cJSON_AddStringToObject(json, "simd", node->simd);
	cJSON_AddStringToObject(json, "io_engine", node->io_engine);
	cJSON_AddStringToObject(json, "io_engine_why", node->io_engine_why);
	cJSON_AddStringToObject(json, "store", node->store);
	add_tiers(json, node);
	return json;
}

static void print_status(const struct command_context *context, const Tierd__Wire__NodeReply *node)
{
	uint64_t capacity = 0, used = 0;
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
	print_status(context, node);
	return COMMAND_DONE;
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
