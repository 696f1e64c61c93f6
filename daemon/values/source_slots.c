/* Slots: a chunk of one slot of one section of a pack at a time, a mebibyte as fp32, in which pieces of the
 * source are put together. Extents of which nothing is taken are not written, and stay zero, as in any new
 * job. */
#include <errno.h>
#include <string.h>

#include "common/size.h"
#include "daemon/request/request.h"
#include "daemon/residency/residency.h"
#include "daemon/telemetry/telemetry.h"
#include "daemon/values/source.h"
#include "offload/optimizer/moments.h"

/* That have nothing to take: there may be very many. */
#define CHUNKS_PER_TURN 1024

/* ---- Which units ---- */

static int check_optimizer(const struct source *source, char *message, size_t size)
{
	const struct job_options *here = &source->job->options, *there = &source->from->options;

	if (!source->may_read_all)
		return refuse(message, size, -EPERM,
			      "job %s is shared for reading: its parameters can be taken, what its optimizer "
			      "keeps cannot",
			      source->name);
	if (here->optimizer != there->optimizer || here->slot_count != there->slot_count)
		return refuse(message, size, -EINVAL,
			      "optimizer is %s with %u slots here, %s with %u in job %s; without "
			      "with_optimizer it begins anew",
			      here->optimizer->name, here->slot_count, there->optimizer->name,
			      there->slot_count, source->name);
	return 0;
}

/* How often what it takes was updated there: its parts have to have had as many updates. */
static int match_tensor(const struct source *source, const struct tensor *tensor, uint64_t *ret_updates,
			char *message, size_t size)
{
	uint64_t updates = 0;

	for (uint64_t element = 0, at; element < tensor->layout.elements;) {
		const struct source_entry *entry = source_map_find(&source->map, tensor, element, &at);
		const struct unit *there = &source->from->catalog.units[entry->unit];
		uint64_t there_updates = source_updates(source, entry->unit, entry->tensor);

		if (there->tensors[entry->tensor].is_frozen)
			return refuse(
				message, size, -EINVAL,
				"tensor \"%s\" is trained here, and frozen in job %s: its optimizer keeps "
				"nothing of it",
				tensor->name, source->name);
		if (element > 0 && there_updates != updates)
			return refuse(
				message, size, -EINVAL,
				"tensor \"%s\" takes parts that have had %llu updates in job %s, and others "
				"that have had %llu: it can only have one number of them",
				tensor->name, (unsigned long long)updates, source->name,
				(unsigned long long)there_updates);
		updates = there_updates;
		element += entry->end - entry->first - at;
	}
	*ret_updates = updates;
	return 0;
}

/* The unit has had as many as that of its tensors that has had most. Of each, missed is its own number so
 * far. */
static void set_updates(struct unit *unit)
{
	for (uint32_t i = 0; i < unit->tensor_count; i++)
		if (unit->tensors[i].missed > unit->updates)
			unit->updates = unit->tensors[i].missed;
	for (uint32_t i = 0; i < unit->tensor_count; i++)
		if (!unit->tensors[i].is_frozen)
			unit->tensors[i].missed = unit->updates - unit->tensors[i].missed;
}

/* A unit of which some tensor is initialized begins anew. */
static int match_unit(struct source *source, struct unit *unit, char *message, size_t size)
{
	unit->has_source = true;
	for (uint32_t i = 0; i < unit->tensor_count && unit->has_source; i++)
		unit->has_source = unit->tensors[i].has_source || unit->tensors[i].is_frozen;
	for (uint32_t i = 0; i < unit->tensor_count && unit->has_source; i++) {
		struct tensor *tensor = &unit->tensors[i];
		int r = tensor->is_frozen ? 0 : match_tensor(source, tensor, &tensor->missed, message, size);

		if (r < 0)
			return r;
	}
	if (unit->has_source)
		set_updates(unit);
	return 0;
}

int source_match_slots(struct source *source, char *message, size_t size)
{
	const struct catalog *catalog = &source->job->catalog;
	int r = check_optimizer(source, message, size);

	for (uint32_t u = 0; u < catalog->unit_count && r == 0; u++)
		r = match_unit(source, &catalog->units[u], message, size);
	return r;
}

/* ---- A chunk of a slot ---- */

