#include "gpu.h"

#include <stdlib.h>
#include <string.h>

#include "bits.h"
#include "tests/functional/on_gpu.h"

struct gpu_reader {
	struct on_gpu *gpu;
	uint64_t places[MODEL_MAX_UNITS][MODEL_MAX_TENSORS]; /* in its memory */
	bool is_held[MODEL_MAX_UNITS];
	bool is_read[MODEL_MAX_UNITS]; /* since the last comparison */
};

bool gpu_is_wanted(void)
{
	return getenv("MATRIX_GPU") != NULL;
}

bool gpu_is_least(void)
{
	return gpu_is_wanted() && strcmp(getenv("MATRIX_GPU"), "least") == 0;
}

int32_t gpu_of_rank(const struct rank *rank)
{
	return gpu_is_wanted() && rank->rank % 4 != 2 ? (int32_t)(rank->rank % 2) : -1;
}

/* ---- Reading ---- */

static uint64_t bytes_of(const struct model_tensor *tensor)
{
	return tensor->elements * model_element_bytes(tensor);
}

struct gpu_reader *gpu_reader_new(const struct rank *rank)
{
	struct gpu_reader *reader;
	uint64_t bytes = 0;

	if (gpu_of_rank(rank) < 0)
		return NULL;
	reader = calloc(1, sizeof(*reader));
	if (!reader)
		rank_fail(rank, "no memory");
	for (unsigned u = 0; u < rank->model.unit_count; u++)
		for (unsigned t = 0; t < rank->model.units[u].tensor_count; t++) {
			reader->places[u][t] = bytes;
			bytes += (bytes_of(&rank->model.units[u].tensors[t]) + 255) / 256 * 256;
		}
	reader->gpu = on_gpu_new(gpu_of_rank(rank), bytes);
	return reader;
}

static void read_unit(const struct rank *rank, unsigned unit, const struct tierd_view *view)
{
	struct gpu_reader *reader = rank->gpu;

	for (unsigned t = 0; t < rank->model.units[unit].tensor_count; t++) {
		const struct model_tensor *tensor = &rank->model.units[unit].tensors[t];

		if ((uintptr_t)tierd_at(view, t) % 256 != 0)
			rank_fail(rank, "%s lies at %p of the GPU", tensor->name, tierd_at(view, t));
		on_gpu_read(reader->gpu, reader->places[unit][t], tierd_at(view, t), bytes_of(tensor));
	}
	reader->is_read[unit] = true;
}

bool gpu_gather(const struct rank *rank, unsigned unit, unsigned steps, struct tierd_view *ret_view)
{
	struct gpu_reader *reader = rank->gpu;

	if (!reader || BITS_HASH(unit, steps, rank->rank) % 8 == 0)
		return false;
	rank_must(rank, tierd_gather_on(rank->job, unit, on_gpu_stream(reader->gpu), ret_view),
		  "tierd_gather_on");
	reader->is_held[unit] = true;
	read_unit(rank, unit, ret_view);
	return true;
}

bool gpu_release(const struct rank *rank, unsigned unit)
{
	struct gpu_reader *reader = rank->gpu;

	if (!reader || !reader->is_held[unit])
		return false;
	reader->is_held[unit] = false;
	rank_must(rank, tierd_release_on(rank->job, unit, on_gpu_stream(reader->gpu)), "tierd_release_on");
	return true;
}

void gpu_compare(const struct rank *rank, unsigned steps,
		 void (*compare)(const struct rank *rank, const struct tierd_view *view, unsigned unit,
				 unsigned steps))
{
	struct gpu_reader *reader = rank->gpu;

	if (!reader)
		return;
	on_gpu_wait(reader->gpu);
	for (unsigned unit = 0; unit < rank->model.unit_count; unit++) {
		struct tierd_view view = { on_gpu_memory(reader->gpu), reader->places[unit], steps };

		if (reader->is_read[unit])
			compare(rank, &view, unit, steps);
		reader->is_read[unit] = false;
	}
}
