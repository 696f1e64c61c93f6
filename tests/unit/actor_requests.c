/* What actors ask for: the requests of a training, and those of a reader. */
#include "tests/unit/daemon_support.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "common/bfloat16.h"
#include "daemon/life/idle.h"
#include "daemon/life/life.h"
#include "daemon/model/job.h"
#include "daemon/residency/residency.h"
#include "daemon/update/update.h"
#include "daemon/values/values.h"

/* ---- The requests of a training ---- */

int actor_open(struct actor *actor, const struct actor_job *job)
{
	Tierd__Wire__JobOpen open = TIERD__WIRE__JOB_OPEN__INIT;
	Tierd__Wire__Group group[3], *groups[] = { &group[0], &group[1], &group[2] };
	const Tierd__Wire__Reply *reply;
	int r;

	open.name = (char *)(job->name ? job->name : "play");
	open.rank = actor->rank = job->rank;
	open.world_size = job->world_size ? job->world_size : 1;
	open.stage = job->stage;
	open.mode = job->mode;
	open.nonfinite = job->nonfinite;
	open.host_budget = job->host_budget;
	open.blob_bytes = job->blob_bytes;
	open.gradient_bytes = job->gradient_bytes;
	open.snapshots = job->snapshots;
	open.parameter_placement = job->parameter_placement;
	open.optimizer_placement = job->optimizer_placement;
	open.durability = job->durability;
	open.gradient_placement = job->gradient_placement;
	open.optimizer = job->optimizer;
	open.clip_norm = job->clip_norm;
	for (uint32_t i = 0; i < ARRAY_LENGTH(group); i++) {
		tierd__wire__group__init(&group[i]);
		group[i].learning_rate = (float)(i > 0);
		group[i].beta1 = 0.9f;
		group[i].beta2 = 0.999f;
		group[i].epsilon = 1e-8f;
		group[i].moments = i < 2 ? job->moments : MOMENTS_IN_BF16;
	}
	open.groups = groups;
	/* Without any it has the optimizer's own. */
	open.n_groups = job->group_count ? job->group_count : job->moments != MOMENTS_IN_FP32;
	open.has_owner = job->has_owner;
	open.owner = job->owner;
	if (job->source)
		open.source = (char *)job->source;
	open.has_source_owner = job->source != NULL;
	open.source_owner = geteuid();
	open.strict = job->is_strict;
	open.pushed_once = job->is_pushed_once;
	open.takeover = job->is_takeover;
	open.is_reconnect = job->is_reconnect;
	open.drafted = job->is_drafted;
	r = actor_ask(actor, WIRE_REQUEST(JOB_OPEN, job_open, &open), &reply);
	if (r == 0) {
		actor->job = reply->job_open->job;
		actor->step = reply->job_open->step;
		actor->defined = 0;
		actor->moments = job->moments;
	}
	return r;
}

static void note_layout(struct actor *actor, const struct actor_tensor *tensors, size_t count)
{
	uint32_t unit = actor->defined++;
	struct unit_layout *layout = &actor->layouts[unit % ACTOR_UNITS];

	if (unit >= ACTOR_UNITS)
		return;
	unit_layout_init(layout);
	actor->elements[unit] = tensors[0].elements;
	for (size_t i = 0; i < count; i++) {
		struct tensor_layout tensor;

		assert(unit_layout_append(layout, tensors[i].format,
					  tensors[i].is_frozen ? UNIT_FROZEN : actor->moments,
					  tensors[i].elements, &tensor) == 0);
		if (tensors[i].gradient_format == FORMAT_FP32)
			unit_layout_widen(layout, tensor.section);
	}
}

int actor_join(struct scene *scene, struct actor *actor, const struct actor_job *job)
{
	int r = actor_enter(scene, actor);

	return r < 0 ? r : actor_open(actor, job);
}

int actor_define(struct actor *actor, const char *name, const struct actor_tensor *tensors, size_t count)
{
	Tierd__Wire__UnitDefine define = TIERD__WIRE__UNIT_DEFINE__INIT;
	Tierd__Wire__Tensor wire[8], *pointers[8];
	uint64_t shapes[8];

	assert(count <= ARRAY_LENGTH(wire));
	for (size_t i = 0; i < count; i++) {
		tierd__wire__tensor__init(&wire[i]);
		wire[i].name = (char *)tensors[i].name;
		wire[i].format = tensors[i].format;
		wire[i].initializer = tensors[i].initializer;
		wire[i].a = 1;
		wire[i].is_frozen = tensors[i].is_frozen;
		wire[i].gradient_format = tensors[i].gradient_format;
		shapes[i] = tensors[i].elements;
		wire[i].n_shape = 1;
		wire[i].shape = &shapes[i];
		pointers[i] = &wire[i];
	}
	define.job = actor->job;
	define.name = (char *)name;
	define.n_tensors = count;
	define.tensors = pointers;
	int r = actor_ask(actor, WIRE_REQUEST(UNIT_DEFINE, unit_define, &define), NULL);

	if (r == 0)
		note_layout(actor, tensors, count);
	return r;
}

