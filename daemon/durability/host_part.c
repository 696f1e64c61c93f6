#include "daemon/durability/host_part.h"

#include "common/size.h"
#include "daemon/residency/residency.h"

struct host_part host_part_at(unsigned index)
{
	return (struct host_part){ .section = (enum unit_section)(index / (1 + STATES_MAXIMUM)),
				   .state = (int)(index % (1 + STATES_MAXIMUM)) + STATE_PARAMETER };
}

/* 0: there is nothing of it in host memory. */
static uint64_t bytes_of(const struct job *job, struct host_part part, uint64_t elements)
{
	if (part.state == STATE_PARAMETER)
		return job->location.has_nvme_parameters ? 0 : elements * section_element_bytes(part.section);
	if (job->location.has_nvme_optimizer || !section_is_trainable(part.section) ||
	    (unsigned)part.state >= state_count(&job->options))
		return 0;
	return state_bytes(part.section, (unsigned)part.state, elements);
}

bool host_part_find(const struct job *job, uint32_t pack, struct host_part part,
		    struct store_transfer *transfer)
{
	const struct pack *units = &job->catalog.packs[pack];
	const struct pack_place *place = &job->location.places[pack];
	uint64_t bytes = bytes_of(job, part, units->elements[part.section]);

	if (bytes == 0)
		return false;
	transfer->length = size_align(bytes, STORE_PAGE_BYTES);
	if (part.state == STATE_PARAMETER) {
		transfer->stream = job->location.streams.parameter[part.section];
		transfer->offset = place->parameter[part.section];
		transfer->buffer = residency_address(job, pack) + units->slot_offset[part.section];
	} else {
		transfer->stream = job->location.streams.state[part.section][part.state];
		transfer->offset = place->state[part.section][part.state];
		transfer->buffer =
			store_address(job->location.optimizer_store, transfer->stream, transfer->offset);
	}
	return true;
}
