#include "tests/bench/bare_store.h"

#include <poll.h>
#include <stdio.h>
#include <string.h>

/* ---- Waiting ---- */

int bare_store_wait(struct bare_store *bare)
{
	struct pollfd wanted[] = { { .fd = engine_fd(bare->disk.engine), .events = POLLIN },
				   { .fd = workers_fd(bare->workers), .events = POLLIN } };

	int timeout_ms = 0;

	while (bare->in_flight > 0) {
		(void)poll(wanted, ARRAY_LENGTH(wanted), timeout_ms);
		engine_reap(bare->disk.engine);
		workers_reap(bare->workers);
		timeout_ms = bare->turn ? bare->turn(bare) : -1;
	}
	return bare->error;
}

static void request_done(struct store_request *request, int status)
{
	struct bare_store *bare = container_of(request, struct bare_store, request);

	bare->in_flight--;
	bare->error = status;
}

int bare_store_wait_for_request(struct bare_store *bare, int r)
{
	if (r == 0) {
		bare->in_flight++;
		r = bare_store_wait(bare);
	}
	if (r < 0)
		fprintf(stderr, "%s\n", store_message(bare->store));
	return r;
}

/* ---- A step ---- */

static void write_next(struct bare_slot *slot)
{
	struct bare_store *bare = slot->bare;
	int r;

	if (bare->next == bare->bytes || bare->error)
		return;
	slot->transfer.offset = bare->next;
	bare->next += STORE_EXTENT_BYTES;
	/* No two steps write the same. */
	memcpy(slot->transfer.buffer, &bare->step, sizeof(bare->step));
	if (bare->checksum) {
		bare->checksum(bare, slot->transfer.offset, slot->checksums);
		slot->transfer.checksums = slot->checksums;
	}
	r = store_submit(bare->store, &slot->transfer);
	if (r < 0)
		bare->error = r;
	else
		bare->in_flight++;
}

static void written(struct store_transfer *transfer, int status)
{
	struct bare_slot *slot = container_of(transfer, struct bare_slot, transfer);

	slot->bare->in_flight--;
	if (status < 0)
		slot->bare->error = status;
	write_next(slot);
}

int bare_store_take_step(struct bare_store *bare)
{
	bare->step++;
	bare->next = 0;
	for (unsigned i = 0; i < BARE_DEPTH; i++)
		write_next(&bare->slots[i]);
	return bare_store_wait(bare);
}

int bare_store_commit(struct bare_store *bare)
{
	return bare_store_wait_for_request(bare, store_commit(bare->store, bare->step, &bare->request));
}

/* ---- Life ---- */

int bare_store_layout(const struct bare_store *bare, struct store_layout **ret_layout)
{
	_cleanup_(store_layout_freep) struct store_layout *layout = NULL;
	uint64_t offset;
	int r = store_layout_new(&layout);

	if (r < 0)
		return r;
	store_layout_set_durable(layout);
	r = store_layout_add_stream(layout, "state");
	if (r == 0)
		r = store_layout_add_section(layout, 0, bare->bytes, &offset);
	if (r == 0)
		*ret_layout = TAKE_PTR(layout);
	return r;
}

static void fill_slots(struct bare_store *bare)
{
	for (unsigned i = 0; i < BARE_DEPTH; i++) {
		bare->slots[i].bare = bare;
		bare->slots[i].transfer = (struct store_transfer){
			.direction = TIER_WRITE,
			.buffer = bare->disk.buffers.base + i * STORE_EXTENT_BYTES,
			.length = STORE_EXTENT_BYTES,
			.done = written,
		};
	}
}

int bare_store_open(struct bare_store *bare)
{
	int r = bench_disk_open(&bare->disk, BARE_DEPTH);

	bare->request.done = request_done;
	if (r == 0)
		fill_slots(bare);
	return r < 0 ? r : workers_new(2, "bench", &bare->workers);
}

void bare_store_close(struct bare_store *bare)
{
	bare->store = store_free(bare->store);
	bare->workers = workers_free(bare->workers);
	bench_disk_close(&bare->disk);
}
