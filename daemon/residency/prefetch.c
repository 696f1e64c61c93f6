/* Prefetch: what the ranks will gather next, loaded before they ask. */
#include <errno.h>
#include <string.h>

#include "daemon/model/model.h"
#include "daemon/residency/order.h"
#include "daemon/residency/own.h"
#include "proto/name.h"

/* Loads under way for prefetches: what is being loaded has its slot already, and can be used by nobody yet.
 */
#define MAX_LOADING_BYTES (UINT64_C(64) << 20)

static void note_use(struct job *job, uint32_t unit, uint32_t distance)
{
	uint32_t *next_use = &job->residency->next_use[job->catalog.units[unit].pack];

	if (distance < *next_use)
		*next_use = distance;
}

/* NULL: the rank is not there, or has none yet. */
static const struct order *order_of(const struct job *job, uint32_t rank)
{
	return job->members.ranks[rank] ? job->members.ranks[rank]->order : NULL;
}

uint32_t prefetch_expected(const struct job *job, uint32_t rank, uint32_t ahead)
{
	const struct order *order = order_of(job, rank);

	return order ? order_expected(order, ahead) : ORDER_NONE;
}

/* As far as the arena can hold what comes: beyond that one pack is as far as another, and the oldest goes. */
static uint32_t horizon(const struct job *job, uint32_t rank)
{
	const struct order *order = order_of(job, rank);
	uint32_t far = 4 * job->residency->slots.here + 64, learned = order ? order->learned_count : 0;

	return learned < far ? learned : far;
}

void prefetch_expect_anew(struct job *job)
{
	job->residency->has_next_uses = false;
}

/* Distances count from 1: 0 is for those who wait already. */
void prefetch_find_next_uses(struct job *job)
{
	if (job->residency->has_next_uses)
		return;
	job->residency->has_next_uses = true;
	memset(job->residency->next_use, 0xff, job->catalog.pack_count * sizeof(*job->residency->next_use));
	for (uint32_t rank = 0; rank < job->options.world_size; rank++)
		for (uint32_t ahead = 0; ahead < horizon(job, rank); ahead++)
			note_use(job, prefetch_expected(job, rank, ahead), ahead + 1);
}

uint32_t prefetch_next_use(struct job *job, uint32_t pack)
{
	prefetch_find_next_uses(job);
	return job->residency->next_use[pack];
}

static bool is_wanted(const struct job *job, uint32_t pack)
{
	return residence_of(job, pack)->state == RESIDENCE_ABSENT;
}

/* Asks the ranks to ring at their next gather, as long as something is left to load. */
static void ask_for_doorbells(struct job *job, bool should_ring)
{
	for (uint32_t rank = 0; rank < job->options.world_size; rank++) {
		struct member *member = job->members.ranks[rank];

		if (!member || !member->has_pages)
			continue;
		atomic_store_explicit(&member->leases->doorbell_at,
				      should_ring ? member->trace_tail + 1 : UINT64_MAX,
				      memory_order_seq_cst);
	}
}

static bool read_traces(struct job *job)
{
	bool has_news = false;

	for (uint32_t rank = 0; rank < job->options.world_size; rank++)
		if (job->members.ranks[rank] && member_read_trace(job->members.ranks[rank]))
			has_news = true;
	return has_news;
}

void prefetch_look(struct job *job)
{
	read_traces(job);
}

static void open_classes(struct job *job)
{
	for (uint32_t i = 0; i < job->residency->slots.class_count; i++)
		job->residency->slots.classes[i].is_full = false;
}

static bool is_too_much(const struct job *job, uint64_t bytes)
{
	return job->residency->loading_bytes > 0 && job->residency->loading_bytes + bytes > MAX_LOADING_BYTES;
}

/* False: as much is being loaded as should be. */
static bool load(struct job *job, uint32_t unit)
{
	uint32_t pack = job->catalog.units[unit].pack;
	struct slot_class *class = &job->residency->slots.classes[job->residency->slots.class_of_pack[pack]];

	/* What comes later finds no slot where this one found none. */
	if (class->is_full || !is_wanted(job, pack))
		return true;
	if (is_too_much(job, class->bytes))
		return false;
	class->is_full = !residency_prefetch(job, pack);
	return true;
}

static uint32_t longest_order(const struct job *job)
{
	uint32_t longest = 0;

	for (uint32_t rank = 0; rank < job->options.world_size; rank++)
		if (horizon(job, rank) > longest)
			longest = horizon(job, rank);
	return longest;
}

