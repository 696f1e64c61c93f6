#include "daemon/gpu/exchange.h"

#include <assert.h>
#include <errno.h>
#include <event2/event.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/clock.h"

/* Where sums of a rank begin in memory, for the GPU's sake. */
#define GRAIN_ELEMENTS 64

static_assert(GPU_ROUND_BYTES / sizeof(float) / GPU_RANKS >= GRAIN_ELEMENTS,
	      "a round has room for all ranks");
static_assert(COMMUNICATOR_RANGES >= GPU_RANKS + 2, "gradients, packs and staging memory can be registered");

/* ---- States ---- */

#define IN(state) (1u << EXCHANGE_##state)

static const struct transition rows[] = {
	{ IN(NONE), EXCHANGE_BEGIN, EXCHANGE_CREATING },
	{ IN(CREATING), EXCHANGE_MADE, EXCHANGE_READY },
	{ IN(CREATING) | IN(READY), EXCHANGE_FAIL, EXCHANGE_BROKEN },
	{ IN(CREATING) | IN(READY) | IN(BROKEN), EXCHANGE_END, EXCHANGE_ENDING },
	/* They were told before; or the thread was given up, and comes back. */
	{ IN(BROKEN) | IN(ENDING), EXCHANGE_MADE, TRANSITION_STAYS },
	{ IN(BROKEN) | IN(ENDING), EXCHANGE_FAIL, TRANSITION_STAYS },
	{ IN(ENDING), EXCHANGE_ENDED, EXCHANGE_NONE },
};

static const char *const states[EXCHANGE_STATES] = {
	[EXCHANGE_NONE] = "none",     [EXCHANGE_CREATING] = "creating", [EXCHANGE_READY] = "ready",
	[EXCHANGE_BROKEN] = "broken", [EXCHANGE_ENDING] = "ending",
};

static const char *const events[EXCHANGE_EVENTS] = {
	[EXCHANGE_BEGIN] = "several GPUs expect the same",
	[EXCHANGE_MADE] = "its communicator is ready",
	[EXCHANGE_FAIL] = "its communicator has failed",
	[EXCHANGE_END] = "the epoch is over, or a tier comes or goes",
	[EXCHANGE_ENDED] = "the thread has let go of it",
};

const struct transition_table exchange_table = TRANSITION_TABLE(states, events, rows);

static void step(struct gpu_exchange *exchange, enum exchange_event event)
{
	enum exchange_state before = exchange->state;

	exchange->state = transition_take(&exchange_table, before, event);
	log_debug("exchange of job %s, epoch %" PRIu32 ": %s: from %s to %s", exchange->job->name,
		  exchange->epoch, events[event], states[before], states[exchange->state]);
}

/* ---- The thread, which the node's first exchange starts ---- */

struct gpu_exchanges {
	struct exchange_thread *thread;
	struct event *event;
};

static void on_results(evutil_socket_t fd, short what, void *argument)
{
	exchange_thread_reap(((struct gpu_exchanges *)argument)->thread);
}

static struct gpu_exchanges *discard(struct gpu_exchanges *exchanges)
{
	if (!exchanges)
		return NULL;
	if (exchanges->event)
		event_free(exchanges->event);
	exchange_thread_free(exchanges->thread);
	free(exchanges);
	return NULL;
}

static int start_thread(struct node *node)
{
	struct gpu_exchanges *exchanges;
	int r;

	if (node->gpu->exchanges)
		return 0;
	exchanges = calloc(1, sizeof(*exchanges));
	r = exchanges ? exchange_thread_new(&exchanges->thread) : -ENOMEM;
	if (r == 0) {
		exchanges->event = event_new(node->loop, exchange_thread_fd(exchanges->thread),
					     EV_READ | EV_PERSIST, on_results, exchanges);
		r = exchanges->event && event_add(exchanges->event, NULL) == 0 ? 0 : -ENOMEM;
	}
	if (r < 0)
		discard(exchanges);
	else
		node->gpu->exchanges = exchanges;
	return r;
}

void gpu_exchange_node_free(struct node *node)
{
	node->gpu->exchanges = discard(node->gpu->exchanges);
}

/* ---- Which GPUs ---- */

static bool has_tier(struct gpu_tier *const *tiers, unsigned count, const struct gpu_tier *tier)
{
	for (unsigned i = 0; i < count; i++)
		if (tiers[i] == tier)
			return true;
	return false;
}

