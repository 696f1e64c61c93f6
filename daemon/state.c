#include "daemon/state.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

enum master_kind state_master_kind(enum unit_section section)
{
	static const enum master_kind kinds[] = {
		[SECTION_BF16] = MASTER_SPLIT,	       [SECTION_FP16] = MASTER_BESIDE,
		[SECTION_FP32] = MASTER_ITSELF,	       [SECTION_FROZEN_BF16] = MASTER_SPLIT,
		[SECTION_FROZEN_FP16] = MASTER_BESIDE, [SECTION_FROZEN_FP32] = MASTER_ITSELF,
	};

	assert(section != SECTION_FROZEN_BYTES);
	return kinds[section];
}

uint64_t state_bytes(enum unit_section section, unsigned state)
{
	return state == STATE_MASTER ? master_bytes(state_master_kind(section)) : sizeof(float);
}

uint64_t state_all_bytes(const struct job_options *options, enum unit_section section)
{
	uint64_t bytes = 0;

	for (unsigned state = 0; state < state_count(options); state++)
		bytes += state_bytes(section, state);
	return bytes;
}

const char *state_stream_name(const struct job_options *options, enum unit_section section, unsigned state)
{
	if (state != STATE_MASTER)
		return options->optimizer->slots[state - STATE_SLOTS];
	return state_master_kind(section) == MASTER_BESIDE ? "master" : "remainder";
}

int state_find_slot(const struct job_options *options, const char *name)
{
	for (unsigned slot = 0; slot < options->slot_count; slot++)
		if (strcmp(options->optimizer->slots[slot], name) == 0)
			return (int)(STATE_SLOTS + slot);
	return -ENODATA;
}
