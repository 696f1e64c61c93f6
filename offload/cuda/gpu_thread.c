/* The thread of a GPU engine.
 *
 * It looks whether pieces have ended, instead of being told by host functions: those hold up the stream that
 * they are in, and do not run if the GPU fails. It looks soon after something was asked, and then less and
 * less often; but often enough that the pieces on their way do not all end unnoticed. */
#include <assert.h>
#include <signal.h>
#include <stdio.h>
#include <sys/prctl.h>

#include "common/clock.h"
#include "offload/cuda/gpu_private.h"

#define FIRST_LOOK_NS 20000
#define PIECES_LOOK_NS 250000 /* four pieces take twice as long on the fastest PCIe */
#define EVENTS_LOOK_NS 1000000

/* With the lock held. */
static void take_submitted(struct gpu_engine *engine)
{
	struct queue *link;

	while ((link = queue_pop(&engine->submitted))) {
		struct gpu_request *request = queue_entry(link, struct gpu_request, link);

		if (request->take)
			request->take(engine, request);
		else
			queue_push(&engine->tasks, &request->link);
	}
}

/* One, or a part of one, so that copies do not wait long. */
static void run_task(struct gpu_engine *engine)
{
	struct queue *link = queue_first(&engine->tasks);
	struct gpu_request *request;
	int r;

	if (!link)
		return;
	request = queue_entry(link, struct gpu_request, link);
	r = request->run(engine, request);
	if (r == GPU_AGAIN)
		return;
	queue_remove(link);
	gpu_finish(engine, request, r);
}

static bool is_idle(const struct gpu_engine *engine)
{
	return queue_is_empty(&engine->tasks) && queue_is_empty(&engine->copies) &&
	       !gpu_programs_wait(engine) && !gpu_programs_run(engine);
}

/* With the lock held. Whoever submits wakes it up. */
static void pause_for(struct gpu_engine *engine, uint64_t look_ns)
{
	uint64_t until_ns = clock_now_ns() + look_ns;
	struct timespec until = { .tv_sec = (time_t)(until_ns / 1000000000),
				  .tv_nsec = (long)(until_ns % 1000000000) };

	if (is_idle(engine))
		pthread_cond_wait(&engine->is_wanted, &engine->lock);
	else
		pthread_cond_timedwait(&engine->is_wanted, &engine->lock, &until);
}

static uint64_t next_look(const struct gpu_engine *engine, uint64_t look_ns)
{
	uint64_t most = EVENTS_LOOK_NS;

	for (int direction = 0; direction < GPU_DIRECTIONS; direction++)
		if (engine->lanes[direction].count > 0)
			most = PIECES_LOOK_NS;
	if (gpu_programs_run(engine))
		most = PIECES_LOOK_NS;
	return look_ns * 2 < most ? look_ns * 2 : most;
}

static void serve(struct gpu_engine *engine)
{
	uint64_t look_ns = FIRST_LOOK_NS;

	pthread_mutex_lock(&engine->lock);
	while (!engine->is_closing) {
		bool has_new = !queue_is_empty(&engine->submitted) || engine->has_changes;

		take_submitted(engine);
		engine->has_changes = false;
		pthread_mutex_unlock(&engine->lock);
		atomic_store(&engine->at_work_since_ns, clock_now_ns());
		if (has_new) {
			gpu_copies_attend(engine);
			gpu_programs_attend(engine);
		}
		run_task(engine);
		gpu_copies_advance(engine);
		gpu_programs_advance(engine);
		look_ns = has_new ? FIRST_LOOK_NS : next_look(engine, look_ns);
		atomic_store(&engine->at_work_since_ns, 0);
		pthread_mutex_lock(&engine->lock);
		if (queue_is_empty(&engine->submitted) && !engine->has_changes && !engine->is_closing &&
		    queue_is_empty(&engine->tasks))
			pause_for(engine, look_ns);
	}
	pthread_mutex_unlock(&engine->lock);
	assert(is_idle(engine));
}

uint64_t gpu_contexts(const struct gpu_engine *engine)
{
	uint64_t found = 0;
	unsigned flags;
	int is_there;

	for (int device = 0; device < GPUS_MAX; device++)
		if (engine->driver.context_state(device, &flags, &is_there) == DRIVER_DONE && is_there)
			found |= UINT64_C(1) << device;
	return found;
}

static int enter(struct gpu_engine *engine, struct gpu_problem *problem)
{
	const struct driver *driver = &engine->driver;
	int r = gpu_check(engine, "cuDevicePrimaryCtxSetFlags",
			  driver->context_flags(engine->device, DRIVER_SLEEP_IN_CALLS), problem);

	if (r < 0)
		return r;
	r = gpu_check(engine, "cuDevicePrimaryCtxRetain",
		      driver->context_retain(&engine->driver_context, engine->device), problem);
	if (r < 0)
		return r;
	r = gpu_check(engine, "cuCtxSetCurrent", driver->context_enter(engine->driver_context), problem);
	engine->has_entered = r == 0;
	if (r == 0)
		r = gpu_lanes_open(engine, problem);
	if (r < 0)
		(void)driver->context_release(engine->device);
	return r;
}

/* What the thread says when it has entered. */
struct entry {
	struct gpu_engine *engine;
	struct gpu_problem *problem;
	bool is_known;
	int status;
};

static void *work(void *argument)
{
	struct entry *entry = argument;
	struct gpu_engine *engine = entry->engine;
	int r;

	/* A look that is 50 us late, as it is by default, would be no use. */
	prctl(PR_SET_TIMERSLACK, 1000UL);
	r = enter(engine, entry->problem);
	pthread_mutex_lock(&engine->lock);
	entry->status = r;
	entry->is_known = true;
	pthread_cond_signal(&engine->is_wanted);
	pthread_mutex_unlock(&engine->lock);
	if (r < 0)
		return NULL;
	serve(engine);
	gpu_lanes_close(engine);
	gpu_pins_close(engine);
	(void)engine->driver.context_release(engine->device);
	gpu_pins_forget(engine);
	gpu_memory_forget(engine);
	return NULL;
}

/* Signals stay blocked in the thread: they are the loop's. */
int gpu_thread_start(struct gpu_engine *engine, struct gpu_problem *problem)
{
	struct entry entry = { .engine = engine, .problem = problem };
	char name[16];
	sigset_t all, previous;
	int r;

	sigfillset(&all);
	pthread_sigmask(SIG_BLOCK, &all, &previous);
	r = pthread_create(&engine->thread, NULL, work, &entry);
	pthread_sigmask(SIG_SETMASK, &previous, NULL);
	if (r != 0)
		return -r;
	snprintf(name, sizeof(name), "gpu-%d", engine->device);
	pthread_setname_np(engine->thread, name);
	pthread_mutex_lock(&engine->lock);
	while (!entry.is_known)
		pthread_cond_wait(&engine->is_wanted, &engine->lock);
	pthread_mutex_unlock(&engine->lock);
	if (entry.status < 0)
		pthread_join(engine->thread, NULL);
	return entry.status;
}
