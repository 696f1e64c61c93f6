#include "daemon/resources/budget.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/size.h"
#include "daemon/model/model.h"
#include "daemon/resources/own.h"
#include "daemon/request/request.h"
#include "daemon/resources/placement.h"
#include "daemon/resources/headroom.h"
#include "daemon/resources/slots.h"

/* In tenths of a unit, up or down. */
static const char *print(uint64_t bytes, bool is_up, char text[16])
{
	static const char *const units[] = { "B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB" };
	unsigned unit = 0;

	while (unit < ARRAY_LENGTH(units) - 1 && bytes >> (10 * (unit + 1)) > 0)
		unit++;
	if (unit == 0) {
		snprintf(text, 16, "%u B", (unsigned)bytes);
		return text;
	}

	uint64_t one = UINT64_C(1) << (10 * unit), rest = (bytes & (one - 1)) * 10;
	uint64_t tenths = bytes / one * 10 + (rest + (is_up ? one - 1 : 0)) / one;

	snprintf(text, 16, "%u.%u %s", (unsigned)(tenths / 10), (unsigned)(tenths % 10), units[unit]);
	return text;
}

/* ---- Disks ---- */

static const struct node_path *fullest_path(const struct job *job, uint64_t *ret_left)
{
	const struct node_path *found = NULL;

	*ret_left = 0;
	for (unsigned i = 0; i < job->location.paths.count; i++) {
		const struct node_path *path = &job->node->paths[job->location.paths.paths[i]];
		uint64_t left = node_path_left(path);

		if (found && left >= *ret_left)
			continue;
		found = path;
		*ret_left = left;
	}
	return found;
}

void budget_explain_disk(const struct job *job, const char *who, uint64_t bytes, char *message, size_t size)
{
	uint64_t left;
	const struct node_path *path = fullest_path(job, &left);
	char needed[16], there[16];

	snprintf(message, size, "%s needs %s more in %s, and %s are left on that disk; free some of it", who,
		 budget_print_needed(bytes, needed), path->path, budget_print(left, there));
}

const char *budget_explain_replaced(const struct job *job, char *text, size_t size)
{
	text[0] = '\0';
	if (job_replaces(job))
		snprintf(text, size,
			 "; the job that it replaces stays there until this one has a state of its own: give "
			 "that up first, if there is no room for both (tierctl drop %s destroys its state)",
			 job->name);
	return text;
}

/* ---- Text ---- */

const char *budget_print(uint64_t bytes, char text[16])
{
	return print(bytes, false, text);
}

const char *budget_print_needed(uint64_t bytes, char text[16])
{
	return print(bytes, true, text);
}

/* ---- A job's ---- */

int budget_new(struct job *job)
{
	job->resources = calloc(1, sizeof(*job->resources));
	if (!job->resources)
		return -ENOMEM;
	shortage_init(&job->resources->shortage, claim_of_job(job), job);
	return 0;
}

void budget_free(struct job *job)
{
	if (!job->resources)
		return;
	shortage_end(&job->resources->shortage);
	budget_uncharge(job, job->resources->charged_bytes);
	free(job->resources);
	job->resources = NULL;
}

void budget_set_limits(struct job *job, const struct budget_limits *limits)
{
	job->resources->limits = *limits;
	job->resources->shortage.claim = claim_of_job(job);
}

const struct budget_limits *budget_limits(const struct job *job)
{
	return &job->resources->limits;
}

struct tier_share budget_device_share(const struct job *job)
{
	return (struct tier_share){ .user = job->uid,
				    .user_share = job->resources->limits.io_share,
				    .weight = job->options.io_weight };
}

uint64_t budget_host_bytes(const struct job *job)
{
	return job->resources->host_bytes;
}

uint64_t budget_cache_bytes(const struct job *job)
{
	return job->resources->cache_bytes;
}

uint64_t budget_nvme_bytes(const struct job *job)
{
	return job->resources->nvme_bytes;
}

const uint64_t *budget_path_bytes(const struct job *job)
{
	return job->resources->path_bytes;
}

uint64_t budget_host_used(const struct node *node)
{
	return node->resources->host_used;
}

/* ---- Host memory ---- */