static uint64_t chunk_count(const struct source *source)
{
	const struct slot_cursor *slots = &source->slots;
	uint64_t left = source->job->catalog.packs[slots->pack].elements[slots->section] - slots->first;

	return left < PIECE_ELEMENTS ? left : PIECE_ELEMENTS;
}

static void go_to_start(struct source *source, uint64_t first)
{
	struct slot_cursor *slots = &source->slots;

	slots->first = slots->at = first;
	slots->unit = source->job->catalog.packs[slots->pack].first_unit;
	slots->tensor = 0;
	slots->has_chunk = slots->has_values = false;
}

static void go_to_next_slot(struct source *source)
{
	struct slot_cursor *slots = &source->slots;

	if (++slots->slot >= source->job->options.slot_count) {
		slots->slot = 0;
		slots->section++;
	}
	if (slots->section == UNIT_TRAINABLE_SECTIONS) {
		slots->section = 0;
		slots->pack++;
	}
	if (slots->pack < source->job->catalog.pack_count)
		go_to_start(source, 0);
}

static bool is_at_end(const struct source *source)
{
	return source->slots.pack == source->job->catalog.pack_count || source->job->options.slot_count == 0;
}

/* False: there is no chunk left. */
static bool find_chunk(struct source *source)
{
	struct slot_cursor *slots = &source->slots;

	if (slots->has_chunk)
		return true;
	while (!is_at_end(source) &&
	       slots->first >= source->job->catalog.packs[slots->pack].elements[slots->section])
		go_to_next_slot(source);
	if (is_at_end(source))
		return false;
	go_to_start(source, slots->first);
	slots->has_chunk = true;
	return true;
}

static bool takes_slots(const struct unit *unit, const struct tensor *tensor, unsigned section)
{
	return unit->has_source && tensor->layout.section == section && tensor->layout.elements > 0;
}

/* The next tensor in the chunk that has something to take, and where it begins in the pack's section; NULL:
 * none. */
static const struct tensor *find_tensor(struct source *source, uint64_t *ret_first)
{
	struct slot_cursor *slots = &source->slots;
	const struct pack *pack = &source->job->catalog.packs[slots->pack];
	uint64_t end = slots->first + chunk_count(source);

	for (; slots->unit < pack->first_unit + pack->unit_count; slots->unit++, slots->tensor = 0) {
		const struct unit *unit = &source->job->catalog.units[slots->unit];

		for (; slots->tensor < unit->tensor_count; slots->tensor++) {
			const struct tensor *tensor = &unit->tensors[slots->tensor];
			uint64_t first = tensor_part(unit, tensor)->pack_first + tensor->layout.first;

			*ret_first = first;
			if (takes_slots(unit, tensor, slots->section) &&
			    first + tensor->layout.elements > slots->at)
				return first < end && slots->at < end ? tensor : NULL;
		}
	}
	return NULL;
}

static void on_copied(struct copy *copy, int status)
{
	struct source *source = container_of(copy, struct source, copy);

	source->is_busy = false;
	if (status < 0)
		source_fail(source, status, "its optimizer's state cannot be read");
	else
		source->slots.at += copy->range.count;
	job_settle(source->job);
}

static void begin_values(struct source *source)
{
	if (!source->slots.has_values)
		memset(source->values, 0, COPY_BYTES);
	source->slots.has_values = true;
}

static int take_piece(struct source *source, const struct tensor *tensor, uint64_t tensor_first,
		      char *message, size_t size)
{
	struct slot_cursor *slots = &source->slots;
	struct copy_range range;
	uint64_t end = slots->first + chunk_count(source);

	if (slots->at < tensor_first)
		slots->at = tensor_first;
	range = source_range(source, tensor, slots->at - tensor_first, end - slots->at);
	range.state = STATE_SLOTS + (int)slots->slot;
	begin_values(source);
	return source_copy(source, &range, (float *)source->values + (slots->at - slots->first), on_copied,
			   message, size);
}

/* ---- To this job ---- */

static struct store_piece find_kept(const struct source *source)
{
	const struct slot_cursor *slots = &source->slots;

	return job_find_kept(source->job, slots->pack, (enum unit_section)slots->section,
			     STATE_SLOTS + slots->slot, slots->first, chunk_count(source));
}