static int define_unit(struct actor *actor, unsigned number, uint32_t format, uint64_t elements)
{
	char name[16];
	const struct actor_tensor tensor = { name, format, INITIALIZE_ONES, elements, false };

	snprintf(name, sizeof(name), "u%u", number);
	return actor_define(actor, name, &tensor, 1);
}

int actor_define_sizes(struct actor *actor, uint32_t format, const uint64_t *elements, unsigned count)
{
	int r = 0;

	for (unsigned i = 0; i < count && r == 0; i++)
		r = define_unit(actor, i, format, elements[i]);
	return r;
}

int actor_define_units(struct actor *actor, unsigned count, uint64_t elements)
{
	int r = 0;

	for (unsigned i = 0; i < count && r == 0; i++)
		r = define_unit(actor, i, FORMAT_BF16, elements);
	return r;
}

struct job *actor_play(struct scene *scene, struct actor *actor)
{
	int r = actor_enter(scene, actor);

	if (r == 0)
		r = actor_open(actor, &(struct actor_job){ .stage = 3, .host_budget = PLAY_HOST_BUDGET });
	if (r == 0)
		r = actor_define_units(actor, PLAY_UNITS, PLAY_ELEMENTS);
	if (r == 0)
		r = actor_ready(actor);
	assert(r == 0);
	struct job *job = job_find(scene->node, geteuid(), "play");

	while (segment_bytes_to_come(job) > 0)
		scene_wait(scene);
	return job;
}

void actor_join_in_host_memory(struct scene *scene, struct actor *actor, unsigned units, uint64_t elements)
{
	const struct actor_job job = { .name = "play", .parameter_placement = PLACEMENT_HOST };
	int r = actor_join(scene, actor, &job);

	for (unsigned i = 0; i < units && r == 0; i++)
		r = define_unit(actor, i, FORMAT_FP32, elements);
	assert(r == 0);
}

void actor_leave_released(struct scene *scene, struct actor *actor)
{
	struct job *job = job_find(scene->node, geteuid(), "play");

	actor_die(actor);
	while (!idle_give(job))
		scene_wait(scene);
	scene_await_disposals(scene);
}

uint32_t actor_send_ready(struct actor *actor, int timeout_ms)
{
	Tierd__Wire__JobReady ready = TIERD__WIRE__JOB_READY__INIT;

	ready.job = actor->job;
	ready.timeout_ms = timeout_ms;
	return actor_send(actor, WIRE_REQUEST(JOB_READY, job_ready, &ready));
}

int actor_finish_ready(struct actor *actor, uint32_t number)
{
	const struct answer *answer = actor_await(actor, number, 0);
	const Tierd__Wire__JobReadyReply *ready;

	if (answer->status < 0)
		return answer->status;
	ready = answer->reply->job_ready;
	actor->epoch = ready->epoch;
	actor->step = ready->step;
	actor->refused_pushes = 0;
	actor->unit_count = ready->unit_count;
	actor->buffer_count = ready->gradient_buffers;
	actor->buffer_bytes = ready->gradient_buffer_bytes;
	actor->last_buffer_bytes = ready->last_buffer_bytes;
	return 0;
}

int actor_ready(struct actor *actor)
{
	return actor_finish_ready(actor, actor_send_ready(actor, -1));
}

void actor_ready_both(struct actor *first, struct actor *second)
{
	uint32_t ready = actor_send_ready(first, -1);

	assert(actor_ready(second) == 0);
	assert(actor_finish_ready(first, ready) == 0);
}

uint32_t actor_send_buffer_wait(struct actor *actor, uint32_t unit, uint32_t pushed)
{
	Tierd__Wire__BufferWait wait = TIERD__WIRE__BUFFER_WAIT__INIT;

	wait.job = actor->job;
	wait.epoch = actor->epoch;
	wait.unit = unit;
	wait.pushed = pushed;
	return actor_send(actor, WIRE_REQUEST(BUFFER_WAIT, buffer_wait, &wait));
}