static struct gpu_tier *tier_of(const struct job *job, uint32_t rank)
{
	const struct member *member = job->members.ranks[rank];
	const struct gpu_rank *own = member ? member->gpu : NULL;

	return own && own->leases && own->tier->state == GPU_TIER_OPEN ? own->tier : NULL;
}

bool gpu_exchange_is_ready(const struct gpu_exchange *exchange)
{
	return exchange && exchange->state == EXCHANGE_READY && job_is_live(exchange->job) &&
	       exchange->epoch == exchange->job->epoch.number;
}

/* In the order of their first ranks, as members are numbered. */
static unsigned find_tiers(const struct job *job, struct gpu_tier *ret_tiers[GPUS_MAX])
{
	unsigned count = 0;

	for (uint32_t rank = 0; rank < job->options.world_size; rank++) {
		struct gpu_tier *tier = tier_of(job, rank);

		if (tier && !has_tier(ret_tiers, count, tier))
			ret_tiers[count++] = tier;
	}
	return count;
}

/* By way of the host it would be slower than from there. */
static bool reach_one_another(struct gpu_tier *const *tiers, unsigned count)
{
	for (unsigned i = 0; i < count; i++)
		for (unsigned other = 0; other < count; other++)
			if (!gpu_engine_reaches(tiers[i]->gpu->engine, tiers[other]->gpu->number))
				return false;
	return true;
}

static bool is_order_known(const struct job *job)
{
	for (uint32_t rank = 0; rank < job->options.world_size; rank++)
		if (tier_of(job, rank) && prefetch_expected(job, rank, 0) == ORDER_NONE)
			return false;
	return true;
}

static bool is_wanted(const struct job *job, struct gpu_tier *const *tiers, unsigned count)
{
	unsigned mode = job->node->settings.gpu_exchange;

	return mode != GPU_EXCHANGE_NEVER && job_is_live(job) && count > 1 && is_order_known(job) &&
	       (mode == GPU_EXCHANGE_ALWAYS || reach_one_another(tiers, count));
}

bool gpu_exchange_has(const struct gpu_tier *tier)
{
	const struct gpu_exchange *exchange = tier->job->gpu->exchange;

	return exchange && exchange->state != EXCHANGE_NONE &&
	       has_tier(exchange->tiers, exchange->count, tier);
}

/* ---- Told by the thread ---- */

static struct gpu_exchange *exchange_of(struct exchange_group *group)
{
	return container_of(group, struct gpu_exchange, group);
}

static void on_ready(struct exchange_group *group)
{
	struct gpu_exchange *exchange = exchange_of(group);

	step(exchange, EXCHANGE_MADE);
	if (exchange->state != EXCHANGE_BROKEN)
		exchange->problem[0] = '\0';
	if (exchange->state == EXCHANGE_READY)
		log_info("job %s: its %u GPUs exchange packs by NCCL", exchange->job->name, exchange->count);
	job_settle(exchange->job);
}

/* A communicator's text begins with the job and the epoch. */
static const char *cause_of(const char *problem)
{
	const char *cause = strstr(problem, ": ");

	return cause ? cause : problem;
}

/* The same in each epoch is said once. */
static void tell(struct gpu_exchange *exchange, const char *problem)
{
	if (strcmp(cause_of(problem), cause_of(exchange->problem)) == 0)
		return;
	snprintf(exchange->problem, sizeof(exchange->problem), "%s", problem);
	log_warning("job %s: its GPUs exchange nothing, and each copies all from host memory: %s",
		    exchange->job->name, problem);
}

static void on_failed(struct exchange_group *group, const char *problem)
{
	struct gpu_exchange *exchange = exchange_of(group);

	step(exchange, EXCHANGE_FAIL);
	if (exchange->state == EXCHANGE_BROKEN)
		tell(exchange, problem);
	job_settle(exchange->job);
}

/* ---- The thread hangs ---- */

bool gpu_exchange_hangs(const struct node *node, uint64_t patience_ns)
{
	const struct gpu_exchanges *exchanges = node->gpu->exchanges;

	return exchanges && clock_is_late(exchange_thread_at_work_since(exchanges->thread), patience_ns);
}

/* What takes so long has failed, as an operation has. */
static bool is_given_up(const struct node *node, char *problem, size_t size)
{
	unsigned seconds = node->settings.gpu_exchange_seconds;

	if (!gpu_exchange_hangs(node, seconds * UINT64_C(1000000000)))
		return false;
	snprintf(problem, size, "NCCL has not come back from a call for %u s", seconds);
	return true;
}

