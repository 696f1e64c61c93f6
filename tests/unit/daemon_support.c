#include "tests/unit/daemon_support.h"

#include <assert.h>
#include <errno.h>
#include <ftw.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/bfloat16.h"
#include "daemon/job.h"
#include "daemon/restore.h"

/* ---- Scene ---- */

static int make_node(const struct scene_options *options, struct scene *scene)
{
	struct node_config config = {
		.host_budget = options->host_budget ? options->host_budget : 256 * MIB,
		.workers = 2,
		.queue_depth = 16,
		.is_plain_io = options->is_plain_io,
		.path_count = options->is_without_nvme ? 0 : 1,
		.fault = options->fault,
	};

	config.paths[0].path = scene->folder;
	config.paths[0].capacity = options->capacity ? options->capacity : 256 * MIB;
	scene->loop = event_base_new();
	return scene->loop ? node_new(scene->loop, &config, &scene->node) : -ENOMEM;
}

int scene_open(const struct scene_options *options, struct scene *scene)
{
	memset(scene, 0, sizeof(*scene));
	snprintf(scene->folder, sizeof(scene->folder), "%s/tierd-scene-XXXXXX",
		 getenv("TMPDIR") ?: "/var/tmp");
	if (!mkdtemp(scene->folder)) {
		scene->folder[0] = '\0';
		return -errno;
	}
	return make_node(options, scene);
}

static void end_node(struct scene *scene)
{
	scene->node = node_free(scene->node);
	if (scene->loop)
		event_base_free(scene->loop);
	scene->loop = NULL;
}

int scene_restart(const struct scene_options *options, struct scene *scene)
{
	int r;

	end_node(scene);
	r = make_node(options, scene);
	return r < 0 ? r : restore_all(scene->node);
}

static int remove_entry(const char *path, const struct stat *status, int kind, struct FTW *walk)
{
	return remove(path);
}

void scene_close(struct scene *scene)
{
	end_node(scene);
	if (scene->folder[0])
		nftw(scene->folder, remove_entry, 8, FTW_DEPTH | FTW_PHYS);
}

void scene_wait(struct scene *scene)
{
	event_base_loop(scene->loop, EVLOOP_ONCE);
}

static bool is_quiet(const struct scene *scene)
{
	QUEUE_FOREACH (link, &scene->node->jobs)
		if (!job_is_quiet(queue_entry(link, struct job, link)))
			return false;
	return queue_is_empty(&scene->node->dying) && queue_is_empty(&scene->node->restores);
}

void scene_settle(struct scene *scene)
{
	event_base_loop(scene->loop, EVLOOP_NONBLOCK);
	while (!is_quiet(scene))
		scene_wait(scene);
}

/* ---- Blockade ---- */

static void await_semaphore(sem_t *semaphore)
{
	while (sem_wait(semaphore) < 0)
		assert(errno == EINTR);
}

static void run_blocker(struct work *work)
{
	struct blockade *blockade = container_of(work, struct blocker, work)->blockade;

	sem_post(&blockade->started);
	await_semaphore(&blockade->end);
}

static void on_unblocked(struct work *work)
{
	container_of(work, struct blocker, work)->blockade->done++;
}

void blockade_begin(struct scene *scene, struct workers *workers, struct blockade *blockade)
{
	*blockade = (struct blockade){ .scene = scene, .count = workers_count(workers) };
	assert(blockade->count <= ARRAY_LENGTH(blockade->blockers));
	sem_init(&blockade->started, 0, 0);
	sem_init(&blockade->end, 0, 0);
	for (unsigned i = 0; i < blockade->count; i++) {
		struct blocker *blocker = &blockade->blockers[i];

		blocker->blockade = blockade;
		blocker->work =
			(struct work){ .run = run_blocker, .done = on_unblocked, .urgency = WORK_NORMAL };
		workers_submit(workers, &blocker->work);
	}
	for (unsigned i = 0; i < blockade->count; i++)
		await_semaphore(&blockade->started);
}

