#include "offload/store/node_area.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

#include "offload/device/memory.h"

#define COPIES 2
/* A place is a number on a device. */
#define DEVICE_SHIFT 48
#define PLACE_MASK ((UINT64_C(1) << DEVICE_SHIFT) - 1)

/* A transfer of nodes of the batch that are adjacent on the device. */
struct node_io {
	struct tier_io io;
	struct node_area *area;
	unsigned device;
	bool is_second_try;
};

struct node_area {
	struct tier *const *tiers;
	unsigned device_count;
	unsigned turn; /* the device of the next node's first copy */
	uint64_t offset;
	struct places *devices;
	struct memory buffer;
	unsigned count; /* nodes in the batch */
	uint64_t places[COPIES][NODE_BATCH];
	struct node_io ios[COPIES * NODE_BATCH];
	unsigned in_flight;
	int status;
	struct node_failure failure;
	void (*done)(void *argument, int status);
	void *argument;

	struct node_read *reads; /* while reading */
	unsigned copy;		 /* that is being read */
};

/* ---- Life ---- */

static int make_places(struct node_area *area, uint32_t places)
{
	area->devices = calloc(area->device_count, sizeof(*area->devices));
	if (!area->devices)
		return -ENOMEM;
	for (unsigned device = 0; device < area->device_count; device++) {
		int r = places_init(&area->devices[device], places);

		if (r < 0)
			return r;
	}
	return memory_new_private(NODE_BATCH * NODE_BYTES, &area->buffer);
}

int node_area_new(struct tier *const *tiers, unsigned device_count, uint64_t offset, uint32_t places,
		  struct node_area **ret_area)
{
	_cleanup_(node_area_freep) struct node_area *area = calloc(1, sizeof(*area));
	int r;

	if (!area)
		return -ENOMEM;
	area->tiers = tiers;
	area->device_count = device_count;
	area->offset = offset;
	area->buffer = (struct memory)MEMORY_INIT;
	r = make_places(area, places);
	if (r < 0)
		return r;
	*ret_area = TAKE_PTR(area);
	return 0;
}

uint64_t node_area_host_bytes(unsigned device_count, uint32_t places)
{
	return sizeof(struct node_area) + NODE_BATCH * NODE_BYTES +
	       device_count * (sizeof(struct places) + places_host_bytes(places));
}

struct node_area *node_area_free(struct node_area *area)
{
	if (!area)
		return NULL;
	assert(area->in_flight == 0);
	for (unsigned device = 0; area->devices && device < area->device_count; device++)
		places_destroy(&area->devices[device]);
	free(area->devices);
	memory_free(&area->buffer);
	free(area);
	return NULL;
}

/* ---- Places ---- */

static struct places *places_of(struct node_area *area, uint64_t place)
{
	return &area->devices[place >> DEVICE_SHIFT];
}

static bool is_place(const struct node_area *area, uint64_t place)
{
	uint64_t device = place >> DEVICE_SHIFT;

	return device < area->device_count && (place & PLACE_MASK) < area->devices[device].count;
}

int node_area_name(struct node_area *area, const struct node_pointer *pointer)
{
	int r;

	if (!is_place(area, pointer->places[0]) || !is_place(area, pointer->places[1]) ||
	    pointer->places[0] == pointer->places[1])
		return -EINVAL;
	r = places_name(places_of(area, pointer->places[0]), (uint32_t)pointer->places[0]);
	if (r < 0)
		return r;
	r = places_name(places_of(area, pointer->places[1]), (uint32_t)pointer->places[1]);
	if (r < 0)
		places_give(places_of(area, pointer->places[0]), (uint32_t)pointer->places[0]);
	return r;
}

bool node_area_give(struct node_area *area, const struct node_pointer *pointer)
{
	for (unsigned copy = 0; copy < COPIES; copy++)
		places_give(places_of(area, pointer->places[copy]), (uint32_t)pointer->places[copy]);
	return node_area_names(area, pointer) == 0;
}

/* Both places have as many names; if damage says otherwise, the greater number counts. */
int node_area_names(const struct node_area *area, const struct node_pointer *pointer)
{
	int names = 0;

	for (unsigned copy = 0; copy < COPIES; copy++) {
		uint64_t place = pointer->places[copy];
		int of_place;

		if (!is_place(area, place))
			return -EINVAL;
		of_place = area->devices[place >> DEVICE_SHIFT].names[place & PLACE_MASK];
		names = of_place > names ? of_place : names;
	}
	return names;
}

