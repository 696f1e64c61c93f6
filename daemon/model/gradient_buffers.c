/* An embedding is often far larger than the layers, of which there are many, and is pushed once where they
 * are pushed one after the other. So it gets a buffer of its own, and they get as many as are wanted, which
 * are as large as the largest of them: they overlap as ever. Two units share that buffer where there are so
 * many that the two are an exception: an embedding and a head. Which of that takes least is what counts; of
 * units that are alike that is as many buffers for all. */

#include "common/cleanup.h"
#include "common/size.h"
#include "daemon/model/gradient_buffers.h"
#include "daemon/model/job.h"
#include "daemon/request/request.h"

/* Of so many units, two may be an exception. */
#define MANY_UNITS 8

uint64_t gradient_buffers_bytes(const struct gradient_buffers *buffers)
{
	if (buffers->room > 0)
		return buffers->room;
	return size_sum(size_product(buffers->count - 1, buffers->bytes), buffers->last_bytes);
}

struct gradient_buffers gradient_buffers_plan(const struct catalog *catalog, uint32_t wanted, uint64_t room)
{
	uint64_t most = catalog->gradient_bytes_maximum;
	struct gradient_buffers best = { wanted, most, most, 0 };

	if (room > 0 && most > 0)
		return (struct gradient_buffers){ wanted, 0, 0, size_align(room > most ? room : most, 4096) };
	for (unsigned i = 0; i < ARRAY_LENGTH(catalog->gradient_bytes_next); i++) {
		struct gradient_buffers other = { wanted + 1, catalog->gradient_bytes_next[i], most, 0 };

		if (other.bytes > 0 && (i == 0 || catalog->trained_units >= MANY_UNITS) &&
		    gradient_buffers_bytes(&other) < gradient_buffers_bytes(&best))
			best = other;
	}
	return best;
}

uint64_t gradient_absent_bytes(const struct job *job)
{
	return size_divide_up(job->catalog.unit_tensors, 8);
}
