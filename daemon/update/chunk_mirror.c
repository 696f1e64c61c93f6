/* The mirror of a chunk that a GPU updates: what state it has, and where on the GPU that lies. */
#include <assert.h>

#include "daemon/gpu/gpu.h"
#include "daemon/update/own.h"
#include "daemon/update/sweep.h"

static_assert(CHUNK_RUNS == MIRROR_RUNS, "each run of a chunk can be in its mirror");

/* ---- Of a job ---- */

static uint64_t bytes_of(const struct job *job, enum unit_section section, uint64_t count)
{
	return chunk_mirror_offset(section, CHUNK_STATE + state_count(&job->options), count);
}

/* Of the pack's first chunks, which are its largest. */
static uint64_t most_of_pack(const struct job *job, const struct pack *pack)
{
	uint64_t most = 0;

	for (int i = 0; i < UNIT_TRAINABLE_SECTIONS; i++) {
		enum unit_section section = (enum unit_section)i;
		uint64_t whole = chunk_elements(&job->options, section), elements = pack->elements[i];
		uint64_t bytes =
			elements > 0 ? bytes_of(job, section, elements < whole ? elements : whole) : 0;

		most = bytes > most ? bytes : most;
	}
	return most;
}

void chunk_mirrors_begin_step(struct job *job)
{
	uint64_t most = 0;

	if (!gpu_updates_find(job))
		return;
	for (uint32_t i = 0; i < job->catalog.pack_count; i++) {
		uint64_t bytes = most_of_pack(job, &job->catalog.packs[i]);

		most = bytes > most ? bytes : most;
	}
	job->update->mirror_bytes = most;
	mirrors_begin_step(job, most);
}

/* ---- Of a chunk ---- */

void chunk_mirror_name(struct chunk *chunk)
{
	struct mirror_piece *piece = &chunk->gpu.mirrored;

	*piece = (struct mirror_piece){ .pack = chunk->pack,
					.section = chunk->section,
					.first = chunk->first,
					.pass = chunk->pass_before,
					.run_count = chunk->gpu.run_count };
	for (unsigned i = 0; i < piece->run_count; i++)
		piece->runs[i] = (struct mirror_run){ (uint32_t)chunk->gpu.runs[i].at,
						      (uint32_t)chunk->gpu.runs[i].count };
}

/* More than half of its room would be empty. */
static bool is_too_small(const struct chunk *chunk)
{
	const struct job *job = chunk->sweep->job;

	return bytes_of(job, chunk->section, chunk->count) * 2 < job->update->mirror_bytes;
}

void chunk_mirror_take(struct chunk *chunk, struct gpu_updates *gpu)
{
	chunk->gpu.is_mirrored = false;
	chunk->gpu.mirror =
		is_too_small(chunk) ? NULL : mirror_take(gpu, &chunk->gpu.mirrored, &chunk->gpu.is_mirrored);
}

void chunk_mirror_give(struct chunk *chunk)
{
	struct mirror *mirror = TAKE_PTR(chunk->gpu.mirror);

	chunk->gpu.mirrored.pass = chunk->pass;
	if (mirror)
		mirror_give(mirror, chunk->status == 0 ? &chunk->gpu.mirrored : NULL);
}

driver_address chunk_mirror_at(const struct chunk *chunk, unsigned stream, uint64_t at)
{
	return mirror_address(chunk->gpu.mirror) + chunk_mirror_offset(chunk->section, stream, chunk->count) +
	       (stream == CHUNK_PARAMETER ? at * section_element_bytes(chunk->section)
					  : state_offset(chunk->section, stream - CHUNK_STATE, at));
}
