/* The GPUs of the node that somebody uses. */
#include <errno.h>
#include <event2/event.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/plural.h"
#include "daemon/gpu/exchange.h"

static void on_helped(evutil_socket_t fd, short events, void *argument)
{
	workers_reap(((struct gpu_helper *)argument)->workers);
}

/* Waits for what it does. */
static void helper_end(struct gpu_helper *helper)
{
	if (helper->event)
		event_free(TAKE_PTR(helper->event));
	helper->workers = workers_free(helper->workers);
}

/* With the first GPU that is there: who asks for others costs nothing. */
static int helper_start(struct gpu_helper *helper, struct node *node, const char *name)
{
	int r = helper->workers ? 0 : workers_new(1, name, &helper->workers);

	if (r < 0 || helper->event)
		return r;
	helper->event =
		event_new(node->loop, workers_fd(helper->workers), EV_READ | EV_PERSIST, on_helped, helper);
	if (helper->event && event_add(helper->event, NULL) == 0)
		return 0;
	helper_end(helper);
	return -ENOMEM;
}

int gpu_node_new(struct node *node)
{
	if (node->gpu)
		return 0;
	node->gpu = calloc(1, sizeof(*node->gpu));
	if (!node->gpu)
		return -ENOMEM;
	node->gpu->sensing = gpu_sensing_new(node, gpu_check_engines);
	if (node->gpu->sensing)
		return 0;
	gpu_node_free(node);
	return -ENOMEM;
}

void gpu_node_free(struct node *node)
{
	struct node_gpu *own = node->gpu;

	if (own) {
		helper_end(&own->nvml);
		gpu_exchange_node_free(node);
	}
	for (unsigned i = 0; own && i < GPUS_MAX; i++) {
		if (own->in_use[i].event)
			event_free(own->in_use[i].event);
		gpu_engine_free(own->in_use[i].engine);
	}
	if (own)
		gpu_sensing_free(own->sensing);
	free(TAKE_PTR(node->gpu));
}

/* ---- A GPU is opened ---- */

static void tell_loss(struct queue *jobs, const struct gpu_in_use *gpu)
{
	QUEUE_FOREACH (job_link, jobs) {
		struct job *job = queue_entry(job_link, struct job, link);

		QUEUE_FOREACH (link, &job->gpu->tiers) {
			struct gpu_tier *tier = queue_entry(link, struct gpu_tier, link);

			if (tier->gpu == gpu)
				gpu_tier_fail(tier, -ENODEV, gpu->problem);
		}
	}
}

static void on_lost(void *context, const char *problem)
{
	struct gpu_in_use *gpu = context;

	if (gpu->is_lost)
		return;
	snprintf(gpu->problem, sizeof(gpu->problem), "%s", problem);
	gpu_sensing_lose(gpu);
	log_error("%s; its jobs go on without it", problem);
	tell_loss(&gpu->node->jobs.live, gpu);
	tell_loss(&gpu->node->jobs.dying, gpu);
}

void gpu_check_engines(struct node *node)
{
	struct gpu_problem problem;

	for (unsigned i = 0; i < GPUS_MAX; i++) {
		struct gpu_in_use *gpu = &node->gpu->in_use[i];

		if (gpu->tiers > 0 && !gpu->is_lost && gpu_engine_hangs(gpu->engine, &problem))
			on_lost(gpu, problem.text);
	}
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

/* There is one slow worker, so nobody else opens or closes a GPU meanwhile. */
static void run_opening(struct work *work)
{
	struct gpu_opening *opening = container_of(work, struct gpu_opening, work);
	struct node_gpu *own = opening->tier->job->node->gpu;
	struct gpu_engine_config config = { .gpus = &own->gpus, .failed = on_lost };
	struct gpu_problem problem;

	if (!own->has_looked)
		gpus_find(&own->gpus);
	own->has_looked = true;
	opening->status = find(opening, &own->gpus);
	if (opening->status < 0)
		return;
	config.gpu = (unsigned)opening->status;
	opening->gpu = &own->in_use[config.gpu];
	opening->gpu->number = config.gpu;
	config.context = opening->gpu;
	opening->status = 0;
	if (opening->gpu->engine)
		return;
	opening->status = gpu_engine_new(&config, &problem, &opening->gpu->engine);
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

static void start_sensing(struct gpu_opening *opening)
{
	struct node *node = opening->tier->job->node;

	opening->status = helper_start(&node->gpu->nvml, node, "tierd-nvml");
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
		gpu_open(opening);
		return;
	}
	if (opening->status == 0)
		refuse_lost(opening);
	if (opening->status == 0)
		start_sensing(opening);
	/* Where the GPU cannot be opened its tier is none of those that use it. */
	if (opening->status < 0) {
		opening->gpu = NULL;
	} else {
		opening->gpu->tiers++;
		opening->status = watch(opening->gpu, tier->job->node);
		if (opening->gpu->tiers == 1)
			gpu_sensing_begin(tier->job->node->gpu->sensing, opening->gpu);
	}
	gpu_tier_opened(tier);
}

void gpu_open(struct gpu_opening *opening)
{
	opening->work = (struct work){ .run = run_opening, .done = on_opened, .urgency = WORK_NORMAL };
	workers_submit(opening->tier->job->node->slow_workers, &opening->work);
}

/* ---- And closed ---- */

struct closing {
	struct work work;
	struct gpu_in_use *gpu;
};

static void run_closing(struct work *work)
{
	struct closing *closing = container_of(work, struct closing, work);

	closing->gpu->engine = gpu_engine_free(closing->gpu->engine);
}

static void on_closed(struct work *work)
{
	struct closing *closing = container_of(work, struct closing, work);

	closing->gpu->is_closing = false;
	node_end_work(closing->gpu->node);
	free(closing);
}

/* By the worker that gives host memory back later: streams of a GPU that is lost end before that. Without
 * memory for that it stays open until the daemon ends, or is used again. */
void gpu_let_go(struct gpu_in_use *gpu)
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
				  .gpu = gpu };
	gpu->is_closing = true;
	node_begin_work(gpu->node);
	workers_submit(gpu->node->slow_workers, &closing->work);
}
