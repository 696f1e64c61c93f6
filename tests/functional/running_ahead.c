/* Ranks run ahead of one that has pushed nothing, in the least memory that their job gets ready with: two
 * slots for all of them. The slow one still finds a slot, so nobody waits for ever, and nobody is told that
 * there is no buffer. */
#include <errno.h>
#include <pthread.h>
#include <string.h>

#include "crash_support.h"

#define UNITS 8
#define RANKS 3
/* Two of them do not fit into one pack. */
#define ELEMENTS 600000
/* A rank that gets nothing for so long, while nobody else does anything, waits for others. */
#define STUCK_MS 300

struct rank {
	pthread_t thread;
	struct tierd_node *node;
	struct tierd_job *job;
	uint32_t left; /* units that it has not pushed: the last of them is the next one */
};

static void open_rank(struct rank *rank, uint32_t number)
{
	struct tierd_job_options options = support_options("ahead", number, RANKS);

	OK(tierd_job_open(rank->node, &options, &rank->job));
	support_define_all(rank->job, UNITS, TIERD_FP32, ELEMENTS, 1.0, 0.0);
	rank->left = UNITS;
}

/* False: it takes more. */
static bool get_ready(struct rank *ranks)
{
	struct tierd_ticket *tickets[RANKS];
	int r = 0;

	for (uint32_t i = 0; i < RANKS; i++)
		open_rank(&ranks[i], i);
	for (uint32_t i = 0; i < RANKS; i++)
		OK(tierd_job_ready_begin(ranks[i].job, PATIENCE_MS, &tickets[i]));
	for (uint32_t i = 0; i < RANKS; i++) {
		r = tierd_ticket_wait(tickets[i], TIERD_DONE, PATIENCE_MS);
		REQUIRE(r == 0 || r == -ENOMEM);
		tierd_ticket_free(tickets[i]);
	}
	return r == 0;
}

/* 0, or why it got a unit or a buffer no more. */
static int run(struct rank *rank)
{
	struct tierd_view view;

	while (rank->left > 0) {
		uint32_t unit = rank->left - 1;
		int r = tierd_gather(rank->job, unit, &view);

		if (r < 0)
			return r;
		r = tierd_gradients(rank->job, unit, &view);
		/* It keeps its lease while it waits, as trainers do. */
		if (r < 0)
			return r;
		((float *)tierd_at(&view, 0))[0] = 1.0f;
		OK(tierd_push(rank->job, unit));
		OK(tierd_release(rank->job, unit));
		rank->left--;
	}
	return 0;
}

static void *go_on(void *argument)
{
	struct rank *rank = argument;
	struct tierd_rates rates = support_rates(0.1f);
	struct tierd_view view;

	OK(tierd_set_timeout(rank->node, PATIENCE_MS));
	if (rank->left < UNITS) {
		OK(tierd_gradients(rank->job, rank->left - 1, &view));
		OK(tierd_release(rank->job, rank->left - 1));
	}
	OK(run(rank));
	OK(tierd_step(rank->job, &rates, NULL));
	return NULL;
}

static void end(struct rank *ranks, int (*leave)(struct tierd_job *job))
{
	for (uint32_t i = 0; i < RANKS; i++)
		OK(leave(ranks[i].job));
	for (uint32_t i = 0; i < RANKS; i++)
		tierd_disconnect(ranks[i].node);
}

int main(void)
{
	struct rank ranks[RANKS];

	for (uint32_t i = 0; i < RANKS; i++)
		ranks[i] = (struct rank){ .node = support_connect() };
	if (!get_ready(ranks)) {
		end(ranks, tierd_job_detach);
		return 75;
	}
	for (uint32_t i = 1; i < RANKS; i++) {
		OK(tierd_set_timeout(ranks[i].node, STUCK_MS));
		REQUIRE(run(&ranks[i]) == -ETIMEDOUT);
		REQUIRE(ranks[i].left < UNITS);
	}
	for (uint32_t i = 0; i < RANKS; i++)
		REQUIRE(pthread_create(&ranks[i].thread, NULL, go_on, &ranks[i]) == 0);
	for (uint32_t i = 0; i < RANKS; i++)
		REQUIRE(pthread_join(ranks[i].thread, NULL) == 0);
	end(ranks, tierd_job_close);
	return 0;
}
