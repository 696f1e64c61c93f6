/* Its states are those of the step whose number it takes: daemon/update/step_table.c. Until it is decided
 * nothing of the job changes, so whoever goes before costs what was written, and nothing else. After that the
 * daemon needs nobody. What the daemon's own end, or a device, can interrupt is not committed: the job comes
 * back as it was before. */

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "daemon/durability/durability.h"
#include "daemon/gradients/gradients.h"
#include "daemon/model/model.h"
#include "daemon/residency/residency.h"
#include "daemon/telemetry/telemetry.h"
#include "daemon/update/update.h"
#include "daemon/values/draft.h"
#include "daemon/values/reader.h"

/* ---- Entering ---- */

void writing_enter(struct pending *pending, const Tierd__Wire__WriteBegin *begin)
{
	struct step_rates no_rates = { .group_count = 0 };

	if (!job_check_live(pending, begin->epoch))
		return;
	pending->is_writing = true;
	if (!step_take(pending, &no_rates))
		step_fail_refused(pending->member);
}

bool writing_check_enter(struct pending *pending)
{
	const struct member *member = pending->member;
	const char *why = NULL;

	if (gradient_has_pushed(member))
		why = "has pushed gradients";
	else if (member->announced.is_made)
		why = "has announced a step (tierd_step_begin)";
	if (why)
		pending_error(pending, -EBUSY,
			      "rank %u %s; values are written between two steps: call tierd_step first",
			      member->rank, why);
	return !why;
}

void writing_open(struct job *job)
{
	job->values->writing_error = 0;
	reduced_begin(job);
}

/* ---- What is written ---- */

bool writing_check(struct pending *pending, const Tierd__Wire__TensorWrite *write)
{
	const struct member *member = pending->member;
	struct job *job = member->job;
	const struct unit *unit = &job->catalog.units[write->unit];
	const struct tensor *tensor = &unit->tensors[write->tensor];

	if (!job_check_live(pending, member->epoch))
		return false;
	if (member->is_finished) {
		pending_error(pending, -EBUSY, "rank %u has called tierd_write_end already", member->rank);
		return false;
	}
	if (*write->state && !state_write_check(pending, write, &pending->state))
		return false;
	if (tensor->is_frozen && write->is_master) {
		pending_error(pending, -EINVAL, "tensor \"%s\" is frozen: it has no master", tensor->name);
		return false;
	}
	if (!tensor->is_frozen)
		update_note_written(job, unit->pack, true);
	return true;
}

void writing_note_failure(struct job *job, const struct member *member, int status)
{
	if (job->current.state != WRITING_OPEN || job->values->writing_error < 0)
		return;
	job->values->writing_error = status;
	job->values->writing_culprit = member->rank;
}

/* ---- The end of its ranks' part ---- */

static bool check_leave(struct pending *pending, uint32_t epoch)
{
	const struct member *member = pending->member;

	if (!job_check_live(pending, epoch))
		return false;
	if (member->job->current.state == WRITING_OPEN && member->is_closed && !member->is_finished)
		return true;
	pending_error(pending, -EBUSY,
		      "rank %u writes no values: tierd_write_end comes once after each tierd_write_begin",
		      member->rank);
	return false;
}

void writing_leave(struct pending *pending, const Tierd__Wire__WriteEnd *end)
{
	struct member *member = pending->member;

	if (!check_leave(pending, end->epoch))
		return;
	if (end->is_cancelled)
		writing_note_failure(member->job, member, -ECANCELED);
	pending_reply(pending, NULL);
	reduced_end_part(member);
}

void writing_forget(struct job *job)
{
	for (uint32_t u = 0; u < job->catalog.unit_count; u++)
		for (uint32_t i = 0; i < job->catalog.units[u].tensor_count; i++)
			job->catalog.units[u].tensors[i].has_given = false;
	for (uint32_t pack = 0; pack < job->catalog.pack_count; pack++)
		update_note_written(job, pack, false);
}

static void fail(struct job *job)
{
	char message[160];

	if (job->values->writing_error == -ECANCELED)
		snprintf(message, sizeof(message),
			 "rank %u has cancelled the writing of values: none is written",
			 job->values->writing_culprit);
	else
		snprintf(message, sizeof(message),
			 "a value of rank %u could not be taken (%s): none is written",
			 job->values->writing_culprit, strerror(-job->values->writing_error));
	writing_forget(job);
	step_fail(job, job->values->writing_error, message);
	job_settle(job);
}

void writing_decide(struct job *job)
{
	if (job->values->writing_error < 0) {
		fail(job);
		return;
	}
	step_begin_decided(job);
	job_settle(job);
}

