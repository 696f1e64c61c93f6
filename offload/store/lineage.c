#include "offload/store/lineage_backend.h"

#include <assert.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "common/size.h"

#define SUPERBLOCKS_BYTES MIB
#define SPARE_NODES 64

/* ---- Geometry ---- */

bool lineage_is_possible(const struct lineage_geometry *geometry)
{
	return geometry->extents < PLACES_NONE && geometry->nodes < PLACES_NONE;
}

uint64_t lineage_extents_offset(const struct lineage_geometry *geometry)
{
	return SUPERBLOCKS_BYTES + size_align(UINT64_C(1) * geometry->nodes * NODE_BYTES, MIB);
}

uint64_t lineage_device_bytes(const struct lineage_geometry *geometry)
{
	return lineage_extents_offset(geometry) + size_align(geometry->extents * geometry->place_bytes, MIB);
}

struct lineage_extents lineage_extents_of(uint64_t extents, unsigned devices)
{
	return (struct lineage_extents){ .changing = lineage_count(size_divide_up(extents, devices)) };
}

uint32_t lineage_places_needed(struct lineage_extents each, unsigned jobs, unsigned snapshots)
{
	uint64_t changing = (UINT64_C(2) * jobs + snapshots) * each.changing;

	return lineage_count(each.fixed + changing + jobs * LINEAGE_SPARE_EXTENTS);
}

/* Space for two copies of each map, with its table, and for the most maps that there can be: extents follow
 * the nodes, so only extents can grow. */
struct lineage_geometry lineage_geometry_for(uint64_t extents, uint64_t place_bytes, unsigned devices,
					     struct lineage_extents each, unsigned snapshots)
{
	uint64_t nodes = 2 * (2 + HEAD_RECORDS - 1) * (tree_nodes(extents) + 1);

	return (struct lineage_geometry){
		.extents = lineage_places_needed(each, 1, snapshots),
		.nodes = lineage_count(size_divide_up(nodes, devices) + SPARE_NODES),
		.place_bytes = place_bytes,
	};
}

/* ---- Heads ---- */

void lineage_add_head(struct lineage *lineage, struct lineage_head *head)
{
	assert(lineage->attached_count < HEAD_RECORDS);
	lineage->attached[lineage->attached_count++] = head;
	head->lineage = lineage;
	head->has_ended = false;
	lineage->is_over = false;
}

struct lineage *lineage_detach(struct lineage_head *head)
{
	struct lineage *lineage = head->lineage;
	unsigned index = 0;

	while (lineage->attached[index] != head)
		index++;
	lineage->attached[index] = lineage->attached[--lineage->attached_count];
	head->lineage = NULL;
	if (lineage->attached_count == 0)
		return lineage_free(lineage);
	lineage_feed(lineage);
	return lineage;
}

unsigned lineage_attached(const struct lineage *lineage)
{
	return lineage->attached_count;
}

void lineage_feed(struct lineage *lineage)
{
	for (unsigned i = 0; i < lineage->attached_count; i++)
		if (lineage->attached[i]->ops->feed)
			lineage->attached[i]->ops->feed(lineage->attached[i]);
}

/* ---- Turns ---- */

bool lineage_begin_turn(struct lineage *lineage, struct lineage_turn *turn)
{
	if (lineage->turn || !queue_is_empty(&lineage->turns)) {
		queue_push(&lineage->turns, &turn->link);
		return false;
	}
	lineage->turn = turn;
	return true;
}

bool lineage_is_awaited(const struct lineage *lineage)
{
	return !queue_is_empty(&lineage->turns);
}

void lineage_end_turn(struct lineage *lineage)
{
	lineage->turn = NULL;
}

void lineage_pass_turn(struct lineage *lineage)
{
	struct queue *link = lineage->turn ? NULL : queue_pop(&lineage->turns);

	if (!link)
		return;
	lineage->turn = queue_entry(link, struct lineage_turn, link);
	lineage->turn->take(lineage->turn);
}

/* ---- Life ---- */

static int make_places(struct lineage *lineage)
{
	for (unsigned device = 0; device < lineage->device_count; device++) {
		int r = places_init(&lineage->extents[device], lineage->geometry.extents);

		if (r < 0)
			return r;
	}
	return 0;
}

int lineage_check_devices(const struct lineage *lineage, const struct lineage_geometry *geometry)
{
	if (!lineage_is_possible(geometry))
		return -EOVERFLOW;
	for (unsigned device = 0; device < lineage->device_count; device++)
		if (lineage->tiers[device]->capacity < lineage_device_bytes(geometry))
			return -ENOSPC;
	return 0;
}

