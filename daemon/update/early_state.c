#include "daemon/update/early_state.h"

#define IN(state) (1u << EARLY_##state)
#define BEGUN (IN(MEASURING) | IN(RUNNING) | IN(WRITING) | IN(READY) | IN(ADOPTED))

static const struct transition rows[] = {
	{ IN(NOTHING), EARLY_EVENT_BEGIN, EARLY_MEASURING },
	{ IN(MEASURING), EARLY_EVENT_REFUSE, EARLY_NOTHING },
	{ IN(MEASURING), EARLY_EVENT_START, EARLY_RUNNING },
	{ IN(RUNNING), EARLY_EVENT_COMPUTED, EARLY_WRITING },
	{ IN(WRITING), EARLY_EVENT_WRITTEN, EARLY_READY },
	{ IN(WRITING), EARLY_EVENT_ADOPT, EARLY_ADOPTED },
	{ IN(READY) | IN(ADOPTED), EARLY_EVENT_PUBLISH, EARLY_NOTHING },
	{ BEGUN, EARLY_EVENT_WITHDRAW, EARLY_NOTHING },
};

static const char *const states[EARLY_STATES] = {
	[EARLY_NOTHING] = "nothing", [EARLY_MEASURING] = "measuring", [EARLY_RUNNING] = "running",
	[EARLY_WRITING] = "writing", [EARLY_READY] = "ready",	      [EARLY_ADOPTED] = "adopted",
};

static const char *const events[EARLY_EVENTS] = {
	[EARLY_EVENT_BEGIN] = "all its gradients are there",
	[EARLY_EVENT_REFUSE] = "they are not finite, or the step is measured already",
	[EARLY_EVENT_START] = "they are finite",
	[EARLY_EVENT_COMPUTED] = "its last chunk is computed",
	[EARLY_EVENT_WRITTEN] = "its last chunk is written",
	[EARLY_EVENT_ADOPT] = "the sweep has come to it",
	[EARLY_EVENT_PUBLISH] = "what the store holds back is seen",
	[EARLY_EVENT_WITHDRAW] = "the step comes to nothing",
};

const struct transition_table early_table = TRANSITION_TABLE(states, events, rows);
