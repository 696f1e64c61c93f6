/* Encoding: without allocations, since a commit must not fail for the want of a few bytes. What repeats is
 * packed piece by piece: a message may be written in parts, one after the other. */

#include <assert.h>
#include <errno.h>
#include <string.h>
#include <xxhash.h>

#include "common/little_endian.h"
#include "daemon/durability/record.h"
#include "daemon/durability/own.h"
#include "daemon/model/model.h"
#include "daemon/residency/residency.h"
#include "daemon/update/update.h"
#include "proto/record.pb-c.h"

/* Fields that are written by hand, and how: lengths before bytes. */
#define FIELD_UNITS 8	     /* of JobDefinition */
#define FIELD_ROOM 40	     /* of JobDefinition, the last one */
#define FIELD_TENSORS 3	     /* of UnitDefine */
#define FIELD_UPDATES 7	     /* of JobProgress */
#define FIELD_LAST_UPDATES 8 /* of JobProgress */
#define FIELD_MISSED 9	     /* of JobProgress */
#define FIELD_GROUPS 10	     /* of JobProgress */
#define FIELD_BLOBS 20	     /* of JobProgress */
#define KIND_BYTES 2
/* Packed, a varint takes at most 10 bytes, a field's key here 1, but that of blobs 2. */
#define KEY_BYTES 1
#define VARINT_BYTES 10
#define FIXED_FIELD_BYTES (KEY_BYTES + 4)
#define VARINT_FIELD_BYTES (KEY_BYTES + VARINT_BYTES)
/* Its key and length, and what it has, all of its greatest size. */
#define BLOB_BYTES (3 + KEY_BYTES + 1 + WIRE_MAX_BLOB_KEY + KEY_BYTES + 1 + 3 * VARINT_FIELD_BYTES)
/* Seven rates, a flag and a format, and their length before them. */
#define GROUP_BYTES (2 + 7 * FIXED_FIELD_BYTES + 2 * (KEY_BYTES + 1))
/* Packed, a tensor's group. */
#define TENSOR_GROUP_BYTES 2
static_assert(WIRE_MAX_GROUPS <= 1 << 7 * TENSOR_GROUP_BYTES, "a group takes no more bytes");
/* The room's key, and its length: fewer bytes than 128 are left of what may change. */
#define ROOM_FRONT_BYTES 3

/* ---- By hand ---- */

static uint64_t varint_bytes(uint64_t value)
{
	uint64_t bytes = 1;

	while (value >>= 7)
		bytes++;
	return bytes;
}

static uint8_t *put_varint(uint8_t *at, uint64_t value)
{
	for (; value >= 0x80; value >>= 7)
		*at++ = (uint8_t)(value | 0x80);
	*at++ = (uint8_t)value;
	return at;
}

/* A field of so many bytes, with what comes before them. */
static uint64_t field_bytes(uint64_t length)
{
	return KEY_BYTES + varint_bytes(length) + length;
}

static uint8_t *begin_field(uint8_t *at, unsigned field, uint64_t length)
{
	at = put_varint(at, field << 3 | KIND_BYTES);
	return put_varint(at, length);
}

static uint8_t *put_fixed(uint8_t *at, uint64_t value)
{
	put64(at, value);
	return at + sizeof(value);
}

/* ---- Units ---- */

static void fill_tensor(const struct tensor *tensor, Tierd__Wire__Tensor *wire)
{
	definition_fill_tensor(tensor, wire);
	wire->group = tensor->defined_group;
	wire->initializer = tensor->initializer;
	wire->a = tensor->a;
	wire->b = tensor->b;
}

static uint64_t tensor_bytes(const struct tensor *tensor)
{
	Tierd__Wire__Tensor wire;

	fill_tensor(tensor, &wire);
	return tierd__wire__tensor__get_packed_size(&wire);
}

