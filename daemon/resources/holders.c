#include "daemon/resources/holders.h"

#include <stdio.h>

#include "common/clock.h"
#include "common/size.h"
#include "daemon/resources/budget.h"
#include "daemon/resources/disposal.h"
#include "daemon/model/model.h"
#include "daemon/resources/own.h"
#include "daemon/resources/placement.h"
#include "daemon/resources/headroom.h"

/* The node's, in their order. */
#define HOLDERS_FOREACH(holder, node)                                                                        \
	for (const struct holder *const *holder = (node)->parts->holders; *holder; holder++)

/* ---- What they give up ---- */

uint64_t holders_bytes_on_the_way(const struct claim *claim)
{
	uint64_t bytes = 0;

	HOLDERS_FOREACH (holder, claim->node)
		if ((*holder)->bytes_on_the_way)
			bytes += (*holder)->bytes_on_the_way(claim);
	return bytes;
}

uint64_t holders_bytes_at_most(const struct claim *claim)
{
	uint64_t bytes = 0;

	HOLDERS_FOREACH (holder, claim->node)
		if ((*holder)->bytes_at_most)
			bytes += (*holder)->bytes_at_most(claim);
	return bytes;
}

void holders_reclaim(const struct claim *claim, uint64_t bytes)
{
	HOLDERS_FOREACH (holder, claim->node)
		if ((*holder)->reclaim) {
			(*holder)->reclaim(claim, bytes);
			bytes = size_rest(bytes, (*holder)->bytes_on_the_way(claim));
		}
}

void holders_keep_all(struct node *node)
{
	HOLDERS_FOREACH (holder, node)
		if ((*holder)->keep_all)
			(*holder)->keep_all(node);
}

uint64_t holders_spare_bytes(const struct claim *claim, bool is_at_once)
{
	uint64_t bytes = 0;

	HOLDERS_FOREACH (holder, claim->node)
		if ((*holder)->spare_bytes)
			bytes += (*holder)->spare_bytes(claim, is_at_once);
	return bytes;
}

uint64_t holders_give_up(const struct claim *claim, uint64_t bytes)
{
	uint64_t given = 0;

	HOLDERS_FOREACH (holder, claim->node)
		if ((*holder)->give_up)
			given += (*holder)->give_up(claim, size_rest(bytes, given));
	return given;
}

bool holders_make_room(const struct claim *claim, uint64_t bytes)
{
	uint64_t lacking = headroom_lacking(claim, bytes);

	if (lacking > 0)
		holders_reclaim(claim, lacking);
	/* Some may have been given up at once. */
	return holders_bytes_on_the_way(claim) >= headroom_lacking(claim, bytes);
}

/* ---- What they have ---- */

static struct holder_bytes host_bytes(const struct node *node, uid_t uid)
{
	struct holder_bytes bytes = { 0 };

	HOLDERS_FOREACH (holder, node)
		if ((*holder)->host_bytes) {
			bytes.own += (*holder)->host_bytes(node, uid).own;
			bytes.others += (*holder)->host_bytes(node, uid).others;
		}
	return bytes;
}

static uint64_t nvme_bytes(const struct job *job)
{
	uint64_t bytes = job->resources->nvme_bytes;

	HOLDERS_FOREACH (holder, job->node)
		if ((*holder)->nvme_bytes)
			bytes += (*holder)->nvme_bytes(job);
	return bytes;
}

/* ---- Who they are ---- */

#define NAMED 3

struct account {
	const struct job *largest[NAMED]; /* descending */
	unsigned count;			  /* of the owner's other jobs */
	bool has_idle;			  /* that gives nothing back by itself */
	uint64_t unnamed, others;
	uint64_t readers, withheld; /* of the owner */
};

/* What is only there gives no memory back, and nobody but its owner gives NVMe back. */
static bool is_kept_idle(const struct job *job, enum holders_of what)
{
	return job_is_idle(job) &&
	       (what == HOLDERS_OF_NVME || (!job_is_broken(job) && !placement_may_release(job)));
}

static uint64_t bytes_of(const struct job *job, enum holders_of what)
{
	return what == HOLDERS_OF_HOST ? job->resources->host_bytes : nvme_bytes(job);
}