uint32_t actor_send_gather(struct actor *actor, uint32_t unit, uint64_t version, bool is_blocking)
{
	Tierd__Wire__Gather gather = TIERD__WIRE__GATHER__INIT;

	gather.job = actor->job;
	gather.epoch = actor->epoch;
	gather.unit = unit;
	gather.version = version;
	gather.is_blocking = is_blocking;
	return actor_send(actor, WIRE_REQUEST(GATHER, gather, &gather));
}

int actor_gather(struct actor *actor, uint32_t unit, uint64_t version, const void **ret_address)
{
	const struct answer *answer = actor_await(actor, actor_send_gather(actor, unit, version, true), 0);

	if (answer->status == 0 && ret_address) {
		uint64_t offset = answer->reply->gather->offset;

		*ret_address = offset < actor->cache_offset
				       ? actor->arena.base + offset
				       : actor->cache.base + (offset - actor->cache_offset);
	}
	return answer->status;
}

static _Atomic uint32_t *counter_of(const struct actor *actor, uint32_t unit)
{
	return &lease_counters((struct lease_header *)actor->leases.base, actor->buffer_count)[unit];
}

void actor_release(struct actor *actor, uint32_t unit)
{
	assert(lease_give(counter_of(actor, unit)));
}

uint32_t actor_leases(const struct actor *actor, uint32_t unit)
{
	return *counter_of(actor, unit);
}

uint64_t actor_section(const struct actor *actor, uint32_t unit, int section)
{
	const uint64_t *sections = directory_sections((struct directory_header *)actor->directory.base);

	assert(unit < actor->defined && unit < ACTOR_UNITS);
	for (uint32_t before = 0; before < unit; before++)
		sections += unit_layout_sections(&actor->layouts[before]);
	for (int before = 0; before < section; before++)
		sections += actor->layouts[unit].elements[before] > 0;
	return *sections;
}

/* By doubling: with sanitizers a store for each takes longer than all that is done with them. */
static void fill(char *base, const void *pattern, size_t size, size_t bytes)
{
	memcpy(base, pattern, size);
	for (size_t filled = size; filled < bytes; filled *= 2)
		memcpy(base + filled, base, bytes - filled < filled ? bytes - filled : filled);
}

void actor_fill(struct actor *actor, uint32_t format, uint64_t count, float value)
{
	uint16_t narrow = bfloat16_from_float(value);
	bool is_narrow = format == FORMAT_BF16;
	size_t size = is_narrow ? sizeof(narrow) : sizeof(value);
	const void *pattern = is_narrow ? (void *)&narrow : (void *)&value;

	if (count == 0)
		return;
	fill(actor->gradients.base, pattern, size, count * size);
	if (actor->last_buffer_bytes > actor->buffer_bytes)
		fill(actor->gradients.base + (actor->buffer_count - 1) * actor->buffer_bytes, pattern, size,
		     count * size);
}

static const struct member *find_member(const struct actor *actor)
{
	QUEUE_FOREACH (link, &actor->scene->node->jobs.live) {
		const struct job *job = queue_entry(link, struct job, link);
		const struct member *member =
			actor->rank < job->options.world_size ? job->members.ranks[actor->rank] : NULL;

		if (member && member->port == &actor->port && member->handle == actor->job)
			return member;
	}
	return NULL;
}

/* The actor's own choice, unless the unit has to have another one. */
static uint32_t choose_buffer(const struct actor *actor, uint32_t unit, uint32_t buffer)
{
	const struct member *member = find_member(actor);

	if (!member || buffer >= member->buffer_count || unit >= member->job->catalog.unit_count ||
	    member_buffer_takes(member, buffer, unit))
		return buffer;
	return buffer + 1 == member->buffer_count ? 0 : member->buffer_count - 1;
}

static uint32_t send_push(struct actor *actor, uint32_t unit, uint32_t buffer, uint64_t offset,
			  bool is_silent)
{
	Tierd__Wire__Push push = TIERD__WIRE__PUSH__INIT;

	push.job = actor->job;
	push.epoch = actor->epoch;
	push.unit = unit;
	push.buffer = buffer;
	push.offset = offset;
	push.is_silent = is_silent;
	if (actor->absent)
		push.absent = (ProtobufCBinaryData){ actor->absent_bytes, (uint8_t *)actor->absent };
	return actor_send(actor, WIRE_REQUEST(PUSH, push, &push));
}