int lineage_set_geometry(struct lineage *lineage, const struct lineage_geometry *geometry)
{
	int r;

	lineage->geometry = *geometry;
	lineage->next_extents = geometry->extents;
	r = lineage_check_devices(lineage, geometry);
	if (r == 0)
		r = make_places(lineage);
	if (r == 0)
		r = node_area_new(lineage->tiers, lineage->device_count, SUPERBLOCKS_BYTES,
				  lineage->geometry.nodes, &lineage->nodes);
	return r;
}

static int build(struct lineage *lineage, const struct lineage_geometry *geometry)
{
	size_t bytes = (size_t)lineage->device_count * SUPERBLOCK_COPIES * SUPERBLOCK_BYTES;
	int r = lineage->device_count > 0 ? 0 : -EINVAL;

	if (r == 0 && geometry)
		r = lineage_set_geometry(lineage, geometry);
	return r < 0 ? r : memory_new_private(bytes, &lineage->buffer);
}

int lineage_new(struct tier **tiers, unsigned tier_count, const struct lineage_geometry *geometry,
		struct lineage_head *head, struct lineage **ret_lineage)
{
	_cleanup_(lineage_freep) struct lineage *lineage = calloc(1, sizeof(*lineage));
	int r;

	if (!lineage || tier_count > LINEAGE_MAX_DEVICES) {
		for (unsigned i = 0; i < tier_count; i++)
			tier_free(tiers[i]);
		return lineage ? -EINVAL : -ENOMEM;
	}
	memcpy(lineage->tiers, tiers, tier_count * sizeof(tiers[0]));
	lineage->device_count = tier_count;
	queue_init(&lineage->turns);
	lineage->buffer = (struct memory)MEMORY_INIT;
	r = build(lineage, geometry);
	if (r < 0)
		return r;
	lineage_add_head(lineage, head);
	*ret_lineage = TAKE_PTR(lineage);
	return 0;
}

struct lineage *lineage_free(struct lineage *lineage)
{
	if (!lineage)
		return NULL;
	assert(!lineage->request);
	lineage->nodes = node_area_free(lineage->nodes);
	for (unsigned device = 0; device < lineage->device_count; device++) {
		lineage->tiers[device] = tier_free(lineage->tiers[device]);
		places_destroy(&lineage->extents[device]);
	}
	memory_free(&lineage->buffer);
	for (unsigned i = 0; i < ARRAY_LENGTH(lineage->walked); i++)
		tree_destroy(&lineage->walked[i]);
	free(lineage);
	return NULL;
}

bool lineage_has_commit(const struct lineage_head *head)
{
	return head_table_number(&head->lineage->heads, head->job) != NULL;
}

uint64_t lineage_step(const struct lineage_head *head)
{
	const struct head_record *record = head_table_number(&head->lineage->heads, head->job);

	return record ? record->step : head->lineage->superblock.step;
}

unsigned lineage_jobs(const struct lineage *lineage, struct head_record *ret_records)
{
	unsigned count = 0;

	for (unsigned i = 0; i < lineage->heads.count; i++)
		if (lineage->heads.records[i].kind == HEAD_JOB)
			ret_records[count++] = lineage->heads.records[i];
	return count;
}

bool lineage_is_fenced(const struct lineage *lineage)
{
	return lineage->is_fenced;
}

const char *lineage_message(const struct lineage *lineage)
{
	return lineage->message;
}

struct places *lineage_places(struct lineage *lineage, unsigned device)
{
	return &lineage->extents[device];
}

struct lineage_geometry lineage_geometry(const struct lineage *lineage)
{
	return lineage->geometry;
}

uint64_t lineage_host_bytes(const struct lineage_geometry *geometry, unsigned devices)
{
	return sizeof(struct lineage) + (uint64_t)devices * SUPERBLOCK_COPIES * SUPERBLOCK_BYTES +
	       devices * places_host_bytes(geometry->extents) +
	       node_area_host_bytes(devices, geometry->nodes);
}

/* ---- Requests ---- */

int lineage_begin(struct lineage *lineage, struct lineage_request *request,
		  void (*run)(struct lineage *lineage))
{
	if (lineage->request)
		return -EBUSY;
	lineage->request = request;
	lineage->message[0] = '\0';
	lineage->is_inside = true;
	lineage->inside_status = 0;
	run(lineage);
	lineage->is_inside = false;
	return lineage->inside_status;
}

void lineage_end(struct lineage *lineage, int status)
{
	struct lineage_request *request = lineage->request;

	lineage->request = NULL;
	/* The devices' growth for a failed request is not used. */
	if (status < 0)
		lineage->next_extents = lineage->geometry.extents;
	if (lineage->is_inside)
		lineage->inside_status = status;
	else
		request->done(request, status);
}

