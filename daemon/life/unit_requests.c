/* Units that ranks define: the first one says what they are, the others the same. */
#include <errno.h>
#include <stdio.h>

#include "common/plural.h"
#include "daemon/life/life.h"
#include "daemon/model/model.h"
#include "daemon/request/request.h"
#include "daemon/resources/resources.h"
#include "daemon/telemetry/telemetry.h"
#include "proto/name.h"

static void reply_defined(struct pending *pending, uint32_t unit)
{
	Tierd__Wire__UnitDefineReply define = TIERD__WIRE__UNIT_DEFINE_REPLY__INIT;

	define.unit = unit;
	pending_reply(pending, WIRE_REPLY(UNIT_DEFINE, unit_define, &define));
}

int job_add_unit(struct job *job, const Tierd__Wire__UnitDefine *definition, char *message, size_t size)
{
	uint64_t bytes = catalog_definition_bytes(definition);
	char reason[640];
	int r = budget_charge(job, bytes, reason, sizeof(reason));

	if (r < 0)
		return refuse(message, size, r, "unit \"%.*s\": %s", name_fit(definition->name, 80),
			      definition->name, reason);
	r = catalog_define(&job->catalog, definition, &job->options, message, size);
	if (r < 0)
		budget_uncharge(job, bytes);
	else
		account_define(job, NULL);
	return r;
}

/* Values that were given are there, whatever a later rank would have begun with. */
static void forget_initializers(const struct job *job, uint32_t index,
				const Tierd__Wire__UnitDefine *definition)
{
	const struct unit *unit = &job->catalog.units[index];

	for (size_t i = 0; i < unit->tensor_count && i < definition->n_tensors; i++) {
		if (job->epoch.state == EPOCH_NONE || unit->tensors[i].initializer != INITIALIZE_NONE)
			continue;
		definition->tensors[i]->initializer = INITIALIZE_NONE;
		definition->tensors[i]->a = unit->tensors[i].a;
		definition->tensors[i]->b = unit->tensors[i].b;
	}
}

static int refuse_late(const struct job *job, const char *name, char *message, size_t size)
{
	uint32_t units = job->catalog.unit_count;

	if (job->state == JOB_PLANNING || job->state == JOB_FILLING)
		return refuse(message, size, -EBUSY,
			      "unit \"%.*s\" comes too late: the job was laid out with its %u unit%s by the "
			      "first tierd_tensor_write or tierd_job_ready; define all units before, or open "
			      "the job "
			      "with drafted to write some first",
			      name_fit(name, 80), name, units, PLURAL(units));
	return refuse(message, size, -EINVAL, "unit \"%.*s\" is one too many: the job has %u unit%s",
		      name_fit(name, 80), name, units, PLURAL(units));
}

void job_define(struct pending *pending, const Tierd__Wire__UnitDefine *definition)
{
	struct member *member = pending->member;
	struct job *job = member->job;
	char message[832];
	int r;

	if (member->defined < job->catalog.unit_count) {
		forget_initializers(job, member->defined, definition);
		r = catalog_compare(&job->catalog, member->defined, definition, message, sizeof(message));
	} else if (job->state != JOB_FORMING) {
		r = refuse_late(job, definition->name, message, sizeof(message));
	} else {
		r = job_add_unit(job, definition, message, sizeof(message));
		if (r == -ENOMEM)
			events_of_job(job, EVENT_REFUSED, NULL, "%s", message);
	}
	if (r < 0) {
		refusal_note(member->client->refusal, job, member->rank, r, message);
		pending_error(pending, r, "job %s, rank %u: %s", job->name, member->rank, message);
		return;
	}
	account_define(job, member);
	reply_defined(pending, member->defined++);
}
