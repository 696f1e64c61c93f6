#include "daemon/observe/waits.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/plural.h"
#include "daemon/gradients/gradients.h"
#include "daemon/telemetry/telemetry.h"
#include "daemon/update/update.h"

#define LONG_NS UINT64_C(10000000000)
/* Named in a line. */
#define NAMED 3

/* ---- Who waits, and since when ---- */

static uint64_t later(uint64_t one, uint64_t other)
{
	return one > other ? one : other;
}

/* 0: it does not. A step may have been sent before the one before it was decided: till then it waited for
 * that. */
static uint64_t waits_since(const struct job *job, const struct member *member, enum waits_cause cause)
{
	switch (cause) {
	case WAITS_READY:
		return member->ready ? member->ready->asked_ns : 0;
	case WAITS_PUSH:
		return gradient_waits_since(member);
	case WAITS_STEP:
		return member->is_closed && member->step ? later(member->step->asked_ns, step_decided_ns(job))
							 : 0;
	case WAITS_SHARD:
	case WAITS_WRITE:
		return member->is_finished && member->step ? member->step->asked_ns : 0;
	default:
		return 0;
	}
}

/* ---- For whom ---- */

static bool lacks_push(const struct job *job, const struct member *member)
{
	if (member->is_closed || gradient_waits_since(member) > 0)
		return false;
	for (uint32_t rank = 0; rank < job->options.world_size; rank++) {
		const struct member *other = job->members.ranks[rank];

		if (other && other != member && gradient_waits_since(other) > 0 &&
		    gradient_awaits(other, member))
			return true;
	}
	return false;
}

static bool is_waited_for(const struct job *job, const struct member *member, enum waits_cause cause)
{
	switch (cause) {
	case WAITS_READY:
		return !member || !member->ready;
	case WAITS_PUSH:
		return member && lacks_push(job, member);
	case WAITS_STEP:
		/* One that waits for a buffer waits for others itself. */
		return member && !member->is_closed && gradient_waits_since(member) == 0;
	case WAITS_SHARD:
	case WAITS_WRITE:
		return member && member_owes_step(member);
	default:
		return false;
	}
}

static enum waits_cause find_cause(const struct job *job)
{
	if (job_is_broken(job) || job_is_ending(job))
		return WAITS_NOTHING;
	if (!job_is_live(job))
		return WAITS_READY;
	if (step_is_reduced(&job->current))
		return job->current.state == WRITING_OPEN ? WAITS_WRITE : WAITS_SHARD;
	if (job->current.closed_count > 0)
		return WAITS_STEP;
	return gradient_is_of_ranks(job) ? WAITS_NOTHING : WAITS_PUSH;
}

void waits_find(const struct job *job, struct waits *ret_waits)
{
	struct waits waits = { .cause = find_cause(job) };

	for (uint32_t rank = 0; rank < job->options.world_size && waits.cause != WAITS_NOTHING; rank++) {
		const struct member *member = job->members.ranks[rank];
		uint64_t since_ns = member ? waits_since(job, member, waits.cause) : 0;

		if (since_ns > 0 && (waits.since_ns == 0 || since_ns < waits.since_ns))
			waits.since_ns = since_ns;
		if (!is_waited_for(job, member, waits.cause))
			continue;
		if (waits.count < WAITS_MOST)
			waits.ranks[waits.count] = rank;
		waits.count++;
	}
	if (waits.since_ns == 0 || waits.count == 0)
		waits.cause = WAITS_NOTHING;
	*ret_waits = waits;
}

const char *waits_name(enum waits_cause cause)
{
	static const char *const names[] = {
		[WAITS_NOTHING] = "",  [WAITS_READY] = "ready", [WAITS_PUSH] = "push",
		[WAITS_STEP] = "step", [WAITS_SHARD] = "shard", [WAITS_WRITE] = "write"
	};

	return names[cause];
}

/* ---- Its process ---- */

/* Who has gone may have left its number to another. */
bool waits_for_stopped(const struct member *member)
{
	_cleanup_close_ int fd = -1;
	char path[64], text[512], *state;
	ssize_t length;

	if (!member->client || member->pid <= 0)
		return false;
	snprintf(path, sizeof(path), "/proc/%d/stat", (int)member->pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	length = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);
	if (length <= 0)
		return false;
	text[length] = '\0';
	/* The name before it may contain anything, parentheses too. */
	state = strrchr(text, ')');
	return state && (strncmp(state, ") T ", 4) == 0 || strncmp(state, ") t ", 4) == 0);
}

/* ---- Telling ---- */

static void name_ranks(const struct job *job, const struct waits *waits, char *text, size_t size)
{
	size_t used = 0;

	for (uint32_t i = 0; i < waits->count && i < NAMED; i++) {
		const struct member *member = job->members.ranks[waits->ranks[i]];

		used += (size_t)snprintf(text + used, size - used, "%srank %u (", i ? ", " : "",
					 waits->ranks[i]);
		if (member)
			used += (size_t)snprintf(text + used, size - used, "pid %d%s)", (int)member->pid,
						 waits_for_stopped(member) ? ", stopped by a signal" : "");
		else
			used += (size_t)snprintf(text + used, size - used, "not here)");
	}
	if (waits->count > NAMED)
		snprintf(text + used, size - used, " and %u more", waits->count - NAMED);
}

static void name_lack(const struct job *job, enum waits_cause cause, char *text, size_t size)
{
	unsigned long long step = (unsigned long long)gradient_open_step(job);

	switch (cause) {
	case WAITS_READY:
		snprintf(text, size, "call tierd_job_ready");
		break;
	case WAITS_PUSH:
		snprintf(text, size, "push what others have pushed of step %llu, or to close it", step);
		break;
	case WAITS_SHARD:
		snprintf(text, size, "write what it owns of step %llu, and to call tierd_step_finish", step);
		break;
	case WAITS_WRITE:
		snprintf(text, size, "write values, and to call tierd_write_end");
		break;
	default:
		if (job->current.state == WRITING_ENTERED)
			snprintf(text, size, "call tierd_write_begin");
		else
			snprintf(text, size, "close step %llu", step);
		break;
	}
}

static void tell(const struct job *job, const struct waits *waits, uint64_t waited_ns)
{
	char ranks[64 * NAMED], lack[96];

	name_ranks(job, waits, ranks, sizeof(ranks));
	name_lack(job, waits->cause, lack, sizeof(lack));
	events_of_job(job, EVENT_WAITING, &(struct log_fields){ .rank = &waits->ranks[0] },
		      "others have waited %llu s for %s to %s", (unsigned long long)(waited_ns / 1000000000),
		      ranks, lack);
}

void waits_check(struct job *job)
{
	struct waits waits;
	uint64_t now = clock_now_ns();

	waits_find(job, &waits);
	if (waits.cause == WAITS_NOTHING || now < waits.since_ns + LONG_NS ||
	    !telemetry_note_wait(job, waits.since_ns))
		return;
	tell(job, &waits, now - waits.since_ns);
}
