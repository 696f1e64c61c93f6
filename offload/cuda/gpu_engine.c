#include "offload/cuda/gpu_engine.h"

#include <assert.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>

#include "offload/cuda/gpu_private.h"

static void tell(const struct gpu_engine *engine)
{
	(void)!write(engine->fd, &(uint64_t){ 1 }, sizeof(uint64_t));
}

void gpu_finish(struct gpu_engine *engine, struct gpu_request *request, int status)
{
	request->status = status;
	pthread_mutex_lock(&engine->lock);
	queue_push(&engine->finished, &request->link);
	tell(engine);
	pthread_mutex_unlock(&engine->lock);
}

void gpu_tell_recorded(struct gpu_engine *engine, struct gpu_copy *copy)
{
	pthread_mutex_lock(&engine->lock);
	queue_push(&engine->recorded, &copy->recorded_link);
	tell(engine);
	pthread_mutex_unlock(&engine->lock);
}

static void submit(struct gpu_engine *engine, struct gpu_request *request)
{
	assert(request->done);
	request->problem.text[0] = '\0';
	pthread_mutex_lock(&engine->lock);
	queue_push(&engine->submitted, &request->link);
	pthread_cond_signal(&engine->is_wanted);
	pthread_mutex_unlock(&engine->lock);
}

void gpu_submit(struct gpu_engine *engine, struct gpu_request *request,
		int (*run)(struct gpu_engine *engine, struct gpu_request *request))
{
	request->run = run;
	request->take = NULL;
	submit(engine, request);
}

void gpu_hand_over(struct gpu_engine *engine, struct gpu_request *request,
		   void (*take)(struct gpu_engine *engine, struct gpu_request *request))
{
	request->take = take;
	submit(engine, request);
}

void gpu_change(struct gpu_engine *engine)
{
	pthread_mutex_lock(&engine->lock);
	engine->has_changes = true;
	pthread_cond_signal(&engine->is_wanted);
	pthread_mutex_unlock(&engine->lock);
}

static void find_peers(struct gpu_engine *engine, unsigned count)
{
	for (unsigned gpu = 0; gpu < count; gpu++) {
		int reaches = 0, is_reached = 0;

		if (engine->driver.device_reaches(&reaches, engine->device, (int)gpu) == DRIVER_DONE &&
		    engine->driver.device_reaches(&is_reached, (int)gpu, engine->device) == DRIVER_DONE &&
		    reaches && is_reached)
			engine->peers |= UINT64_C(1) << gpu;
	}
	engine->peers |= UINT64_C(1) << engine->device;
}

static int refuse(struct gpu_problem *problem, int r, const char *format, ...)
	__attribute__((format(printf, 3, 4)));
static int refuse(struct gpu_problem *problem, int r, const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(problem->text, sizeof(problem->text), format, arguments);
	va_end(arguments);
	return r;
}

/* Whether there is such a GPU, and one that we can use. */
static int choose(const struct gpu_engine_config *config, struct gpu_problem *problem)
{
	const struct gpus *gpus = config->gpus;
	const struct gpu *gpu = gpus->gpus + config->gpu;

	if (!gpus->driver.is_found)
		return refuse(problem, -ENODEV, "there is no GPU driver: %.200s", gpus->driver.problem);
	if (config->gpu >= gpus->count)
		return refuse(problem, -ENODEV, "there is no GPU %u: the driver shows %u", config->gpu,
			      gpus->count);
	if (gpu->is_prohibited)
		return refuse(problem, -EACCES,
			      "GPU %u (%s) lets nobody use it: nvidia-smi --compute-mode=0 changes that",
			      config->gpu, gpu->name);
	if (!gpu->shares_memory)
		return refuse(problem, -EOPNOTSUPP,
			      "GPU %u (%s): processes cannot share its memory by descriptor", config->gpu,
			      gpu->name);
	return 0;
}