void blockade_end(struct blockade *blockade)
{
	if (blockade->done == blockade->count)
		return;
	for (unsigned i = 0; i < blockade->count; i++)
		sem_post(&blockade->end);
	while (blockade->done < blockade->count)
		scene_wait(blockade->scene);
}

/* ---- Recording ---- */

static void map(struct memory_view *view, int fd, int protection)
{
	struct stat status;

	if (view->base || fd < 0 || fstat(fd, &status) < 0)
		return;
	view->base = mmap(NULL, (size_t)status.st_size, protection, MAP_SHARED, fd, 0);
	view->bytes = (size_t)status.st_size;
	assert(view->base != MAP_FAILED);
}

static void unmap(struct memory_view *view)
{
	if (view->base)
		munmap(view->base, view->bytes);
	*view = (struct memory_view){ 0 };
}

static void unmap_all(struct actor *actor)
{
	unmap(&actor->window);
	unmap(&actor->directory);
	unmap(&actor->arena);
	unmap(&actor->cache);
	unmap(&actor->leases);
	unmap(&actor->gradients);
	unmap(&actor->statistics);
	unmap(&actor->reader_window);
}

static void take_memory(struct actor *actor, const Tierd__Wire__Reply *reply, const int *fds, unsigned count)
{
	if (reply->body_case == TIERD__WIRE__REPLY__BODY_JOB_OPEN) {
		unmap_all(actor);
		assert(count == 1);
		map(&actor->window, fds[0], PROT_READ | PROT_WRITE);
	}
	if (reply->body_case == TIERD__WIRE__REPLY__BODY_JOB_READY && count > 0) {
		assert(count == (reply->job_ready->cache_bytes > 0 ? 6 : 5));
		map(&actor->directory, fds[0], PROT_READ);
		map(&actor->arena, fds[1], PROT_READ);
		actor->cache_offset = reply->job_ready->cache_offset;
		if (count == 6)
			map(&actor->cache, fds[5], PROT_READ);
		map(&actor->leases, fds[2], PROT_READ | PROT_WRITE);
		map(&actor->gradients, fds[3], PROT_READ | PROT_WRITE);
	}
	if (reply->body_case == TIERD__WIRE__REPLY__BODY_READER_OPEN) {
		assert(count == 1);
		unmap(&actor->reader_window);
		map(&actor->reader_window, fds[0], PROT_READ | PROT_WRITE);
	}
	if (reply->body_case == TIERD__WIRE__REPLY__BODY__NOT_SET && count > 0) {
		assert(count == 1);
		unmap(&actor->statistics);
		map(&actor->statistics, fds[0], PROT_READ);
	}
}

/* A copy by packing: the daemon's is gone when the call returns. Allocates only inside protobuf-c. */
static Tierd__Wire__Reply *copy_of(const Tierd__Wire__Reply *reply)
{
	static uint8_t bytes[FRAME_MAX_BYTES];
	size_t length = tierd__wire__reply__get_packed_size(reply);

	assert(length <= sizeof(bytes));
	tierd__wire__reply__pack(reply, bytes);
	return tierd__wire__reply__unpack(NULL, length, bytes);
}

/* An error is the last answer, also of one that was to have none; that a step is reduced is none of its two.
 */
static void count_answer(struct actor *actor, uint32_t request, const Tierd__Wire__Reply *reply)
{
	struct asked *asked = &actor->asked[request % ACTOR_ANSWERS];

	if (asked->number != request || reply->body_case == TIERD__WIRE__REPLY__BODY_STEP_REDUCED)
		return;
	assert(asked->answers_left > 0 || reply->status->code != 0);
	asked->answers_left = reply->status->code != 0 ? 0 : asked->answers_left - 1;
}

static void record_reply(struct port *port, uint32_t request, const Tierd__Wire__Reply *reply, const int *fds,
			 unsigned fd_count)
{
	struct actor *actor = container_of(port, struct actor, port);
	struct answer *answer = &actor->answers[actor->answer_count % ACTOR_ANSWERS];

	assert(fd_count <= PORT_MAX_FDS && reply->status);
	if (answer->reply)
		tierd__wire__reply__free_unpacked(answer->reply, NULL);
	count_answer(actor, request, reply);
	*answer = (struct answer){ request, status_to_errno(reply->status->code), copy_of(reply) };
	assert(answer->reply);
	actor->answer_count++;
	take_memory(actor, reply, fds, fd_count);
}