/* Loads in the order of use, over all ranks. */
static void load_next(struct job *job)
{
	uint32_t longest = longest_order(job);

	prefetch_find_next_uses(job);
	open_classes(job);
	for (uint32_t ahead = 0; ahead < longest; ahead++)
		for (uint32_t rank = 0; rank < job->options.world_size; rank++) {
			uint32_t unit = prefetch_expected(job, rank, ahead);

			if (unit != ORDER_NONE && !load(job, unit))
				return;
		}
}

/* Of those whose next use is known: there are no more than the horizon has, and of packs there may be very
 * many. */
static bool has_absent(const struct job *job)
{
	for (uint32_t rank = 0; rank < job->options.world_size; rank++)
		for (uint32_t ahead = 0; ahead < horizon(job, rank); ahead++)
			if (is_wanted(job, job->catalog.units[prefetch_expected(job, rank, ahead)].pack))
				return true;
	return false;
}

void prefetch_run(struct job *job)
{
	if (!job_is_live(job) || !job->location.has_nvme_parameters ||
	    job->residency->slots.here == job->catalog.pack_count)
		return;
	read_traces(job);
	load_next(job);
	ask_for_doorbells(job, has_absent(job));
	/* A gather between reading and asking has not rung. */
	if (read_traces(job))
		load_next(job);
}

static bool next_has_pages(const struct job *job, uint32_t pack)
{
	uint32_t slot = slots_find_free(&job->residency->slots, pack);

	return slot == SLOT_NONE || residency_has_pages(job, pack, slot);
}

/* Each has a slot of its own. One that cannot be read is tried again by who gathers it. */
void prefetch_bring_back(struct job *job)
{
	while (job->state == JOB_TRAINED && job->residency->returned_packs < job->catalog.pack_count &&
	       !is_too_much(job, job->catalog.packs[job->residency->returned_packs].slot_bytes) &&
	       next_has_pages(job, job->residency->returned_packs))
		residency_prefetch(job, job->residency->returned_packs++);
}

void prefetch_hint(struct pending *pending, const Tierd__Wire__Prefetch *prefetch)
{
	struct job *job = pending->member->job;

	if (!job_is_live(job) || pending->member->epoch != job->epoch.number) {
		job_check_live(pending, pending->member->epoch);
		return;
	}
	if (prefetch->n_units > WIRE_MAX_PREFETCH) {
		pending_error(pending, -E2BIG, "a hint of %zu units; at most %d are taken at once",
			      prefetch->n_units, WIRE_MAX_PREFETCH);
		return;
	}
	for (size_t i = 0; i < prefetch->n_units; i++)
		if (!job_check_unit(pending, prefetch->units[i]))
			return;
	prefetch_find_next_uses(job);
	open_classes(job);
	for (size_t i = 0; i < prefetch->n_units && job->location.has_nvme_parameters; i++) {
		job->residency->next_use[job->catalog.units[prefetch->units[i]].pack] = (uint32_t)i + 1;
		if (!load(job, prefetch->units[i]))
			break;
	}
	job->residency->has_next_uses = false;
	pending_reply(pending, NULL);
}

void prefetch_enter_phase(struct pending *pending, const Tierd__Wire__Phase *phase)
{
	char message[640];
	uint32_t longest;
	int r;

	if (!job_check_live(pending, pending->member->epoch))
		return;
	longest = pending->member->job->catalog.name_maximum;
	if (name_check(phase->name, longest) < 0) {
		pending_error(pending, -EINVAL,
			      "a phase's name has 1 to %u bytes (name_length) of UTF-8 that is printable",
			      longest);
		return;
	}
	r = member_set_phase(pending->member, phase->name, message, sizeof(message));
	if (r < 0) {
		pending_error(pending, r, "phase \"%s\": %s", phase->name, message);
		return;
	}
	prefetch_run(pending->member->job);
	pending_reply(pending, NULL);
}

/* By first use of any rank; packs that nobody is known to use come last, in order of definition. */
void prefetch_pass_order(struct job *job, bool is_whole, uint32_t *order)
{
	uint32_t count = 0;

	prefetch_find_next_uses(job);
	for (uint32_t rank = 0; rank < job->options.world_size; rank++) {
		const struct order *of_rank = order_of(job, rank);

		for (uint32_t ahead = 0; of_rank && ahead < of_rank->learned_count; ahead++) {
			uint32_t unit = is_whole ? of_rank->learned[ahead] : order_expected(of_rank, ahead);
			uint32_t pack = job->catalog.units[unit].pack;

			/* Marked as taken by a distance that no pack has. */
			if (job->residency->next_use[pack] == 0)
				continue;
			job->residency->next_use[pack] = 0;
			order[count++] = pack;
		}
		if (count > 0)
			break;
	}
	for (uint32_t pack = 0; pack < job->catalog.pack_count; pack++)
		if (job->residency->next_use[pack] != 0)
			order[count++] = pack;
	job->residency->has_next_uses = false;
}
