#include "daemon/model/location.h"

#include <errno.h>
#include <stdio.h>

#include "common/size.h"
#include "daemon/model/job.h"

/* A stream of elements, in sections of packs. */
struct kind {
	enum unit_section section;
	int state;
	uint64_t piece, piece_bytes; /* of elements */
};

static bool find_parameter(const struct job *job, uint32_t stream, struct kind *ret_kind)
{
	for (int section = 0; job->location.has_stored_parameters && section < UNIT_SECTIONS; section++) {
		if (job->location.streams.parameter[section] != stream)
			continue;
		*ret_kind = (struct kind){ (enum unit_section)section, STATE_PARAMETER, 1,
					   section_element_bytes((enum unit_section)section) };
		return true;
	}
	return false;
}

static bool find_state(const struct job *job, uint32_t stream, struct kind *ret_kind)
{
	unsigned states = state_count(&job->options);

	if (!job->location.has_nvme_optimizer && !job->location.has_backup)
		return false;
	for (unsigned i = 0; i < UNIT_TRAINABLE_SECTIONS * states; i++) {
		enum unit_section section = (enum unit_section)(i / states);
		unsigned state = i % states;

		if (!state_exists(section, state) || job->location.streams.state[section][state] != stream)
			continue;
		*ret_kind = (struct kind){ section, (int)state, state_grain(section, state),
					   state_bytes(section, state, 1) };
		return true;
	}
	return false;
}

static uint64_t place_of(const struct job *job, uint32_t pack, const struct kind *kind)
{
	const struct pack_place *place = &job->location.places[pack];

	return kind->state == STATE_PARAMETER ? place->parameter[kind->section]
					      : place->state[kind->section][kind->state];
}

/* The pack whose section the piece lies in. */
static bool find_pack(const struct job *job, const struct kind *kind, const struct store_range *piece,
		      uint32_t *ret_pack)
{
	uint64_t extent = store_extent_bytes(job_nvme_store(job), piece->stream), offset = piece->offset;

	for (uint32_t pack = 0; pack < job->catalog.pack_count; pack++) {
		uint64_t bytes =
			job->catalog.packs[pack].elements[kind->section] / kind->piece * kind->piece_bytes;
		uint64_t place = place_of(job, pack, kind);

		if (bytes > 0 && offset >= place && offset - place < size_round_up(bytes, extent)) {
			*ret_pack = pack;
			return true;
		}
	}
	return false;
}

/* The first names of tensors: a block of small ones has dozens. */
#define NAMES_MAXIMUM 3

struct list {
	char *text;
	size_t size, used;
	unsigned count, more;
};

static void add_name(struct list *list, const char *name)
{
	/* The end has to fit, too. */
	char more[] = " and 4294967295 more";
	int length = snprintf(list->text + list->used, list->size - list->used, "%s\"%s\"",
			      list->used ? ", " : "", name);

	if (list->more == 0 && list->count < NAMES_MAXIMUM &&
	    list->used + (size_t)length + sizeof(more) <= list->size) {
		list->used += (size_t)length;
		list->count++;
		return;
	}
	list->text[list->used] = '\0';
	list->more++;
}

static void add_tensors(struct list *list, const struct unit *unit, const struct unit_part *part,
			uint64_t first, uint64_t end)
{
	for (uint32_t i = 0; i < unit->tensor_count; i++) {
		const struct tensor_layout *layout = &unit->tensors[i].layout;
		uint64_t begin = part->pack_first + layout->first;

		if (layout->section == part->section && begin < end && first < begin + layout->elements)
			add_name(list, unit->tensors[i].name);
	}
}

/* Elements first … end - 1 of a pack's section. */
static void find_units(const struct job *job, uint32_t pack, enum unit_section section, uint64_t first,
		       uint64_t end, struct location *location)
{
	const struct pack *units = &job->catalog.packs[pack];
	struct list list = { .text = location->tensors, .size = sizeof(location->tensors) };

	for (uint32_t i = units->first_unit; i < units->first_unit + units->unit_count; i++) {
		const struct unit *unit = &job->catalog.units[i];
		const struct unit_part *part = unit_part(unit, section);

		if (!part || part->elements == 0)
			continue;
		if (part->pack_first >= end)
			break;
		if (part->pack_first + part->elements > first && !*location->unit)
			location->unit = unit->name;
		add_tensors(&list, unit, part, first, end);
	}
	if (list.more > 0)
		snprintf(list.text + list.used, list.size - list.used, " and %u more", list.more);
}

void location_find(const struct job *job, const struct store_range *piece, struct location *ret_location)
{
	struct kind kind;
	uint32_t pack;

	/* What is of no unit has a stream of its own, and says what it is. */
	*ret_location = (struct location){
		.unit = "",
		.state = store_stream_name(job_nvme_store(job), piece->stream),
	};
	if (!find_parameter(job, piece->stream, &kind) && !find_state(job, piece->stream, &kind))
		return;
	ret_location->state = kind.state == STATE_PARAMETER
				      ? "parameter"
				      : state_stream_name(&job->options, kind.section, (unsigned)kind.state);
	if (!find_pack(job, &kind, piece, &pack))
		return;
	uint64_t offset = piece->offset - place_of(job, pack, &kind);

	find_units(job, pack, kind.section, offset / kind.piece_bytes * kind.piece,
		   size_divide_up(offset + piece->length, kind.piece_bytes) * kind.piece, ret_location);
}

void location_of_fault(const struct job *job, const struct store_transfer *transfer,
		       struct location *ret_location)
{
	uint64_t offset = transfer->fault.stream_offset;
	/* A checksum is that of a block; a device refuses what of an extent it was asked for. */
	const struct store *store = job_nvme_store(job);
	uint64_t unit = transfer->status == -EBADMSG ? store_block_bytes(store, transfer->stream)
						     : store_extent_bytes(store, transfer->stream);
	uint64_t rest = transfer->offset + transfer->length - offset, length = unit - offset % unit;
	struct store_range piece = { transfer->stream, offset, length < rest ? length : rest };

	location_find(job, &piece, ret_location);
}

const char *location_print(const struct location *location, char text[LOCATION_TEXT])
{
	if (!*location->unit)
		snprintf(text, LOCATION_TEXT, "the job's %s", location->state);
	else if (!*location->tensors)
		snprintf(text, LOCATION_TEXT, "unit \"%s\", %s, padding alone", location->unit,
			 location->state);
	else
		snprintf(text, LOCATION_TEXT, "unit \"%s\", %s of tensor %s", location->unit, location->state,
			 location->tensors);
	return text;
}

const char *location_print_fault(const struct job *job, const struct store_transfer *transfer,
				 char text[LOCATION_FAULT_TEXT])
{
	char what[LOCATION_TEXT];
	struct location location;

	location_of_fault(job, transfer, &location);
	snprintf(text, LOCATION_FAULT_TEXT, "%s, at byte %llu of %s", location_print(&location, what),
		 (unsigned long long)transfer->fault.device_offset,
		 transfer->fault.device ? transfer->fault.device : "its store");
	return text;
}