static void record_happened(struct actor *actor, const Tierd__Wire__Event__Happened *event)
{
	struct happened *happened = &actor->happened[actor->happened_count++ % ACTOR_EVENTS];

	assert(event->event && event->text[0] && event->time_ns > 0);
	snprintf(happened->event, sizeof(happened->event), "%s", event->event);
	snprintf(happened->job, sizeof(happened->job), "%s", event->job);
	snprintf(happened->text, sizeof(happened->text), "%s", event->text);
	happened->step = event->step;
}

static void record_event(struct port *port, const Tierd__Wire__Event *event)
{
	struct actor *actor = container_of(port, struct actor, port);

	if (event->body_case == TIERD__WIRE__EVENT__BODY_HAPPENED) {
		record_happened(actor, event->happened);
	} else if (event->body_case == TIERD__WIRE__EVENT__BODY_LOST) {
		actor->lost_count += event->lost->count;
	} else {
		assert(event->body_case == TIERD__WIRE__EVENT__BODY_EPOCH_ENDED);
		actor->ended_epochs++;
		snprintf(actor->reason, sizeof(actor->reason), "%s", event->epoch_ended->reason->message);
	}
}

static void record_close(struct port *port, const char *reason)
{
	container_of(port, struct actor, port)->is_closed = true;
}

static bool has_room(const struct port *port)
{
	return !container_of(port, const struct actor, port)->is_slow;
}

static const struct port_ops recorder_ops = {
	.reply = record_reply, .event = record_event, .close = record_close, .has_room = has_room
};

/* ---- Actors ---- */

static void forget_answers(struct actor *actor)
{
	for (unsigned i = 0; i < ACTOR_ANSWERS; i++)
		if (actor->answers[i].reply)
			tierd__wire__reply__free_unpacked(actor->answers[i].reply, NULL);
	memset(actor->answers, 0, sizeof(actor->answers));
	actor->answer_count = 0;
}

int actor_enter(struct scene *scene, struct actor *actor)
{
	forget_answers(actor);
	*actor = (struct actor){ .scene = scene, .port = { &recorder_ops, geteuid(), getegid(), getpid() } };
	return client_new(scene->node, &actor->port, ACTOR_REQUESTS, &actor->client);
}

void actor_die(struct actor *actor)
{
	if (actor->client) {
		client_hang_up(actor->client, "its process died");
		actor->client = client_free(actor->client);
	}
	unmap_all(actor);
	forget_answers(actor);
}

static unsigned answers_to(const Tierd__Wire__Request *request)
{
	if (request->body_case == TIERD__WIRE__REQUEST__BODY_STEP)
		return 2;
	return request->body_case != TIERD__WIRE__REQUEST__BODY_PUSH || !request->push->is_silent;
}

unsigned actor_outstanding(const struct actor *actor)
{
	unsigned count = 0;

	for (unsigned i = 0; i < ACTOR_ANSWERS; i++)
		count += actor->asked[i].answers_left > 0;
	return count;
}

uint32_t actor_send(struct actor *actor, Tierd__Wire__Request *request)
{
	uint32_t number = ++actor->last_number;

	actor->asked[number % ACTOR_ANSWERS] = (struct asked){ number, answers_to(request) };
	client_request(actor->client, number, request);
	return actor->last_number;
}

const struct answer *actor_find(const struct actor *actor, uint32_t number, unsigned nth)
{
	for (unsigned i = 0; i < actor->answer_count && i < ACTOR_ANSWERS; i++)
		if (actor->answers[i].number == number && nth-- == 0)
			return &actor->answers[i];
	return NULL;
}

const struct answer *actor_await(struct actor *actor, uint32_t number, unsigned nth)
{
	const struct answer *answer;

	while (!(answer = actor_find(actor, number, nth)))
		scene_wait(actor->scene);
	return answer;
}

