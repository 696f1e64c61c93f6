/* The GPUs of the node that somebody uses. */
#include <errno.h>
#include <event2/event.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/clock.h"
#include "common/plural.h"
#include "daemon/gpu/exchange.h"

/* ---- Of a node ---- */

static bool uses_gpus(const struct queue *jobs)
{
	QUEUE_FOREACH (link, jobs)
		if (!gpu_is_gone(queue_entry(link, struct job, link)))
			return true;
	return false;
}

static void on_check(evutil_socket_t fd, short events, void *argument)
{
	struct node *node = argument;

	gpu_check_engines(node);
	if (!uses_gpus(&node->jobs.live) && !uses_gpus(&node->jobs.dying))
		event_del(node->gpu->check);
}

static bool make_parts(struct node *node)
{
	struct node_gpu *own = node->gpu;

	for (unsigned i = 0; i < GPUS_MAX; i++)
		own->in_use[i].number = i;
	own->sensing = gpu_sensing_new(node);
	own->check = event_new(node->loop, -1, EV_PERSIST, on_check, node);
	return own->sensing && own->check && gpu_helper_start(&own->finder, node, "tierd-gpus") == 0;
}

int gpu_node_new(struct node *node)
{
	if (node->gpu)
		return 0;
	node->gpu = calloc(1, sizeof(*node->gpu));
	if (!node->gpu)
		return -ENOMEM;
	if (make_parts(node))
		return 0;
	gpu_node_free(node);
	return -ENOMEM;
}

static void gpu_free_in_use(struct gpu_in_use *gpu)
{
	gpu_helper_stop(&gpu->helper);
	if (gpu->event)
		event_free(gpu->event);
	gpu_engine_free(gpu->engine);
}

void gpu_node_free(struct node *node)
{
	struct node_gpu *own = node->gpu;

	if (!own)
		return;
	gpu_helper_stop(&own->nvml);
	gpu_helper_stop(&own->finder);
	gpu_exchange_node_free(node);
	for (unsigned i = 0; i < GPUS_MAX; i++)
		gpu_free_in_use(&own->in_use[i]);
	gpu_sensing_free(own->sensing);
	if (own->check)
		event_free(own->check);
	free(TAKE_PTR(node->gpu));
}

/* ---- At the end of the daemon ---- */

/* What nobody waits for that long: it should have taken a moment. */
#define END_PATIENCE_MS 5000
#define END_PATIENCE_NS (UINT64_C(1000000) * END_PATIENCE_MS)

unsigned gpu_works(const struct node *node)
{
	const struct node_gpu *own = node->gpu;
	unsigned works = own && !gpu_sensing_is_quiet(own->sensing);

	for (unsigned i = 0; own && i < GPUS_MAX; i++)
		works += own->in_use[i].is_closing;
	return works;
}

static bool helper_keeps_the_end(const struct gpu_helper *helper)
{
	struct gpu_problem problem;

	if (!gpu_helper_hangs(helper, END_PATIENCE_NS, &problem))
		return false;
	log_error("%s; tierd ends without it", problem.text);
	return true;
}

static bool engine_keeps_the_end(const struct gpu_in_use *gpu)
{
	if (!gpu->engine || gpu->is_closing ||
	    !clock_is_late(gpu_engine_at_work_since(gpu->engine), END_PATIENCE_NS))
		return false;
	log_error("%s: its driver has not come back from a call for %.3g s; tierd ends without it",
		  gpu_engine_name(gpu->engine), END_PATIENCE_NS / 1e9);
	return true;
}

static bool exchange_keeps_the_end(const struct node *node)
{
	if (!gpu_exchange_hangs(node, END_PATIENCE_NS))
		return false;
	log_error("NCCL has not come back from a call for %.3g s; tierd ends without it",
		  END_PATIENCE_NS / 1e9);
	return true;
}

bool gpu_keeps_the_end(const struct node *node)
{
	const struct node_gpu *own = node->gpu;
	bool keeps = own && helper_keeps_the_end(&own->nvml);

	keeps |= own && helper_keeps_the_end(&own->finder);
	keeps |= own && exchange_keeps_the_end(node);
	for (unsigned i = 0; own && i < GPUS_MAX; i++) {
		keeps |= helper_keeps_the_end(&own->in_use[i].helper);
		keeps |= own->in_use[i].tiers > 0 && engine_keeps_the_end(&own->in_use[i]);
	}
	return keeps;
}

/* ---- A GPU is opened ---- */

static void call_of_jobs(struct queue *jobs, const struct gpu_in_use *gpu,
			 void (*call)(struct gpu_tier *tier))
{
	QUEUE_FOREACH (job_link, jobs) {
		struct job *job = queue_entry(job_link, struct job, link);

		QUEUE_FOREACH (link, &job->gpu->tiers) {
			struct gpu_tier *tier = queue_entry(link, struct gpu_tier, link);

			if (tier->gpu == gpu)
				call(tier);
		}
	}
}

