/* Where the tensors of a unit lie: library and daemon compute it alike, from the definition alone.
 *
 * A unit has thirteen sections: of tensors that are trained, by the format of what their optimizer keeps and
 * by their own; of others, by their own. Bytes are never trained.
 * Within a section tensors follow in order of definition, each at a multiple of 256 bytes, of 256 elements
 * where moments are kept in blocks of as many; a section's length is a multiple of 256 elements. The
 * trainable elements of a unit are numbered through its sections in their order; gradients lie in the same
 * order, without gap, in the format of the section, or in fp32. */
#ifndef TIERD_PROTO_UNIT_LAYOUT_H
#define TIERD_PROTO_UNIT_LAYOUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/pages.h"
#include "proto/vocabulary.h"

enum unit_section {
	SECTION_BF16,
	SECTION_FP16,
	SECTION_FP32,
	SECTION_BF16_MOMENTS_BF16,
	SECTION_FP16_MOMENTS_BF16,
	SECTION_FP32_MOMENTS_BF16,
	SECTION_BF16_MOMENTS_INT8,
	SECTION_FP16_MOMENTS_INT8,
	SECTION_FP32_MOMENTS_INT8,
	SECTION_FROZEN_BF16,
	SECTION_FROZEN_FP16,
	SECTION_FROZEN_FP32,
	SECTION_FROZEN_BYTES
};

/* The first of them. */
#define UNIT_TRAINABLE_FORMATS 3
#define UNIT_TRAINABLE_SECTIONS (UNIT_TRAINABLE_FORMATS * WIRE_MOMENTS)

#define UNIT_ALIGN_BYTES 256
#define UNIT_ALIGN_ELEMENTS 256
/* Of one unit; also keeps every sum of a job's units within 64 bits. */
#define UNIT_MAX_ELEMENTS (UINT64_C(1) << 44)

static inline bool section_is_trainable(enum unit_section section)
{
	return (int)section < UNIT_TRAINABLE_SECTIONS;
}

/* The section of the same format, of tensors that are trained with fp32 moments; not of bytes. */
static inline enum unit_section section_plain(enum unit_section section)
{
	return (enum unit_section)((int)section % UNIT_TRAINABLE_FORMATS);
}

/* enum wire_moments; of those that are trained. */
static inline uint32_t section_moments(enum unit_section section)
{
	return (uint32_t)section / UNIT_TRAINABLE_FORMATS;
}

static inline uint64_t section_element_bytes(enum unit_section section)
{
	if (section == SECTION_FROZEN_BYTES)
		return 1;
	return section_plain(section) == SECTION_FP32 ? 4 : 2;
}

/* "bf16", "fp16", "fp32" or "bytes". */
const char *section_format(enum unit_section section);

struct unit_layout {
	uint64_t elements[UNIT_SECTIONS]; /* padded */
	uint32_t wide_gradients;	  /* a bit for each section whose gradients are in fp32 instead */
};

struct tensor_layout {
	enum unit_section section;
	uint64_t first;	   /* element of the section */
	uint64_t elements; /* without padding */
};

/* Starts with an empty layout. */
static inline void unit_layout_init(struct unit_layout *layout)
{
	*layout = (struct unit_layout){ { 0 }, 0 };
}

/* Elements of a shape; 1 for a scalar. -EOVERFLOW above UNIT_MAX_ELEMENTS. */
int unit_layout_elements(const uint64_t *shape, size_t dimensions, uint64_t *ret_elements);

#define UNIT_FROZEN UINT32_MAX

/* Appends the next tensor. format and moments are those of tierd.h; moments: UNIT_FROZEN: it is not trained.
 * -EINVAL: unknown format, or bytes that are not frozen; -EOVERFLOW: the unit gets too large. */
int unit_layout_append(struct unit_layout *layout, uint32_t format, uint32_t moments, uint64_t elements,
		       struct tensor_layout *ret_tensor);

/* Pads the sections; nothing can be appended afterwards. */
void unit_layout_finish(struct unit_layout *layout);

/* Whether gradients of this format are wider than a trainable tensor's own, which is the other format.
 * -EINVAL: they cannot be in that. gradients 0: they are in the tensor's own. */
int unit_layout_is_wide(uint32_t format, uint32_t gradients, bool *ret_is_wide);
static inline void unit_layout_widen(struct unit_layout *layout, enum unit_section section)
{
	layout->wide_gradients |= UINT32_C(1) << section;
}

static inline bool unit_layout_has_wide(const struct unit_layout *layout, enum unit_section section)
{
	return layout->wide_gradients & UINT32_C(1) << section;
}

/* Of a trainable section. */
static inline uint64_t unit_layout_gradient_element(const struct unit_layout *layout,
						    enum unit_section section)
{
	return unit_layout_has_wide(layout, section) ? sizeof(float) : section_element_bytes(section);
}

/* Where the elements of a section begin in the numbering through all of them; of UNIT_TRAINABLE_SECTIONS:
 * where those of trainable ones end. */
static inline uint64_t unit_layout_section_first(const struct unit_layout *layout, int section)
{
	uint64_t elements = 0;

	for (int before = 0; before < section; before++)
		elements += layout->elements[before];
	return elements;
}

static inline uint64_t unit_layout_trainable(const struct unit_layout *layout)
{
	return unit_layout_section_first(layout, UNIT_TRAINABLE_SECTIONS);
}

/* Sections that have elements. */
static inline unsigned unit_layout_sections(const struct unit_layout *layout)
{
	unsigned count = 0;

	for (int section = 0; section < UNIT_SECTIONS; section++)
		count += layout->elements[section] > 0;
	return count;
}

/* Elements of all sections, padding included. */
static inline uint64_t unit_layout_total(const struct unit_layout *layout)
{
	return unit_layout_section_first(layout, UNIT_SECTIONS);
}

/* Where the gradients of a trainable section begin, in bytes; of UNIT_TRAINABLE_SECTIONS: where they end. */
static inline uint64_t unit_layout_gradient_first(const struct unit_layout *layout, int section)
{
	uint64_t bytes = 0;

	for (int before = 0; before < section; before++)
		bytes += layout->elements[before] *
			 unit_layout_gradient_element(layout, (enum unit_section)before);
	return bytes;
}

static inline uint64_t unit_layout_gradient_bytes(const struct unit_layout *layout)
{
	return unit_layout_gradient_first(layout, UNIT_TRAINABLE_SECTIONS);
}

/* Where a tensor lies in a gradient buffer; UINT64_MAX if it is frozen. */
static inline uint64_t unit_layout_gradient_offset(const struct unit_layout *layout,
						   const struct tensor_layout *tensor)
{
	if (!section_is_trainable(tensor->section))
		return UINT64_MAX;
	return unit_layout_gradient_first(layout, (int)tensor->section) +
	       tensor->first * unit_layout_gradient_element(layout, tensor->section);
}

/* First element of rank's shard of so many trainable ones; of rank world_size: the end of the last one. */
static inline uint64_t unit_layout_shard(uint64_t trainable, uint32_t rank, uint32_t world_size)
{
	return trainable / UNIT_ALIGN_ELEMENTS * rank / world_size * UNIT_ALIGN_ELEMENTS;
}

#endif