int actor_ask(struct actor *actor, Tierd__Wire__Request *request, const Tierd__Wire__Reply **ret_reply)
{
	const struct answer *answer = actor_await(actor, actor_send(actor, request), 0);

	if (ret_reply)
		*ret_reply = answer->reply;
	return answer->status;
}

const char *actor_message(const struct actor *actor)
{
	return actor->answers[(actor->answer_count - 1) % ACTOR_ANSWERS].reply->status->message;
}

/* ---- The requests of a training ---- */

int actor_open(struct actor *actor, const struct actor_job *job)
{
	Tierd__Wire__Request request = TIERD__WIRE__REQUEST__INIT;
	Tierd__Wire__JobOpen open = TIERD__WIRE__JOB_OPEN__INIT;
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
	open.parameter_placement = job->parameter_placement;
	open.optimizer_placement = job->optimizer_placement;
	open.durability = job->durability;
	open.gradient_placement = job->gradient_placement;
	open.optimizer = job->optimizer;
	open.clip_norm = job->clip_norm;
	open.strict = job->is_strict;
	open.takeover = job->is_takeover;
	open.is_reconnect = job->is_reconnect;
	request.body_case = TIERD__WIRE__REQUEST__BODY_JOB_OPEN;
	request.job_open = &open;
	r = actor_ask(actor, &request, &reply);
	if (r == 0) {
		actor->job = reply->job_open->job;
		actor->step = reply->job_open->step;
	}
	return r;
}

int actor_define(struct actor *actor, const char *name, const struct actor_tensor *tensors, size_t count)
{
	Tierd__Wire__Request request = TIERD__WIRE__REQUEST__INIT;
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
		shapes[i] = tensors[i].elements;
		wire[i].n_shape = 1;
		wire[i].shape = &shapes[i];
		pointers[i] = &wire[i];
	}
	define.job = actor->job;
	define.name = (char *)name;
	define.n_tensors = count;
	define.tensors = pointers;
	request.body_case = TIERD__WIRE__REQUEST__BODY_UNIT_DEFINE;
	request.unit_define = &define;
	return actor_ask(actor, &request, NULL);
}

int actor_define_units(struct actor *actor, unsigned count, uint64_t elements)
{
	int r = 0;

	for (unsigned i = 0; i < count && r == 0; i++) {
		char name[16];
		const struct actor_tensor tensor = { name, FORMAT_BF16, INITIALIZE_ONES, elements, false };

		snprintf(name, sizeof(name), "u%u", i);
		r = actor_define(actor, name, &tensor, 1);
	}
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
	return job_find(scene->node, geteuid(), "play");
}

uint32_t actor_send_ready(struct actor *actor, int timeout_ms)
{
	Tierd__Wire__Request request = TIERD__WIRE__REQUEST__INIT;
	Tierd__Wire__JobReady ready = TIERD__WIRE__JOB_READY__INIT;

	ready.job = actor->job;
	ready.timeout_ms = timeout_ms;
	request.body_case = TIERD__WIRE__REQUEST__BODY_JOB_READY;
	request.job_ready = &ready;
	return actor_send(actor, &request);
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
	actor->unit_count = ready->unit_count;
	actor->buffer_count = ready->gradient_buffers;
	actor->buffer_bytes = ready->gradient_buffer_bytes;
	return 0;
}

int actor_ready(struct actor *actor)
{
	return actor_finish_ready(actor, actor_send_ready(actor, -1));
}

uint32_t actor_send_gather(struct actor *actor, uint32_t unit, uint64_t version, bool is_blocking)
{
	Tierd__Wire__Request request = TIERD__WIRE__REQUEST__INIT;
	Tierd__Wire__Gather gather = TIERD__WIRE__GATHER__INIT;

	gather.job = actor->job;
	gather.epoch = actor->epoch;
	gather.unit = unit;
	gather.version = version;
	gather.is_blocking = is_blocking;
	request.body_case = TIERD__WIRE__REQUEST__BODY_GATHER;
	request.gather = &gather;
	return actor_send(actor, &request);
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
	return directory_units((struct directory_header *)actor->directory.base)[unit]
		.section_offsets[section];
}

