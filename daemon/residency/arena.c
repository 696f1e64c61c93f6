#include "daemon/residency/arena.h"

#include "daemon/residency/own.h"

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
	segment_open_all(job);
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