static struct headroom host_headroom(const struct job *job)
{
	struct claim claim = claim_of_job(job);
	struct headroom headroom = headroom_for(&claim);
	uint64_t own = size_rest(job->resources->limits.host_budget, job->resources->host_bytes);

	return job->resources->limits.host_budget && own < headroom.bytes
		       ? (struct headroom){ own, HEADROOM_OF_JOB }
		       : headroom;
}

static void take_host(struct job *job, uint64_t bytes)
{
	job->resources->host_bytes += bytes;
	job->node->resources->host_used += bytes;
}

static void give_host(struct job *job, uint64_t bytes)
{
	job->resources->host_bytes -= bytes;
	job->node->resources->host_used -= bytes;
}

/* what: what takes them, such as "it takes"; hint: what to do, or "". */
static int refuse_bytes(const struct claim *claim, struct headroom headroom, const char *what, uint64_t bytes,
			const char *hint, char *message, size_t size)
{
	char needed[16], there[16], whose[HEADROOM_TEXT];

	return refuse(message, size, -ENOMEM, "%s %s of host memory, and there are %s (%s)%s", what,
		      budget_print_needed(bytes, needed), budget_print(headroom.bytes, there),
		      headroom_describe(claim, headroom, whose, sizeof(whose)), hint);
}

/* The job's own budget is asked by the plan, which knows what else it needs and can say how much would do;
 * and what comes after the plan is little beside it. */
int budget_charge(struct job *job, uint64_t bytes, char *message, size_t size)
{
	struct claim claim = claim_of_job(job), of_all = claim;
	struct headroom headroom = headroom_for(&claim);

	/* Its own cache helps, too. */
	of_all.job = NULL;
	/* Caches give nothing up before somebody has looked again; idle jobs do. */
	if (bytes > headroom.bytes && size_rest(bytes, headroom.bytes) <= holders_spare_bytes(&claim, true)) {
		holders_give_up(&claim, size_rest(bytes, headroom.bytes));
		headroom = headroom_for(&claim);
	}
	if (bytes > headroom.bytes) {
		bool will_be_there = holders_make_room(&of_all, bytes);

		return refuse_bytes(&claim, headroom, "it takes", bytes,
				    will_be_there ? "; caches shrink for it: try again" : "", message, size);
	}
	job->resources->charged_bytes += bytes;
	take_host(job, bytes);
	holders_make_room(&of_all, 0);
	return 0;
}

void budget_uncharge(struct job *job, uint64_t bytes)
{
	job->resources->charged_bytes -= bytes;
	give_host(job, bytes);
}

/* A member's window is in the job's plan, once there is one. */
int budget_charge_window(struct job *job, char *message, size_t size)
{
	int r;

	if (job->resources->has_plan || job->resources->windows > job->members.count)
		return 0;
	r = budget_charge(job, WINDOW_BYTES, message, size);
	if (r == 0)
		job->resources->windows++;
	return r;
}

uint64_t budget_window_bytes(const struct job *job)
{
	return (uint64_t)(job->options.world_size - job->resources->windows) * WINDOW_BYTES;
}

bool budget_take_beyond(struct job *job, uint64_t bytes)
{
	if (job->node->resources->host_used + bytes > job->node->settings.host_budget)
		return false;
	take_host(job, bytes);
	return true;
}

void budget_give_beyond(struct job *job, uint64_t bytes)
{
	give_host(job, bytes);
}

void budget_pretend(struct node *node, uint64_t host_used)
{
	node->resources->host_used = host_used;
}

/* ---- Readers ---- */

int budget_take_reader(struct shortage *shortage, uint64_t bytes, char *message, size_t size)
{
	const struct claim *claim = &shortage->claim;
	struct headroom headroom = headroom_for(claim);

	shortage->bytes = size_rest(bytes, headroom.bytes);
	if (shortage->bytes > 0)
		return refuse_bytes(claim, headroom, "its reader takes", bytes, "", message, size);
	claim->node->resources->host_used += bytes;
	holders_make_room(claim, 0);
	return 0;
}

void budget_force_reader(struct node *node, uint64_t bytes)
{
	node->resources->host_used += bytes;
}

void budget_give_reader(struct node *node, uint64_t bytes)
{
	node->resources->host_used -= bytes;
}

/* ---- What a job needs ---- */

