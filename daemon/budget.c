#include "daemon/budget.h"

#include <errno.h>
#include <stdio.h>

#include "common/size.h"
#include "daemon/holders.h"
#include "daemon/job.h"
#include "daemon/refuse.h"

const char *budget_print(uint64_t bytes, char text[16])
{
	static const char *const units[] = { "B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB" };
	double value = (double)bytes;
	unsigned unit = 0;

	for (; value >= 1024 && unit < ARRAY_LENGTH(units) - 1; unit++)
		value /= 1024;
	snprintf(text, 16, unit == 0 ? "%.0f %s" : "%.1f %s", value, units[unit]);
	return text;
}

/* ---- Host memory ---- */

static uint64_t node_left(const struct node *node)
{
	return node->host_budget > node->host_used ? node->host_budget - node->host_used : 0;
}

/* What the job may take beside what it has. */
static uint64_t host_left(const struct job *job, bool *ret_is_own)
{
	uint64_t left = node_left(job->node);
	uint64_t own =
		job->options.host_budget > job->host_bytes ? job->options.host_budget - job->host_bytes : 0;

	*ret_is_own = job->options.host_budget && own < left;
	return *ret_is_own ? own : left;
}

static void take_host(struct job *job, uint64_t bytes)
{
	job->host_bytes += bytes;
	job->node->host_used += bytes;
}

/* Only the daemon's budget is asked: the job's own is asked by the plan, which knows what else it needs and
 * can say how much would do, and what comes after the plan is little beside it. */
int budget_charge(struct job *job, uint64_t bytes, char *message, size_t size)
{
	char needed[16], there[16], holders[HOLDERS_TEXT];
	uint64_t left = node_left(job->node);

	if (bytes > left) {
		holders_describe(job, HOLDERS_OF_HOST, holders, sizeof(holders));
		return refuse(message, size, -ENOMEM,
			      "%s of host memory for it are more than the %s left of what tierd may use%s",
			      budget_print(bytes, needed), budget_print(left, there), holders);
	}
	job->charged_bytes += bytes;
	take_host(job, bytes);
	return 0;
}

void budget_uncharge(struct job *job, uint64_t bytes)
{
	job->charged_bytes -= bytes;
	job->host_bytes -= bytes;
	job->node->host_used -= bytes;
}

/* More than any budget, if it is more than can be counted. */
static uint64_t sum_of(const struct budget_needs *needs)
{
	const uint64_t parts[] = { needs->sums,	 needs->gradients, needs->held,	   needs->windows,
				   needs->pages, needs->state,	   needs->metadata };
	uint64_t sum = 0;

	for (size_t i = 0; i < ARRAY_LENGTH(parts); i++)
		sum = size_sum(sum, parts[i]);
	return sum;
}

static int refuse_host(const struct job *job, const struct budget_needs *needs, uint64_t budget, bool is_own,
		       char *message, size_t size)
{
	char least[16], arena[16], sums[16], buffers[16], state[16], there[16], holders[HOLDERS_TEXT] = "";

	if (!is_own)
		holders_describe(job, HOLDERS_OF_HOST, holders, sizeof(holders));

	/* What it has already taken is a part of both. */
	budget_print(size_sum(size_sum(sum_of(needs), job->slots.bytes), job->charged_bytes), least);
	budget_print(job->slots.bytes, arena);
	budget_print(needs->sums, sums);
	budget_print(size_sum(size_sum(needs->gradients, needs->held), needs->windows), buffers);
	budget_print(needs->state, state);
	budget_print(budget + job->charged_bytes, there);
	return refuse(
		message, size, -ENOMEM,
		"it needs at least %s of host memory (parameters %s, gradient sums %s, gradient buffers %s, "
		"optimizer state %s), and there are %s (%s)%s; %s",
		least, arena, sums, buffers, state, there,
		is_own ? "the job's host_budget" : "what tierd has left of its own", holders,
		job->node->path_count > 0 ? "raise host_budget, or place more on NVMe" : "raise host_budget");
}

uint64_t budget_arena_bytes(const struct job *job)
{
	return size_align(job->slots.bytes ? job->slots.bytes : 4096, 4096);
}

int budget_take_host(struct job *job, const struct budget_needs *needs, char *message, size_t size)
{
	bool is_own;
	uint64_t budget = host_left(job, &is_own), fixed = sum_of(needs);
	int r = slots_plan(&job->catalog, !job->has_nvme_parameters, budget > fixed ? budget - fixed : 0,
			   &job->slots);

	if (r < 0)
		return refuse(message, size, r, "out of memory");
	if (size_sum(fixed, budget_arena_bytes(job)) > budget)
		return refuse_host(job, needs, budget, is_own, message, size);
	take_host(job, fixed + budget_arena_bytes(job));
	job->has_plan = true;
	if (job->kept_bytes == 0)
		job->kept_bytes = needs->metadata;
	return 0;
}

void budget_release_host(struct job *job)
{
	uint64_t bytes = job->host_bytes - job->charged_bytes - job->kept_bytes;

	job->host_bytes -= bytes;
	job->node->host_used -= bytes;
	job->has_plan = false;
	if (job->member_count > 0)
		return;
	budget_uncharge(job, job->windows * WINDOW_BYTES);
	job->windows = 0;
}

/* ---- NVMe ---- */

static int refuse_path(const struct job *job, const struct node_path *path, uint64_t bytes, char *message,
		       size_t size)
{
	char needed[16], there[16], holders[HOLDERS_TEXT];

	holders_describe(job, HOLDERS_OF_NVME, holders, sizeof(holders));
	return refuse(
		message, size, -ENOSPC,
		"it needs %s on %s (twice its state: updates go to free places), and %s are left there%s%s",
		budget_print(bytes, needed), path->path, budget_print(path->capacity - path->used, there),
		job->node->path_count > 1 ? "; state is striped evenly, so each path needs as much" : "",
		holders);
}

int budget_take_paths(struct job *job, uint64_t bytes, char *message, size_t size)
{
	struct node *node = job->node;

	for (unsigned i = 0; i < node->path_count; i++)
		if (bytes > node->paths[i].capacity - node->paths[i].used)
			return refuse_path(job, &node->paths[i], bytes, message, size);
	for (unsigned i = 0; i < node->path_count; i++) {
		node->paths[i].used += bytes;
		job->path_bytes[i] = bytes;
		job->nvme_bytes += bytes;
	}
	return 0;
}

void budget_give_back(struct job *job)
{
	job->node->host_used -= job->host_bytes - job->charged_bytes;
	job->host_bytes = job->charged_bytes;
	job->kept_bytes = 0;
	job->has_plan = false;
	for (unsigned i = 0; i < job->node->path_count; i++) {
		job->node->paths[i].used -= job->path_bytes[i];
		job->path_bytes[i] = 0;
	}
	job->nvme_bytes = 0;
}