/* Elements of the pack's section. */
static bool takes_any(const struct source *source, uint64_t first, uint64_t end)
{
	const struct slot_cursor *slots = &source->slots;
	const struct catalog *catalog = &source->job->catalog;
	const struct pack *pack = &catalog->packs[slots->pack];

	for (uint32_t u = pack->first_unit; u < pack->first_unit + pack->unit_count; u++) {
		const struct unit *unit = &catalog->units[u];
		const struct unit_part *part = unit_part(unit, (enum unit_section)slots->section);

		if (unit->has_source && part && part->pack_first < end &&
		    part->pack_first + part->elements > first)
			return true;
	}
	return false;
}

/* What is written of an extent is seen when all of it has been; one of narrow moments is several chunks. */
static bool shares_extent(const struct source *source)
{
	const struct slot_cursor *slots = &source->slots;
	const struct job *job = source->job;
	unsigned state = STATE_SLOTS + slots->slot;
	uint64_t bytes = state_bytes((enum unit_section)slots->section, state, PIECE_ELEMENTS), first;
	const struct store_piece kept = find_kept(source);
	struct store_piece extents;

	store_find_extents(job->location.optimizer_store, kept.stream, kept.offset, kept.length, &extents);
	first = (extents.offset - job->location.places[slots->pack].state[slots->section][state]) / bytes;
	return takes_any(source, first * PIECE_ELEMENTS,
			 (first + size_divide_up(extents.length, bytes)) * PIECE_ELEMENTS);
}

static void leave_chunk(struct source *source)
{
	go_to_start(source, source->slots.first + chunk_count(source));
}

static void on_stored(struct store_transfer *transfer, int status)
{
	struct source *source = container_of(transfer, struct source, transfer);

	trace_transferred(source->job, PACK_NONE, source->job->location.optimizer_store, transfer);
	source->is_busy = false;
	if (status < 0)
		source_fail(source, status, "its optimizer's state cannot be written");
	else
		leave_chunk(source);
	job_settle(source->job);
}

/* In place: what is kept takes no more bytes than the values, and is written behind those that are read. */
static void narrow(enum moment_format format, unsigned slot, uint64_t count, void *values)
{
	float tile[1024];

	for (uint64_t at = 0; at < count && format != MOMENTS_FP32; at += ARRAY_LENGTH(tile)) {
		size_t length = count - at < ARRAY_LENGTH(tile) ? count - at : ARRAY_LENGTH(tile);

		memcpy(tile, (float *)values + at, length * sizeof(float));
		moments_keep(format, slot, tile, at, length, (char *)values + moment_offset(format, at));
	}
}

static int store_chunk(struct source *source, char *message, size_t size)
{
	struct job *job = source->job;
	const struct slot_cursor *slots = &source->slots;
	const struct store_piece kept = find_kept(source);
	int r;

	begin_values(source);
	narrow(state_moments((enum unit_section)slots->section), slots->slot, chunk_count(source),
	       source->values);

	if (!job->location.has_nvme_optimizer) {
		memcpy(store_address(job->location.optimizer_store, kept.stream, kept.offset), source->values,
		       kept.length);
		leave_chunk(source);
		job_settle(job);
		return 1;
	}
	source->transfer = (struct store_transfer){ .direction = TIER_WRITE,
						    .priority = TIER_WRITE_BACK,
						    .stream = kept.stream,
						    .offset = kept.offset,
						    .length = size_align(kept.length, STORE_PAGE_BYTES),
						    .buffer = source->values,
						    .done = on_stored };
	source->is_busy = true;
	r = store_submit(job->location.optimizer_store, &source->transfer);
	if (r == 0) {
		account_transfer(job, STATISTICS_WRITE_BACK, &source->transfer);
		return 1;
	}
	source->is_busy = false;
	return refuse(message, size, r, "its optimizer's state cannot be written: %s", store_error(r));
}

int source_slots_go_on(struct source *source, char *message, size_t size)
{
	for (unsigned looks = 0; looks < CHUNKS_PER_TURN; looks++) {
		const struct tensor *tensor;
		uint64_t first;

		if (!find_chunk(source))
			return 0;
		tensor = find_tensor(source, &first);
		if (tensor)
			return take_piece(source, tensor, first, message, size);
		if (source->slots.has_values || shares_extent(source))
			return store_chunk(source, message, size);
		leave_chunk(source);
	}
	job_settle(source->job);
	return 1;
}