uint32_t actor_send_push(struct actor *actor, uint32_t unit, uint32_t buffer)
{
	return send_push(actor, unit, choose_buffer(actor, unit, buffer), 0, false);
}

uint32_t actor_send_silent_push(struct actor *actor, uint32_t unit, uint32_t buffer)
{
	return send_push(actor, unit, choose_buffer(actor, unit, buffer), 0, true);
}

uint32_t actor_send_push_at(struct actor *actor, uint32_t unit, uint32_t buffer, uint64_t offset)
{
	return send_push(actor, unit, buffer, offset, false);
}

static Tierd__Wire__Rates rates_of(const struct actor *actor, float learning_rate)
{
	Tierd__Wire__Rates rates = TIERD__WIRE__RATES__INIT;

	rates.learning_rate = learning_rate;
	rates.gradient_scale = rates.loss_scale = 1.0f;
	rates.has_clip_norm = actor->has_clip_norm;
	rates.clip_norm = actor->clip_norm;
	rates.is_dropped = actor->is_dropping;
	return rates;
}

uint32_t actor_send_step(struct actor *actor, float learning_rate)
{
	Tierd__Wire__Step step = TIERD__WIRE__STEP__INIT;
	Tierd__Wire__Rates rates = rates_of(actor, learning_rate);

	step.job = actor->job;
	step.epoch = actor->epoch;
	step.rates = &rates;
	step.refused_pushes = actor->refused_pushes;
	return actor_send(actor, WIRE_REQUEST(STEP, step, &step));
}

int actor_begin_step(struct actor *actor, float learning_rate, uint32_t micro_batches)
{
	Tierd__Wire__StepBegin begin = TIERD__WIRE__STEP_BEGIN__INIT;
	Tierd__Wire__Rates rates = rates_of(actor, learning_rate);

	begin.job = actor->job;
	begin.epoch = actor->epoch;
	begin.rates = &rates;
	begin.micro_batches = micro_batches;
	return actor_ask(actor, WIRE_REQUEST(STEP_BEGIN, step_begin, &begin), NULL);
}

int actor_take_step(struct actor *actor)
{
	return actor_await(actor, actor_send_step(actor, 0.1f), 0)->status;
}

int actor_finish(struct actor *actor)
{
	Tierd__Wire__StepFinish finish = TIERD__WIRE__STEP_FINISH__INIT;

	finish.job = actor->job;
	finish.epoch = actor->epoch;
	return actor_ask(actor, WIRE_REQUEST(STEP_FINISH, step_finish, &finish), NULL);
}

uint32_t actor_send_write_begin(struct actor *actor)
{
	Tierd__Wire__WriteBegin begin = TIERD__WIRE__WRITE_BEGIN__INIT;

	begin.job = actor->job;
	begin.epoch = actor->epoch;
	return actor_send(actor, WIRE_REQUEST(WRITE_BEGIN, write_begin, &begin));
}

int actor_end_write(struct actor *actor, bool is_cancelled)
{
	Tierd__Wire__WriteEnd end = TIERD__WIRE__WRITE_END__INIT;

	end.job = actor->job;
	end.epoch = actor->epoch;
	end.is_cancelled = is_cancelled;
	return actor_ask(actor, WIRE_REQUEST(WRITE_END, write_end, &end), NULL);
}

static uint32_t send_write(struct actor *actor, const Tierd__Wire__TensorWrite *what)
{
	Tierd__Wire__TensorWrite write = *what;

	write.job = actor->job;
	return actor_send(actor, WIRE_REQUEST(TENSOR_WRITE, tensor_write, &write));
}

int actor_write(struct actor *actor, uint32_t unit, uint32_t tensor, uint64_t first, uint64_t count)
{
	Tierd__Wire__TensorWrite write = TIERD__WIRE__TENSOR_WRITE__INIT;

	write.unit = unit;
	write.tensor = tensor;
	write.first = first;
	write.count = count;
	return actor_await(actor, send_write(actor, &write), 0)->status;
}

uint32_t actor_send_masters(struct actor *actor, uint32_t unit, uint32_t tensor, uint64_t first,
			    uint64_t count)
{
	Tierd__Wire__TensorWrite write = TIERD__WIRE__TENSOR_WRITE__INIT;

	write.unit = unit;
	write.tensor = tensor;
	write.first = first;
	write.count = count;
	write.is_master = true;
	return send_write(actor, &write);
}