/* NCCL may write to the slots whenever it likes: nothing else may be put there. */
static void lose_tiers(struct gpu_exchange *exchange, const char *problem, gpu_exchange_fail fail)
{
	bool is_moving = false;

	for (unsigned i = 0; i < GPU_SHARES; i++)
		is_moving |= exchange->shares[i].is_moving;
	for (unsigned i = 0; is_moving && i < exchange->count; i++) {
		struct gpu_tier *tier = exchange->tiers[i];

		if (tier->state != GPU_TIER_OPEN)
			continue;
		log_error("job %s goes on without %s: %s", exchange->job->name,
			  gpu_engine_name(tier->gpu->engine), problem);
		fail(tier, -ENODEV, problem);
	}
}

static void give_up(struct gpu_exchange *exchange, const char *problem, gpu_exchange_fail fail)
{
	if (exchange->state == EXCHANGE_CREATING || exchange->state == EXCHANGE_READY) {
		step(exchange, EXCHANGE_FAIL);
		tell(exchange, problem);
	}
	if (exchange->give_up_sums)
		exchange->give_up_sums(exchange, NULL);
	lose_tiers(exchange, problem, fail);
	job_settle(exchange->job);
}

static void give_up_all(struct queue *jobs, const char *problem, gpu_exchange_fail fail)
{
	QUEUE_FOREACH (link, jobs) {
		struct gpu_exchange *exchange = queue_entry(link, struct job, link)->gpu->exchange;

		if (exchange && exchange->state != EXCHANGE_NONE)
			give_up(exchange, problem, fail);
	}
}

void gpu_exchange_check(struct node *node, gpu_exchange_fail fail)
{
	char problem[128];

	if (!is_given_up(node, problem, sizeof(problem)))
		return;
	give_up_all(&node->jobs.live, problem, fail);
	give_up_all(&node->jobs.dying, problem, fail);
}

/* ---- It has let go ---- */

static void free_lent(struct gpu_exchange *exchange)
{
	free(TAKE_PTR(exchange->member_of_rank));
	for (unsigned i = 0; i < GPU_SHARES; i++) {
		free(TAKE_PTR(exchange->shares[i].operation.requests));
		free(TAKE_PTR(exchange->shares[i].bounds));
	}
}

static void on_ended(struct exchange_group *group)
{
	struct gpu_exchange *exchange = exchange_of(group);

	free_lent(exchange);
	step(exchange, EXCHANGE_ENDED);
	if (exchange->give_back)
		exchange->give_back(exchange);
	job_settle(exchange->job);
}

/* ---- Beginning and ending ---- */

static int make_lent(struct gpu_exchange *exchange, uint32_t ranks)
{
	exchange->member_of_rank = calloc(ranks, sizeof(*exchange->member_of_rank));
	if (!exchange->member_of_rank)
		return -ENOMEM;
	for (unsigned i = 0; i < GPU_SHARES; i++) {
		struct gpu_share *share = &exchange->shares[i];

		share->exchange = exchange;
		share->operation.group = &exchange->group;
		share->operation.requests = calloc(ranks, sizeof(*share->operation.requests));
		share->bounds = calloc(ranks + 1, sizeof(*share->bounds));
		if (!share->operation.requests || !share->bounds)
			return -ENOMEM;
	}
	return 0;
}

static void fill_group(struct gpu_exchange *exchange, uint32_t ranks)
{
	exchange->group = (struct exchange_group){
		.job = exchange->job->name,
		.epoch = exchange->epoch,
		.rank_count = ranks,
		.member_count = exchange->count,
		.member_of_rank = exchange->member_of_rank,
		.timeout_ns = exchange->job->node->settings.gpu_exchange_seconds * UINT64_C(1000000000),
		.ready = on_ready,
		.failed = on_failed,
		.ended = on_ended,
	};
	for (unsigned i = 0; i < exchange->count; i++)
		exchange->group.members[i] = (struct exchange_member){
			.gpu = exchange->tiers[i]->gpu->number,
			.engine = exchange->tiers[i]->gpu->engine,
			.memory = exchange->tiers[i]->memory.address,
			.bytes = exchange->tiers[i]->memory.bytes,
		};
	/* A rank without a GPU, or whose GPU has failed, is the first member's: it has no part in anything.
	 */
	for (uint32_t rank = 0; rank < ranks; rank++)
		for (unsigned i = 1; i < exchange->count; i++)
			if (tier_of(exchange->job, rank) == exchange->tiers[i])
				exchange->member_of_rank[rank] = i;
}