void actor_fill(struct actor *actor, uint32_t format, uint64_t count, float value)
{
	for (uint64_t i = 0; i < count; i++)
		if (format == FORMAT_BF16)
			((uint16_t *)actor->gradients.base)[i] = bfloat16_from_float(value);
		else
			((float *)actor->gradients.base)[i] = value;
}

uint32_t actor_send_push(struct actor *actor, uint32_t unit, uint32_t buffer)
{
	Tierd__Wire__Request request = TIERD__WIRE__REQUEST__INIT;
	Tierd__Wire__Push push = TIERD__WIRE__PUSH__INIT;

	push.job = actor->job;
	push.epoch = actor->epoch;
	push.unit = unit;
	push.buffer = buffer;
	request.body_case = TIERD__WIRE__REQUEST__BODY_PUSH;
	request.push = &push;
	return actor_send(actor, &request);
}

uint32_t actor_send_step(struct actor *actor, float learning_rate)
{
	Tierd__Wire__Request request = TIERD__WIRE__REQUEST__INIT;
	Tierd__Wire__Step step = TIERD__WIRE__STEP__INIT;
	Tierd__Wire__Rates rates = TIERD__WIRE__RATES__INIT;

	rates.learning_rate = learning_rate;
	rates.gradient_scale = rates.loss_scale = 1.0f;
	step.job = actor->job;
	step.epoch = actor->epoch;
	step.rates = &rates;
	request.body_case = TIERD__WIRE__REQUEST__BODY_STEP;
	request.step = &step;
	return actor_send(actor, &request);
}

int actor_finish(struct actor *actor)
{
	Tierd__Wire__Request request = TIERD__WIRE__REQUEST__INIT;
	Tierd__Wire__StepFinish finish = TIERD__WIRE__STEP_FINISH__INIT;

	finish.job = actor->job;
	finish.epoch = actor->epoch;
	request.body_case = TIERD__WIRE__REQUEST__BODY_STEP_FINISH;
	request.step_finish = &finish;
	return actor_ask(actor, &request, NULL);
}

static uint32_t send_write(struct actor *actor, const Tierd__Wire__TensorWrite *what)
{
	Tierd__Wire__Request request = TIERD__WIRE__REQUEST__INIT;
	Tierd__Wire__TensorWrite write = *what;

	write.job = actor->job;
	request.body_case = TIERD__WIRE__REQUEST__BODY_TENSOR_WRITE;
	request.tensor_write = &write;
	return actor_send(actor, &request);
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
	Tierd__Wire__TensorWrite write = TIERD__WIRE__TENSOR_WRITE__INIT;

	write.tensor = tensor;
	write.state = (char *)state;
	write.step = step;
	write.first = first;
	write.count = count;
	return send_write(actor, &write);
}

int actor_read(struct actor *actor, uint32_t unit, uint32_t tensor, const char *state, uint64_t first,
	       uint64_t count, uint64_t version)
{
	Tierd__Wire__Request request = TIERD__WIRE__REQUEST__INIT;
	Tierd__Wire__TensorRead read = TIERD__WIRE__TENSOR_READ__INIT;

	read.job = actor->job;
	read.unit = unit;
	read.tensor = tensor;
	read.state = (char *)state;
	read.first = first;
	read.count = count;
	read.version = version;
	request.body_case = TIERD__WIRE__REQUEST__BODY_TENSOR_READ;
	request.tensor_read = &read;
	return actor_ask(actor, &request, NULL);
}