uint32_t actor_send_state(struct actor *actor, uint32_t tensor, const char *state, uint64_t step,
			  uint64_t first, uint64_t count)
{
	return actor_send_unit_state(actor, 0, tensor, state, step, first, count);
}

uint32_t actor_send_unit_state(struct actor *actor, uint32_t unit, uint32_t tensor, const char *state,
			       uint64_t step, uint64_t first, uint64_t count)
{
	Tierd__Wire__TensorWrite write = TIERD__WIRE__TENSOR_WRITE__INIT;

	write.unit = unit;
	write.tensor = tensor;
	write.state = (char *)state;
	write.step = step;
	write.first = first;
	write.count = count;
	return send_write(actor, &write);
}

uint32_t actor_send_read(struct actor *actor, uint32_t unit, uint32_t tensor, const char *state,
			 uint64_t first, uint64_t count, uint64_t version)
{
	Tierd__Wire__TensorRead read = TIERD__WIRE__TENSOR_READ__INIT;

	read.job = actor->job;
	read.unit = unit;
	read.tensor = tensor;
	read.state = (char *)state;
	read.first = first;
	read.count = count;
	read.version = version;
	return actor_send(actor, WIRE_REQUEST(TENSOR_READ, tensor_read, &read));
}

int actor_read(struct actor *actor, uint32_t unit, uint32_t tensor, const char *state, uint64_t first,
	       uint64_t count, uint64_t version)
{
	uint32_t number = actor_send_read(actor, unit, tensor, state, first, count, version);

	return actor_await(actor, number, 0)->status;
}

#define PIECES_MOST 2000

static Tierd__Wire__TensorPiece **point_to(Tierd__Wire__TensorPiece *pieces, size_t count)
{
	static Tierd__Wire__TensorPiece *pointers[PIECES_MOST];

	assert(count <= PIECES_MOST);
	for (size_t i = 0; i < count; i++)
		pointers[i] = &pieces[i];
	return pointers;
}

uint32_t actor_send_read_many(struct actor *actor, Tierd__Wire__TensorPiece *pieces, size_t count,
			      uint64_t version)
{
	Tierd__Wire__TensorReadMany many = TIERD__WIRE__TENSOR_READ_MANY__INIT;

	many.job = actor->job;
	many.version = version;
	many.n_pieces = count;
	many.pieces = point_to(pieces, count);
	return actor_send(actor, WIRE_REQUEST(TENSOR_READ_MANY, tensor_read_many, &many));
}

uint32_t actor_send_reader_read_many(struct actor *actor, uint32_t reader, Tierd__Wire__TensorPiece *pieces,
				     size_t count, uint64_t step)
{
	Tierd__Wire__ReaderReadMany many = TIERD__WIRE__READER_READ_MANY__INIT;

	many.reader = reader;
	many.step = step;
	many.n_pieces = count;
	many.pieces = point_to(pieces, count);
	return actor_send(actor, WIRE_REQUEST(READER_READ_MANY, reader_read_many, &many));
}

int actor_set_groups(struct actor *actor, uint32_t unit, const uint32_t *groups, size_t count)
{
	Tierd__Wire__GroupsSet set = TIERD__WIRE__GROUPS_SET__INIT;

	set.job = actor->job;
	set.epoch = actor->epoch;
	set.unit = unit;
	set.groups = (uint32_t *)groups;
	set.n_groups = count;
	return actor_ask(actor, WIRE_REQUEST(GROUPS_SET, groups_set, &set), NULL);
}

int actor_get_groups(struct actor *actor, uint32_t unit, const Tierd__Wire__GroupsReply **ret_groups)
{
	Tierd__Wire__GroupsGet get = TIERD__WIRE__GROUPS_GET__INIT;
	const Tierd__Wire__Reply *reply;
	int r;

	get.job = actor->job;
	get.unit = unit;
	r = actor_ask(actor, WIRE_REQUEST(GROUPS_GET, groups_get, &get), &reply);
	if (r == 0)
		*ret_groups = reply->groups;
	return r;
}

int actor_set_blob(struct actor *actor, const char *key, uint64_t size, char fill)
{
	Tierd__Wire__BlobWrite write = TIERD__WIRE__BLOB_WRITE__INIT;
	int r;

	write.job = actor->job;
	write.epoch = actor->epoch;
	write.key = (char *)key;
	write.size = size;
	do {
		write.count = size - write.offset < WIRE_BLOB_PIECE ? (uint32_t)(size - write.offset)
								    : WIRE_BLOB_PIECE;
		memset(actor->window.base, fill, write.count);
		r = actor_ask(actor, WIRE_REQUEST(BLOB_WRITE, blob_write, &write), NULL);
		write.offset += write.count;
	} while (r == 0 && write.offset < size);
	return r;
}

