#include "client/tierctl/choice.h"
#include "client/tierctl/confirm.h"
#include "client/tierctl/fields.h"
#include "client/tierctl/jobs.h"

#include <inttypes.h>

#include "common/plural.h"

#define DESTROYED "its state"

static int ask_person(const struct command_context *context, const Tierd__Wire__JobEntry *job)
{
	char owner[TEXT_SIZE], host[TEXT_SIZE], nvme[TEXT_SIZE];
	int code = confirm_unused(context, job, DESTROYED);

	if (code != COMMAND_DONE)
		return code;
	if (job->is_lost)
		return confirm(job->name, DESTROYED,
			       "Job %s of %s cannot be opened: %s.\nDiscard what is left of it", job->name,
			       command_user_name(job->uid, owner), job->reason);
	return confirm(job->name, DESTROYED,
		       "Job %s of %s stands at step %" PRIu64
		       ", with %zu of %u rank%s, %s in host memory and %s on NVMe.\nDiscard its state%s",
		       job->name, command_user_name(job->uid, owner), job->step, job->n_members,
		       job->world_size, PLURAL(job->world_size), text_bytes(job->host_bytes, host),
		       text_bytes(job->nvme_bytes, nvme), job->snapshots ? ", and its snapshots" : "");
}

int command_drop(const struct command_context *context)
{
	_cleanup_(ask_freep) struct ask *ask = NULL;
	Tierd__Wire__JobDrop drop = TIERD__WIRE__JOB_DROP__INIT;
	const Tierd__Wire__JobEntry *job = NULL;
	const Tierd__Wire__Reply *reply;
	cJSON *json = NULL;
	int code = choice_ask_job(context, &ask, &job);

	if (code == COMMAND_DONE && !command_flag(context, "yes"))
		code = ask_person(context, job);
	if (code != COMMAND_DONE)
		return code;
	drop.name = job->name;
	drop.has_owner = true;
	drop.owner = job->uid;
	drop.force = command_flag(context, "force") != NULL;
	drop.lost = command_flag(context, "lost") != NULL;
	/* The next answer takes the place of the jobs. */
	if (context->is_json) {
		json = fields_json(&job->base, "name uid");
		fields_add_known(json, &job->base, jobs_has_record(job), "step");
	}
	code = command_ask(ask, WIRE_REQUEST(JOB_DROP, job_drop, &drop), &reply);
	if (code == COMMAND_DONE && context->is_json)
		return command_print_json(json);
	if (code == COMMAND_DONE)
		printf("%s is dropped\n", context->arguments[0]);
	cJSON_Delete(json);
	return code;
}