int actor_set_blob(struct actor *actor, const char *key, uint64_t size, char fill)
{
	Tierd__Wire__Request request = TIERD__WIRE__REQUEST__INIT;
	Tierd__Wire__BlobWrite write = TIERD__WIRE__BLOB_WRITE__INIT;
	int r;

	write.job = actor->job;
	write.epoch = actor->epoch;
	write.key = (char *)key;
	write.size = size;
	request.body_case = TIERD__WIRE__REQUEST__BODY_BLOB_WRITE;
	request.blob_write = &write;
	do {
		write.count = size - write.offset < WIRE_BLOB_PIECE ? (uint32_t)(size - write.offset)
								    : WIRE_BLOB_PIECE;
		memset(actor->window.base, fill, write.count);
		r = actor_ask(actor, &request, NULL);
		write.offset += write.count;
	} while (r == 0 && write.offset < size);
	return r;
}

int actor_get_blob(struct actor *actor, const char *key, uint64_t offset, Tierd__Wire__BlobReply *ret_blob)
{
	Tierd__Wire__Request request = TIERD__WIRE__REQUEST__INIT;
	Tierd__Wire__BlobRead read = TIERD__WIRE__BLOB_READ__INIT;
	const Tierd__Wire__Reply *reply;
	int r;

	read.job = actor->job;
	read.key = (char *)key;
	read.offset = offset;
	read.count = WIRE_BLOB_PIECE;
	request.body_case = TIERD__WIRE__REQUEST__BODY_BLOB_READ;
	request.blob_read = &read;
	r = actor_ask(actor, &request, &reply);
	if (r == 0)
		*ret_blob = *reply->blob;
	return r;
}

uint32_t actor_send_leave(struct actor *actor, bool is_at_once)
{
	Tierd__Wire__Request request = TIERD__WIRE__REQUEST__INIT;
	Tierd__Wire__JobLeave leave = TIERD__WIRE__JOB_LEAVE__INIT;

	leave.job = actor->job;
	leave.at_once = is_at_once;
	request.body_case = TIERD__WIRE__REQUEST__BODY_JOB_LEAVE;
	request.job_leave = &leave;
	return actor_send(actor, &request);
}

/* ---- Readers ---- */

uint32_t actor_send_open_reader(struct actor *actor, const char *job)
{
	Tierd__Wire__Request request = TIERD__WIRE__REQUEST__INIT;
	Tierd__Wire__ReaderOpen open = TIERD__WIRE__READER_OPEN__INIT;

	open.name = (char *)job;
	request.body_case = TIERD__WIRE__REQUEST__BODY_READER_OPEN;
	request.reader_open = &open;
	return actor_send(actor, &request);
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
	Tierd__Wire__Request request = TIERD__WIRE__REQUEST__INIT;
	Tierd__Wire__ReaderRefresh refresh = TIERD__WIRE__READER_REFRESH__INIT;
	Tierd__Wire__ReaderPiece *pointers[64];

	assert(count <= ARRAY_LENGTH(pointers));
	for (size_t i = 0; i < count; i++)
		pointers[i] = (Tierd__Wire__ReaderPiece *)&pieces[i];
	refresh.reader = reader;
	refresh.has_pieces = pieces != NULL;
	refresh.pieces = pointers;
	refresh.n_pieces = count;
	request.body_case = TIERD__WIRE__REQUEST__BODY_READER_REFRESH;
	request.reader_refresh = &refresh;
	return actor_send(actor, &request);
}

uint32_t actor_send_reader_read(struct actor *actor, uint32_t reader, const Tierd__Wire__ReaderRead *read)
{
	Tierd__Wire__Request request = TIERD__WIRE__REQUEST__INIT;
	Tierd__Wire__ReaderRead own = *read;

	own.reader = reader;
	request.body_case = TIERD__WIRE__REQUEST__BODY_READER_READ;
	request.reader_read = &own;
	return actor_send(actor, &request);
}

uint32_t actor_send_close_reader(struct actor *actor, uint32_t reader)
{
	Tierd__Wire__Request request = TIERD__WIRE__REQUEST__INIT;
	Tierd__Wire__ReaderClose close = TIERD__WIRE__READER_CLOSE__INIT;

	close.reader = reader;
	request.body_case = TIERD__WIRE__REQUEST__BODY_READER_CLOSE;
	request.reader_close = &close;
	return actor_send(actor, &request);
}