/* More than any budget, if it is more than can be counted. */
static uint64_t sum_of(const struct budget_needs *needs)
{
	const uint64_t parts[] = { needs->sums,	 needs->gradients, needs->spares,  needs->windows,
				   needs->pages, needs->state,	   needs->metadata };
	uint64_t sum = 0;

	for (size_t i = 0; i < ARRAY_LENGTH(parts); i++)
		sum = size_sum(sum, parts[i]);
	return sum;
}

/* Of what it needs, what could lie on NVMe instead. */
static uint64_t movable_bytes(const struct job *job, const struct budget_needs *needs, uint64_t arena)
{
	uint64_t bytes = 0;

	if (job->node->path_count == 0)
		return 0;
	if (!job->location.has_nvme_parameters)
		bytes = size_sum(bytes, arena);
	if (!job->location.has_nvme_optimizer)
		bytes = size_sum(bytes, needs->state);
	if (!job->location.has_nvme_sums)
		bytes = size_sum(bytes, needs->sums);
	return bytes;
}

static const struct unit *largest_unit(const struct catalog *catalog)
{
	const struct unit *largest = &catalog->units[0];

	for (uint32_t i = 1; i < catalog->unit_count; i++)
		if (unit_gradient_bytes(&catalog->units[i]) > unit_gradient_bytes(largest))
			largest = &catalog->units[i];
	return largest;
}

/* A unit is gathered, summed and pushed in one piece: a large one is there three times at least. */
static void print_remedies(const struct job *job, bool may_move, uint64_t wanted, char text[400])
{
	const struct unit *unit = largest_unit(&job->catalog);
	uint64_t bytes = unit_gradient_bytes(unit);
	uint32_t buffers = job->options.gradient_buffers;
	int used = snprintf(text, 400, "raise host_budget%s", may_move ? ", or place more on NVMe" : "");
	char size[16];

	if (bytes == 0)
		return;
	if (job->options.gradient_bytes > bytes)
		used += snprintf(text + used, 400 - (size_t)used,
				 ", or open it with less gradient_bytes than %s",
				 budget_print(job->options.gradient_bytes, size));
	else if (job->options.gradient_bytes == 0 && buffers > 1)
		used += snprintf(text + used, 400 - (size_t)used,
				 ", or open it with fewer than %u gradient_buffers", buffers);
	if (bytes > wanted / 8 && job->catalog.trained_units > 1)
		snprintf(text + used, 400 - (size_t)used,
			 ", or cut unit \"%.80s\", whose gradients alone take %s in one piece, into several "
			 "(slices)",
			 unit->name, budget_print_needed(bytes, size));
}

static int refuse_host(const struct job *job, const struct budget_needs *needs, uint64_t arena,
		       struct headroom headroom, char *message, size_t size)
{
	char least[16], parameters[16], sums[16], buffers[16], state[16], rest[16], there[16],
		whose[HEADROOM_TEXT];
	char remedies[400];
	struct claim claim = claim_of_job(job);

	uint64_t wanted = size_sum(sum_of(needs), arena);
	bool may_move = size_rest(wanted, movable_bytes(job, needs, arena)) <= headroom.bytes;

	print_remedies(job, may_move, wanted, remedies);
	/* What it has already taken is a part of both. */
	budget_print_needed(size_sum(wanted, job->resources->charged_bytes), least);
	budget_print(arena, parameters);
	budget_print(needs->sums, sums);
	budget_print(size_sum(needs->gradients, needs->spares), buffers);
	budget_print(needs->state, state);
	budget_print(size_sum(size_sum(needs->windows, size_sum(needs->pages, needs->metadata)),
			      job->resources->charged_bytes),
		     rest);
	budget_print(size_sum(headroom.bytes, job->resources->charged_bytes), there);
	return refuse(
		message, size, -ENOMEM,
		"it needs at least %s of host memory (parameters %s, gradient sums %s, gradient buffers %s, "
		"optimizer state %s, windows and definitions %s), and there are %s (%s); %s",
		least, parameters, sums, buffers, state, rest, there,
		headroom_describe(&claim, headroom, whose, sizeof(whose)), remedies);
}

/* ---- Cache ---- */

uint64_t budget_own_headroom(const struct job *job)
{
	return job->resources->limits.host_budget
		       ? size_rest(job->resources->limits.host_budget, job->resources->host_bytes)
		       : UINT64_MAX;
}

