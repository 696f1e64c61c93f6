#include "dump.h"

#include <errno.h>

#include "optimizer.h"

#define PIECE 16384 /* elements */

static int write_state(FILE *file, struct backend *backend, const struct model *model, unsigned unit,
		       unsigned tensor, enum backend_state state)
{
	const struct tensor *description = &model->units[unit].tensors[tensor];
	size_t size = state == STATE_PARAMETER ? number_size(description->format) : sizeof(float);
	uint64_t elements = tensor_elements(description);
	float piece[PIECE];

	for (uint64_t first = 0; first < elements; first += PIECE) {
		uint64_t count = elements - first < PIECE ? elements - first : PIECE;
		int r = backend->ops->read(backend, unit, tensor, state, first, count, piece);

		if (r < 0)
			return r;
		if (fwrite(piece, size, count, file) != count)
			return -errno;
	}
	return 0;
}

static int write_units(FILE *file, struct backend *backend, const struct model *model)
{
	const char *names[KERNEL_SLOTS];
	unsigned states = STATE_SLOT_0 + optimizer_slots(backend->options, names);
	int r = 0;

	for (unsigned unit = 0; r == 0 && unit < model->unit_count; unit++) {
		for (unsigned i = 0; r == 0 && i < model->units[unit].tensor_count * states; i++)
			r = write_state(file, backend, model, unit, i / states, i % states);
	}
	return r;
}

int dump_write(FILE *file, struct backend *backend, const struct model *model)
{
	int r = write_units(file, backend, model);

	return r == 0 && fflush(file) != 0 ? -errno : r;
}