static void init(struct gpu_engine *engine, const struct gpu_engine_config *config)
{
	pthread_condattr_t attributes;

	engine->device = (int)config->gpu;
	snprintf(engine->name, sizeof(engine->name), "GPU %u (%s)", config->gpu,
		 config->gpus->gpus[config->gpu].name);
	gpu_engine_hurry(engine, config->patience_ms ? config->patience_ms : GPU_PATIENCE_MS);
	engine->failed = config->failed;
	engine->context = config->context;
	pthread_mutex_init(&engine->lock, NULL);
	pthread_condattr_init(&attributes);
	pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
	pthread_cond_init(&engine->is_wanted, &attributes);
	pthread_condattr_destroy(&attributes);
	queue_init(&engine->submitted);
	queue_init(&engine->finished);
	queue_init(&engine->recorded);
	queue_init(&engine->tasks);
	queue_init(&engine->copies);
	for (int direction = 0; direction < GPU_DIRECTIONS; direction++) {
		struct gpu_lane *lane = &engine->lanes[direction];

		queue_init(&lane->held);
		for (int priority = 0; priority < TIER_PRIORITIES; priority++)
			queue_init(&lane->waiting[priority]);
	}
	for (unsigned stream = 0; stream < GPU_STREAMS; stream++) {
		queue_init(&engine->tracks[stream].running);
		queue_init(&engine->tracks[stream].waiting);
	}
}

static void destroy(struct gpu_engine *engine)
{
	fd_close(engine->fd);
	pthread_cond_destroy(&engine->is_wanted);
	pthread_mutex_destroy(&engine->lock);
	free(engine);
}

static int open_engine(struct gpu_engine *engine, unsigned count, struct gpu_problem *problem)
{
	struct dynamic_library library = { 0 };

	engine->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (engine->fd < 0)
		return -errno;
	if (!driver_open(&engine->driver, &library))
		return refuse(problem, -ENODEV, "there is no GPU driver: %.200s", library.problem);
	find_peers(engine, count);
	return gpu_thread_start(engine, problem);
}

int gpu_engine_new(const struct gpu_engine_config *config, struct gpu_problem *ret_problem,
		   struct gpu_engine **ret_engine)
{
	struct gpu_engine *engine;
	int r = choose(config, ret_problem);

	if (r < 0)
		return r;
	engine = calloc(1, sizeof(*engine));
	if (!engine)
		return refuse(ret_problem, -ENOMEM, "there is no host memory for a GPU engine");
	init(engine, config);
	ret_problem->text[0] = '\0';
	r = open_engine(engine, config->gpus->count, ret_problem);
	if (r < 0 && !ret_problem->text[0])
		(void)refuse(ret_problem, r, "%s: %s", engine->name, strerror(-r));
	if (r < 0) {
		destroy(engine);
		return r;
	}
	*ret_engine = engine;
	return 0;
}

struct gpu_engine *gpu_engine_free(struct gpu_engine *engine)
{
	if (!engine)
		return NULL;
	pthread_mutex_lock(&engine->lock);
	assert(queue_is_empty(&engine->submitted) && queue_is_empty(&engine->finished));
	engine->is_closing = true;
	pthread_cond_signal(&engine->is_wanted);
	pthread_mutex_unlock(&engine->lock);
	pthread_join(engine->thread, NULL);
	destroy(engine);
	return NULL;
}

const char *gpu_engine_name(const struct gpu_engine *engine)
{
	return engine->name;
}

bool gpu_engine_reaches(const struct gpu_engine *engine, unsigned gpu)
{
	return gpu < GPUS_MAX && engine->peers >> gpu & 1;
}

int gpu_engine_fd(const struct gpu_engine *engine)
{
	return engine->fd;
}

struct gpu_traffic gpu_engine_traffic(struct gpu_engine *engine, enum gpu_direction direction)
{
	struct gpu_traffic traffic;

	pthread_mutex_lock(&engine->lock);
	traffic = engine->traffic[direction];
	pthread_mutex_unlock(&engine->lock);
	return traffic;
}

static void move_all(struct queue *from, struct queue *to)
{
	struct queue *link;

	queue_init(to);
	while ((link = queue_pop(from)))
		queue_push(to, link);
}

void gpu_engine_reap(struct gpu_engine *engine)
{
	struct queue finished, recorded, *link;
	bool is_failure_new;
	uint64_t ignored;

	pthread_mutex_lock(&engine->lock);
	(void)!read(engine->fd, &ignored, sizeof(ignored));
	move_all(&engine->recorded, &recorded);
	move_all(&engine->finished, &finished);
	is_failure_new = engine->is_failure_new;
	engine->is_failure_new = false;
	pthread_mutex_unlock(&engine->lock);

	if (is_failure_new && engine->failed)
		engine->failed(engine->context, engine->loss.text);
	while ((link = queue_pop(&recorded))) {
		struct gpu_copy *copy = queue_entry(link, struct gpu_copy, recorded_link);

		copy->recorded(copy);
	}
	while ((link = queue_pop(&finished))) {
		struct gpu_request *request = queue_entry(link, struct gpu_request, link);

		request->done(request, request->status);
	}
}