/* Of a unit, what is not its tensors. */
static Tierd__Wire__UnitDefine unit_front(const struct unit *unit)
{
	Tierd__Wire__UnitDefine wire = TIERD__WIRE__UNIT_DEFINE__INIT;

	wire.name = unit->name;
	return wire;
}

static uint64_t unit_bytes(const struct unit *unit)
{
	Tierd__Wire__UnitDefine front = unit_front(unit);
	uint64_t bytes = tierd__wire__unit_define__get_packed_size(&front);

	for (uint32_t i = 0; i < unit->tensor_count; i++)
		bytes += field_bytes(tensor_bytes(&unit->tensors[i]));
	return bytes;
}

static uint8_t *put_unit(uint8_t *at, const struct unit *unit)
{
	Tierd__Wire__UnitDefine front = unit_front(unit);

	at = begin_field(at, FIELD_UNITS, unit_bytes(unit));
	at += tierd__wire__unit_define__pack(&front, at);
	for (uint32_t i = 0; i < unit->tensor_count; i++) {
		Tierd__Wire__Tensor wire;

		fill_tensor(&unit->tensors[i], &wire);
		at = begin_field(at, FIELD_TENSORS, tierd__wire__tensor__get_packed_size(&wire));
		at += tierd__wire__tensor__pack(&wire, at);
	}
	return at;
}

/* ---- Definition ---- */

/* What is not its units. */
struct front {
	Tierd__Record__JobDefinition definition;
	Tierd__Wire__JobOpen options;
	struct options_groups groups;
};

static uint32_t placement_of(bool is_nvme)
{
	return is_nvme ? PLACEMENT_NVME : PLACEMENT_HOST;
}

/* As many as were asked for; but of steps that are kept by themselves no more are read back than that. */
static uint32_t snapshots_of(const struct job_options *options, uint32_t asked)
{
	uint32_t least = options->snapshot_every == 0 ? 0
			 : options->snapshot_keep > 1 ? options->snapshot_keep
						      : 1;

	return asked > least ? asked : least;
}

static void fill_front(const struct job *job, struct front *front)
{
	tierd__record__job_definition__init(&front->definition);
	front->definition.format = job->location.record_format;
	front->definition.uid = job->uid;
	options_write(&job->options, &front->options, &front->groups);
	front->options.name = (char *)job->name;
	front->options.snapshots = snapshots_of(&job->options, job->durability->snapshots_asked);
	front->definition.options = &front->options;
	front->definition.has_earlier_updates = job->durability->has_earlier_updates;
	front->definition.is_retention_set = job->durability->is_retention_set;
	front->definition.is_sharing_set = job->options.is_sharing_set;
	front->definition.parameter_placement = placement_of(job->location.has_nvme_parameters);
	front->definition.optimizer_placement = placement_of(job->location.has_nvme_optimizer);
	front->definition.durability = job->location.durability;
	front->definition.devices = job->location.paths.count;
	/* What the plan decides is never 0, and takes as many bytes before. */
	front->definition.layout = job->location.places ? record_layout(job) : 1;
}

/* The most that it takes in any shape that the job may get, with room for any number of snapshots, whatever
 * steps are kept, whomever it is shared with; and of its forks, under any name. */
static uint64_t front_most(const struct job *job)
{
	char name[WIRE_MAX_JOB_NAME + 1] = "";
	struct front front;

	fill_front(job, &front);
	memset(name, 'x', sizeof(name) - 1);
	front.options.name = name;
	front.options.world_size = WIRE_MAX_WORLD_SIZE;
	front.options.stage = 3;
	front.options.pushed_once = true;
	front.options.host_budget = UINT64_MAX;
	front.options.gradient_buffers = WIRE_MAX_GRADIENT_BUFFERS;
	front.options.gradient_bytes = WIRE_MAX_GRADIENT_BYTES;
	front.options.snapshots = front.options.snapshot_keep = WIRE_MAX_SNAPSHOTS;
	front.options.snapshot_every = UINT64_MAX;
	front.options.sharing = SHARING_TRAIN;
	front.options.share_group = UINT32_MAX;
	front.definition.is_retention_set = front.definition.is_sharing_set = true;
	front.definition.has_earlier_updates = true;
	return tierd__record__job_definition__get_packed_size(&front.definition);
}