bool budget_take_cache(struct job *job, uint64_t bytes)
{
	struct claim claim = claim_of_job(job);

	if (bytes > budget_own_headroom(job) || headroom_lacking(&claim, bytes) > 0)
		return false;
	job->resources->cache_bytes += bytes;
	take_host(job, bytes);
	return true;
}

void budget_give_cache(struct job *job, uint64_t bytes)
{
	job->resources->cache_bytes -= bytes;
	give_host(job, bytes);
}

static void take_cache(struct job *job, struct slots *slots)
{
	for (uint32_t i = 0; i < slots->segment_count && budget_take_cache(job, slots->segments[i].bytes);
	     i++)
		slots->segments[i].state = SEGMENT_PLANNED;
}

/* ---- The plan of a job ---- */

/* No memory for the plan is found out again, and said, when it is taken. */
static uint64_t plan_arena(const struct job *job, uint64_t budget)
{
	struct slots slots = { 0 };
	int r = slots_plan(&job->catalog, !job->location.has_nvme_parameters, budget, 0, &slots);
	uint64_t bytes = slots_memory(slots.bytes);

	slots_free(&slots);
	return r < 0 ? 0 : bytes;
}

static bool fits_host(const struct job *job, uint64_t bytes)
{
	struct claim claim = claim_of_job(job);

	return bytes <= host_headroom(job).bytes ||
	       (bytes <= budget_own_headroom(job) &&
		shortage_can_be_covered(&job->resources->shortage,
					size_rest(bytes, headroom_for(&claim).bytes)));
}

bool budget_fits_host(const struct job *job, const struct budget_needs *needs)
{
	return fits_host(job, size_sum(sum_of(needs), plan_arena(job, 0)));
}

int budget_check_least(const struct job *job, uint64_t bytes, char *message, size_t size)
{
	struct claim claim = claim_of_job(job);

	if (fits_host(job, bytes))
		return 0;
	return refuse_bytes(&claim, host_headroom(job), "the units that it has need more than", bytes, "",
			    message, size);
}

uint64_t budget_spare_host(const struct job *job, const struct budget_needs *needs, uint64_t *ret_arena)
{
	uint64_t least = plan_arena(job, 0);

	*ret_arena = plan_arena(job, UINT64_MAX) - least;
	return size_rest(host_headroom(job).bytes, size_sum(sum_of(needs), least));
}

/* Of the arena, were the job alone. */
static uint64_t arena_most(const struct job *job, uint64_t fixed)
{
	uint64_t most = job->node->settings.host_budget;

	if (job->resources->limits.host_maximum && job->resources->limits.host_maximum < most)
		most = job->resources->limits.host_maximum;
	if (budget_own_headroom(job) < most)
		most = budget_own_headroom(job);
	return size_rest(most, fixed);
}

int budget_take_host(struct job *job, const struct budget_needs *needs, struct slots *slots, char *message,
		     size_t size)
{
	struct headroom headroom = host_headroom(job);
	struct claim claim = claim_of_job(job);
	uint64_t fixed = sum_of(needs), least;
	int r = slots_plan(&job->catalog, !job->location.has_nvme_parameters, arena_most(job, fixed),
			   size_rest(headroom.bytes, fixed), slots);

	job->resources->shortage.bytes = 0;
	if (r < 0)
		return refuse(message, size, r, "out of memory");
	least = size_sum(fixed, slots_memory(slots->reserved));
	if (least > headroom.bytes) {
		if (least <= budget_own_headroom(job))
			job->resources->shortage.bytes = size_rest(least, headroom_for(&claim).bytes);
		return refuse_host(job, needs, slots->reserved, headroom, message, size);
	}
	take_host(job, least);
	take_cache(job, slots);
	job->resources->has_plan = true;
	if (job->resources->kept_bytes == 0)
		job->resources->kept_bytes = needs->metadata;
	return 0;
}

int budget_keep(struct job *job, uint64_t metadata, char *message, size_t size)
{
	int r = budget_charge(job, metadata, message, size);

	if (r < 0)
		return r;
	job->resources->charged_bytes -= metadata;
	job->resources->kept_bytes = metadata;
	return 0;
}

