#include "client/tierctl/choice.h"
#include "client/tierctl/fields.h"
#include "client/tierctl/progress.h"

#include <errno.h>
#include <inttypes.h>

#include "common/plural.h"
#include "proto/name.h"

struct verification {
	const char *job;
	struct progress progress;
	uint64_t bytes, step, damaged, mended;
};

/* ---- Telling ---- */

static cJSON *finding_json(const struct verification *verification, const Tierd__Wire__VerifyFinding *finding)
{
	cJSON *json = cJSON_CreateObject();

	cJSON_AddStringToObject(json, "event", finding->is_mended ? "mended" : "damaged");
	cJSON_AddStringToObject(json, "job", verification->job);
	fields_add(json, &finding->base,
		   "unit state tensors is_of_job snapshots ?copy device device_offset bytes error");
	return json;
}

static int tell_finding(const struct verification *verification, const Tierd__Wire__VerifyFinding *finding)
{
	progress_end(&verification->progress);
	if (verification->progress.is_json)
		return command_print_json_line(finding_json(verification, finding));
	name_make_printable(finding->unit);
	name_make_printable(finding->tensors);
	name_make_printable(finding->device);
	name_make_printable(finding->snapshots);
	printf("%s: ", verification->job);
	if (*finding->unit)
		printf("unit \"%s\", %s%s%s", finding->unit, finding->state,
		       *finding->tensors ? " of tensor " : ", padding alone", finding->tensors);
	else
		printf("its %s", finding->state);
	if (finding->copy > 0)
		printf(", copy %u", finding->copy);
	if (*finding->snapshots)
		printf(", %s snapshot %s", finding->is_of_job ? "also of" : "of", finding->snapshots);
	printf(": %" PRIu64 " bytes at byte %" PRIu64 " of %s: %s%s\n", finding->bytes,
	       finding->device_offset, finding->device, finding->error,
	       finding->is_mended ? "; written again from its other copy" : "");
	return COMMAND_DONE;
}

static void tell_progress(struct verification *verification, const Tierd__Wire__VerifyReply *reply)
{
	char bytes[TEXT_SIZE];

	if (!progress_is_due(&verification->progress))
		return;
	if (verification->progress.is_json) {
		printf("{\"event\":\"progress\",\"extent\":%" PRIu64 ",\"of\":%" PRIu64 "}\n", reply->next,
		       reply->total);
		fflush(stdout);
	} else {
		fprintf(stderr, "\r%3.0f %%, %s\033[K", 100.0 * (double)reply->next / (double)reply->total,
			text_bytes(verification->bytes, bytes));
	}
}

static int tell_end(const struct verification *verification)
{
	cJSON *json;
	char bytes[TEXT_SIZE];

	if (verification->progress.is_json) {
		json = cJSON_CreateObject();
		cJSON_AddStringToObject(json, "event", "done");
		cJSON_AddStringToObject(json, "job", verification->job);
		cJSON_AddNumberToObject(json, "step", (double)verification->step);
		cJSON_AddNumberToObject(json, "bytes", (double)verification->bytes);
		cJSON_AddNumberToObject(json, "damaged_blocks", (double)verification->damaged);
		cJSON_AddNumberToObject(json, "mended", (double)verification->mended);
		return command_print_json_line(json);
	}
	progress_end(&verification->progress);
	if (verification->damaged == 0)
		printf("%s, at step %" PRIu64 ": %s, all of it as it was written%s\n", verification->job,
		       verification->step, text_bytes(verification->bytes, bytes),
		       verification->mended > 0 ? ", or is again" : "");
	return COMMAND_DONE;
}

/* ---- Asking ---- */

static int take(struct verification *verification, const Tierd__Wire__VerifyReply *reply)
{
	int code = COMMAND_DONE;

	for (size_t i = 0; i < reply->n_findings && code == COMMAND_DONE; i++) {
		verification->mended += reply->findings[i]->is_mended;
		verification->damaged += !reply->findings[i]->is_mended;
		code = tell_finding(verification, reply->findings[i]);
	}
	verification->bytes += reply->bytes;
	verification->step = reply->step;
	if (reply->untold > 0 && !verification->progress.is_json)
		printf("%s: and %u more\n", verification->job, reply->untold);
	verification->damaged += reply->untold;
	if (reply->next < reply->total)
		tell_progress(verification, reply);
	return code;
}

static int ask_for_all(struct verification *verification, struct ask *ask, Tierd__Wire__Verify *verify)
{
	const Tierd__Wire__VerifyReply *reply;
	const Tierd__Wire__Reply *answer;
	int code;

	do {
		code = command_ask_for(ask, WIRE_REQUEST(VERIFY, verify, verify),
				       TIERD__WIRE__REPLY__BODY_VERIFY, &answer);
		if (code != COMMAND_DONE)
			return code;
		reply = answer->verify;
		if (reply->next <= verify->first)
			return command_fail_reply();
		code = take(verification, reply);
		verify->first = reply->next;
		verify->number = reply->number;
	} while (code == COMMAND_DONE && reply->next < reply->total);
	return code == COMMAND_DONE ? tell_end(verification) : code;
}

int command_verify(const struct command_context *context)
{
	_cleanup_(ask_freep) struct ask *ask = NULL;
	struct verification verification = { .job = context->arguments[0] };
	Tierd__Wire__Verify verify = TIERD__WIRE__VERIFY__INIT;
	int code = choice_ask_owner(context, &ask, &verify.name, &verify.has_owner, &verify.owner);

	if (code != COMMAND_DONE)
		return code;
	progress_begin(&verification.progress, context->is_json);
	code = ask_for_all(&verification, ask, &verify);
	if (code == COMMAND_DONE && verification.damaged > 0)
		code = command_fail_at(COMMAND_FAILED, -EBADMSG,
				       "%" PRIu64
				       " block%s of job %s cannot be read: look at the disk, and go "
				       "back to a checkpoint",
				       verification.damaged, PLURAL(verification.damaged), verification.job);
	return code;
}
