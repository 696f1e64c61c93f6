#include "daemon/budget.h"

#include <errno.h>
#include <stdio.h>

#include "common/clock.h"
#include "common/size.h"
#include "daemon/cache.h"
#include "daemon/holders.h"
#include "daemon/job.h"
#include "daemon/reader.h"
#include "daemon/refuse.h"

/* With the names of three jobs. */
#define ROOM_TEXT (HOLDERS_TEXT + 80)
/* Of a budget, what no cache takes. */
#define RESERVE_MOST (64 * MIB)
/* How long a reader that was refused may take to ask again. */
#define WISH_NS (UINT64_C(2) * 1000000000)

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

const char *budget_print(uint64_t bytes, char text[16])
{
	return print(bytes, false, text);
}

const char *budget_print_needed(uint64_t bytes, char text[16])
{
	return print(bytes, true, text);
}

/* ---- Host memory ---- */

/* What a job may take beside what it has, and by which bound. */
struct room {
	uint64_t bytes;
	enum { ROOM_OF_JOB, ROOM_OF_USER, ROOM_OF_NODE } bound;
};

static uint64_t left_of(uint64_t most, uint64_t used)
{
	return most > used ? most - used : 0;
}

static uint64_t user_bytes(const struct node *node, uid_t uid, bool is_host)
{
	uint64_t bytes = is_host ? readers_user_bytes(node, uid) : 0;

	QUEUE_FOREACH (link, &node->jobs) {
		const struct job *job = queue_entry(link, struct job, link);

		if (job->uid == uid)
			bytes += is_host ? job->host_bytes : job->nvme_bytes;
	}
	return bytes;
}

/* Without the job's own budget. */
static struct room shared_room(const struct job *job)
{
	const struct node *node = job->node;
	uint64_t left = left_of(node->host_budget, node->host_used), of_user;

	if (job->host_maximum == 0)
		return (struct room){ left, ROOM_OF_NODE };
	of_user = left_of(job->host_maximum, user_bytes(node, job->uid, true));
	return of_user < left ? (struct room){ of_user, ROOM_OF_USER } : (struct room){ left, ROOM_OF_NODE };
}

static struct room host_room(const struct job *job)
{
	struct room room = shared_room(job);
	uint64_t own = left_of(job->host_budget, job->host_bytes);

	return job->host_budget && own < room.bytes ? (struct room){ own, ROOM_OF_JOB } : room;
}

/* Of the host memory: whose it is, and who has the rest. */
static const char *describe_room(const struct job *job, struct room room, char *text, size_t size)
{
	char maximum[16], holders[HOLDERS_TEXT];

	if (room.bound == ROOM_OF_JOB) {
		snprintf(text, size, "the job's host_budget");
		return text;
	}
	holders_describe(job, HOLDERS_OF_HOST, room.bound == ROOM_OF_NODE, holders, sizeof(holders));
	if (room.bound == ROOM_OF_USER)
		snprintf(text, size, "what is left of this user's host_maximum, %s%s",
			 budget_print(job->host_maximum, maximum), holders);
	else
		snprintf(text, size, "what tierd has left of its own%s", holders);
	return text;
}

static void take_host(struct job *job, uint64_t bytes)
{
	job->host_bytes += bytes;
	job->node->host_used += bytes;
}

/* The job's own budget is asked by the plan, which knows what else it needs and can say how much would do;
 * and what comes after the plan is little beside it. */
int budget_charge(struct job *job, uint64_t bytes, char *message, size_t size)
{
	char needed[16], there[16], whose[ROOM_TEXT];
	struct room room = shared_room(job);

	if (bytes > room.bytes) {
		bool will_be_there = cache_make_room(job, bytes);

		return refuse(message, size, -ENOMEM, "it takes %s of host memory, and there are %s (%s)%s",
			      budget_print_needed(bytes, needed), budget_print(room.bytes, there),
			      describe_room(job, room, whose, sizeof(whose)),
			      will_be_there ? "; caches shrink for it: try again" : "");
	}
	job->charged_bytes += bytes;
	take_host(job, bytes);
	cache_make_room(job, 0);
	return 0;
}

void budget_uncharge(struct job *job, uint64_t bytes)
{
	job->charged_bytes -= bytes;
	job->host_bytes -= bytes;
	job->node->host_used -= bytes;
}

static uint64_t caches_bytes(const struct node *node)
{
	uint64_t bytes = 0;

	QUEUE_FOREACH (link, &node->jobs)
		bytes += queue_entry(link, struct job, link)->cache_bytes;
	return bytes;
}

/* What it asks for is kept free of caches for a while: it may come again for it. */
static bool make_room_for_reader(const struct job *job, uint64_t bytes)
{
	struct node *node = job->node;

	if (bytes > caches_bytes(node) + left_of(node->host_budget, node->host_used))
		return false;
	node->wished_bytes = bytes;
	node->wished_until_ns = clock_now_ns() + WISH_NS;
	return cache_make_room(job, 0);
}