uint64_t record_definition_bytes(const struct job *job)
{
	uint64_t bytes = front_most(job) + ROOM_FRONT_BYTES;

	for (uint32_t i = 0; i < job->catalog.unit_count; i++)
		bytes += field_bytes(unit_bytes(&job->catalog.units[i]));
	return bytes;
}

/* What is left to the end. */
static void put_room(uint8_t *at, const uint8_t *end)
{
	uint64_t length = (uint64_t)(end - at) - ROOM_FRONT_BYTES;

	at = put_varint(at, FIELD_ROOM << 3 | KIND_BYTES);
	at = put_varint(at, length);
	memset(at, 0, length);
}

/* A section lies somewhere only if it has elements. */
static uint64_t add_places(const struct job *job, uint32_t index, uint64_t hash)
{
	const struct pack *pack = &job->catalog.packs[index];
	const struct pack_place *place = &job->location.places[index];

	for (int section = 0; section < UNIT_SECTIONS; section++) {
		const uint64_t parameter[] = { pack->first_unit, pack->unit_count, pack->elements[section],
					       job->location.streams.parameter[section],
					       place->parameter[section] };

		if (pack->elements[section] == 0)
			continue;
		hash = XXH3_64bits_withSeed(parameter, sizeof(parameter), hash);
		for (unsigned i = 0; section < UNIT_TRAINABLE_SECTIONS && i < state_count(&job->options);
		     i++) {
			const uint64_t state[] = { state_bytes((enum unit_section)section, i, 1),
						   job->location.streams.state[section][i],
						   place->state[section][i] };

			hash = XXH3_64bits_withSeed(state, sizeof(state), hash);
		}
	}
	return hash;
}

uint64_t record_layout(const struct job *job)
{
	uint64_t hash = 0;

	for (uint32_t i = 0; i < job->catalog.pack_count; i++)
		hash = add_places(job, i, hash);
	return hash ? hash : 1;
}

int record_encode_definition(const struct job *job, void *bytes, uint64_t size)
{
	uint64_t length = record_definition_bytes(job);
	struct front front;
	uint8_t *at = bytes;

	if (length > size)
		return -EMSGSIZE;
	fill_front(job, &front);
	at += tierd__record__job_definition__pack(&front.definition, at);
	for (uint32_t i = 0; i < job->catalog.unit_count; i++)
		at = put_unit(at, &job->catalog.units[i]);
	put_room(at, (const uint8_t *)bytes + length);
	return 0;
}

/* ---- Progress ---- */

/* What formats have room for, one after the other. */
static uint64_t tensors_bytes(const struct job *job)
{
	uint64_t tensors = job->catalog.tensor_count;
	uint64_t missed = field_bytes(tensors * sizeof(uint64_t));
	uint64_t groups = field_bytes(tensors * TENSOR_GROUP_BYTES);

	return (job->location.record_format >= RECORD_FORMAT_TENSORS ? missed : 0) +
	       (job->location.record_format >= RECORD_FORMAT_GROUPS ? groups : 0);
}

uint64_t record_progress_bytes(const struct job *job)
{
	return 4 * VARINT_FIELD_BYTES + FIXED_FIELD_BYTES + job->options.group_count * GROUP_BYTES +
	       2 * field_bytes(job->catalog.unit_count * sizeof(uint64_t)) + tensors_bytes(job) +
	       blobs_most(job) * BLOB_BYTES;
}

static uint8_t *put_updates(uint8_t *at, const struct catalog *catalog)
{
	uint64_t length = catalog->unit_count * sizeof(uint64_t);

	at = begin_field(at, FIELD_UPDATES, length);
	for (uint32_t i = 0; i < catalog->unit_count; i++)
		at = put_fixed(at, catalog->units[i].updates);
	at = begin_field(at, FIELD_LAST_UPDATES, length);
	for (uint32_t i = 0; i < catalog->unit_count; i++)
		at = put_fixed(at, catalog->units[i].last_update);
	return at;
}

