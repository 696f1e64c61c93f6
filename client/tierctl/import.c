#include <inttypes.h>
#include <string.h>
#include <unistd.h>

#include "client/tierctl/choice.h"
#include "client/tierctl/import_copy.h"
#include "client/tierctl/import_flags.h"
#include "client/tierctl/import_job.h"
#include "client/tierctl/model_path.h"
#include "common/plural.h"

/* In host memory: one unit is filled while others are written. Beside them the daemon has windows, and
 * definitions. */
#define UNITS_IN_MEMORY 3
#define BESIDE_UNITS (UINT64_C(8) << 20)
#define BESIDE_TENSOR UINT64_C(2048)

struct import {
	const struct command_context *context;
	const char *job_name;
	struct import_flags flags;
	struct progress progress;
	struct safetensors_model *model;
	struct import_list list;
	struct ask *ask;
	struct import_job job;
	bool is_durable; /* it will be, once its first commit is down */
};

/* ---- The model ---- */

static int open_model(struct import *import, const char *path)
{
	int code = model_path_open(path, &import->model);

	return code == COMMAND_DONE ? import_list_read(&import->list, import->model, &import->flags.tensors)
				    : code;
}

/* ---- The job ---- */

static bool has_everything_on_nvme(const struct tierd_job_options *options)
{
	return options->parameter_placement == TIERD_PLACE_NVME &&
	       options->optimizer_placement == TIERD_PLACE_NVME;
}

/* Trainers will want more than an import needs. */
static uint64_t host_budget(const struct import *import)
{
	uint64_t largest = 0;

	if (import->flags.tensors.is_trainable || !has_everything_on_nvme(&import->flags.job))
		return 0;
	for (size_t i = 0; i < import->list.unit_count; i++) {
		uint64_t bytes = import_list_unit_bytes(&import->list, i);

		largest = bytes > largest ? bytes : largest;
	}
	return UNITS_IN_MEMORY * largest + BESIDE_UNITS + import->list.count * BESIDE_TENSOR +
	       import->flags.job.blob_bytes;
}

static int open_job(struct import *import)
{
	struct tierd_job_options *options = &import->flags.job;

	options->name = import->job_name;
	if (options->host_budget == 0)
		options->host_budget = host_budget(import);
	return import_job_open(&import->job, import->context->socket, options);
}

static int fill_job(struct import *import)
{
	struct import_copy copy = { .model = import->model,
				    .list = &import->list,
				    .progress = &import->progress };
	int code = import_job_define(&import->job, &import->list);

	copy.job = import->job.ranks[0];
	return code == COMMAND_DONE ? import_copy_run(&copy) : code;
}

/* ---- Durable ---- */

static int ask_to_watch(const struct import *import, struct ask *watching)
{
	Tierd__Wire__Watch watch = TIERD__WIRE__WATCH__INIT;
	const Tierd__Wire__Reply *reply;

	watch.job = (char *)import->job_name;
	watch.has_owner = true;
	watch.owner = geteuid();
	watch.steps = true;
	return command_ask(watching, WIRE_REQUEST(WATCH, watch, &watch), &reply);
}

/* *ret_is_there says so once the job is there for good, or will never be. */
static int look(struct import *import, bool *ret_is_there)
{
	const struct choice choice = { .job = import->job_name, .has_user = true, .user = geteuid() };
	const Tierd__Wire__JobEntry *job = NULL;
	const Tierd__Wire__JobsReply *jobs;
	int code = command_ask_jobs(import->ask, &jobs);

	if (code == COMMAND_DONE)
		code = choice_find(import->ask, &choice, jobs, &job);
	if (code != COMMAND_DONE)
		return code;
	if (*job->reason)
		return command_fail(COMMAND_FAILED, "job %s is broken: %s", import->job_name, job->reason);
	import->is_durable = job->is_durable;
	*ret_is_there = job->has_durable_step || !job->is_durable;
	return COMMAND_DONE;
}

/* Until its first commit is down, a crash would take it away. */
static int await_commit(struct import *import)
{
	_cleanup_(ask_freep) struct ask *watching = NULL;
	const Tierd__Wire__Event *event;
	bool is_there = false;
	int code = command_connect(import->context, &watching);

	if (code == COMMAND_DONE)
		code = ask_to_watch(import, watching);
	if (code == COMMAND_DONE)
		code = look(import, &is_there);
	while (code == COMMAND_DONE && !is_there) {
		if (ask_event(watching, 0, &event) < 0)
			return command_fail(COMMAND_UNREACHABLE, "%s", ask_message(watching));
		code = look(import, &is_there);
	}
	return code;
}

/* ---- The whole ---- */

static int tell_done(const struct import *import)
{
	char bytes[TEXT_SIZE];
	cJSON *json;

	if (!import->progress.is_json) {
		printf("%s, at step %" PRIu64 ": %zu tensor%s, %s, in %zu unit%s%s\n", import->job_name,
		       import->list.step, import->list.count, PLURAL(import->list.count),
		       text_bytes(import->list.bytes, bytes), import->list.unit_count,
		       PLURAL(import->list.unit_count),
		       import->is_durable ? "" : "; it is not durable, and ends with the daemon");
		return COMMAND_DONE;
	}
	json = cJSON_CreateObject();
	cJSON_AddStringToObject(json, "event", "done");
	cJSON_AddStringToObject(json, "job", import->job_name);
	cJSON_AddNumberToObject(json, "step", (double)import->list.step);
	cJSON_AddNumberToObject(json, "tensors", (double)import->list.count);
	cJSON_AddNumberToObject(json, "bytes", (double)import->list.bytes);
	cJSON_AddNumberToObject(json, "units", (double)import->list.unit_count);
	cJSON_AddNumberToObject(json, "world_size", import->flags.job.world_size);
	cJSON_AddNumberToObject(json, "stage", import->flags.job.stage);
	cJSON_AddBoolToObject(json, "is_durable", import->is_durable);
	return command_print_json_line(json);
}

static int run(struct import *import)
{
	int code = command_connect(import->context, &import->ask);

	if (code == COMMAND_DONE)
		code = open_model(import, import->context->arguments[1]);
	if (code == COMMAND_DONE)
		code = open_job(import);
	if (code == COMMAND_DONE)
		code = fill_job(import);
	progress_end(&import->progress);
	if (code == COMMAND_DONE)
		code = import_job_ready(&import->job);
	if (code == COMMAND_DONE)
		code = await_commit(import);
	if (code == COMMAND_DONE)
		code = import_job_close(&import->job);
	return code == COMMAND_DONE ? tell_done(import) : code;
}

int command_import(const struct command_context *context)
{
	struct import import = { .context = context, .job_name = context->arguments[0] };
	int code = import_flags_read(context, &import.flags);

	progress_begin(&import.progress, context->is_json);
	if (code == COMMAND_DONE)
		code = run(&import);
	import_job_clear(&import.job);
	ask_free(import.ask);
	import_list_clear(&import.list);
	safetensors_model_free(import.model);
	return code;
}