static void take_paths(struct job *job, uint64_t bytes)
{
	for (unsigned i = 0; i < job->location.paths.count; i++) {
		unsigned path = job->location.paths.paths[i];

		job->node->paths[path].used += bytes;
		job->resources->path_bytes[path] += bytes;
		job->resources->nvme_bytes += bytes;
	}
}

/* Unsigned numbers wrap. */
static void give_paths(struct job *job, uint64_t bytes)
{
	take_paths(job, -bytes);
}

void budget_release_host(struct job *job)
{
	uint64_t bytes =
		job->resources->host_bytes - job->resources->charged_bytes - job->resources->kept_bytes;

	give_host(job, bytes);
	job->resources->cache_bytes = 0;
	job->resources->has_plan = false;
	give_paths(job, job->resources->sums_path_bytes);
	job->resources->sums_path_bytes = 0;
	if (job->members.count > 0)
		return;
	budget_uncharge(job, job->resources->windows * WINDOW_BYTES);
	job->resources->windows = 0;
}

uint64_t budget_releasable_bytes(const struct job *job, bool with_kept)
{
	uint64_t bytes = job->resources->host_bytes - job->resources->charged_bytes +
			 job->resources->windows * WINDOW_BYTES;

	return with_kept ? bytes : bytes - job->resources->kept_bytes - job->resources->cache_bytes;
}

bool budget_is_planned(const struct job *job)
{
	return job->resources->has_plan;
}

struct shortage *budget_shortage(const struct job *job)
{
	return &job->resources->shortage;
}

/* ---- NVMe ---- */

static const char *describe_nvme(const struct job *job)
{
	if (job->resources->nvme_bytes > job->resources->draft_path_bytes * job->location.paths.count)
		return "its gradient sums, beside the state that it has";
	if (job->location.is_durable && (job->location.has_backup || placement_is_chosen(job)))
		return "twice its state, but what is frozen once: updates go to free places; with durability "
		       "none what is in host memory needs none";
	return job->location.has_nvme_sums
		       ? "twice its state, but what is frozen once: updates go to free places; and "
			 "its gradient sums, once"
		       : "twice its state, but what is frozen once: updates go to free places";
}

/* what: it needs them for. */
static int refuse_path(const struct job *job, const struct node_path *path, uint64_t bytes, const char *what,
		       char *message, size_t size)
{
	char needed[16], there[16], holders[HOLDERS_TEXT], hint[BUDGET_HINT];
	struct claim claim = claim_of_job(job);

	holders_describe(&claim, HOLDERS_OF_NVME, true, holders, sizeof(holders));
	return refuse(message, size, -ENOSPC, "it needs %s on %s (%s), and %s are left there%s%s%s",
		      budget_print_needed(bytes, needed), path->path, what,
		      budget_print(size_rest(path->capacity, path->used), there),
		      job->location.paths.count > 1 ? "; state is striped evenly, so each path needs as much"
						    : "",
		      budget_explain_replaced(job, hint, sizeof(hint)), holders);
}

static int check_own_nvme(const struct job *job, uint64_t bytes, const char *what, char *message, size_t size)
{
	char needed[16], most[16];

	if (job->resources->limits.nvme_budget == 0 ||
	    bytes <= size_rest(job->resources->limits.nvme_budget, job->resources->nvme_bytes))
		return 0;
	return refuse(message, size, -ENOSPC, "it needs %s on NVMe (%s), and its nvme_budget is %s",
		      budget_print_needed(bytes, needed), what,
		      budget_print(job->resources->limits.nvme_budget, most));
}

/* On all paths together. */
static int check_nvme(const struct job *job, uint64_t bytes, const char *what, char *message, size_t size)
{
	char needed[16], most[16], there[16], holders[HOLDERS_TEXT], hint[BUDGET_HINT];
	struct claim claim = claim_of_job(job);
	uint64_t left = size_rest(job->resources->limits.nvme_maximum,
				  holders_user_bytes(job->node, HOLDERS_OF_NVME, job->uid));

	if (job->resources->limits.nvme_maximum == 0 || bytes <= left)
		return 0;
	holders_describe(&claim, HOLDERS_OF_NVME, false, holders, sizeof(holders));
	return refuse(message, size, -ENOSPC,
		      "it needs %s on NVMe (%s), and %s are left of this user's nvme_maximum, %s%s%s",
		      budget_print_needed(bytes, needed), what, budget_print(left, there),
		      budget_print(job->resources->limits.nvme_maximum, most),
		      budget_explain_replaced(job, hint, sizeof(hint)), holders);
}

