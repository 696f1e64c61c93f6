/* Packs in host memory: what there is of each, what clients see of it, and what sweeps and readers do with
 * it. state.c has what may happen to a pack, load.c how it is read and written. */
#include <errno.h>
#include <stdlib.h>

#include "daemon/model/model.h"
#include "daemon/residency/own.h"

/* ---- Life ---- */

int residency_new(struct job *job)
{
	struct job_residency *own = calloc(1, sizeof(*own));

	if (!own)
		return -ENOMEM;
	*own = (struct job_residency){ .directory_memory = MEMORY_INIT,
				       .arena = MEMORY_INIT,
				       .cache = MEMORY_INIT };
	queue_init(&own->slot_queue);
	queue_init(&own->leaving);
	job->residency = own;
	return 0;
}

void residency_free(struct job *job)
{
	free(job->residency);
	job->residency = NULL;
}

void residency_listen(struct job *job, const struct residency_listener *listener,
		      const struct cache_tenant *tenant, const struct segment_listener *segment_listener)
{
	job->residency->segment_listener = segment_listener;
	job->residency->listener = listener;
	job->residency->cache_tenant = tenant;
}

int residency_plan(struct job *job)
{
	struct residence *residences = calloc(job->catalog.pack_count, sizeof(*residences));
	uint32_t *next_use = calloc(job->catalog.pack_count, sizeof(*next_use));

	job->residency->residences = residences;
	job->residency->next_use = next_use;
	if (!residences || !next_use)
		return -ENOMEM;
	for (uint32_t i = 0; i < job->catalog.pack_count; i++) {
		residences[i] = (struct residence){ .slot = SLOT_NONE, .version = job->step, .job = job };
		queue_init(&residences[i].waiters);
		queue_init(&residences[i].link);
	}
	return 0;
}

void residency_clear(struct job *job)
{
	free(TAKE_PTR(job->residency->residences));
	free(TAKE_PTR(job->residency->next_use));
}

void residency_mark_blank(struct job *job)
{
	for (uint32_t pack = 0; pack < job->catalog.pack_count; pack++)
		job->residency->residences[pack].is_blank = pack_is_frozen(&job->catalog.packs[pack]);
}

struct slots *residency_slots(const struct job *job)
{
	return &job->residency->slots;
}

/* ---- What there is ---- */

bool residency_is_planned(const struct job *job)
{
	return job->residency->residences != NULL;
}

enum directory_state residency_state(const struct job *job, uint32_t pack)
{
	static const enum directory_state shown[RESIDENCE_STATES] = {
		[RESIDENCE_ABSENT] = DIRECTORY_ABSENT,
		[RESIDENCE_QUEUED] = DIRECTORY_ABSENT,
		[RESIDENCE_LOADING] = DIRECTORY_LOADING,
		[RESIDENCE_RESIDENT] = DIRECTORY_RESIDENT,
		[RESIDENCE_UNPUBLISHED] = DIRECTORY_UPDATING,
		[RESIDENCE_DUE_ABSENT] = DIRECTORY_ABSENT,
		[RESIDENCE_DUE_LOADING] = DIRECTORY_LOADING,
		[RESIDENCE_DUE_RESIDENT] = DIRECTORY_RESIDENT,
		[RESIDENCE_DUE_UNPUBLISHED] = DIRECTORY_UPDATING,
		[RESIDENCE_UPDATING] = DIRECTORY_UPDATING,
		[RESIDENCE_STREAMING] = DIRECTORY_ABSENT,
	};

	return shown[residence_of(job, pack)->state];
}

uint64_t residency_pack_bytes(void)
{
	return sizeof(struct residence);
}

uint64_t residency_version(const struct job *job, uint32_t pack)
{
	return job->residency->residences[pack].version;
}

bool residency_has_slot(const struct job *job, uint32_t pack)
{
	return job->residency->residences[pack].slot != SLOT_NONE;
}

struct directory_entry *residency_entry(const struct job *job, uint32_t unit)
{
	return &directory_entries(job->residency->directory)[unit];
}

char *residency_element(const struct job *job, uint32_t pack, enum unit_section section, uint64_t element)
{
	return residency_address(job, pack) + job->catalog.packs[pack].slot_offset[section] +
	       element * section_element_bytes(section);
}

char *residency_address(const struct job *job, uint32_t pack)
{
	uint64_t offset = job->residency->slots.offsets[job->residency->residences[pack].slot];
	uint64_t cache = slots_cache_offset(&job->residency->slots);

	return offset < cache ? job->residency->arena.base + offset
			      : job->residency->cache.base + (offset - cache);
}

void residency_show(struct job *job, uint32_t pack, enum directory_state state)
{
	const struct pack *units = &job->catalog.packs[pack];

	for (uint32_t i = 0; i < units->unit_count; i++)
		directory_set(residency_entry(job, units->first_unit + i), state);
}

const struct slot_class *residency_class(const struct job *job, uint32_t pack)
{
	return &job->residency->slots.classes[job->residency->slots.class_of_pack[pack]];
}

/* ---- What clients see ---- */

static void publish_units(struct job *job, uint32_t pack)
{
	const struct pack *units = &job->catalog.packs[pack];
	const struct residence *residence = residence_of(job, pack);

	for (uint32_t u = units->first_unit; u < units->first_unit + units->unit_count; u++)
		directory_publish(residency_entry(job, u), job->residency->slots.offsets[residence->slot],
				  residence->version);
}