int budget_take_reader(struct job *job, uid_t uid, uint64_t maximum, uint64_t bytes, char *message,
		       size_t size)
{
	struct node *node = job->node;
	uint64_t left = left_of(node->host_budget, node->host_used);
	uint64_t of_user = maximum ? left_of(maximum, user_bytes(node, uid, true)) : UINT64_MAX;
	char needed[16], there[16];

	if (bytes > of_user)
		return refuse(
			message, size, -ENOMEM,
			"its reader takes %s of host memory, and there are %s (what is left of this user's "
			"host_maximum); keep less at once",
			budget_print_needed(bytes, needed), budget_print(of_user, there));
	if (bytes > left)
		return refuse(
			message, size, -ENOMEM,
			"its reader takes %s of host memory, and there are %s (what tierd has left of its "
			"own); %s",
			budget_print_needed(bytes, needed), budget_print(left, there),
			make_room_for_reader(job, bytes) ? "caches shrink for it: try again"
							 : "keep less at once");
	node->host_used += bytes;
	if (bytes >= node->wished_bytes)
		node->wished_bytes = 0;
	cache_make_room(job, 0);
	return 0;
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

/* There is something left that could lie on NVMe instead. */
static bool may_move(const struct job *job)
{
	return job->node->path_count > 0 &&
	       !(job->has_nvme_parameters && job->has_nvme_optimizer && job->has_nvme_sums);
}

static int refuse_host(const struct job *job, const struct budget_needs *needs, struct room room,
		       char *message, size_t size)
{
	char least[16], arena[16], sums[16], buffers[16], state[16], rest[16], there[16], whose[ROOM_TEXT];

	/* What it has already taken is a part of both. */
	budget_print_needed(size_sum(size_sum(sum_of(needs), job->slots.promised), job->charged_bytes),
			    least);
	budget_print(job->slots.promised, arena);
	budget_print(needs->sums, sums);
	budget_print(size_sum(needs->gradients, needs->held), buffers);
	budget_print(needs->state, state);
	budget_print(size_sum(size_sum(needs->windows, size_sum(needs->pages, needs->metadata)),
			      job->charged_bytes),
		     rest);
	budget_print(size_sum(room.bytes, job->charged_bytes), there);
	return refuse(
		message, size, -ENOMEM,
		"it needs at least %s of host memory (parameters %s, gradient sums %s, gradient buffers %s, "
		"optimizer state %s, windows and definitions %s), and there are %s (%s); %s",
		least, arena, sums, buffers, state, rest, there,
		describe_room(job, room, whose, sizeof(whose)),
		may_move(job) ? "raise host_budget, or place more on NVMe" : "raise host_budget");
}

static uint64_t arena_bytes(const struct slots *slots)
{
	return size_align(slots->bytes ? slots->bytes : 4096, 4096);
}

uint64_t budget_arena_bytes(const struct job *job)
{
	return size_align(job->slots.promised ? job->slots.promised : 4096, 4096);
}

/* ---- Cache ---- */

static uint64_t wished_of(const struct node *node)
{
	return node->wished_bytes > 0 && clock_now_ns() < node->wished_until_ns ? node->wished_bytes : 0;
}

static uint64_t reserve_of(const struct job *job, struct room room)
{
	uint64_t part = (room.bound == ROOM_OF_USER ? job->host_maximum : job->node->host_budget) / 16;

	if (part > RESERVE_MOST)
		part = RESERVE_MOST;
	return part < wished_of(job->node) ? wished_of(job->node) : part;
}

uint64_t budget_lacking(const struct job *job, uint64_t bytes)
{
	struct room room = shared_room(job);

	return left_of(size_sum(bytes, reserve_of(job, room)), room.bytes);
}

bool budget_is_bound_by_user(const struct job *job)
{
	return shared_room(job).bound == ROOM_OF_USER;
}

uint64_t budget_own_room(const struct job *job)
{
	return job->host_budget ? left_of(job->host_budget, job->host_bytes) : UINT64_MAX;
}

bool budget_take_tract(struct job *job, uint32_t tract)
{
	uint64_t bytes = job->slots.tracts[tract].bytes;

	if (bytes > budget_own_room(job) || budget_lacking(job, bytes) > 0)
		return false;
	job->cache_bytes += bytes;
	take_host(job, bytes);
	return true;
}

void budget_give_tract(struct job *job, uint32_t tract)
{
	uint64_t bytes = job->slots.tracts[tract].bytes;

	job->cache_bytes -= bytes;
	job->host_bytes -= bytes;
	job->node->host_used -= bytes;
}

static void take_cache(struct job *job)
{
	for (uint32_t i = 0; i < job->slots.tract_count && budget_take_tract(job, i); i++)
		job->slots.tracts[i].state = TRACT_COMING;
}

/* ---- The plan of a job ---- */

/* No memory for the plan is found out again, and said, when it is taken. */
static uint64_t plan_arena(const struct job *job, uint64_t budget)
{
	struct slots slots = { 0 };
	int r = slots_plan(&job->catalog, !job->has_nvme_parameters, budget, 0, &slots);
	uint64_t bytes = arena_bytes(&slots);

	slots_free(&slots);
	return r < 0 ? 0 : bytes;
}

bool budget_fits_host(const struct job *job, const struct budget_needs *needs)
{
	uint64_t least = size_sum(sum_of(needs), plan_arena(job, 0));

	return least <= host_room(job).bytes ||
	       (least <= budget_own_room(job) && cache_can_cover(job, least - shared_room(job).bytes));
}

uint64_t budget_spare_host(const struct job *job, const struct budget_needs *needs, uint64_t *ret_arena)
{
	uint64_t least = plan_arena(job, 0);

	*ret_arena = plan_arena(job, UINT64_MAX) - least;
	return left_of(host_room(job).bytes, size_sum(sum_of(needs), least));
}

/* Of the arena, were the job alone. */
static uint64_t arena_most(const struct job *job, uint64_t fixed)
{
	uint64_t most = job->node->host_budget;

	if (job->host_maximum && job->host_maximum < most)
		most = job->host_maximum;
	if (budget_own_room(job) < most)
		most = budget_own_room(job);
	return left_of(most, fixed);
}

int budget_take_host(struct job *job, const struct budget_needs *needs, char *message, size_t size)
{
	struct room room = host_room(job);
	uint64_t fixed = sum_of(needs), least;
	int r = slots_plan(&job->catalog, !job->has_nvme_parameters, arena_most(job, fixed),
			   left_of(room.bytes, fixed), &job->slots);

	job->shortage = 0;
	if (r < 0)
		return refuse(message, size, r, "out of memory");
	least = size_sum(fixed, budget_arena_bytes(job));
	if (least > room.bytes) {
		if (least <= budget_own_room(job))
			job->shortage = least - shared_room(job).bytes;
		return refuse_host(job, needs, room, message, size);
	}
	take_host(job, least);
	take_cache(job);
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
	job->cache_bytes = 0;
	job->has_plan = false;
	if (job->member_count > 0)
		return;
	budget_uncharge(job, job->windows * WINDOW_BYTES);
	job->windows = 0;
}

/* ---- NVMe ---- */

static const char *describe_nvme(const struct job *job)
{
	return job->has_nvme_sums ? "twice its state: updates go to free places; and its gradient sums, once"
				  : "twice its state: updates go to free places";
}

static int refuse_path(const struct job *job, const struct node_path *path, uint64_t bytes, char *message,
		       size_t size)
{
	char needed[16], there[16], holders[HOLDERS_TEXT];

	holders_describe(job, HOLDERS_OF_NVME, true, holders, sizeof(holders));
	return refuse(message, size, -ENOSPC, "it needs %s on %s (%s), and %s are left there%s%s",
		      budget_print_needed(bytes, needed), path->path, describe_nvme(job),
		      budget_print(path->capacity - path->used, there),
		      job->node->path_count > 1 ? "; state is striped evenly, so each path needs as much"
						: "",
		      holders);
}

/* On all paths together. */
static int check_nvme(const struct job *job, uint64_t bytes, char *message, size_t size)
{
	char needed[16], most[16], there[16], holders[HOLDERS_TEXT];
	uint64_t left = left_of(job->nvme_maximum, user_bytes(job->node, job->uid, false));

	if (job->nvme_budget && bytes > job->nvme_budget)
		return refuse(message, size, -ENOSPC, "it needs %s on NVMe (%s), and its nvme_budget is %s",
			      budget_print_needed(bytes, needed), describe_nvme(job),
			      budget_print(job->nvme_budget, most));
	if (job->nvme_maximum == 0 || bytes <= left)
		return 0;
	holders_describe(job, HOLDERS_OF_NVME, false, holders, sizeof(holders));
	return refuse(message, size, -ENOSPC,
		      "it needs %s on NVMe (%s), and %s are left of this user's nvme_maximum, %s%s",
		      budget_print_needed(bytes, needed), describe_nvme(job), budget_print(left, there),
		      budget_print(job->nvme_maximum, most), holders);
}

int budget_take_paths(struct job *job, uint64_t bytes, char *message, size_t size)
{
	struct node *node = job->node;
	int r = check_nvme(job, bytes * node->path_count, message, size);

	if (r < 0)
		return r;

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
	job->cache_bytes = 0;
	job->kept_bytes = 0;
	job->has_plan = false;
	for (unsigned i = 0; i < job->node->path_count; i++) {
		job->node->paths[i].used -= job->path_bytes[i];
		job->path_bytes[i] = 0;
	}
	job->nvme_bytes = 0;
}
