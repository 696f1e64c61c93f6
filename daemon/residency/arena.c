#include "daemon/residency/arena.h"

#include "common/size.h"
#include "daemon/residency/own.h"
#include "daemon/resources/resources.h"

/* ---- Pages ---- */

/* The kernel clears pages faster than devices read and write, so the values of a job are computed, written
 * and read while most of its pages come. Further pieces of a large arena are larger, to be cleared by several
 * threads. */
#define FIRST_PIECE (64 * MIB)
#define PIECES_USUAL 16

/* A backup is read into all slots before anything else happens. */
static uint64_t bytes_at_first(const struct job *job, bool is_return, uint64_t bytes)
{
	return (is_return && job->location.has_backup) || bytes < FIRST_PIECE ? bytes : FIRST_PIECE;
}

static uint64_t end_of_piece(uint64_t bytes, uint64_t begin)
{
	uint64_t usual = size_align(bytes / PIECES_USUAL, SLOTS_ALIGNMENT);

	if (usual < FIRST_PIECE)
		usual = FIRST_PIECE;
	return usual < bytes - begin ? begin + usual : bytes;
}

static struct arena_piece make_piece(const struct job *job, const struct memory *arena, uint64_t begin,
				     uint64_t end)
{
	return (struct arena_piece){
		.arena = *arena,
		.begin = begin,
		.end = end,
		.engine = job->location.has_stored_parameters ? job->node->engine : NULL,
	};
}

/* Pages that are pinned would never become huge, so all is pinned when the last ones are there. Until then
 * the loop pins what it has read or written, for the transfer. */
static void fetch_piece(struct arena_piece *piece)
{
	const struct memory *arena = &piece->arena;

	memory_populate(arena, piece->begin, piece->end - piece->begin);
	piece->pinning = piece->engine && piece->end == arena->length
				 ? engine_buffer_add(piece->engine, arena->base, arena->length)
				 : 0;
}

int arena_make(const struct job *job, bool is_return, uint64_t bytes, struct memory *ret_arena,
	       int *ret_pinning)
{
	struct arena_piece piece;
	int r = memory_new_shared("tierd-arena", bytes, ret_arena);

	if (r < 0)
		return r;
	memory_make_huge(ret_arena, false);
	piece = make_piece(job, ret_arena, 0, bytes_at_first(job, is_return, ret_arena->length));
	fetch_piece(&piece);
	*ret_pinning = piece.pinning;
	return memory_seal(ret_arena);
}

static void run_fetch(struct work *work)
{
	fetch_piece(container_of(work, struct arena_piece, work));
}

static void on_fetched(struct work *work)
{
	const struct arena_piece *piece = container_of(work, struct arena_piece, work);
	struct job *job = piece->job;

	node_note_pinning(job->node, piece->pinning);
	job->residency->arena_here = piece->end;
	cache_end_move(job);
	arena_fetch(job);
	job_settle(job);
}

/* A job that ends, or has broken, needs no more; who waits for pages waits no longer, either. */
void arena_fetch(struct job *job)
{
	struct job_residency *own = job->residency;
	uint64_t begin = own->arena_here;

	if (job_is_ending(job) || job_is_broken(job))
		own->arena_here = own->arena.length;
	if (!arena_is_coming(job))
		return;
	own->piece = make_piece(job, &own->arena, begin, end_of_piece(own->arena.length, begin));
	own->piece.work = (struct work){ .run = run_fetch, .done = on_fetched, .urgency = WORK_NORMAL };
	own->piece.job = job;
	cache_begin_move(job);
	workers_submit(job->node->slow_workers, &own->piece.work);
}

bool arena_is_coming(const struct job *job)
{
	return job->residency->arena_here < job->residency->arena.length;
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
	job->residency->arena_here = bytes_at_first(job, is_return, job->residency->arena.length);
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
