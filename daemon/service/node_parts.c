#include "daemon/service/node_parts.h"

#include <stdlib.h>
#include <unistd.h>

#include "common/log.h"
#include "daemon/durability/durability.h"
#include "daemon/gpu/gpu.h"
#include "daemon/life/life.h"
#include "daemon/observe/observe.h"
#include "daemon/recovery/recovery.h"
#include "daemon/residency/residency.h"
#include "daemon/scrub/scrub.h"
#include "daemon/values/values.h"

static const struct holder *const holders[] = {
	&cache_holder, &idle_holder, &readers_holder, &replaced_holder, NULL,
};

static int open_parts(struct node *node, const struct node_config *config)
{
	int r = node_life_new(node);

	if (r == 0)
		r = node_values_new(node);
	if (r == 0)
		r = durability_open(node, config->state_directory);
	if (r == 0)
		r = recovery_open(node);
	if (r == 0)
		r = scrub_open(node, scrub_period_ns(config->scrub_days));
	if (r == 0)
		r = observe_new(node, config);
	return r;
}

static void close_parts(struct node *node)
{
	node_values_free(node);
	durability_close(node);
	scrub_close(node);
	recovery_close(node);
	observe_free(node);
	node_life_free(node);
	gpu_node_free(node);
}

static bool has_ended(const struct node *node)
{
	return node_values_have_ended(node) && !recovery_is_under_way(node);
}

static bool is_behind(const struct job *job)
{
	return durable_is_behind(job) || !store_tasks_are_quiet(job);
}

static bool is_kept(const struct job *job)
{
	return !gpu_is_gone(job);
}

/* Nobody can end such a call, and the service manager would kill a daemon that waits. What is durable is so;
 * what is written at the end is written here. */
static void give_up(struct node *node)
{
	if (!gpu_keeps_the_end(node))
		return;
	durability_close(node);
	observe_free(node);
	log_warning("ended, without what a GPU has not given back");
	_exit(EXIT_SUCCESS);
}

static void end_job(struct job *job)
{
	life_step(job, LIFE_CLOSE);
}

const struct node_parts node_parts = {
	.holders = holders,
	.open = open_parts,
	.close = close_parts,
	.has_ended = has_ended,
	.is_kept = is_kept,
	.kept_works = gpu_works,
	.give_up = give_up,
	.is_behind = is_behind,
	.hasten = durable_advance,
	.end_job = end_job,
	.life = &life_callbacks,
	.recovery = &recovery_of_life,
	.comes_back = restore_comes_back,
};