static void for_each_tier(const struct gpu_in_use *gpu, void (*call)(struct gpu_tier *tier))
{
	call_of_jobs(&gpu->node->jobs.live, gpu, call);
	call_of_jobs(&gpu->node->jobs.dying, gpu, call);
}

static void tell_loss(struct gpu_tier *tier)
{
	gpu_tier_fail(tier, -ENODEV, tier->gpu->problem);
}

static void on_lost(void *context, const char *problem)
{
	struct gpu_in_use *gpu = context;

	if (gpu->is_lost)
		return;
	snprintf(gpu->problem, sizeof(gpu->problem), "%s", problem);
	gpu_sensing_lose(gpu);
	log_error("%s; its jobs go on without it", problem);
	for_each_tier(gpu, tell_loss);
}

static void fail_openings(struct queue *jobs)
{
	const uint64_t patience_ns = (uint64_t)GPU_PATIENCE_MS * 1000000;
	struct gpu_problem problem;

	QUEUE_FOREACH (job_link, jobs) {
		struct job *job = queue_entry(job_link, struct job, link);

		QUEUE_FOREACH (link, &job->gpu->tiers) {
			struct gpu_tier *tier = queue_entry(link, struct gpu_tier, link);
			const struct gpu_helper *helper =
				tier->opening.gpu ? &tier->opening.gpu->helper : &job->node->gpu->finder;

			if (tier->state == GPU_TIER_OPENING && !tier->gpu &&
			    gpu_helper_hangs(helper, patience_ns, &problem))
				gpu_tier_fail(tier, -ENODEV, problem.text);
		}
	}
}

void gpu_check_engines(struct node *node)
{
	struct gpu_problem problem;

	for (unsigned i = 0; i < GPUS_MAX; i++) {
		struct gpu_in_use *gpu = &node->gpu->in_use[i];

		if (gpu->tiers == 0 || gpu->is_lost)
			continue;
		/* A step that was decided waits for copies from host memory. */
		if (node->is_stopping)
			gpu_engine_hurry(gpu->engine, END_PATIENCE_MS);
		if (!gpu_engine_hangs(gpu->engine, &problem))
			continue;
		on_lost(gpu, problem.text);
		/* An engine that is lost itself brings them home. */
		for_each_tier(gpu, gpu_give_pushes_up);
	}
	fail_openings(&node->jobs.live);
	fail_openings(&node->jobs.dying);
	gpu_exchange_check(node, gpu_tier_fail);
}

static void on_results(evutil_socket_t fd, short events, void *argument)
{
	gpu_engine_reap(((struct gpu_in_use *)argument)->engine);
}

static int find(struct gpu_opening *opening, const struct gpus *gpus)
{
	for (unsigned i = 0; i < gpus->count; i++)
		if (memcmp(&gpus->gpus[i].uuid, opening->uuid, sizeof(opening->uuid)) == 0)
			return (int)i;
	if (gpus->count > 0)
		snprintf(opening->problem, sizeof(opening->problem),
			 "tierd sees %u GPU%s, and that of the rank is not among them; see \"tierctl "
			 "doctor\", and "
			 "CUDA_VISIBLE_DEVICES of tierd",
			 gpus->count, PLURAL(gpus->count));
	else
		snprintf(opening->problem, sizeof(opening->problem),
			 "tierd sees no GPU: %s; see \"tierctl doctor\"", gpus->driver.problem);
	return -ENODEV;
}

/* On the one worker that does so. */
static void run_finding(struct work *work)
{
	struct gpu_opening *opening = container_of(work, struct gpu_opening, work);
	struct node_gpu *own = opening->tier->job->node->gpu;

	gpu_helper_begin(&own->finder, "the search for GPUs", -1);
	if (!own->has_looked)
		gpus_find(&own->gpus);
	own->has_looked = true;
	opening->status = find(opening, &own->gpus);
	gpu_helper_end(&own->finder);
}

/* On the GPU's worker, so nobody else opens or closes it meanwhile. */
static void run_opening(struct work *work)
{
	struct gpu_opening *opening = container_of(work, struct gpu_opening, work);
	struct gpu_in_use *gpu = opening->gpu;
	struct gpu_engine_config config = { .gpus = &opening->tier->job->node->gpu->gpus,
					    .gpu = gpu->number,
					    .failed = on_lost,
					    .context = gpu };
	struct gpu_problem problem;

	opening->status = 0;
	if (gpu->engine)
		return;
	gpu_helper_begin(&gpu->helper, "the opening", (int)gpu->number);
	opening->status = gpu_engine_new(&config, &problem, &gpu->engine);
	gpu_helper_end(&gpu->helper);
	if (opening->status < 0)
		snprintf(opening->problem, sizeof(opening->problem), "%s", problem.text);
}

