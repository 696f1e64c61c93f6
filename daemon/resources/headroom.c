#include "daemon/resources/headroom.h"

#include <stdio.h>

#include "common/size.h"
#include "daemon/resources/budget.h"
#include "daemon/model/model.h"
#include "daemon/resources/own.h"

/* Of a budget, what no cache takes. */
#define RESERVE_MOST (64 * MIB)

struct claim claim_of_job(const struct job *job)
{
	return (struct claim){ job->node, job->uid, job->resources->limits.host_maximum, job };
}

struct headroom headroom_for(const struct claim *claim)
{
	const struct node *node = claim->node;
	uint64_t left = size_rest(node->settings.host_budget, node->resources->host_used), of_user;

	if (claim->host_maximum == 0)
		return (struct headroom){ left, HEADROOM_OF_NODE };
	of_user = size_rest(claim->host_maximum, holders_user_bytes(node, HOLDERS_OF_HOST, claim->uid));
	return of_user < left ? (struct headroom){ of_user, HEADROOM_OF_USER }
			      : (struct headroom){ left, HEADROOM_OF_NODE };
}

static uint64_t reserve_of(const struct claim *claim, struct headroom headroom)
{
	uint64_t reserve = (headroom.bound == HEADROOM_OF_USER ? claim->host_maximum
							       : claim->node->settings.host_budget) /
			   16;

	return reserve < RESERVE_MOST ? reserve : RESERVE_MOST;
}

uint64_t headroom_lacking(const struct claim *claim, uint64_t bytes)
{
	struct headroom headroom = headroom_for(claim);

	return size_rest(size_sum(bytes, reserve_of(claim, headroom)), headroom.bytes);
}

const char *headroom_describe(const struct claim *claim, struct headroom headroom, char *text, size_t size)
{
	char maximum[16], budget[16], holders[HOLDERS_TEXT];

	if (headroom.bound == HEADROOM_OF_JOB) {
		snprintf(text, size, "the job's host_budget");
		return text;
	}
	holders_describe(claim, HOLDERS_OF_HOST, headroom.bound == HEADROOM_OF_NODE, holders,
			 sizeof(holders));
	if (headroom.bound == HEADROOM_OF_USER)
		snprintf(text, size, "what is left of this user's host_maximum, %s%s",
			 budget_print(claim->host_maximum, maximum), holders);
	else
		snprintf(text, size, "what tierd has left of its own host_budget, %s%s",
			 budget_print(claim->node->settings.host_budget, budget), holders);
	return text;
}