void publish(struct job *job, uint32_t pack)
{
	struct residence *residence = residence_of(job, pack);

	residence->used = ++job->residency->clock;
	publish_units(job, pack);
	residency_wake(residence, 0);
}

void residency_publish(struct job *job, uint32_t pack, uint64_t version)
{
	residence_of(job, pack)->version = version;
	residence_step(job, pack, RESIDENCE_PUBLISH);
}

void residency_set_version(struct job *job, uint32_t pack, uint64_t version)
{
	const struct pack *units = &job->catalog.packs[pack];
	struct residence *residence = residence_of(job, pack);

	residence->version = version;
	for (uint32_t u = units->first_unit; u < units->first_unit + units->unit_count; u++)
		atomic_store_explicit(&residency_entry(job, u)->version, version, memory_order_release);
	if (residency_state(job, pack) == DIRECTORY_RESIDENT)
		residency_wake(residence, 0);
	else if (residence->state == RESIDENCE_ABSENT && !queue_is_empty(&residence->waiters))
		residency_request_load(job, pack, TIER_DEMAND);
}

/* ---- Updates ---- */

void show_updating(struct job *job, uint32_t pack)
{
	residency_show(job, pack, DIRECTORY_UPDATING);
}

void residency_claim(struct job *job, uint32_t pack)
{
	residence_step(job, pack, RESIDENCE_CLAIM);
}

bool residency_is_claimed(const struct job *job, uint32_t pack)
{
	return residence_of(job, pack)->state >= RESIDENCE_DUE_ABSENT;
}

bool residency_is_updated(const struct job *job, uint32_t pack)
{
	return residence_of(job, pack)->state >= RESIDENCE_UPDATING;
}

bool residency_is_due(const struct job *job, uint32_t pack)
{
	return residency_is_claimed(job, pack) && !residency_is_updated(job, pack);
}

bool residency_has_pages(const struct job *job, uint32_t pack, uint32_t slot)
{
	uint64_t offset = job->residency->slots.offsets[slot];

	return offset >= slots_cache_offset(&job->residency->slots) ||
	       offset + job->catalog.packs[pack].slot_bytes <= job->residency->arena_here;
}

static bool is_used(const struct job *job, uint32_t pack)
{
	return residency_state(job, pack) == DIRECTORY_LOADING || residency_is_in_use(job, pack);
}

bool residency_can_update(const struct job *job, uint32_t pack)
{
	return !is_used(job, pack) && (!residency_has_slot(job, pack) ||
				       residency_has_pages(job, pack, residence_of(job, pack)->slot));
}

static bool take_slot_for_update(struct job *job, uint32_t pack)
{
	prefetch_find_next_uses(job);
	return residency_take_slot(job, pack,
				   residency_has_waiters(job, pack) ? 0 : job->residency->next_use[pack]);
}

bool residency_begin_update(struct job *job, uint32_t pack, bool may_load)
{
	bool has_loaded = may_load && !residency_has_slot(job, pack) && take_slot_for_update(job, pack);

	return residence_step(job, pack, has_loaded ? RESIDENCE_BEGIN_LOADED : RESIDENCE_BEGIN);
}

void residency_end_update(struct job *job, uint32_t pack)
{
	residence_step(job, pack, RESIDENCE_END);
}

void residency_give_up(struct job *job, uint32_t pack)
{
	residence_step(job, pack, RESIDENCE_GIVE_UP);
}

/* ---- Pins and dirty packs ---- */

void residency_pin(struct job *job, uint32_t pack)
{
	job->residency->residences[pack].pins++;
}

void residency_unpin(struct job *job, uint32_t pack)
{
	job->residency->residences[pack].pins--;
	job_settle(job);
}

void residency_begin_write(struct job *job, uint32_t pack)
{
	job->residency->residences[pack].writes++;
}

void residency_end_write(struct job *job, uint32_t pack)
{
	job->residency->residences[pack].writes--;
}

bool residency_is_pinned(const struct job *job, uint32_t pack)
{
	return residence_of(job, pack)->pins > 0;
}

bool residency_is_in_use(const struct job *job, uint32_t pack)
{
	const struct residence *residence = residence_of(job, pack);

	return residence->pins > 0 || residence->writes > 0;
}

void residency_mark_dirty(struct job *job, uint32_t pack)
{
	job->residency->residences[pack].is_dirty = true;
}

bool residency_is_dirty(const struct job *job, uint32_t pack)
{
	return job->residency->residences[pack].is_dirty;
}

void forget(struct job *job, uint32_t pack)
{
	struct residence *residence = residence_of(job, pack);

	residence->slot = SLOT_NONE;
	queue_remove(&residence->link);
}

void residency_forget_all(struct job *job)
{
	for (uint32_t pack = 0; pack < job->catalog.pack_count; pack++)
		residence_step(job, pack, RESIDENCE_FORGET);
}

bool residency_is_quiet(const struct job *job)
{
	for (uint32_t pack = 0; job->residency->residences && pack < job->catalog.pack_count; pack++)
		if (is_used(job, pack))
			return false;
	return true;
}