/* ---- What it needs for sums, where all of its tiers have that ---- */

/* 0: it has none, or cannot sum. */
static driver_address pieces_of(const struct gpu_tier *tier)
{
	return tier->sums ? tier->passes->pieces.address : 0;
}

/* So many ranks of one member, at most. */
static unsigned count_neighbours(const struct exchange_group *group)
{
	unsigned counts[GPUS_MAX] = { 0 }, most = 0;

	for (unsigned rank = 0; rank < group->rank_count; rank++) {
		unsigned count = ++counts[group->member_of_rank[rank]];

		most = count > most ? count : most;
	}
	return most;
}

static void fill_sums(struct gpu_exchange *exchange)
{
	struct exchange_group *group = &exchange->group;

	exchange->window = 0;
	exchange->has_failed_sum = false;
	for (unsigned i = 0; i < exchange->count; i++) {
		const struct gpu_tier *tier = exchange->tiers[i];

		if (!pieces_of(tier))
			return;
		group->members[i].staging = pieces_of(tier);
		group->members[i].sums = tier->passes->sum_functions;
	}
	group->staging_bytes = GPU_STAGING_BYTES;
	exchange->window =
		GPU_ROUND_BYTES / sizeof(float) / count_neighbours(group) / GRAIN_ELEMENTS * GRAIN_ELEMENTS;
}

static int begin(struct gpu_exchange *exchange)
{
	struct job *job = exchange->job;
	int r = make_lent(exchange, job->options.world_size);

	if (r == 0)
		r = start_thread(job->node);
	if (r < 0) {
		free_lent(exchange);
		tell(exchange, "tierd has no memory, or no thread, for that");
		return r;
	}
	exchange->epoch = job->epoch.number;
	exchange->choice =
		(struct gpu_choice){ .is_given = job->node->settings.gpu_exchange == GPU_EXCHANGE_ALWAYS };
	fill_group(exchange, job->options.world_size);
	fill_sums(exchange);
	step(exchange, EXCHANGE_BEGIN);
	exchange_begin(job->node->gpu->exchanges->thread, &exchange->group);
	return 0;
}

static void end(struct gpu_exchange *exchange)
{
	step(exchange, EXCHANGE_END);
	exchange_end(&exchange->group);
}

static bool is_outdated(const struct gpu_exchange *exchange)
{
	const struct job *job = exchange->job;
	struct gpu_tier *tiers[GPUS_MAX];

	return !job_is_live(job) || job->node->settings.gpu_exchange == GPU_EXCHANGE_NEVER ||
	       exchange->epoch != job->epoch.number || find_tiers(job, tiers) != exchange->count ||
	       memcmp(tiers, exchange->tiers, exchange->count * sizeof(*tiers)) != 0;
}

/* NULL: out of memory. */
static struct gpu_exchange *exchange_new(struct job *job)
{
	if (!job->gpu->exchange) {
		job->gpu->exchange = calloc(1, sizeof(*job->gpu->exchange));
		if (!job->gpu->exchange)
			return NULL;
		job->gpu->exchange->job = job;
		queue_init(&job->gpu->exchange->scattering);
		for (unsigned i = 0; i < GPU_ROUNDS; i++)
			job->gpu->exchange->rounds[i].exchange = job->gpu->exchange;
	}
	return job->gpu->exchange;
}

void gpu_exchange_serve(struct job *job)
{
	struct gpu_exchange *exchange = job->gpu->exchange;
	struct gpu_tier *tiers[GPUS_MAX];
	char problem[128];
	unsigned count;

	if (exchange && exchange->state != EXCHANGE_NONE) {
		exchange->choice.is_given = job->node->settings.gpu_exchange == GPU_EXCHANGE_ALWAYS;
		if (exchange->state != EXCHANGE_ENDING && is_outdated(exchange))
			end(exchange);
		return;
	}
	count = find_tiers(job, tiers);
	if (!is_wanted(job, tiers, count))
		return;
	exchange = exchange_new(job);
	if (!exchange)
		return;
	if (is_given_up(job->node, problem, sizeof(problem))) {
		tell(exchange, problem);
		return;
	}
	exchange->count = count;
	memcpy(exchange->tiers, tiers, count * sizeof(*tiers));
	(void)begin(exchange);
}

/* Its tiers are gone, and so nothing is with the thread. */
void gpu_exchange_free(struct job *job)
{
	free(TAKE_PTR(job->gpu->exchange));
}
