#include <string.h>

#include "client/tierctl/limit.h"
#include "client/tierctl/top.h"
#include "common/size.h"

/* ---- Between two looks ---- */

/* A new daemon begins at zero: its counts are not below those of the last one by chance alone. */
uint64_t top_more(uint64_t now, uint64_t before)
{
	return now >= before ? now - before : now;
}

double top_seconds(uint64_t now_ns, uint64_t before_ns)
{
	return now_ns > before_ns ? (double)(now_ns - before_ns) / 1e9 : 0;
}

const struct statistics_job *top_find(const struct top_past *past, const struct statistics_job *job)
{
	for (size_t i = 0; i < past->job_count; i++)
		if (past->jobs[i].uid == job->uid && strcmp(past->jobs[i].name, job->name) == 0)
			return &past->jobs[i];
	return NULL;
}

/* ---- Rates ---- */

/* Without time between two looks there is no rate. */
void top_rate_json(cJSON *json, const char *name, uint64_t now, uint64_t before, double seconds)
{
	if (seconds > 0)
		cJSON_AddNumberToObject(json, name, (double)top_more(now, before) / seconds);
	else
		cJSON_AddNullToObject(json, name);
}

static void add_moved(cJSON *json, const uint64_t now[], const uint64_t before[], double seconds)
{
	top_rate_json(json, "read_bytes_per_second", now[STATISTICS_READ], before[STATISTICS_READ], seconds);
	top_rate_json(json, "written_bytes_per_second", now[STATISTICS_WRITTEN], before[STATISTICS_WRITTEN],
		      seconds);
}

/* A share of none is none. */
static void add_hit_rate(cJSON *json, const struct statistics_figures *now,
			 const struct statistics_figures *before)
{
	uint64_t gathers = top_more(now->gathers, before->gathers),
		 misses = top_more(now->misses, before->misses);

	if (gathers > 0)
		cJSON_AddNumberToObject(json, "hit_rate",
					misses > gathers ? 0 : (double)(gathers - misses) / (double)gathers);
	else
		cJSON_AddNullToObject(json, "hit_rate");
}

static void add_figures(cJSON *json, const struct statistics_figures *now,
			const struct statistics_figures *before, double seconds)
{
	cJSON *io = cJSON_AddObjectToObject(json, "io"), *stalls;

	for (unsigned kind = 0; kind < STATISTICS_KINDS; kind++)
		add_moved(cJSON_AddObjectToObject(io, view_kind_name(kind)), now->bytes[kind],
			  before->bytes[kind], seconds);
	top_rate_json(json, "gathers_per_second", now->gathers, before->gathers, seconds);
	add_hit_rate(json, now, before);
	stalls = cJSON_AddObjectToObject(json, "stalled_seconds_per_second");
	for (unsigned cause = 0; cause < STATISTICS_CAUSES; cause++)
		top_rate_json(stalls, view_cause_name(cause), now->stall_ns[cause], before->stall_ns[cause],
			      seconds * 1e9);
	top_rate_json(json, "steps_per_second", now->steps, before->steps, seconds);
}

/* ---- The node ---- */

static cJSON *path_json(const struct statistics_path *now, const struct statistics_path *before,
			double seconds)
{
	cJSON *json = cJSON_CreateObject();

	cJSON_AddStringToObject(json, "path", now->path);
	cJSON_AddNumberToObject(json, "capacity_bytes", (double)now->capacity);
	cJSON_AddNumberToObject(json, "used_bytes", (double)now->used);
	add_moved(json, now->moved, before->moved, seconds);
	return json;
}

