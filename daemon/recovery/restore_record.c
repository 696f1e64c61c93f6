/* How the record of a job that comes back is read. Its header says how long the definition is, and that says
 * where the progress lies. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/little_endian.h"
#include "common/size.h"
#include "daemon/durability/durability.h"
#include "daemon/recovery/own.h"

static void fail(struct restore *restore, int r, const char *what)
{
	restore_finish(restore, restore_explain(restore, r, what));
}

/* Into *place, of the restore, which may be gone when this returns. */
static void read_record(struct restore *restore, char **place, uint64_t offset, uint64_t length,
			void (*done)(struct store_transfer *transfer, int status))
{
	uint64_t padded = size_align(length, STORE_PAGE_BYTES);
	int r = -ENOMEM;

	*place = aligned_alloc(STORE_PAGE_BYTES, padded);
	restore->transfer = (struct store_transfer){ .direction = TIER_READ,
						     .priority = TIER_DEMAND,
						     .stream = RECORD_STREAM,
						     .offset = offset,
						     .length = padded,
						     .buffer = *place,
						     .done = done };
	if (*place)
		r = store_submit(restore->store, &restore->transfer);
	if (r < 0)
		fail(restore, r, "its record cannot be read");
}

static void on_progress(struct store_transfer *transfer, int status)
{
	struct restore *restore = container_of(transfer, struct restore, transfer);

	if (status < 0)
		fail(restore, status, "its progress cannot be read");
	else
		restore_finish(restore, 0);
}

static void on_definition(struct store_transfer *transfer, int status)
{
	struct restore *restore = container_of(transfer, struct restore, transfer);
	struct store_layout *layout;
	uint64_t offset;
	int r = status;

	if (r == 0)
		r = durable_find_layout(&restore->header, store_extents(restore->store), &layout, &offset);
	if (r < 0) {
		fail(restore, r, "its definition cannot be read");
		return;
	}
	r = store_adopt(restore->store, layout);
	if (r < 0) {
		store_layout_free(layout);
		fail(restore, r, "its definition cannot be read");
		return;
	}
	read_record(restore, &restore->progress, offset,
		    sizeof(struct progress_header) + restore->header.progress_bytes, on_progress);
}

static int read_header(struct restore *restore)
{
	const uint8_t *bytes = (const uint8_t *)restore->definition;

	memcpy(restore->header.magic, bytes, sizeof(restore->header.magic));
	restore->header.definition_bytes = get64(bytes + 8);
	restore->header.progress_bytes = get64(bytes + 16);
	if (memcmp(restore->header.magic, RECORD_MAGIC, sizeof(restore->header.magic)) != 0 ||
	    restore->header.definition_bytes >
		    store_placed_bytes(restore->store) - sizeof(struct record_header))
		return -EBADMSG;
	return 0;
}

/* Only its first extent: most are not longer. */
static void on_header(struct store_transfer *transfer, int status)
{
	struct restore *restore = container_of(transfer, struct restore, transfer);
	int r = status < 0 ? status : read_header(restore);
	uint64_t length;

	if (r < 0) {
		fail(restore, r, "its definition cannot be read");
		return;
	}
	length = size_align(sizeof(struct record_header) + restore->header.definition_bytes,
			    STORE_EXTENT_BYTES);
	if (length == STORE_EXTENT_BYTES) {
		on_definition(transfer, 0);
		return;
	}
	free(TAKE_PTR(restore->definition));
	read_record(restore, &restore->definition, 0, length, on_definition);
}

void restore_read(struct restore *restore)
{
	restore->state = RESTORE_READING;
	if (restore->purpose == RESTORE_REMOVAL)
		restore_end_head(restore);
	else
		read_record(restore, &restore->definition, 0, STORE_EXTENT_BYTES, on_header);
}