int actor_get_blob(struct actor *actor, const char *key, uint64_t offset, Tierd__Wire__BlobReply *ret_blob)
{
	Tierd__Wire__BlobRead read = TIERD__WIRE__BLOB_READ__INIT;
	const Tierd__Wire__Reply *reply;
	int r;

	read.job = actor->job;
	read.key = (char *)key;
	read.offset = offset;
	read.count = WIRE_BLOB_PIECE;
	r = actor_ask(actor, WIRE_REQUEST(BLOB_READ, blob_read, &read), &reply);
	if (r == 0)
		*ret_blob = *reply->blob;
	return r;
}

int actor_set_phase(struct actor *actor, const char *name)
{
	Tierd__Wire__Phase phase = TIERD__WIRE__PHASE__INIT;

	phase.job = actor->job;
	phase.name = (char *)name;
	return actor_ask(actor, WIRE_REQUEST(PHASE, phase, &phase), NULL);
}

uint32_t actor_send_leave(struct actor *actor, bool is_at_once)
{
	Tierd__Wire__JobLeave leave = TIERD__WIRE__JOB_LEAVE__INIT;

	leave.job = actor->job;
	leave.at_once = is_at_once;
	return actor_send(actor, WIRE_REQUEST(JOB_LEAVE, job_leave, &leave));
}

int actor_drop(struct actor *actor, bool is_forced)
{
	Tierd__Wire__JobDrop drop = TIERD__WIRE__JOB_DROP__INIT;

	drop.name = (char *)"play";
	drop.force = is_forced;
	return actor_ask(actor, WIRE_REQUEST(JOB_DROP, job_drop, &drop), NULL);
}

/* ---- Readers ---- */

uint32_t actor_send_open_reader(struct actor *actor, const char *job)
{
	Tierd__Wire__ReaderOpen open = TIERD__WIRE__READER_OPEN__INIT;

	open.name = (char *)job;
	return actor_send(actor, WIRE_REQUEST(READER_OPEN, reader_open, &open));
}

int actor_open_reader(struct actor *actor, const char *job, uint32_t *ret_reader)
{
	const struct answer *answer = actor_await(actor, actor_send_open_reader(actor, job), 0);

	if (answer->status == 0)
		*ret_reader = answer->reply->reader_open->reader;
	return answer->status;
}

uint32_t actor_send_refresh(struct actor *actor, uint32_t reader, const Tierd__Wire__ReaderPiece *pieces,
			    size_t count)
{
	Tierd__Wire__ReaderRefresh refresh = TIERD__WIRE__READER_REFRESH__INIT;
	Tierd__Wire__ReaderPiece *pointers[64];

	assert(count <= ARRAY_LENGTH(pointers));
	for (size_t i = 0; i < count; i++)
		pointers[i] = (Tierd__Wire__ReaderPiece *)&pieces[i];
	refresh.reader = reader;
	refresh.has_pieces = pieces != NULL;
	refresh.pieces = pointers;
	refresh.n_pieces = count;
	return actor_send(actor, WIRE_REQUEST(READER_REFRESH, reader_refresh, &refresh));
}

uint32_t actor_send_reader_read(struct actor *actor, uint32_t reader, const Tierd__Wire__ReaderRead *read)
{
	Tierd__Wire__ReaderRead own = *read;

	own.reader = reader;
	return actor_send(actor, WIRE_REQUEST(READER_READ, reader_read, &own));
}

int actor_reader_memory(struct actor *actor, uint32_t reader, uint64_t bytes)
{
	Tierd__Wire__ReaderMemory memory = TIERD__WIRE__READER_MEMORY__INIT;

	memory.reader = reader;
	memory.bytes = bytes;
	return actor_ask(actor, WIRE_REQUEST(READER_MEMORY, reader_memory, &memory), NULL);
}

uint32_t actor_send_close_reader(struct actor *actor, uint32_t reader)
{
	Tierd__Wire__ReaderClose close = TIERD__WIRE__READER_CLOSE__INIT;

	close.reader = reader;
	return actor_send(actor, WIRE_REQUEST(READER_CLOSE, reader_close, &close));
}
