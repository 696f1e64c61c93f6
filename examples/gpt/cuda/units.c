/* How units come to a GPU, and their gradients from there: where the backend has memory there, by what is
 * queued in the stream; else by copies, which wait for all that the GPU is doing. */
#include <errno.h>
#include <stdio.h>

#include "examples/gpt/cuda/device.h"

/* ---- Copies ---- */

static int allocate_once(struct cuda *cuda, void **memory)
{
	return *memory ? 0 : cuda->compute.ops->allocate(&cuda->compute, cuda->unit_bytes, memory);
}

static struct unit_view view_in(const struct cuda *cuda, unsigned unit, void *memory)
{
	const struct unit *description = &cuda->model->units[unit];
	struct unit_view view = { { NULL } };
	char *at = memory;

	for (unsigned i = 0; i < description->tensor_count; i++) {
		const struct tensor *tensor = &description->tensors[i];

		view.tensor[i] = at;
		at += (tensor_elements(tensor) * number_size(tensor->format) + 255) / 256 * 256;
	}
	return view;
}

static int copy_unit(struct cuda *cuda, unsigned unit, const struct unit_view *to,
		     const struct unit_view *from)
{
	const struct unit *description = &cuda->model->units[unit];
	int r = 0;

	for (unsigned i = 0; r == 0 && i < description->tensor_count; i++) {
		const struct tensor *tensor = &description->tensors[i];

		r = cuda_copy(&cuda->compute, to->tensor[i], from->tensor[i],
			      tensor_elements(tensor) * number_size(tensor->format));
	}
	return r;
}

static void tell_once(bool *has_told, const char *what, struct backend *backend)
{
	bool has_reason = backend->ops->gather_on;

	if (!*has_told)
		fprintf(stderr, "gpt: %s, one after the other%s%s\n", what, has_reason ? ": " : "",
			has_reason ? backend->ops->message(backend) : "");
	*has_told = true;
}

static int gather_by_copy(struct cuda *cuda, struct backend *backend, struct cuda_unit *unit,
			  struct unit_view *ret_parameters)
{
	void **place = &cuda->places[unit - cuda->units];
	struct unit_view host, view;
	int r;

	tell_once(&cuda->has_told_units, "units are copied to the GPU from host memory", backend);
	r = backend_gather(backend, unit->unit, &host);
	if (r < 0)
		return r;
	r = allocate_once(cuda, place);
	if (r == 0) {
		view = view_in(cuda, unit->unit, *place);
		r = copy_unit(cuda, unit->unit, &view, &host);
	}
	if (r < 0) {
		(void)backend_release(backend, unit->unit);
		return r;
	}
	*ret_parameters = view;
	return backend_release(backend, unit->unit);
}

/* ---- Units ---- */

/* At most two are held at once. */
static struct cuda_unit *find_unit(struct cuda *cuda, bool is_used, unsigned unit)
{
	for (size_t i = 0; i < ARRAY_LENGTH(cuda->units); i++)
		if (cuda->units[i].is_used == is_used && (!is_used || cuda->units[i].unit == unit))
			return &cuda->units[i];
	return NULL;
}

int cuda_gather(struct compute *compute, struct backend *backend, unsigned unit,
		struct unit_view *ret_parameters)
{
	struct cuda *cuda = cuda_of(compute);
	struct cuda_unit *free_unit = find_unit(cuda, false, unit);
	int r;

	if (cuda->failure < 0)
		return cuda->failure;
	*free_unit = (struct cuda_unit){ .unit = unit };
	r = backend_gather_on(backend, unit, cuda->stream, ret_parameters);
	if (r == -EOPNOTSUPP) {
		free_unit->is_copied = true;
		r = gather_by_copy(cuda, backend, free_unit, ret_parameters);
	}
	free_unit->is_used = r == 0;
	return r;
}

int cuda_release(struct compute *compute, struct backend *backend, unsigned unit)
{
	struct cuda *cuda = cuda_of(compute);
	struct cuda_unit *held = find_unit(cuda, true, unit);

	held->is_used = false;
	return held->is_copied ? 0 : backend->ops->release_on(backend, unit, cuda->stream);
}

void cuda_abandon(struct compute *compute, struct backend *backend)
{
	struct cuda *cuda = cuda_of(compute);

	for (size_t i = 0; i < ARRAY_LENGTH(cuda->units); i++)
		if (cuda->units[i].is_used)
			(void)cuda_release(compute, backend, cuda->units[i].unit);
}

/* ---- Gradients ---- */

int cuda_gradients(struct compute *compute, struct backend *backend, unsigned unit,
		   struct unit_view *ret_gradients)
{
	struct cuda *cuda = cuda_of(compute);
	int r = backend_gradients_on(backend, unit, cuda->stream, ret_gradients);

	cuda->copies_gradients = r == -EOPNOTSUPP || r == -ENOMEM;
	if (!cuda->copies_gradients)
		return r;
	tell_once(&cuda->has_told_gradients, "gradients are copied from the GPU to host memory", backend);
	r = allocate_once(cuda, &cuda->gradients);
	if (r == 0)
		*ret_gradients = view_in(cuda, unit, cuda->gradients);
	return r;
}

int cuda_push(struct compute *compute, struct backend *backend, unsigned unit)
{
	struct cuda *cuda = cuda_of(compute);
	struct unit_view view, host;
	int r;

	if (!cuda->copies_gradients)
		return cuda->failure < 0 ? cuda->failure : backend_push_on(backend, unit, cuda->stream);
	view = view_in(cuda, unit, cuda->gradients);
	r = backend_gradients(backend, unit, &host);
	if (r == 0)
		r = copy_unit(cuda, unit, &host, &view);
	return r < 0 ? r : backend_push(backend, unit);
}
