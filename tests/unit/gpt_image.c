/* The kernels of examples/gpt (shim.h) as what the stand-in for the GPU driver loads, in place of nvcc's. */
#include <stdlib.h>
#include <string.h>

#include "common/cleanup.h"
#include "examples/gpt/cuda/arguments.h"
#include "tests/lib/gpu/image.h"
#include "tests/unit/gpt_kernels.h"

/* Of its arguments, where pointers lie that it reads or writes through, with 1 for 0. What other streams do
 * is to copy whole units and batches, so the beginnings of arrays are enough to find a race with them. */
#define POINTERS 6
struct layout {
	const char *kernel;
	size_t bytes;
	size_t read[POINTERS], written[POINTERS];
};

#define ARGUMENTS(name) #name, sizeof(struct name)
#define AT(name, member) offsetof(struct name, member) + 1

static const struct layout layouts[] = {
	{ ARGUMENTS(gpt_norm),
	  { AT(gpt_norm, x), AT(gpt_norm, weight), AT(gpt_norm, bias) },
	  { AT(gpt_norm, y), AT(gpt_norm, mean), AT(gpt_norm, inverse_deviation) } },
	{ ARGUMENTS(gpt_norm_backward),
	  { AT(gpt_norm_backward, x), AT(gpt_norm_backward, weight), AT(gpt_norm_backward, mean),
	    AT(gpt_norm_backward, inverse_deviation), AT(gpt_norm_backward, y_gradient) },
	  { AT(gpt_norm_backward, x_gradient) } },
	{ ARGUMENTS(gpt_column_sums),
	  { AT(gpt_column_sums, values), AT(gpt_column_sums, x), AT(gpt_column_sums, mean),
	    AT(gpt_column_sums, inverse_deviation) },
	  { AT(gpt_column_sums, sums), AT(gpt_column_sums, products) } },
	{ ARGUMENTS(gpt_column_totals), { AT(gpt_column_totals, sums) }, { AT(gpt_column_totals, totals) } },
	{ ARGUMENTS(gpt_finish),
	  { AT(gpt_finish, x), AT(gpt_finish, bias), AT(gpt_finish, added) },
	  { AT(gpt_finish, y) } },
	{ ARGUMENTS(gpt_gelu), { AT(gpt_gelu, bias) }, { AT(gpt_gelu, x), AT(gpt_gelu, y) } },
	{ ARGUMENTS(gpt_gelu_backward),
	  { AT(gpt_gelu_backward, x), AT(gpt_gelu_backward, y_gradient) },
	  { AT(gpt_gelu_backward, x_gradient) } },
	{ ARGUMENTS(gpt_softmax), { AT(gpt_softmax, x) }, { AT(gpt_softmax, y) } },
	{ ARGUMENTS(gpt_softmax_backward),
	  { AT(gpt_softmax_backward, y), AT(gpt_softmax_backward, y_gradient) },
	  { AT(gpt_softmax_backward, x_gradient) } },
	{ ARGUMENTS(gpt_embed),
	  { AT(gpt_embed, text), AT(gpt_embed, token), AT(gpt_embed, position) },
	  { AT(gpt_embed, x) } },
	{ ARGUMENTS(gpt_embed_backward),
	  { AT(gpt_embed_backward, text), AT(gpt_embed_backward, x_gradient),
	    AT(gpt_embed_backward, head_gradient) },
	  { AT(gpt_embed_backward, token), AT(gpt_embed_backward, position) } },
	{ ARGUMENTS(gpt_loss), { AT(gpt_loss, text) }, { AT(gpt_loss, logits), AT(gpt_loss, losses) } },
};

static unsigned add_ranges(const size_t *places, bool is_written, const void *arguments,
			   struct standin_range *ret_ranges)
{
	unsigned count = 0;

	for (unsigned i = 0; i < POINTERS && places[i] > 0; i++) {
		const void *pointer;

		memcpy(&pointer, (const char *)arguments + places[i] - 1, sizeof(pointer));
		if (pointer)
			ret_ranges[count++] =
				(struct standin_range){ (uintptr_t)pointer, 1, !is_written, is_written };
	}
	return count;
}

static unsigned find_ranges(const struct standin_kernel *kernel, const void *arguments,
			    struct standin_range *ret_ranges)
{
	const struct layout *layout = layouts;
	unsigned count;

	while (strcmp(layout->kernel, kernel->name) != 0)
		layout++;
	count = add_ranges(layout->read, false, arguments, ret_ranges);
	return count + add_ranges(layout->written, true, arguments, ret_ranges + count);
}

static void run(const struct standin_kernel *kernel, const void *arguments, unsigned blocks, unsigned threads)
{
	if (!shim_run_gpt(kernel->name, arguments, blocks, threads))
		abort();
}

const void *gpt_kernels_image(void)
{
	static struct standin_kernel kernels[ARRAY_LENGTH(layouts)];
	static const struct standin_image image = { STANDIN_IMAGE, ARRAY_LENGTH(layouts), kernels };

	for (size_t i = 0; i < ARRAY_LENGTH(layouts); i++)
		kernels[i] = (struct standin_kernel){ layouts[i].kernel, layouts[i].bytes, GPT_THREADS,
						      find_ranges, run };
	return &image;
}

const char *gpt_place_find(void)
{
	return NULL;
}
