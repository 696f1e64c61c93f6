/* Looks at the sensors of the GPUs that are in use. NVML may block, also for long where a GPU is about to be
 * lost, so a worker asks it. It is open only while a GPU is in use: an administrator may have plans for GPUs
 * that nobody uses. */
#include <event2/event.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/gpu/own.h"

#define INTERVAL_S 2

enum nvml_state { NVML_CLOSED, NVML_OPEN, NVML_ABSENT };

struct gpu_sensing {
	struct node *node;
	struct event *timer;
	bool has_told; /* what fails, since it is open */

	/* Lent to the worker while it looks. */
	struct work work;
	bool is_looking;
	enum nvml_state state;
	struct nvml nvml;
	uint64_t wanted; /* a bit for each GPU; 0: NVML is to be closed */
	struct gpu_sensors seen[GPUS_MAX];
	char problem[GPU_PROBLEM_TEXT]; /* "": none */
};

/* ---- On the worker ---- */

static void open_nvml(struct gpu_sensing *sensing)
{
	struct dynamic_library library = { 0 };

	gpu_helper_begin(&sensing->node->gpu->nvml, "NVML's start", -1);
	sensing->state = nvml_open(&sensing->nvml, &library) ? NVML_OPEN : NVML_ABSENT;
	if (sensing->state == NVML_ABSENT)
		snprintf(sensing->problem, sizeof(sensing->problem), "there is no NVML: %s", library.problem);
}

static void close_nvml(struct gpu_sensing *sensing)
{
	gpu_helper_begin(&sensing->node->gpu->nvml, "NVML's end", -1);
	if (sensing->state == NVML_OPEN)
		nvml_close(&sensing->nvml);
	sensing->state = NVML_CLOSED;
}

static void read_gpu(struct gpu_sensing *sensing, unsigned number)
{
	const struct gpu *gpu = &sensing->node->gpu->gpus.gpus[number];
	struct gpu_sensors_problem problem;

	gpu_helper_begin(&sensing->node->gpu->nvml, "NVML's look at sensors", (int)number);
	if (!gpu_sensors_read(&sensing->nvml, gpu, &sensing->seen[number], &problem))
		snprintf(sensing->problem, sizeof(sensing->problem), "%s", problem.text);
}

static void run_look(struct work *work)
{
	struct gpu_sensing *sensing = container_of(work, struct gpu_sensing, work);

	sensing->problem[0] = '\0';
	if (sensing->wanted == 0)
		close_nvml(sensing);
	else if (sensing->state == NVML_CLOSED)
		open_nvml(sensing);
	for (unsigned i = 0; i < GPUS_MAX; i++) {
		sensing->seen[i] = (struct gpu_sensors)GPU_SENSORS_UNKNOWN;
		if (sensing->state == NVML_OPEN && sensing->wanted >> i & 1)
			read_gpu(sensing, i);
	}
	gpu_helper_end(&sensing->node->gpu->nvml);
}

/* ---- Energy of a job's steps ---- */

/* Since the last look; false: there was none, or the counter has begun anew. */
static bool count_tier(struct gpu_tier *tier, uint64_t *energy)
{
	uint64_t now = tier->gpu->sensors.energy_millijoules, before = tier->energy_seen;

	tier->energy_seen = now;
	if (now == GPU_SENSOR_UNKNOWN || before == GPU_SENSOR_UNKNOWN || now < before)
		return false;
	*energy += now - before;
	return true;
}

static void count_job(struct job *job)
{
	struct job_gpu *own = job->gpu;
	bool is_counted = false;

	QUEUE_FOREACH (link, &own->tiers) {
		struct gpu_tier *tier = queue_entry(link, struct gpu_tier, link);

		if (tier->state == GPU_TIER_OPEN && count_tier(tier, &own->energy.millijoules))
			is_counted = true;
	}
	if (is_counted && job->step > own->step_seen)
		own->energy.steps += job->step - own->step_seen;
	own->step_seen = job->step;
}

/* ---- On the loop ---- */

static void tell(struct gpu_sensing *sensing)
{
	if (sensing->problem[0] == '\0' || sensing->has_told)
		return;
	sensing->has_told = true;
	log_warning("%s; what it does not tell is shown as not known", sensing->problem);
}

static void on_look(struct work *work)
{
	struct gpu_sensing *sensing = container_of(work, struct gpu_sensing, work);
	struct node_gpu *own = sensing->node->gpu;

	sensing->is_looking = false;
	node_end_work(sensing->node);
	tell(sensing);
	for (unsigned i = 0; i < GPUS_MAX; i++)
		if (sensing->wanted >> i & 1 && !own->in_use[i].is_lost)
			own->in_use[i].sensors = sensing->seen[i];
	QUEUE_FOREACH (link, &sensing->node->jobs.live)
		count_job(queue_entry(link, struct job, link));
}

/* A GPU that is lost could keep NVML for long. */
static uint64_t find_wanted(const struct node_gpu *own)
{
	uint64_t wanted = 0;

	_Static_assert(GPUS_MAX <= 64, "each GPU has a bit");
	for (unsigned i = 0; i < GPUS_MAX; i++)
		if (own->in_use[i].tiers > 0 && !own->in_use[i].is_lost)
			wanted |= UINT64_C(1) << i;
	return wanted;
}

void gpu_sensing_look(struct gpu_sensing *sensing)
{
	if (sensing->is_looking)
		return;
	sensing->wanted = find_wanted(sensing->node->gpu);
	if (sensing->wanted == 0) {
		event_del(sensing->timer);
		sensing->has_told = false;
	}
	sensing->is_looking = true;
	node_begin_work(sensing->node);
	sensing->work = (struct work){ .run = run_look, .done = on_look, .urgency = WORK_NORMAL };
	workers_submit(sensing->node->gpu->nvml.workers, &sensing->work);
}

static void on_timer(evutil_socket_t fd, short events, void *argument)
{
	gpu_sensing_look(argument);
}

void gpu_sensing_begin(struct gpu_sensing *sensing, struct gpu_in_use *gpu)
{
	static const struct timeval interval = { .tv_sec = INTERVAL_S };

	gpu->sensors = (struct gpu_sensors)GPU_SENSORS_UNKNOWN;
	if (!event_pending(sensing->timer, EV_TIMEOUT, NULL))
		event_add(sensing->timer, &interval);
	gpu_sensing_look(sensing);
}

void gpu_sensing_lose(struct gpu_in_use *gpu)
{
	gpu->is_lost = true;
	gpu->sensors = (struct gpu_sensors)GPU_SENSORS_UNKNOWN;
}

bool gpu_sensing_is_quiet(const struct gpu_sensing *sensing)
{
	return !sensing->is_looking;
}

struct gpu_sensing *gpu_sensing_new(struct node *node)
{
	struct gpu_sensing *sensing = calloc(1, sizeof(*sensing));

	if (!sensing)
		return NULL;
	sensing->node = node;
	sensing->timer = event_new(node->loop, -1, EV_PERSIST, on_timer, sensing);
	return sensing->timer ? sensing : gpu_sensing_free(sensing);
}

struct gpu_sensing *gpu_sensing_free(struct gpu_sensing *sensing)
{
	if (!sensing)
		return NULL;
	if (sensing->timer)
		event_free(sensing->timer);
	free(sensing);
	return NULL;
}