void node_area_locate(const struct node_area *area, uint64_t place, unsigned *ret_device,
		      uint64_t *ret_device_offset)
{
	*ret_device = (unsigned)(place >> DEVICE_SHIFT);
	*ret_device_offset = area->offset + (place & PLACE_MASK) * NODE_BYTES;
}

uint64_t node_area_free_places(const struct node_area *area)
{
	uint64_t count = 0;

	for (unsigned device = 0; device < area->device_count; device++)
		count += area->devices[device].free_count;
	return count;
}

void node_area_clear(struct node_area *area)
{
	for (unsigned device = 0; device < area->device_count; device++)
		places_clear(&area->devices[device]);
}

void node_area_lock(struct node_area *area)
{
	for (unsigned device = 0; device < area->device_count; device++)
		area->devices[device].is_locked = true;
}

/* On the device, or if it is full, on another one. */
static int take_place(struct node_area *area, unsigned device, uint32_t (*take)(struct places *places),
		      uint64_t *ret_place)
{
	for (unsigned i = 0; i < area->device_count; i++) {
		unsigned at = (device + i) % area->device_count;
		uint32_t place = take(&area->devices[at]);

		if (place == PLACES_NONE)
			continue;
		*ret_place = (uint64_t)at << DEVICE_SHIFT | place;
		return 0;
	}
	return -ENOSPC;
}

/* ---- Batches ---- */

static char *image(const struct node_area *area, unsigned node)
{
	return area->buffer.base + (size_t)node * NODE_BYTES;
}

uint8_t *node_area_next(struct node_area *area)
{
	assert(area->in_flight == 0);
	return area->count < NODE_BATCH ? (uint8_t *)image(area, area->count) : NULL;
}

/* It has its places. */
static void add(struct node_area *area, struct node_pointer *pointer)
{
	pointer->checksum = node_checksum((const uint8_t *)image(area, area->count));
	for (unsigned copy = 0; copy < COPIES; copy++)
		area->places[copy][area->count] = pointer->places[copy];
	/* Changing the device seldom keeps nodes of a device adjacent. */
	if (++area->count % (NODE_BATCH / 4) == 0)
		area->turn = (area->turn + 1) % area->device_count;
}

int node_area_add(struct node_area *area, struct node_pointer *ret_pointer)
{
	struct node_pointer pointer;
	int r;

	assert(area->count < NODE_BATCH);
	r = take_place(area, area->turn, places_take, &pointer.places[0]);
	if (r < 0)
		return r;
	r = take_place(area, (area->turn + 1) % area->device_count, places_take_second, &pointer.places[1]);
	if (r < 0) {
		places_give(places_of(area, pointer.places[0]), (uint32_t)pointer.places[0]);
		return r;
	}
	add(area, &pointer);
	*ret_pointer = pointer;
	return 0;
}

int node_area_add_at(struct node_area *area, const struct node_pointer *former,
		     struct node_pointer *ret_pointer)
{
	struct node_pointer pointer = *former;

	assert(area->count < NODE_BATCH);
	if (node_area_names(area, former) != 0 || node_area_name(area, former) < 0)
		return -ENOSPC;
	add(area, &pointer);
	*ret_pointer = pointer;
	return 0;
}

static void finish(struct node_area *area)
{
	area->count = 0;
	area->reads = NULL;
	area->done(area->argument, area->status);
}

static void check_reads(struct node_area *area);

static void io_done(struct tier_io *io, int status)
{
	struct node_io *node = container_of(io, struct node_io, io);
	struct node_area *area = node->area;

	/* Nobody knows the place yet, so the write may be repeated. */
	if (status < 0 && io->direction == TIER_WRITE && !node->is_second_try) {
		node->is_second_try = true;
		status = tier_submit(area->tiers[node->device], io);
		if (status == 0)
			return;
	}
	/* The other place may be readable. */
	if (status < 0 && io->direction == TIER_READ)
		memset(io->buffer, 0, io->length);
	else if (status < 0 && area->status == 0)
		area->status = status;
	if (status < 0)
		area->failure = (struct node_failure){ area->tiers[node->device]->label, io->offset };
	if (--area->in_flight > 0)
		return;
	if (area->reads)
		check_reads(area);
	else
		finish(area);
}

