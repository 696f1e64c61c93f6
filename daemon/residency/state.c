/* The states of a pack's residence as a table. A pack whose load fails is absent again, and who waits for it
 * is told; one that cannot be evicted or updated now stays as it is, and is tried again. */
#include "daemon/residency/state.h"

#include <assert.h>

#include "common/log.h"
#include "daemon/residency/own.h"

#define IN(state) (1u << RESIDENCE_##state)
#define EVERY ((1u << RESIDENCE_STATES) - 1)

#define ROW(from, event, guard, next, action)                                                                \
	{                                                                                                    \
		{ from, RESIDENCE_##event, RESIDENCE_##next }, guard, action, #guard, #action                \
	}

static const struct residence_transition rows[] = {
	ROW(IN(ABSENT), QUEUE, NULL, QUEUED, enter_queue),
	ROW(IN(ABSENT), LOAD, NULL, LOADING, start_load),
	ROW(IN(ABSENT), FILL, NULL, UNPUBLISHED, NULL),
	ROW(IN(ABSENT), CLAIM, NULL, DUE_ABSENT, NULL),

	ROW(IN(QUEUED), LEAVE_QUEUE, NULL, ABSENT, leave_queue),
	ROW(IN(QUEUED), LOAD, NULL, LOADING, leave_queue_and_load),
	ROW(IN(QUEUED), CLAIM, NULL, DUE_ABSENT, leave_queue),

	ROW(IN(LOADING), PUBLISH, NULL, RESIDENT, publish),
	ROW(IN(LOADING), LOAD_FAILED, NULL, ABSENT, give_slot),
	ROW(IN(LOADING), CLAIM, NULL, DUE_LOADING, NULL),

	ROW(IN(RESIDENT), EVICT, close_to_all, ABSENT, evict),
	ROW(IN(RESIDENT), CLAIM, NULL, DUE_RESIDENT, NULL),

	ROW(IN(UNPUBLISHED), PUBLISH, NULL, RESIDENT, publish),
	ROW(IN(UNPUBLISHED), GIVE_UP, NULL, ABSENT, give_slot),
	ROW(IN(UNPUBLISHED), CLAIM, NULL, DUE_UNPUBLISHED, NULL),

	ROW(IN(DUE_LOADING), PUBLISH, NULL, DUE_RESIDENT, publish),
	ROW(IN(DUE_LOADING), LOAD_FAILED, NULL, DUE_ABSENT, give_slot),
	ROW(IN(DUE_ABSENT), BEGIN, NULL, STREAMING, NULL),
	ROW(IN(DUE_ABSENT), BEGIN_LOADED, NULL, UPDATING, show_updating),
	ROW(IN(DUE_RESIDENT), BEGIN, close_to_updates, UPDATING, NULL),
	ROW(IN(DUE_UNPUBLISHED), BEGIN, NULL, UPDATING, NULL),

	ROW(IN(UPDATING), END, NULL, UNPUBLISHED, NULL),
	ROW(IN(STREAMING), END, NULL, ABSENT, NULL),

	ROW(EVERY, FORGET, NULL, ABSENT, forget),
};

static const char *const states[RESIDENCE_STATES] = {
	[RESIDENCE_ABSENT] = "absent",
	[RESIDENCE_QUEUED] = "queued",
	[RESIDENCE_LOADING] = "loading",
	[RESIDENCE_RESIDENT] = "resident",
	[RESIDENCE_UNPUBLISHED] = "unpublished",
	[RESIDENCE_DUE_ABSENT] = "due, absent",
	[RESIDENCE_DUE_LOADING] = "due, loading",
	[RESIDENCE_DUE_RESIDENT] = "due, resident",
	[RESIDENCE_DUE_UNPUBLISHED] = "due, unpublished",
	[RESIDENCE_UPDATING] = "updating",
	[RESIDENCE_STREAMING] = "streaming",
};

static const char *const events[RESIDENCE_EVENTS] = {
	[RESIDENCE_QUEUE] = "there is no slot for it",
	[RESIDENCE_LEAVE_QUEUE] = "nobody waits for it any more",
	[RESIDENCE_LOAD] = "it is read into a slot",
	[RESIDENCE_LOAD_FAILED] = "it cannot be read",
	[RESIDENCE_FILL] = "values are written into a slot",
	[RESIDENCE_PUBLISH] = "its bytes are in its slot",
	[RESIDENCE_EVICT] = "another pack needs its slot",
	[RESIDENCE_CLAIM] = "a sweep is to update it",
	[RESIDENCE_BEGIN] = "its update begins",
	[RESIDENCE_BEGIN_LOADED] = "its update begins in a new slot",
	[RESIDENCE_END] = "its update has ended",
	[RESIDENCE_GIVE_UP] = "its bytes are in the store alone",
	[RESIDENCE_FORGET] = "the arena has gone",
};

const struct transition_table residence_table = TRANSITION_TABLE(states, events, rows);

bool residence_step(struct job *job, uint32_t pack, enum residence_event event)
{
	struct residence *residence = residence_of(job, pack);
	const struct residence_transition *row;
	unsigned next;

	row = (const struct residence_transition *)transition_find(&residence_table, residence->state, event,
								   &next);
	assert(row);
	if (row->guard && !row->guard(job, pack))
		return false;
	if (log_takes(LOG_LEVEL_DEBUG))
		log_debug("job %s: unit \"%s\": %s: from %s to %s", job->name, pack_name(job, pack),
			  events[event], states[residence->state], states[next]);
	residence->state = next;
	if (row->action)
		row->action(job, pack);
	return true;
}