static bool has_missed(const struct catalog *catalog)
{
	for (uint32_t u = 0; u < catalog->unit_count; u++)
		for (uint32_t i = 0; i < catalog->units[u].tensor_count; i++)
			if (catalog->units[u].tensors[i].missed > 0)
				return true;
	return false;
}

/* Of most jobs there is nothing to say. */
static uint8_t *put_missed(uint8_t *at, const struct catalog *catalog)
{
	if (!has_missed(catalog))
		return at;
	at = begin_field(at, FIELD_MISSED, catalog->tensor_count * sizeof(uint64_t));
	for (uint32_t u = 0; u < catalog->unit_count; u++)
		for (uint32_t i = 0; i < catalog->units[u].tensor_count; i++)
			at = put_fixed(at, catalog->units[u].tensors[i].missed);
	return at;
}

/* Packed; 0: none has been moved. */
static uint64_t moved_bytes(const struct catalog *catalog)
{
	uint64_t bytes = 0;
	bool has_moved = false;

	for (uint32_t u = 0; u < catalog->unit_count; u++)
		for (uint32_t i = 0; i < catalog->units[u].tensor_count; i++) {
			const struct tensor *tensor = &catalog->units[u].tensors[i];

			bytes += varint_bytes(tensor->group);
			has_moved |= tensor->group != tensor->defined_group;
		}
	return has_moved ? bytes : 0;
}

static uint8_t *put_groups(uint8_t *at, const struct catalog *catalog)
{
	uint64_t bytes = moved_bytes(catalog);

	if (bytes == 0)
		return at;
	at = begin_field(at, FIELD_GROUPS, bytes);
	for (uint32_t u = 0; u < catalog->unit_count; u++)
		for (uint32_t i = 0; i < catalog->units[u].tensor_count; i++)
			at = put_varint(at, catalog->units[u].tensors[i].group);
	return at;
}

static uint8_t *put_blobs(uint8_t *at, const struct blobs *blobs)
{
	QUEUE_FOREACH (link, &blobs->all) {
		struct blob *blob = queue_entry(link, struct blob, link);
		Tierd__Record__Blob wire = TIERD__RECORD__BLOB__INIT;

		if (!blob->counts)
			continue;
		wire.key = blob->key;
		wire.is_shared = blob->rank == BLOB_SHARED;
		wire.rank = wire.is_shared ? 0 : blob->rank;
		wire.size = blob->size;
		wire.step = blob->step;
		at = begin_field(at, FIELD_BLOBS, tierd__record__blob__get_packed_size(&wire));
		at += tierd__record__blob__pack(&wire, at);
	}
	return at;
}

uint64_t record_encode_progress(const struct job *job, void *bytes)
{
	Tierd__Record__JobProgress progress = TIERD__RECORD__JOB_PROGRESS__INIT;
	struct options_groups groups;
	uint8_t *at = bytes;

	progress.format = job->location.record_format;
	progress.step = job->step;
	progress.epoch = job->epoch.number + job_is_live(job);
	progress.loss_scale = update_loss_scale(job)->value;
	progress.loss_scale_steps = update_loss_scale(job)->steps;
	options_write_groups(update_groups(job), job->options.group_count, &groups);
	progress.n_groups = job->options.group_count;
	progress.groups = groups.pointers;
	at += tierd__record__job_progress__pack(&progress, at);
	at = put_updates(at, &job->catalog);
	at = put_missed(at, &job->catalog);
	at = put_groups(at, &job->catalog);
	at = put_blobs(at, &job->durability->blobs);
	uint64_t length = (uint64_t)(at - (uint8_t *)bytes);

	assert(length <= record_progress_bytes(job));
	return length;
}
