/* How often the tensors of a source were updated. Of a job as it stands that is in memory; of a snapshot it
 * is in the record that was committed with it. */
#include <errno.h>
#include <stdlib.h>

#include "common/little_endian.h"
#include "daemon/durability/durability.h"
#include "daemon/request/request.h"
#include "daemon/residency/residency.h"
#include "daemon/values/source.h"

uint64_t source_updates_bytes(const struct source *source)
{
	uint64_t offset;

	if (!source->snapshot_name[0] || !source->has_state)
		return 0;
	return durable_progress(source->from, &offset) +
	       source->from->catalog.tensor_count * sizeof(uint64_t);
}

uint64_t source_updates(const struct source *source, uint32_t unit, uint32_t tensor)
{
	const struct unit *there = &source->from->catalog.units[unit];

	return source->updates ? source->updates[there->first_tensor + tensor]
			       : tensor_updates(there, &there->tensors[tensor]);
}

void source_clear_updates(struct source *source)
{
	free(TAKE_PTR(source->record));
	free(TAKE_PTR(source->updates));
}

static int decode(const struct source *source)
{
	struct record_message progress = { source->record + sizeof(struct progress_header),
					   get64((const uint8_t *)source->record) };
	char why[SNAPSHOT_TEXT];

	if (progress.size > record_progress_bytes(source->from))
		return -EBADMSG;
	return record_decode_updates(source->from, progress, source->updates, why, sizeof(why));
}

static void on_record(struct store_transfer *transfer, int status)
{
	struct source *source = container_of(transfer, struct source, transfer);
	struct job *from = source->from;

	source->is_busy = false;
	from->values->snapshot_copies--;
	if (status < 0)
		damage_tell_read(from, transfer, status, "who takes its values is told");
	if (status == 0)
		status = decode(source);
	if (status < 0)
		source_fail(source, status, "its record cannot be read");
	job_settle(from);
	job_settle(source->job);
}

int source_read_updates(struct source *source, char *message, size_t size)
{
	uint64_t offset, length = durable_progress(source->from, &offset);
	int r = -ENOMEM;

	source->record = aligned_alloc(STORE_PAGE_BYTES, length);
	source->updates = calloc(source->from->catalog.tensor_count, sizeof(*source->updates));
	source->transfer = (struct store_transfer){ .direction = TIER_READ,
						    .priority = TIER_PREFETCH,
						    .stream = RECORD_STREAM,
						    .offset = offset,
						    .length = length,
						    .buffer = source->record,
						    .done = on_record };
	if (source->record && source->updates)
		r = store_submit(source->snapshot, &source->transfer);
	if (r < 0)
		return refuse(message, size, r, "job %s, its record cannot be read: %s", source->name,
			      store_error(r));
	source->is_busy = true;
	/* The job stays until it is here. */
	source->from->values->snapshot_copies++;
	return 1;
}
