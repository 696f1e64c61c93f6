/* The catalog of a job: its units, their tensors, and how small units are packed together. Data only, no I/O.
 */
#ifndef TIERD_DAEMON_CATALOG_H
#define TIERD_DAEMON_CATALOG_H

#include <stdbool.h>
#include <stdint.h>

#include "daemon/model/region.h"
#include "daemon/model/names.h"
#include "proto/frame.h"
#include "proto/unit_layout.h"
#include "proto/vocabulary.h"

struct job_options;

/* The most that may be configured. */
#define CATALOG_MAX_UNITS 100000
#define CATALOG_MAX_TENSORS 1000000
/* Separate pieces of a tensor that have been written; touching ones are one. */
#define CATALOG_MAX_SPANS 4096
/* As the number of a pack: none. */
#define PACK_NONE UINT32_MAX
#define PACK_ELEMENTS (UINT64_C(1) << 20)

/* Elements first … end - 1 that have a value. */
struct span {
	uint64_t first, end;
};

/* A job may have very many tensors and units. What they point to lies in the catalog's region, unless a field
 * says otherwise. */
struct tensor {
	char *name, *alias, *slice_of, *dtype; /* all but the name may be NULL */
	uint64_t *shape;
	uint64_t slice_row, slice_rows;
	struct tensor_layout layout;
	double a, b;
	uint16_t group, defined_group; /* ranks may have moved it since: daemon/update/groups.h */
	uint8_t format, dimensions, initializer;
	uint8_t gradient_format; /* 0: its own */
	bool is_frozen;
	bool has_source; /* its first values are those of another job's: daemon/values/source.h */
	bool is_present; /* some rank has a gradient of it in the open step's sum: daemon/gradients/own.h
			  */
	bool has_given;	 /* in this writing it is told how often it was updated */
	uint64_t missed; /* updates of its unit that it had no gradient in */
	uint64_t given;
	/* Of its first values; of a reduced step, of its masters; of a writing. Sorted, disjoint, not
	 * touching; owned. */
	uint16_t written_count, written_capacity;
	struct span *written;
};

/* What a unit has of a section. */
struct unit_part {
	enum unit_section section;
	bool has_wide_gradients; /* in fp32 instead of the section's format */
	uint64_t elements;	 /* padded */
	uint64_t first;		 /* of the numbering through the unit's sections */
	uint64_t pack_first;	 /* of the pack's section */
};

struct unit {
	char *name;
	struct tensor *tensors;
	struct unit_part *parts; /* of each section that a tensor lies in, in their order */
	uint32_t tensor_count, part_count;
	uint64_t parameters; /* elements of all tensors, without padding */
	uint64_t trainable;  /* those that are trained, with padding */

	uint32_t pack;
	bool has_source;       /* its slots and its count of updates are another job's, too */
	uint32_t first_tensor; /* of all tensors of the job, in order */
	uint64_t updates;      /* how often the optimizer has updated it */
	uint64_t last_update;  /* the step that did so last */
};

/* Neighbouring units that are stored, loaded, updated and evicted as one. */
struct pack {
	uint32_t first_unit, unit_count;
	uint64_t elements[UNIT_SECTIONS];
	uint64_t slot_offset[UNIT_SECTIONS]; /* where its sections begin in its slot, in bytes */
	uint64_t slot_bytes;
};

struct catalog {
	struct region definitions; /* what units and tensors point to */
	struct unit *units;
	uint32_t unit_count, unit_capacity;
	uint64_t tensor_count;
	uint64_t section_count; /* of all units, of those sections that have elements */
	uint32_t unit_maximum;	/* the owner sets these five */
	uint64_t tensor_maximum;
	uint32_t name_maximum, dimension_maximum;
	bool is_kept;	    /* its units come from a record */
	struct pack *packs; /* once packed */
	uint32_t pack_count;
	uint64_t parameters, trainable; /* trainable: with padding */
	uint32_t trained_units;
	uint32_t unit_tensors; /* of the unit that has most */
	/* Of the unit that has most, and of the two that come next; 0: there is none. */
	uint64_t gradient_bytes_maximum, gradient_bytes_next[2];
	struct names unit_names, tensor_names;
};

void catalog_free(struct catalog *catalog);

/* Checks a definition and appends it. A negative errno with a message for the client. */
int catalog_define(struct catalog *catalog, const Tierd__Wire__UnitDefine *definition,
		   const struct job_options *options, char *message, size_t message_size);

/* Host memory that it takes once it is defined, at most. */
uint64_t catalog_definition_bytes(const Tierd__Wire__UnitDefine *definition);

/* Compares a definition with unit index: 0, or -EINVAL with the first difference. */
int catalog_compare(const struct catalog *catalog, uint32_t index, const Tierd__Wire__UnitDefine *definition,
		    char *message, size_t message_size);

/* "[2, 3]" */
void catalog_print_shape(const uint64_t *shape, size_t dimensions, char *text, size_t size);

/* Forms the packs. No unit can be defined until catalog_unpack(). */
int catalog_pack(struct catalog *catalog);
void catalog_unpack(struct catalog *catalog);

bool pack_is_frozen(const struct pack *pack);
/* Writes zeros between the tensors of a pack's frozen sections, and behind them up to whole pages. So what is
 * stored depends on the values alone, not on what was in the slot before. */
void catalog_clear_padding(const struct catalog *catalog, uint32_t pack, char *slot);

static inline bool unit_is_trainable(const struct unit *unit)
{
	return unit->trainable != 0;
}

/* As often as its unit, but for the steps in which it had no gradient. */
static inline uint64_t tensor_updates(const struct unit *unit, const struct tensor *tensor)
{
	return unit->updates - tensor->missed;
}

/* Some tensor has a gradient in the open step. */
bool unit_is_present(const struct unit *unit);

/* Makes the parts of a unit whose tensors are set. -ENOMEM. */
int unit_set_parts(struct unit *unit, struct region *region, const struct unit_layout *layout);

/* NULL: none of its tensors lies in the section. */
struct unit_part *unit_part(const struct unit *unit, enum unit_section section);
/* The part that the tensor lies in. */
static inline struct unit_part *tensor_part(const struct unit *unit, const struct tensor *tensor)
{
	return unit_part(unit, tensor->layout.section);
}

/* Of all its sections, padding included. */
uint64_t unit_elements(const struct unit *unit);
uint64_t unit_parameter_bytes(const struct unit *unit);
/* Of those that are trained. */
uint64_t unit_trainable_bytes(const struct unit *unit);
uint64_t unit_gradient_bytes(const struct unit *unit);

static inline uint64_t unit_part_bytes(const struct unit_part *part)
{
	return part->elements * section_element_bytes(part->section);
}

static inline uint64_t unit_part_gradient_bytes(const struct unit_part *part)
{
	return part->elements *
	       (part->has_wide_gradients ? sizeof(float) : section_element_bytes(part->section));
}

/* Notes that elements have a value now. -E2BIG: they lie in too many separate pieces; -ENOMEM. It cannot fail
 * for as many pieces as have been reserved. */
int tensor_mark_written(struct tensor *tensor, uint64_t first, uint64_t count);
int tensor_reserve_written(struct tensor *tensor, unsigned pieces);
/* All of it; any of these elements. */
bool tensor_is_written(const struct tensor *tensor);
bool tensor_has_written(const struct tensor *tensor, uint64_t first, uint64_t count);

/* Lists tensors without value and initializer (", "-separated, at most a few) into text; returns how many
 * there are. */
unsigned catalog_unwritten(const struct catalog *catalog, char *text, size_t size);

#endif