static int watch(struct gpu_in_use *gpu, struct node *node)
{
	if (gpu->event)
		return 0;
	gpu->node = node;
	gpu->is_lost = false;
	gpu->event = event_new(node->loop, gpu_engine_fd(gpu->engine), EV_READ | EV_PERSIST, on_results, gpu);
	return gpu->event && event_add(gpu->event, NULL) == 0 ? 0 : -ENOMEM;
}

/* It is lost, and others have not left it yet: who comes does not wait for what may never answer. */
static void refuse_lost(struct gpu_opening *opening)
{
	const struct gpu_in_use *gpu = opening->gpu;

	if (gpu->tiers == 0 || !gpu->is_lost)
		return;
	opening->status = -ENODEV;
	snprintf(opening->problem, sizeof(opening->problem), "%s", gpu->problem);
}

static void refuse_opening(struct gpu_opening *opening, int status)
{
	opening->status = status;
	opening->gpu = NULL;
	gpu_tier_opened(opening->tier);
}

static void start_sensing(struct gpu_opening *opening)
{
	struct node *node = opening->tier->job->node;

	opening->status = gpu_helper_start(&node->gpu->nvml, node, "tierd-nvml");
	if (opening->status < 0)
		snprintf(opening->problem, sizeof(opening->problem),
			 "tierd has no memory, or no thread, to look after it");
}

static void on_opened(struct work *work)
{
	struct gpu_opening *opening = container_of(work, struct gpu_opening, work);
	struct gpu_tier *tier = opening->tier;

	/* It was open still, and has been let go since. */
	if (opening->status == 0 && opening->gpu->is_closing) {
		workers_submit(opening->gpu->helper.workers, &opening->work);
		return;
	}
	if (opening->status == 0)
		refuse_lost(opening);
	if (opening->status == 0)
		start_sensing(opening);
	/* Where the GPU cannot be opened its tier is none of those that use it. */
	if (opening->status < 0) {
		refuse_opening(opening, opening->status);
		return;
	}
	opening->gpu->tiers++;
	opening->status = watch(opening->gpu, tier->job->node);
	if (opening->gpu->tiers == 1)
		gpu_sensing_begin(tier->job->node->gpu->sensing, opening->gpu);
	gpu_tier_opened(tier);
}

static void on_found(struct work *work)
{
	struct gpu_opening *opening = container_of(work, struct gpu_opening, work);
	struct node *node = opening->tier->job->node;
	struct gpu_in_use *gpu;

	if (opening->status < 0) {
		refuse_opening(opening, opening->status);
		return;
	}
	gpu = &node->gpu->in_use[opening->status];
	opening->status = gpu_helper_start(&gpu->helper, node, "tierd-gpu");
	if (opening->status < 0) {
		snprintf(opening->problem, sizeof(opening->problem),
			 "tierd has no memory, or no thread, to open it");
		refuse_opening(opening, opening->status);
		return;
	}
	opening->gpu = gpu;
	opening->work = (struct work){ .run = run_opening, .done = on_opened, .urgency = WORK_NORMAL };
	workers_submit(gpu->helper.workers, &opening->work);
}

void gpu_open(struct gpu_opening *opening)
{
	static const struct timeval interval = { .tv_sec = 2 };
	struct node_gpu *own = opening->tier->job->node->gpu;

	if (!event_pending(own->check, EV_TIMEOUT, NULL))
		event_add(own->check, &interval);
	opening->work = (struct work){ .run = run_finding, .done = on_found, .urgency = WORK_NORMAL };
	workers_submit(own->finder.workers, &opening->work);
}

/* ---- And closed ---- */

struct closing {
	struct work work;
	struct gpu_in_use *gpu;
	struct job *job;
};

static void run_closing(struct work *work)
{
	struct closing *closing = container_of(work, struct closing, work);
	struct gpu_in_use *gpu = closing->gpu;

	gpu_helper_begin(&gpu->helper, "the closing", (int)gpu->number);
	gpu->engine = gpu_engine_free(gpu->engine);
	gpu_helper_end(&gpu->helper);
}

static void on_closed(struct work *work)
{
	struct closing *closing = container_of(work, struct closing, work);

	closing->gpu->is_closing = false;
	closing->job->gpu->closing--;
	node_end_work(closing->gpu->node);
	job_settle(closing->job);
	free(closing);
}

/* The job gives host memory back later: streams of a GPU that is lost end before that. Without memory for
 * that it stays open until the daemon ends, or is used again. */
void gpu_let_go(struct gpu_in_use *gpu, struct job *job)
{
	struct closing *closing;

	if (--gpu->tiers > 0)
		return;
	closing = calloc(1, sizeof(*closing));
	if (!closing)
		return;
	if (gpu->event)
		event_free(TAKE_PTR(gpu->event));
	*closing =
		(struct closing){ .work = { .run = run_closing, .done = on_closed, .urgency = WORK_NORMAL },
				  .gpu = gpu,
				  .job = job };
	gpu->is_closing = true;
	job->gpu->closing++;
	node_begin_work(gpu->node);
	workers_submit(gpu->helper.workers, &closing->work);
}