/* ---- Applying it ---- */

/* What they are before it is not there any more from now on, for those who come; those who are there end
 * soon.
 */
static bool packs_are_free(struct job *job)
{
	bool are_free = true;

	for (uint32_t pack = 0; pack < job->catalog.pack_count; pack++) {
		if (!update_is_written(job, pack))
			continue;
		update_begin_pack(job, pack);
		are_free &= !residency_is_in_use(job, pack);
	}
	return are_free;
}

static void place(struct job *job)
{
	for (uint32_t pack = 0; pack < job->catalog.pack_count; pack++)
		if (update_is_written(job, pack))
			warm_forget_pack(job, pack);
	/* What is not written here has one, too. */
	job->location.has_given_masters = sums_are_as_pushed(job);
	step_happens(job, STEP_EVENT_PLACE);
	job_settle(job);
}

static void on_flushed(struct job *job, int status)
{
	if (job->current.state == WRITING_FLUSHING && status == 0)
		place(job);
}

static void begin_to_place(struct job *job)
{
	if (readers_are_copying(job) || !durable_is_quiet(job) || !packs_are_free(job))
		return;
	if (!warm_has_dirty(job)) {
		place(job);
		return;
	}
	step_happens(job, STEP_EVENT_FLUSH);
	warm_flush_all(job, on_flushed);
}

static uint64_t updates_to_be(const struct unit *unit, const struct tensor *tensor)
{
	return tensor->has_given ? tensor->given : tensor_updates(unit, tensor);
}

/* A unit has had as many as that of its tensors that has had most. */
static uint64_t find_updates(const struct unit *unit)
{
	uint64_t most = 0;

	for (uint32_t i = 0; i < unit->tensor_count; i++)
		if (!unit->tensors[i].is_frozen && updates_to_be(unit, &unit->tensors[i]) > most)
			most = updates_to_be(unit, &unit->tensors[i]);
	return most;
}

/* A unit may have had more updates than the job has steps, which its record says. */
static int note_updates(struct job *job)
{
	bool has_earlier = false;

	for (uint32_t u = 0; u < job->catalog.unit_count; u++)
		has_earlier |= find_updates(&job->catalog.units[u]) > job->decided;
	return has_earlier ? durable_note_earlier_updates(job) : 0;
}

static void sweep(struct job *job)
{
	int r = note_updates(job);

	step_happens(job, STEP_EVENT_APPLY);
	if (r == 0)
		r = sweep_start(job, false);
	if (r < 0)
		job_break(job, NULL, "what its ranks have written cannot be stored: %s", strerror(-r));
}

bool writing_go_on(struct job *job)
{
	switch (job->current.state) {
	case WRITING_OPEN:
		draft_go_on(job, NULL);
		return true;
	case WRITING_DECIDED:
		begin_to_place(job);
		return true;
	case WRITING_PLACING:
		if (!state_write_go_on(job) && !draft_go_on(job, NULL))
			sweep(job);
		return true;
	case WRITING_FLUSHING:
	case WRITING_APPLYING:
		return true;
	default:
		draft_give_up(job);
		return job->values->draft != NULL;
	}
}

/* ---- The end ---- */

/* A pack that has its new values is as after the writing, though others are on their way. */
uint64_t writing_updates(const struct job *job, uint32_t number, const struct tensor *tensor)
{
	const struct unit *unit = &job->catalog.units[number];
	bool is_new =
		job->current.state == WRITING_APPLYING && residency_version(job, unit->pack) == job->decided;

	return is_new ? updates_to_be(unit, tensor) : tensor_updates(unit, tensor);
}

static bool has_given(const struct unit *unit)
{
	for (uint32_t i = 0; i < unit->tensor_count; i++)
		if (unit->tensors[i].has_given)
			return true;
	return false;
}

static void set_updates(struct job *job)
{
	for (uint32_t u = 0; u < job->catalog.unit_count; u++) {
		struct unit *unit = &job->catalog.units[u];
		uint64_t most = find_updates(unit);

		if (!has_given(unit))
			continue;
		for (uint32_t i = 0; i < unit->tensor_count; i++)
			if (!unit->tensors[i].is_frozen)
				unit->tensors[i].missed = most - updates_to_be(unit, &unit->tensors[i]);
		unit->updates = most;
		unit->last_update = most > 0 ? job->decided : 0;
	}
}

void writing_end(struct job *job)
{
	set_updates(job);
	events_of_job(job, EVENT_APPLIED, NULL, "step %llu is applied: its ranks have written values",
		      (unsigned long long)job->step);
	writing_forget(job);
	gradient_try_all(job);
}