/* Whether the next node is adjacent to this one. */
static bool is_run(const uint64_t *places, unsigned node, unsigned count)
{
	return node + 1 < count && places[node + 1] == places[node] + 1;
}

static int submit_run(struct node_area *area, enum tier_direction direction, const uint64_t *places,
		      unsigned first, unsigned count)
{
	struct node_io *node = &area->ios[area->in_flight];
	int r;

	node->area = area;
	node->is_second_try = false;
	node->io = (struct tier_io){
		.direction = direction,
		.priority = direction == TIER_READ ? TIER_DEMAND : TIER_WRITE_BACK,
		.buffer = image(area, first),
		.length = (size_t)count * NODE_BYTES,
		.done = io_done,
	};
	node_area_locate(area, places[first], &node->device, &node->io.offset);
	r = tier_submit(area->tiers[node->device], &node->io);
	if (r < 0 && direction == TIER_WRITE)
		r = tier_submit(area->tiers[node->device], &node->io);
	if (r == 0)
		area->in_flight++;
	return r;
}

/* Moves the nodes of the batch at these places. An error fails the batch, once what is in flight has ended.
 */
static int submit_all(struct node_area *area, enum tier_direction direction, const uint64_t *places,
		      unsigned count)
{
	int r = 0;

	for (unsigned first = 0, next; first < count && r == 0; first = next) {
		for (next = first + 1; next < count && is_run(places, next - 1, count); next++)
			;
		r = submit_run(area, direction, places, first, next - first);
	}
	return r;
}

static void begin(struct node_area *area, void (*done)(void *argument, int status), void *argument)
{
	assert(area->in_flight == 0);
	area->status = 0;
	area->failure = (struct node_failure){ 0 };
	area->done = done;
	area->argument = argument;
}

int node_area_write(struct node_area *area, void (*done)(void *argument, int status), void *argument)
{
	int r;

	begin(area, done, argument);
	r = submit_all(area, TIER_WRITE, area->places[0], area->count);
	if (r == 0)
		r = submit_all(area, TIER_WRITE, area->places[1], area->count);
	area->status = r;
	if (area->in_flight > 0)
		return 0;
	area->count = 0;
	return r;
}

/* ---- Reads ---- */

static bool is_right(const struct node_area *area, unsigned node)
{
	const struct node_read *read = &area->reads[node];

	return node_check(read->bytes, read->pointer.checksum, &read->expected) == 0;
}

static void note_wrong(struct node_area *area, unsigned node)
{
	uint64_t place = area->places[area->copy][node];

	area->failure = (struct node_failure){
		.device = area->tiers[place >> DEVICE_SHIFT]->label,
		.device_offset = area->offset + (place & PLACE_MASK) * NODE_BYTES,
	};
}

/* Reads bad nodes again, from their second places. */
static void check_reads(struct node_area *area)
{
	for (unsigned node = 0; node < area->count; node++) {
		if (is_right(area, node))
			continue;
		note_wrong(area, node);
		area->status =
			area->copy == 0 ? submit_run(area, TIER_READ, area->places[1], node, 1) : -EBADMSG;
		if (area->status < 0)
			break;
	}
	area->copy = 1;
	if (area->in_flight == 0)
		finish(area);
}

int node_area_read(struct node_area *area, struct node_read *reads, unsigned count,
		   void (*done)(void *argument, int status), void *argument)
{
	int r;

	assert(count > 0 && count <= NODE_BATCH && area->count == 0);
	begin(area, done, argument);
	area->reads = reads;
	area->copy = 0;
	area->count = count;
	for (unsigned node = 0; node < count; node++) {
		assert(is_place(area, reads[node].pointer.places[0]) &&
		       is_place(area, reads[node].pointer.places[1]));
		reads[node].bytes = (const uint8_t *)image(area, node);
		for (unsigned copy = 0; copy < COPIES; copy++)
			area->places[copy][node] = reads[node].pointer.places[copy];
	}
	r = submit_all(area, TIER_READ, area->places[0], count);
	if (area->in_flight > 0)
		return 0;
	area->count = 0;
	area->reads = NULL;
	return r;
}

struct node_failure node_area_failure(const struct node_area *area)
{
	return area->failure;
}