static void add_node(cJSON *json, const struct view *view, const struct statistics_node *before)
{
	const struct statistics_node *now = &view->node;
	double seconds = top_seconds(now->heartbeat_ns, before->heartbeat_ns);
	struct limit_load load = limit_of_looks(now, before);
	cJSON *host, *paths;

	cJSON_AddNumberToObject(json, "pid", (double)now->pid);
	cJSON_AddNumberToObject(json, "uptime_ms", (double)((view->read_ns - now->started_ns) / 1000000));
	cJSON_AddBoolToObject(json, "is_stuck", view_is_stuck(view));
	cJSON_AddNumberToObject(json, "silent_ms", (double)(view_silent_ns(view) / 1000000));
	cJSON_AddNumberToObject(json, "jobs", (double)now->jobs);
	cJSON_AddNumberToObject(json, "clients", (double)now->clients);
	host = cJSON_AddObjectToObject(json, "host");
	cJSON_AddNumberToObject(host, "budget_bytes", (double)now->host_budget);
	cJSON_AddNumberToObject(host, "used_bytes", (double)now->host_used);
	cJSON_AddNumberToObject(host, "cache_bytes", (double)now->host_cache);
	cJSON_AddNumberToObject(host, "withheld_bytes", (double)now->host_withheld);
	cJSON_AddNumberToObject(host, "pinned_bytes", (double)now->pinned);
	cJSON_AddNumberToObject(json, "seconds", seconds);
	limit_add_json(json, &load);
	paths = cJSON_AddArrayToObject(json, "nvme");
	for (size_t i = 0; i < now->path_count; i++) {
		cJSON *path = path_json(&now->paths[i], &before->paths[i], seconds);

		limit_add_path_json(path, &load, i);
		cJSON_AddItemToArray(paths, path);
	}
	cJSON_AddItemToObject(json, "gpus", top_gpus_json(now, before, seconds));
	add_figures(json, &now->figures, &before->figures, seconds);
}

/* ---- Jobs ---- */

/* Figures of a job whose store cannot be opened are null. */
static void add_known(cJSON *json, const struct statistics_job *job, const char *name, double number)
{
	if (job->is_lost)
		cJSON_AddNullToObject(json, name);
	else
		cJSON_AddNumberToObject(json, name, number);
}

/* Rates take two looks. */
static cJSON *job_json(const struct statistics_job *now, const struct statistics_job *before)
{
	cJSON *json = cJSON_CreateObject();

	cJSON_AddStringToObject(json, "name", now->name);
	cJSON_AddNumberToObject(json, "uid", (double)now->uid);
	cJSON_AddStringToObject(json, "status", now->status);
	cJSON_AddNumberToObject(json, "ranks", (double)now->ranks);
	add_known(json, now, "world_size", (double)now->world_size);
	add_known(json, now, "step", (double)now->step);
	if (now->has_durable_step)
		add_known(json, now, "durable_step", (double)now->durable_step);
	else
		cJSON_AddNullToObject(json, "durable_step");
	add_known(json, now, "durable_lag", (double)now->durable_lag_steps);
	add_known(json, now, "durable_lag_seconds", (double)now->durable_lag_ns / 1e9);
	cJSON_AddNumberToObject(json, "host_bytes", (double)now->host_bytes);
	cJSON_AddNumberToObject(json, "cache_bytes", (double)now->cache_bytes);
	cJSON_AddNumberToObject(json, "kept_fraction", size_fraction(now->warm_bytes, now->warm_most_bytes));
	add_known(json, now, "nvme_bytes", (double)now->nvme_bytes);
	cJSON_AddNumberToObject(json, "gpu_bytes", (double)now->gpu_bytes);
	if (before && now->gpu_steps > before->gpu_steps)
		cJSON_AddNumberToObject(json, "gpu_joules_per_step", top_joules_per_step(now, before));
	else
		cJSON_AddNullToObject(json, "gpu_joules_per_step");
	if (before)
		add_figures(json, &now->figures, &before->figures,
			    top_seconds(now->heartbeat_ns, before->heartbeat_ns));
	return json;
}

cJSON *top_json(const struct view *view, const struct top_past *past)
{
	cJSON *json = cJSON_CreateObject(), *jobs;

	add_node(cJSON_AddObjectToObject(json, "node"), view, &past->node);
	jobs = cJSON_AddArrayToObject(json, "jobs");
	for (size_t i = 0; i < view->job_count; i++) {
		const struct statistics_job *job = &view->jobs[i].body;

		cJSON_AddItemToArray(jobs, job_json(job, top_find(past, job)));
	}
	return json;
}
