/* How large chunks are, and how what they have lies in a staging buffer, and in a mirror on a GPU. */
#include "common/size.h"
#include "daemon/update/sweep.h"

/* Of a GPU: what its fastest access has. */
#define MIRROR_ALIGNMENT 256

uint64_t chunk_elements(const struct job_options *options, enum unit_section section)
{
	uint64_t elements = CHUNK_ELEMENTS;

	while (elements * section_element_bytes(section) + state_all_bytes(options, section, elements) >
	       STAGING_BYTES)
		elements /= 2;
	return elements;
}

char *chunk_staged_state(char *data, enum unit_section section, unsigned state, uint64_t count)
{
	data += size_align(count * section_element_bytes(section), STORE_PAGE_BYTES);
	for (unsigned before = 0; before < state; before++)
		if (state_exists(section, before))
			data += size_align(state_bytes(section, before, count), STORE_PAGE_BYTES);
	return data;
}

uint64_t chunk_stream_bytes(enum unit_section section, unsigned stream, uint64_t count)
{
	return stream == CHUNK_PARAMETER ? count * section_element_bytes(section)
					 : state_bytes(section, stream - CHUNK_STATE, count);
}

uint64_t chunk_mirror_offset(enum unit_section section, unsigned stream, uint64_t count)
{
	uint64_t bytes = 0;

	for (unsigned before = 0; before < stream; before++)
		bytes += size_align(chunk_stream_bytes(section, before, count), MIRROR_ALIGNMENT);
	return bytes;
}