/* As many of each path, whatever its own budget is. */
static int try_paths(struct job *job, uint64_t bytes, const char *what, char *message, size_t size)
{
	int r = check_nvme(job, bytes * job->location.paths.count, what, message, size);

	if (r < 0)
		return r;
	for (unsigned i = 0; i < job->location.paths.count; i++) {
		const struct node_path *path = &job->node->paths[job->location.paths.paths[i]];

		if (bytes > size_rest(path->capacity, path->used))
			return refuse_path(job, path, bytes, what, message, size);
	}
	take_paths(job, bytes);
	return 0;
}

/* Also within its own budget. */
static int try_own_paths(struct job *job, uint64_t bytes, const char *what, char *message, size_t size)
{
	int r = check_own_nvme(job, bytes * job->location.paths.count, what, message, size);

	return r < 0 ? r : try_paths(job, bytes, what, message, size);
}

int budget_take_paths(struct job *job, uint64_t state, uint64_t sums, char *message, size_t size)
{
	int r = try_own_paths(job, state + sums, describe_nvme(job), message, size);

	if (r == 0)
		job->resources->sums_path_bytes = sums;
	return r;
}

int budget_take_found(struct job *job, uint64_t bytes, char *message, size_t size)
{
	return try_paths(job, bytes, describe_nvme(job), message, size);
}

void budget_set_state(struct job *job, uint64_t bytes)
{
	give_paths(job, job->resources->path_bytes[job->location.paths.paths[0]] -
				job->resources->sums_path_bytes - job->resources->lent_path_bytes);
	take_paths(job, bytes);
}

int budget_grow(struct job *job, const struct store_space *more, char *message, size_t size)
{
	int r = budget_charge(job, more->host_bytes, message, size);

	if (r < 0)
		return r;
	r = try_own_paths(job, more->device_bytes,
			  "what may change of its state, once more for each snapshot", message, size);
	if (r < 0) {
		budget_uncharge(job, more->host_bytes);
		return r;
	}
	job->resources->charged_bytes -= more->host_bytes;
	job->resources->kept_bytes += more->host_bytes;
	job->resources->lent_path_bytes += more->device_bytes;
	return 0;
}

void budget_end_growth(struct job *job, const struct store_space *more)
{
	job->resources->lent_path_bytes -= more->device_bytes;
}

int budget_lend(struct job *job, uint64_t bytes, char *message, size_t size)
{
	int r = try_paths(job, bytes, "what a fork may change, twice", message, size);

	if (r == 0)
		job->resources->lent_path_bytes += bytes;
	return r;
}

void budget_take_back(struct job *job, uint64_t bytes)
{
	job->resources->lent_path_bytes -= bytes;
	give_paths(job, bytes);
}

int budget_take_draft(struct job *job, uint64_t bytes, char *message, size_t size)
{
	int r = try_own_paths(job, bytes, "the values that it was given, until it is ready", message, size);

	if (r == 0)
		job->resources->draft_path_bytes += bytes;
	return r;
}

uint64_t budget_draft_bytes(const struct job *job)
{
	return job->resources->draft_path_bytes;
}

void budget_give_draft(struct job *job, uint64_t bytes)
{
	job->resources->draft_path_bytes -= bytes;
	give_paths(job, bytes);
}

void budget_shrink(struct job *job, const struct store_space *less)
{
	job->resources->kept_bytes -= less->host_bytes;
	give_host(job, less->host_bytes);
	budget_take_back(job, less->device_bytes);
}

void budget_give_back(struct job *job)
{
	give_host(job, job->resources->host_bytes - job->resources->charged_bytes);
	job->resources->cache_bytes = 0;
	job->resources->kept_bytes = 0;
	job->resources->has_plan = false;
	/* Of each path it has the same. */
	give_paths(job, job->resources->path_bytes[job->location.paths.paths[0]] -
				job->resources->draft_path_bytes);
	job->resources->sums_path_bytes = job->resources->lent_path_bytes = 0;
}
