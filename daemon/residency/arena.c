#include "daemon/residency/arena.h"

#include <stdlib.h>

#include "common/size.h"
#include "daemon/residency/own.h"
#include "daemon/resources/resources.h"

/* ---- Pages ---- */

/* The kernel clears pages faster than devices read and write, so the values of a job are computed, written
 * and read while most of its pages come. Further pieces of a large arena are larger, to be cleared by several
 * threads. */
#define FIRST_PIECE (64 * MIB)
#define PIECES_USUAL 16

static uint64_t bytes_at_first(const struct memory *arena, bool is_whole)
{
	return is_whole || arena->length < FIRST_PIECE ? arena->length : FIRST_PIECE;
}

static uint64_t end_of_piece(const struct memory *arena, uint64_t begin)
{
	uint64_t bytes = size_align(arena->length / PIECES_USUAL, SLOTS_ALIGNMENT);

	if (bytes < FIRST_PIECE)
		bytes = FIRST_PIECE;
	return bytes < arena->length - begin ? begin + bytes : arena->length;
}

/* Pages that are pinned would never become huge, so all is pinned when the last ones are there. What is read
 * or written before takes a little more of the processors. */
static int fetch_pages(const struct job *job, const struct memory *arena, uint64_t begin, uint64_t end)
{
	memory_populate(arena, begin, end - begin);
	if (end < arena->length || !job->location.has_stored_parameters)
		return 0;
	return engine_buffer_add(job->node->engine, arena->base, arena->length);
}

int arena_make(const struct job *job, uint64_t bytes, bool is_whole, struct memory *arena, int *pinning)
{
	int pinned, r = memory_new_shared("tierd-arena", bytes, arena);

	if (r < 0)
		return r;
	memory_make_huge(arena, false);
	pinned = fetch_pages(job, arena, 0, bytes_at_first(arena, is_whole));
	*pinning = pinned < 0 ? pinned : *pinning;
	return memory_seal(arena);
}

struct arena_fetch {
	struct work work;
	struct job *job;
	uint64_t end; /* of the piece that comes */
	int pinning;
};

static void run_fetch(struct work *work)
{
	struct arena_fetch *fetch = container_of(work, struct arena_fetch, work);
	const struct job_residency *own = fetch->job->residency;

	fetch->pinning = fetch_pages(fetch->job, &own->arena, own->arena_here, fetch->end);
}

static void fetch_next(struct arena_fetch *fetch)
{
	const struct job_residency *own = fetch->job->residency;

	fetch->end = end_of_piece(&own->arena, own->arena_here);
	workers_submit(fetch->job->node->slow_workers, &fetch->work);
}

/* A job that ends needs no more. */
static void on_fetched(struct work *work)
{
	struct arena_fetch *fetch = container_of(work, struct arena_fetch, work);
	struct job *job = fetch->job;

	node_note_pinning(job->node, fetch->pinning);
	job->residency->arena_here = fetch->end;
	job_settle(job);
	if (fetch->end < job->residency->arena.length && !job_is_ending(job)) {
		fetch_next(fetch);
		return;
	}
	job->residency->is_arena_coming = false;
	cache_end_move(job);
	free(fetch);
}

void arena_fetch(struct job *job, bool is_whole)
{
	struct job_residency *own = job->residency;
	struct arena_fetch *fetch;

	own->arena_here = bytes_at_first(&own->arena, is_whole);
	if (own->arena_here == own->arena.length)
		return;
	fetch = malloc(sizeof(*fetch));
	if (!fetch) {
		/* They come as they are touched. */
		own->arena_here = own->arena.length;
		return;
	}
	*fetch = (struct arena_fetch){
		.work = { .run = run_fetch, .done = on_fetched, .urgency = WORK_NORMAL }, .job = job
	};
	own->is_arena_coming = true;
	cache_begin_move(job);
	fetch_next(fetch);
}

bool arena_is_coming(const struct job *job)
{
	return job->residency->is_arena_coming;
}

/* ---- Begin and end ---- */

void arena_take_over(struct job *job, struct made *made)
{
	struct job_residency *own = job->residency;

	own->arena = made->arena;
	own->cache = made->cache;
	own->directory_memory = made->directory;
	own->directory = (struct directory_header *)own->directory_memory.base;
}

void arena_give_up(struct job *job, struct made *made)
{
	struct job_residency *own = job->residency;

	made->arena = own->arena;
	made->cache = own->cache;
	made->directory = own->directory_memory;
	own->arena = own->cache = own->directory_memory = (struct memory)MEMORY_INIT;
	own->directory = NULL;
	slots_free(&own->slots);
	prefetch_expect_anew(job);
}

static void fill_sections(const struct catalog *catalog, uint64_t *sections)
{
	for (uint32_t i = 0; i < catalog->unit_count; i++) {
		const struct unit *unit = &catalog->units[i];

		for (uint32_t p = 0; p < unit->part_count; p++) {
			const struct unit_part *part = &unit->parts[p];

			if (part->elements > 0)
				*sections++ = catalog->packs[unit->pack].slot_offset[part->section] +
					      part->pack_first * section_element_bytes(part->section);
		}
	}
}

static void fill_directory(struct job *job)
{
	struct directory_header *header = job->residency->directory;

	header->magic = PAGES_MAGIC;
	header->version = PAGES_VERSION;
	header->unit_count = job->catalog.unit_count;
	header->section_count = job->catalog.section_count;
	header->entries_offset = (uint64_t)((char *)directory_entries(header) - (char *)header);
	header->sections_offset = (uint64_t)((char *)directory_sections(header) - (char *)header);
	atomic_store(&header->epoch, job->epoch.number);
	fill_sections(&job->catalog, directory_sections(header));
}

/* Parameters in host memory have their slot as long as that is there; they are published once they have
 * values. Where sweeps write them, they may come back from NVMe one by one, each with its slot. */
static void take_all_slots(struct job *job, bool is_return)
{
	struct job_residency *own = job->residency;
	bool is_one_by_one = is_return && !job->location.has_nvme_parameters && !job->location.has_backup;

	own->returned_packs = is_one_by_one ? 0 : job->catalog.pack_count;
	for (uint32_t pack = 0; !job->location.has_nvme_parameters && pack < own->returned_packs; pack++) {
		residence_of(job, pack)->slot = slots_take(&own->slots, pack);
		residence_step(job, pack, RESIDENCE_FILL);
	}
}

void arena_open(struct job *job, bool is_return)
{
	fill_directory(job);
	take_all_slots(job, is_return);
}

void arena_show_epoch(struct job *job)
{
	if (job->residency->directory)
		atomic_store(&job->residency->directory->epoch, job->epoch.number);
}

struct arena_shared arena_share(const struct job *job)
{
	const struct job_residency *own = job->residency;

	return (struct arena_shared){ &own->directory_memory, &own->arena, &own->cache };
}
