#include "daemon/durability/host_stream.h"

#include "common/size.h"
#include "daemon/residency/residency.h"

struct host_stream host_stream_at(unsigned index)
{
	return (struct host_stream){ .section = (enum unit_section)(index / (1 + STATES_MAXIMUM)),
				     .state = (int)(index % (1 + STATES_MAXIMUM)) + STATE_PARAMETER };
}

/* 0: there is nothing of it in host memory. */
static uint64_t bytes_of(const struct job *job, struct host_stream stream, uint64_t elements)
{
	if (stream.state == STATE_PARAMETER)
		return job->location.has_nvme_parameters ? 0
							 : elements * section_element_bytes(stream.section);
	if (job->location.has_nvme_optimizer || !section_is_trainable(stream.section) ||
	    (unsigned)stream.state >= state_count(&job->options))
		return 0;
	return state_bytes(stream.section, (unsigned)stream.state, elements);
}

bool host_stream_find(const struct job *job, uint32_t pack, struct host_stream stream,
		      struct store_transfer *transfer)
{
	const struct pack *units = &job->catalog.packs[pack];
	const struct pack_place *place = &job->location.places[pack];
	uint64_t bytes = bytes_of(job, stream, units->elements[stream.section]);

	if (bytes == 0)
		return false;
	transfer->length = size_align(bytes, STORE_PAGE_BYTES);
	if (stream.state == STATE_PARAMETER) {
		transfer->stream = job->location.streams.parameter[stream.section];
		transfer->offset = place->parameter[stream.section];
		transfer->buffer = residency_address(job, pack) + units->slot_offset[stream.section];
	} else {
		transfer->stream = job->location.streams.state[stream.section][stream.state];
		transfer->offset = place->state[stream.section][stream.state];
		transfer->buffer =
			store_address(job->location.optimizer_store, transfer->stream, transfer->offset);
	}
	return true;
}
