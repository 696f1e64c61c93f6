#include "dump.h"

#include <errno.h>
#include <stdio.h>

#define PIECE 65536 /* elements */

static int write_state(FILE *file, struct backend *backend, const struct model *model, unsigned unit,
		       unsigned tensor, enum backend_state state)
{
	const struct tensor *description = &model->units[unit].tensors[tensor];
	size_t size = state == STATE_PARAMETER ? number_size(description->format) : sizeof(float);
	uint64_t elements = tensor_elements(description);
	_cleanup_free_ char *piece = malloc(PIECE * sizeof(float));

	if (!piece)
		return -ENOMEM;
	for (uint64_t first = 0; first < elements; first += PIECE) {
		uint64_t count = elements - first < PIECE ? elements - first : PIECE;
		int r = backend->ops->read(backend, unit, tensor, state, first, count, piece);

		if (r < 0)
			return r;
		if (fwrite(piece, size, count, file) != count)
			return -EIO;
	}
	return 0;
}

static int write_units(FILE *file, struct backend *backend, const struct model *model)
{
	int r = 0;

	for (unsigned unit = 0; r == 0 && unit < model->unit_count; unit++) {
		for (unsigned i = 0; r == 0 && i < model->units[unit].tensor_count * STATE_COUNT; i++)
			r = write_state(file, backend, model, unit, i / STATE_COUNT, i % STATE_COUNT);
	}
	return r;
}

int dump_write(const char *path, struct backend *backend, const struct model *model)
{
	FILE *file = fopen(path, "we");
	int r;

	if (!file)
		return -errno;
	r = write_units(file, backend, model);
	if (fclose(file) != 0 && r == 0)
		r = -errno;
	return r;
}
