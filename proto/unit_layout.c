#include "proto/unit_layout.h"

#include <assert.h>
#include <errno.h>

#include "common/size.h"
#include "proto/vocabulary.h"

int unit_layout_elements(const uint64_t *shape, size_t dimensions, uint64_t *ret_elements)
{
	uint64_t elements = 1;

	for (size_t i = 0; i < dimensions; i++)
		if (!size_multiply(elements, shape[i], &elements))
			return -EOVERFLOW;
	if (elements > UNIT_MAX_ELEMENTS)
		return -EOVERFLOW;
	*ret_elements = elements;
	return 0;
}

const char *section_format(enum unit_section section)
{
	static const char *const names[UNIT_TRAINABLE_FORMATS] = {
		[SECTION_BF16] = "bf16", [SECTION_FP16] = "fp16", [SECTION_FP32] = "fp32"
	};

	return section == SECTION_FROZEN_BYTES ? "bytes" : names[section_plain(section)];
}

static int section_of(uint32_t format, uint32_t moments, enum unit_section *ret_section)
{
	static const enum unit_section sections[] = {
		[FORMAT_FP32] = SECTION_FP32, [FORMAT_BF16] = SECTION_BF16, [FORMAT_FP16] = SECTION_FP16
	};
	bool is_frozen = moments == UNIT_FROZEN;

	if (format == 0 || format > FORMAT_BYTES || (!is_frozen && moments >= WIRE_MOMENTS))
		return -EINVAL;
	if (format == FORMAT_BYTES && !is_frozen)
		return -EINVAL;
	if (format == FORMAT_BYTES)
		*ret_section = SECTION_FROZEN_BYTES;
	else
		*ret_section = (enum unit_section)(
			(int)sections[format] +
			(is_frozen ? UNIT_TRAINABLE_SECTIONS : (int)moments * UNIT_TRAINABLE_FORMATS));
	return 0;
}

static_assert(SECTION_BF16_MOMENTS_BF16 == UNIT_TRAINABLE_FORMATS * MOMENTS_IN_BF16 &&
		      SECTION_BF16_MOMENTS_INT8 == UNIT_TRAINABLE_FORMATS * MOMENTS_IN_INT8 &&
		      SECTION_FROZEN_BF16 == UNIT_TRAINABLE_SECTIONS &&
		      UNIT_TRAINABLE_SECTIONS % UNIT_TRAINABLE_FORMATS == 0 &&
		      SECTION_FROZEN_BYTES + 1 == UNIT_SECTIONS,
	      "sections are numbered by format, and then by moments");

int unit_layout_is_wide(uint32_t format, uint32_t gradients, bool *ret_is_wide)
{
	if (gradients != 0 && gradients != format && gradients != FORMAT_FP32)
		return -EINVAL;
	*ret_is_wide = gradients == FORMAT_FP32 && format != FORMAT_FP32;
	return 0;
}

/* Of a tensor's first element. */
static uint64_t alignment_of(enum unit_section section)
{
	if (section_is_trainable(section) && section_moments(section) == MOMENTS_IN_INT8)
		return UNIT_ALIGN_ELEMENTS;
	return UNIT_ALIGN_BYTES / section_element_bytes(section);
}

int unit_layout_append(struct unit_layout *layout, uint32_t format, uint32_t moments, uint64_t elements,
		       struct tensor_layout *ret_tensor)
{
	enum unit_section section;
	int r = section_of(format, moments, &section);

	if (r < 0)
		return r;
	uint64_t first = size_align(layout->elements[section], alignment_of(section));

	if (elements > UNIT_MAX_ELEMENTS || first + elements > UNIT_MAX_ELEMENTS)
		return -EOVERFLOW;
	layout->elements[section] = first + elements;
	*ret_tensor = (struct tensor_layout){ .section = section, .first = first, .elements = elements };
	return 0;
}

void unit_layout_finish(struct unit_layout *layout)
{
	for (int section = 0; section < UNIT_SECTIONS; section++)
		layout->elements[section] = size_align(layout->elements[section], UNIT_ALIGN_ELEMENTS);
}
