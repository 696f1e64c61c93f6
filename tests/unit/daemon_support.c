#include "daemon/durability/listing.h"
#include "daemon/life/life.h"
#include "daemon/life/own.h"
#include "daemon/model/job.h"
#include "daemon/recovery/recovery.h"
#include "daemon/residency/residency.h"
#include "daemon/resources/loop.h"
#include "daemon/resources/own.h"
#include "daemon/scrub/scrub.h"
#include "daemon/resources/staging.h"
#include "daemon/service/node_parts.h"
#include "tests/unit/daemon_support.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- Scene ---- */

/* A node that gave up at its end would end the process, as if all of its tests had passed. */
static const struct node_parts *patient_parts(void)
{
	static struct node_parts parts;

	parts = node_parts;
	parts.give_up = NULL;
	return &parts;
}

/* With as little as that the node has no staging buffer to read ahead to. */
static uint64_t find_budget(const struct scene_options *options)
{
	if (options->reads_nothing_ahead)
		return 160 * MIB;
	return options->host_budget ? options->host_budget : 256 * MIB;
}

static int make_node(const struct scene_options *options, struct scene *scene)
{
	struct node_config config = {
		.settings = NODE_SETTINGS_INIT,
		.workers = 2,
		.queue_depth = 16,
		.background_bytes = options->background_bytes,
		.is_plain_io = options->is_plain_io,
		.path_count = options->is_without_nvme ? 0 : 1,
		.fault = options->fault,
		.state_directory = scene->folder,
	};
	int r;

	config.settings.host_budget = find_budget(options);
	config.paths[0].path = scene->folder;
	config.paths[0].capacity = options->capacity ? options->capacity : 256 * MIB;
	scene->loop = loop_new();
	if (!scene->loop)
		return -ENOMEM;
	r = node_new(scene->loop, &config, patient_parts(), &scene->node);
	assert(r < 0 || !options->reads_nothing_ahead || scene->node->staging->count == STAGING_LEAST);
	return r;
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
	int r = make_node(options, scene);

	if (r == 0)
		listing_settle(scene->node);
	return r;
}

static void end_node(struct scene *scene)
{
	assert(!scene->node || scene->node->life->mistakes == 0);
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
	if (scene->blockade)
		blockade_end(scene->blockade);
	scene_hear_of_devices(scene);
	while (scene->actors)
		actor_die(scene->actors);
	end_node(scene);
	if (scene->folder[0])
		nftw(scene->folder, remove_entry, 8, FTW_DEPTH | FTW_PHYS);
}

void scene_wait(struct scene *scene)
{
	event_base_loop(scene->loop, EVLOOP_ONCE);
}

static int find_device(const struct event_base *loop, const struct event *event, void *argument)
{
	struct scene *scene = argument;

	if (event_get_fd(event) == engine_fd(scene->node->engine))
		scene->device = (struct event *)event;
	return 0;
}

void scene_hear_nothing_of_devices(struct scene *scene)
{
	event_base_foreach_event(scene->loop, find_device, scene);
	event_del(scene->device);
}

void scene_hear_of_devices(struct scene *scene)
{
	if (scene->device)
		event_add(scene->device, NULL);
}

static bool is_quiet(const struct scene *scene)
{
	QUEUE_FOREACH (link, &scene->node->jobs.live) {
		const struct job *job = queue_entry(link, struct job, link);

		if (!job_is_still(job) || !scrub_is_quiet(job))
			return false;
	}
	return queue_is_empty(&scene->node->jobs.dying) && !recovery_is_under_way(scene->node);
}

void scene_settle(struct scene *scene)
{
	event_base_loop(scene->loop, EVLOOP_NONBLOCK);
	while (!is_quiet(scene))
		scene_wait(scene);
}

uint64_t promised_bytes(const struct job *job)
{
	return budget_host_bytes(job) - budget_cache_bytes(job);
}

void scene_await_disposals(struct scene *scene)
{
	while (scene->node->resources->works > 0)
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
	scene->blockade = blockade;
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

void blockade_begin_for_pages(struct scene *scene, const struct job *job, struct blockade *blockade)
{
	while (!arena_share(job).directory->base)
		scene_wait(scene);
	blockade_begin(scene, scene->node->slow_workers, blockade);
}

void blockade_end(struct blockade *blockade)
{
	if (blockade->done == blockade->count)
		return;
	for (unsigned i = 0; i < blockade->count; i++)
		sem_post(&blockade->end);
	while (blockade->done < blockade->count)
		scene_wait(blockade->scene);
	blockade->scene->blockade = NULL;
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

static void forget_file(struct actor *actor)
{
	if (actor->reader_file > 0)
		close(actor->reader_file);
	actor->reader_file = 0;
}

static bool is_empty(int fd)
{
	struct stat status;

	return fstat(fd, &status) == 0 && status.st_size == 0;
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
	unmap(&actor->gpu_directory);
	unmap(&actor->gpu_leases);
	if (actor->gpu_memory > 0)
		close(actor->gpu_memory);
	if (actor->gpu_gradients > 0)
		close(actor->gpu_gradients);
	actor->gpu_memory = actor->gpu_gradients = 0;
	forget_file(actor);
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
	if (reply->body_case == TIERD__WIRE__REPLY__BODY_GPU_ATTACH) {
		assert(count == 3);
		map(&actor->gpu_directory, fds[0], PROT_READ);
		map(&actor->gpu_leases, fds[1], PROT_READ | PROT_WRITE);
		actor->gpu_memory = fcntl(fds[2], F_DUPFD_CLOEXEC, 3);
	}
	if (reply->body_case == TIERD__WIRE__REPLY__BODY_GPU_GRADIENTS) {
		assert(count == 1);
		if (actor->gpu_gradients > 0)
			close(actor->gpu_gradients);
		actor->gpu_gradients = fcntl(fds[0], F_DUPFD_CLOEXEC, 3);
	}
	if (reply->body_case == TIERD__WIRE__REPLY__BODY_READER_OPEN) {
		assert(count == 1);
		unmap(&actor->reader_window);
		map(&actor->reader_window, fds[0], PROT_READ | PROT_WRITE);
	}
	if (reply->body_case == TIERD__WIRE__REPLY__BODY__NOT_SET && count > 0 && is_empty(fds[0])) {
		assert(count == 1);
		forget_file(actor);
		actor->reader_file = fcntl(fds[0], F_DUPFD_CLOEXEC, 3);
	} else if (reply->body_case == TIERD__WIRE__REPLY__BODY__NOT_SET && count > 0) {
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
	int r;

	forget_answers(actor);
	*actor = (struct actor){ .scene = scene, .port = { &recorder_ops, geteuid(), getegid(), getpid() } };
	r = client_new(scene->node, &actor->port, ACTOR_REQUESTS, &actor->client);
	if (r < 0)
		return r;
	actor->next = scene->actors;
	scene->actors = actor;
	return 0;
}

static void exit_scene(struct actor *actor)
{
	struct actor **link = &actor->scene->actors;

	while (*link != actor)
		link = &(*link)->next;
	*link = actor->next;
}

void actor_die(struct actor *actor)
{
	/* The kernel tells of its death when it has no memory any more. */
	unmap_all(actor);
	if (actor->client) {
		exit_scene(actor);
		client_hang_up(actor->client, "its process died");
		actor->client = client_free(actor->client);
	}
	forget_answers(actor);
}

static unsigned answers_to(const Tierd__Wire__Request *request)
{
	if (request->body_case == TIERD__WIRE__REQUEST__BODY_STEP ||
	    request->body_case == TIERD__WIRE__REQUEST__BODY_WRITE_BEGIN)
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