int lineage_refuse(struct lineage *lineage, int r, const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(lineage->message, sizeof(lineage->message), format, arguments);
	va_end(arguments);
	return r;
}

/* ---- All devices at once ---- */

static const struct lineage_io *first_failure(const struct lineage *lineage)
{
	for (unsigned i = 0; i < ARRAY_LENGTH(lineage->ios); i++)
		if (lineage->ios[i].status < 0)
			return &lineage->ios[i];
	return NULL;
}

const char *lineage_failed(const struct lineage *lineage)
{
	const struct lineage_io *failure = first_failure(lineage);

	return failure ? lineage->tiers[failure->device]->label : "its device";
}

void lineage_close_round(struct lineage *lineage)
{
	if (--lineage->in_flight == 0) {
		const struct lineage_io *failure = first_failure(lineage);

		lineage->then(lineage, failure ? failure->status : 0);
	}
}

static void io_done(struct tier_io *io, int status)
{
	struct lineage_io *part = container_of(io, struct lineage_io, io);

	/* A write may be tried again, because nobody reads its pair yet. A flush may not. */
	if (status < 0 && io->direction == TIER_WRITE && !part->is_second_try) {
		part->is_second_try = true;
		status = tier_submit(part->lineage->tiers[part->device], io);
		if (status == 0)
			return;
	}
	part->status = status;
	lineage_close_round(part->lineage);
}

void lineage_start(struct lineage *lineage, unsigned device, unsigned index, const struct tier_io *io)
{
	struct lineage_io *part = &lineage->ios[index];

	part->io = *io;
	part->io.done = io_done;
	part->lineage = lineage;
	part->device = device;
	part->is_second_try = false;
	lineage->in_flight++;
	part->status = tier_submit(lineage->tiers[device], &part->io);
	if (part->status < 0 && io->direction == TIER_WRITE)
		part->status = tier_submit(lineage->tiers[device], &part->io);
	if (part->status < 0)
		lineage->in_flight--;
}

/* The round counts as one in flight until it is closed, so that then() runs once, after all. */
void lineage_open_round(struct lineage *lineage, void (*then)(struct lineage *lineage, int status))
{
	assert(lineage->in_flight == 0);
	for (unsigned i = 0; i < ARRAY_LENGTH(lineage->ios); i++)
		lineage->ios[i].status = 0;
	lineage->then = then;
	lineage->in_flight = 1;
}

void lineage_flush(struct lineage *lineage, void (*then)(struct lineage *lineage, int status))
{
	struct tier_io flush = { .direction = TIER_FLUSH, .priority = TIER_DEMAND };

	lineage_open_round(lineage, then);
	for (unsigned device = 0; device < lineage->device_count; device++)
		lineage_start(lineage, device, device, &flush);
	lineage_close_round(lineage);
}

uint8_t *lineage_copy(const struct lineage *lineage, unsigned device, unsigned copy)
{
	return (uint8_t *)lineage->buffer.base + (device * SUPERBLOCK_COPIES + copy) * SUPERBLOCK_BYTES;
}

static void move_superblocks(struct lineage *lineage, enum tier_direction direction, uint64_t copies,
			     void (*then)(struct lineage *lineage, int status))
{
	lineage_open_round(lineage, then);
	for (unsigned index = 0; index < lineage->device_count * SUPERBLOCK_COPIES; index++) {
		unsigned device = index / SUPERBLOCK_COPIES, copy = index % SUPERBLOCK_COPIES;
		struct tier_io io = {
			.direction = direction,
			.priority = TIER_DEMAND,
			.buffer = lineage_copy(lineage, device, copy),
			.offset = copy * SUPERBLOCK_STRIDE,
			.length = SUPERBLOCK_BYTES,
		};

		if (copies >> index & 1)
			lineage_start(lineage, device, index, &io);
	}
	lineage_close_round(lineage);
}

void lineage_write_superblocks(struct lineage *lineage, uint64_t copies,
			       void (*then)(struct lineage *lineage, int status))
{
	move_superblocks(lineage, TIER_WRITE, copies, then);
}

static void flush_written(struct lineage *lineage, int status)
{
	if (status < 0)
		lineage->flushed(lineage, status);
	else
		lineage_flush(lineage, lineage->flushed);
}

void lineage_write_safely(struct lineage *lineage, uint64_t copies,
			  void (*then)(struct lineage *lineage, int status))
{
	lineage->flushed = then;
	lineage_write_superblocks(lineage, copies, flush_written);
}

void lineage_read_superblocks(struct lineage *lineage, void (*then)(struct lineage *lineage, int status))
{
	move_superblocks(lineage, TIER_READ, UINT64_MAX, then);
}
