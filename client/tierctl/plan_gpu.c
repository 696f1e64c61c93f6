#include "client/tierctl/plan_gpu.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/cleanup.h"

/* ---- The GPUs ---- */

int plan_gpus_parse(const char *text, struct plan_gpus *gpus)
{
	const char *size = text + strspn(text, "0123456789");
	unsigned long count = 0;
	uint64_t bytes;
	int r;

	if (size > text && *size == 'x') {
		count = strtoul(text, NULL, 10);
		if (count == 0 || count > PLAN_MAX_RANKS)
			return -ERANGE;
		text = size + 1;
	}
	r = plan_parse_bytes(text, &bytes);
	if (r < 0 || bytes == 0)
		return r < 0 ? r : -ERANGE;
	gpus->count = (unsigned)count;
	gpus->bytes = bytes;
	return 0;
}

int plan_gpus_spread(struct plan_gpus *gpus, unsigned ranks, unsigned *ret_count)
{
	unsigned count = gpus->count > 0 && gpus->count < ranks ? gpus->count : ranks;

	while (ranks % count != 0)
		count--;
	*ret_count = count;
	if (gpus->count > 0 && gpus->count != count)
		return -EINVAL;
	gpus->count = count;
	gpus->ranks = ranks / count;
	return 0;
}

/* ---- The units ---- */

/* In bytes, of one rank. */
struct sizes {
	double two_of_each, all, trained;
	double two_gradients, all_gradients;
	const char *largest;
	double largest_bytes;
};

static int compare_descending(const void *a, const void *b)
{
	const double *left = a, *right = b;

	return (*left < *right) - (*left > *right);
}

static double sum_of(const Tierd__Wire__UnitDefine *unit,
		     uint64_t (*bytes_of)(const Tierd__Wire__Tensor *tensor))
{
	double bytes = 0;

	for (size_t i = 0; i < unit->n_tensors; i++)
		bytes += (double)bytes_of(unit->tensors[i]);
	return bytes;
}

static uint64_t trained_bytes(const Tierd__Wire__Tensor *tensor)
{
	return tensor->is_frozen ? 0 : plan_units_bytes(tensor);
}

/* They descend. Those that are less than an eighth smaller than the largest of theirs are of its size: in
 * host memory they share slots, too (daemon/resources/slots.c). */
static double two_of_each(const double *sizes, size_t count)
{
	double size = 0, bytes = 0;
	unsigned there = 0;

	for (size_t i = 0; i < count; i++) {
		if (i == 0 || sizes[i] <= size - size / 8) {
			size = sizes[i];
			there = 0;
		}
		if (there++ < 2)
			bytes += size;
	}
	return bytes;
}

static int measure(const Tierd__Wire__PlanRequest *request, struct sizes *ret_sizes)
{
	/* Room for two, since two are looked at however few there are. */
	_cleanup_free_ double *units = calloc(request->n_units + 2, sizeof(*units));
	_cleanup_free_ double *gradients = calloc(request->n_units + 2, sizeof(*gradients));
	struct sizes sizes = { 0 };

	if (!units || !gradients)
		return -ENOMEM;
	for (size_t i = 0; i < request->n_units; i++) {
		units[i] = sum_of(request->units[i], plan_units_bytes);
		gradients[i] = sum_of(request->units[i], plan_units_gradient_bytes);
		sizes.all += units[i];
		sizes.trained += sum_of(request->units[i], trained_bytes);
		sizes.all_gradients += gradients[i];
		if (units[i] > sizes.largest_bytes) {
			sizes.largest = request->units[i]->name;
			sizes.largest_bytes = units[i];
		}
	}
	qsort(units, request->n_units, sizeof(*units), compare_descending);
	qsort(gradients, request->n_units, sizeof(*gradients), compare_descending);
	sizes.two_of_each = two_of_each(units, request->n_units);
	sizes.two_gradients = gradients[0] + gradients[1];
	*ret_sizes = sizes;
	return 0;
}

/* ---- What they need ---- */

/* Forward and backward take turns; each finds so many bytes of a rank there that the one before has left. But
 * a step changes what is trained. */
static void fill(const struct plan_gpus *gpus, const struct sizes *sizes, unsigned micro_batches,
		 double stays, double figures[PLAN_GPU_FIGURES])
{
	double ranks = gpus->ranks, passes = 2.0 * micro_batches, misses = fmax(sizes->all - stays, 0);

	figures[PLAN_GPU_UNITS] = ranks * sizes->two_of_each;
	figures[PLAN_GPU_GRADIENTS] = ranks * sizes->two_gradients;
	figures[PLAN_GPU_BYTES] =
		ranks * (sizes->two_of_each + sizes->two_gradients + (double)gpus->activation_bytes);
	figures[PLAN_GPU_TO] = ranks * (fmax(sizes->trained, misses) + (passes - 1) * misses);
	figures[PLAN_GPU_FROM] = ranks * micro_batches * sizes->all_gradients;
	figures[PLAN_GPU_SECONDS] =
		fmax(figures[PLAN_GPU_TO], figures[PLAN_GPU_FROM]) / (double)gpus->pcie_rate;
}

static void widen(const double low[PLAN_GPU_FIGURES], const double high[PLAN_GPU_FIGURES],
		  struct plan_gpu_bounds *bounds)
{
	for (unsigned i = 0; i < PLAN_GPU_FIGURES; i++) {
		bounds->low[i] = fmin(bounds->low[i], low[i]);
		bounds->high[i] = fmax(bounds->high[i], high[i]);
	}
}

int plan_gpu_bounds(const struct plan_gpus *gpus, Tierd__Wire__PlanRequest *const *units, unsigned cuts,
		    unsigned micro_batches, struct plan_gpu_bounds *ret_bounds)
{
	struct plan_gpu_bounds bounds = { .largest = NULL };

	for (unsigned i = 0; i < PLAN_GPU_FIGURES; i++)
		bounds.low[i] = HUGE_VAL;
	for (unsigned i = 0; i < cuts; i++) {
		double low[PLAN_GPU_FIGURES], high[PLAN_GPU_FIGURES], room;
		struct sizes sizes;
		int r = measure(units[i], &sizes);

		if (r < 0)
			return r;
		room = (double)gpus->bytes / gpus->ranks - sizes.two_gradients -
		       (double)gpus->activation_bytes;
		fill(gpus, &sizes, micro_batches, fmax(room, 0), low);
		fill(gpus, &sizes, micro_batches, 0, high);
		widen(low, high, &bounds);
		if (i == 0) {
			bounds.largest = sizes.largest;
			bounds.largest_bytes = sizes.largest_bytes;
		}
	}
	*ret_bounds = bounds;
	return 0;
}