/* What falls out at the end has no name. */
static void add_own(struct account *account, const struct job *job, enum holders_of what)
{
	account->count++;
	account->has_idle |= is_kept_idle(job, what);
	for (unsigned i = 0; i < NAMED && job; i++) {
		const struct job *here = account->largest[i];

		if (here && bytes_of(here, what) >= bytes_of(job, what))
			continue;
		account->largest[i] = job;
		job = here;
	}
	if (job)
		account->unnamed += bytes_of(job, what);
}

uint64_t holders_user_bytes(const struct node *node, enum holders_of what, uid_t uid)
{
	uint64_t bytes = 0;

	if (what == HOLDERS_OF_HOST)
		bytes = host_bytes(node, uid).own + disposal_withheld(node, uid).bytes;

	QUEUE_FOREACH (link, &node->jobs.live) {
		const struct job *job = queue_entry(link, struct job, link);

		if (job->uid == uid)
			bytes += bytes_of(job, what);
	}
	return bytes;
}

static struct account add_up(const struct claim *claim, enum holders_of what)
{
	struct account account = { 0 };

	QUEUE_FOREACH (link, &claim->node->jobs.live) {
		const struct job *job = queue_entry(link, struct job, link);

		if (job == claim->job || bytes_of(job, what) == 0)
			continue;
		if (job->uid == claim->uid)
			add_own(&account, job, what);
		else
			account.others += bytes_of(job, what);
	}
	if (what == HOLDERS_OF_HOST) {
		const struct holder_bytes readers = host_bytes(claim->node, claim->uid);
		const struct withheld withheld = disposal_withheld(claim->node, claim->uid);

		account.readers = readers.own;
		account.withheld = withheld.bytes;
		account.others += readers.others + withheld.others_bytes;
	}
	return account;
}

static void print_idle(const struct job *job, enum holders_of what, char text[80])
{
	unsigned long long minutes = (clock_now_ns() - job->members.idle_since_ns) / UINT64_C(60000000000);
	bool is_kept = what == HOLDERS_OF_HOST && is_kept_idle(job, what);
	const char *where = is_kept ? ", with its state in host memory" : "";

	if (!job_is_idle(job))
		text[0] = '\0';
	else if (minutes == 0)
		snprintf(text, 80, " (idle%s)", where);
	else if (minutes < 60)
		snprintf(text, 80, " (idle for %llu min%s)", minutes, where);
	else
		snprintf(text, 80, " (idle for %llu h %llu min%s)", minutes / 60, minutes % 60, where);
}

/* What it would have given up, if that had been enough, or had not been in use. */
static void print_cache(const struct job *job, enum holders_of what, char text[48])
{
	char bytes[16];

	text[0] = '\0';
	if (what == HOLDERS_OF_HOST && job->resources->cache_bytes > 0)
		snprintf(text, 48, " (%s of it cache)", budget_print(job->resources->cache_bytes, bytes));
}

void holders_describe(const struct claim *claim, enum holders_of what, bool with_others, char *text,
		      size_t size)
{
	struct account account = add_up(claim, what);
	char bytes[16], idle[80], cache[48];
	size_t used = 0;

	text[0] = '\0';
	for (unsigned i = 0; i < NAMED && account.largest[i] && used < size; i++) {
		print_idle(account.largest[i], what, idle);
		print_cache(account.largest[i], what, cache);
		used += (size_t)snprintf(text + used, size - used, "%s%s has %s%s%s", used ? ", " : "; ",
					 account.largest[i]->name,
					 budget_print(bytes_of(account.largest[i], what), bytes), cache,
					 idle);
	}
	if (account.count > NAMED && used < size)
		used += (size_t)snprintf(text + used, size - used, ", %u more of yours have %s",
					 account.count - NAMED, budget_print(account.unnamed, bytes));
	if (account.readers > 0 && used < size)
		used += (size_t)snprintf(text + used, size - used, "%syour readers have %s",
					 used ? ", " : "; ", budget_print(account.readers, bytes));
	if (account.withheld > 0 && used < size)
		used += (size_t)snprintf(
			text + used, size - used,
			"%sjobs of yours that have ended have %s, which processes still have "
			"open or mapped: end those",
			used ? ", " : "; ", budget_print(account.withheld, bytes));
	if (with_others && account.others > 0 && used < size)
		used += (size_t)snprintf(text + used, size - used, "%sother users have %s",
					 used ? ", " : "; ", budget_print(account.others, bytes));
	if (account.has_idle && used < size)
		snprintf(text + used, size - used,
			 "; tierctl drop ends an idle job and destroys its state (tierctl export saves "
			 "values)");
}
