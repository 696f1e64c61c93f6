#include "daemon/model/state.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "common/cleanup.h"
#include "daemon/request/request.h"
#include "offload/optimizer/moments.h"
#include "proto/name.h"

enum master_kind state_master_kind(enum unit_section section)
{
	static const enum master_kind kinds[UNIT_TRAINABLE_FORMATS] = {
		[SECTION_BF16] = MASTER_SPLIT, [SECTION_FP16] = MASTER_BESIDE, [SECTION_FP32] = MASTER_ITSELF
	};

	assert(section != SECTION_FROZEN_BYTES);
	return kinds[section_plain(section)];
}

static_assert((int)MOMENTS_IN_FP32 == MOMENTS_FP32 && (int)MOMENTS_IN_BF16 == MOMENTS_BF16 &&
		      (int)MOMENTS_IN_INT8 == MOMENTS_INT8 && (int)WIRE_MOMENTS == MOMENT_FORMATS &&
		      UNIT_ALIGN_ELEMENTS % MOMENT_BLOCK == 0,
	      "formats of moments on the wire and in kernels");

enum moment_format state_moments(enum unit_section section)
{
	return (enum moment_format)section_moments(section);
}

bool state_exists(enum unit_section section, unsigned state)
{
	return state != STATE_MASTER || master_bytes(state_master_kind(section)) > 0;
}

uint64_t state_grain(enum unit_section section, unsigned state)
{
	return state != STATE_MASTER && state_moments(section) == MOMENTS_INT8 ? MOMENT_BLOCK : 1;
}

uint64_t state_bytes(enum unit_section section, unsigned state, uint64_t elements)
{
	return state == STATE_MASTER ? master_bytes(state_master_kind(section)) * elements
				     : moment_bytes(state_moments(section), elements);
}

uint64_t state_offset(enum unit_section section, unsigned state, uint64_t element)
{
	return state == STATE_MASTER ? state_bytes(section, state, element)
				     : moment_offset(state_moments(section), element);
}

uint64_t state_all_bytes(const struct job_options *options, enum unit_section section, uint64_t elements)
{
	uint64_t bytes = 0;

	for (unsigned state = 0; state < state_count(options); state++)
		bytes += state_bytes(section, state, elements);
	return bytes;
}

const char *state_stream_name(const struct job_options *options, enum unit_section section, unsigned state)
{
	if (state != STATE_MASTER)
		return options->optimizer->slots[state - STATE_SLOTS];
	return state_master_kind(section) == MASTER_BESIDE ? "master" : "remainder";
}

/* "parameter, master, m, v" */
static const char *print_names(const struct job_options *options, char *text, size_t size)
{
	size_t used = (size_t)snprintf(text, size, "parameter, master");

	for (unsigned slot = 0; slot < options->slot_count && used < size; slot++)
		used += (size_t)snprintf(text + used, size - used, ", %s", options->optimizer->slots[slot]);
	return text;
}

/* PyTorch's optimizers call them otherwise, and so do files of tensors. */
static const char *own_name(const char *name)
{
	static const struct {
		const char *name, *own;
	} others[] = { { "exp_avg", "m" }, { "exp_avg_sq", "v" }, { "momentum_buffer", "momentum" } };

	for (size_t i = 0; i < ARRAY_LENGTH(others); i++)
		if (strcmp(others[i].name, name) == 0)
			return others[i].own;
	return name;
}

static int find_slot(const struct job_options *options, const char *name)
{
	for (unsigned slot = 0; slot < options->slot_count; slot++)
		if (strcmp(options->optimizer->slots[slot], own_name(name)) == 0)
			return (int)(STATE_SLOTS + slot);
	return -ENODATA;
}

int state_find(const struct job_options *options, const char *name, int *ret_state, char *message,
	       size_t size)
{
	char names[64];
	int slot = find_slot(options, name);

	if (strcmp(name, "parameter") == 0)
		*ret_state = STATE_PARAMETER;
	else if (strcmp(name, "master") == 0)
		*ret_state = STATE_MASTER;
	else if (slot < 0)
		return refuse(message, size, slot, "there is no state \"%.*s\" with %s; there are: %s",
			      name_fit(name, 40), name, options->optimizer->name,
			      print_names(options, names, sizeof(names)));
	else
		*ret_state = slot;
	return 0;
}
