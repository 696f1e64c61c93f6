/* Counters are plain words of jobs, counted up where things happen; a timer copies them into the pages. So
 * the data path pays an addition for them, and a loop that is stuck is behind by one interval at most. */

#include <errno.h>
#include <event2/event.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "common/clock.h"
#include "common/log.h"
#include "daemon/observe/own.h"
#include "daemon/durability/durability.h"
#include "daemon/gpu/gpu.h"
#include "daemon/gradients/gradients.h"
#include "daemon/model/model.h"
#include "daemon/observe/statistics.h"
#include "daemon/observe/waits.h"
#include "daemon/residency/residency.h"
#include "daemon/resources/resources.h"
#include "daemon/telemetry/telemetry.h"
#include "daemon/update/update.h"
#include "proto/name.h"

struct statistics {
	struct node *node;
	struct event *timer;
	char path[STATISTICS_FILE_SIZE];
};

/* ---- Counting ---- */

static void count_job(struct job *job)
{
	for (uint32_t rank = 0; rank < job->options.world_size; rank++)
		if (job->members.ranks[rank])
			member_count_gathers(job->members.ranks[rank]);
	stall_count(job);
}

static void add_jobs(struct statistics_figures *sum, const struct queue *jobs)
{
	QUEUE_FOREACH (link, jobs)
		figures_add(sum, figures_of(queue_entry(link, struct job, link)));
}

/* ---- Bodies ---- */

/* Of a path that is too long, its number before and all else with it. */
#define LONG_PATH_BYTES (STATISTICS_PATH_BYTES - 8)

static void fill_path(struct statistics_path *body, const struct node *node, unsigned index)
{
	const struct node_path *path = &node->paths[index];

	*body = (struct statistics_path){
		.capacity = path->capacity,
		.used = path->used,
		.moved = { [STATISTICS_READ] = node->paths[index].moved[TIER_READ],
			   [STATISTICS_WRITTEN] = node->paths[index].moved[TIER_WRITE] },
		.busy_ns = engine_busy_ns(node->engine, path->device),
	};
	if (strlen(path->path) < sizeof(body->path))
		strcpy(body->path, path->path);
	else
		snprintf(body->path, sizeof(body->path), "%u:…%s", index,
			 path->path + strlen(path->path) - LONG_PATH_BYTES);
}

static void fill_gpu(struct statistics_gpu *body, const struct gpu_figures *figures)
{
	const struct gpu_sensors *sensors = &figures->sensors;

	_Static_assert(STATISTICS_UNKNOWN == GPU_SENSOR_UNKNOWN, "what is not known needs no translation");
	_Static_assert(sizeof(body->uuid) == sizeof(figures->gpu->uuid), "a UUID fits");
	*body = (struct statistics_gpu){
		.number = figures->number,
		.is_slice = figures->gpu->is_slice,
		.bytes = figures->gpu->bytes,
		.held = figures->held_bytes,
		.moved = { [STATISTICS_READ] = figures->traffic[GPU_FROM_HOST].bytes,
			   [STATISTICS_WRITTEN] = figures->traffic[GPU_TO_HOST].bytes },
		.busy_percent = sensors->busy_percent,
		.used = sensors->used_bytes,
		.celsius = sensors->temperature_celsius,
		.milliwatts = sensors->power_milliwatts,
		.millijoules = sensors->energy_millijoules,
	};
	memcpy(body->uuid, &figures->gpu->uuid, sizeof(body->uuid));
}

static void fill_gpus(struct statistics_node *body, const struct node *node)
{
	struct gpu_figures figures[GPUS_MAX];
	unsigned count = gpu_figures_of_node(node, figures);

	body->gpu_count = count < STATISTICS_MAX_GPUS ? count : STATISTICS_MAX_GPUS;
	for (size_t i = 0; i < body->gpu_count; i++)
		fill_gpu(&body->gpus[i], &figures[i]);
}

static void fill_node(struct statistics_node *body, const struct node *node)
{
	*body = (struct statistics_node){
		.heartbeat_ns = clock_now_ns(),
		.started_ns = node->started_ns,
		.incarnation = node->incarnation,
		.pid = (uint64_t)getpid(),
		.host_budget = node->settings.host_budget,
		.host_used = budget_host_used(node),
		.pinned = engine_pinned(node->engine),
		.clients = telemetry_clients(node)->connected,
		.requests = telemetry_clients(node)->requests,
		.figures = *figures_past(node),
		.path_count = node->path_count,
		.host_withheld = disposal_withheld_by_all(node),
		.workers = workers_count(node->workers),
		.worker_busy_ns = workers_busy_ns(node->workers),
		.loop_busy_ns = load_loop_ns(&node->observe->load),
	};
	_Static_assert(NODE_MAX_PATHS <= STATISTICS_MAX_PATHS, "every path has a place in the page");
	QUEUE_FOREACH (link, &node->jobs.live) {
		const struct job *job = queue_entry(link, struct job, link);
		uint64_t step;

		body->jobs++;
		body->ranks += job->members.count;
		body->host_cache += budget_cache_bytes(job);
		/* What is lost already is as lost as before. */
		if (job_is_lost(job) || durable_survives(job, &step))
			body->durable_jobs++;
		else
			body->fleeting_jobs++;
	}
	add_jobs(&body->figures, &node->jobs.live);
	add_jobs(&body->figures, &node->jobs.dying);
	for (unsigned i = 0; i < node->path_count; i++)
		fill_path(&body->paths[i], node, i);
	fill_gpus(body, node);
}

void statistics_look(struct node *node, struct statistics_node *body)
{
	QUEUE_FOREACH (link, &node->jobs.live)
		count_job(queue_entry(link, struct job, link));
	fill_node(body, node);
}

static void write_node(const struct node *node, const struct statistics_node *body)
{
	if (node->observe->published)
		statistics_page_write(node->observe->published, body);
	if (node->observe->page.fd >= 0)
		statistics_page_write(node->observe->page.base, body);
}

static void fill_job_gpus(struct statistics_job *body, const struct job *job)
{
	struct gpu_job_figures figures[GPUS_MAX];
	unsigned count = gpu_figures_of_job(job, figures);
	struct gpu_energy energy = gpu_energy_of_job(job);

	for (unsigned i = 0; i < count; i++)
		body->gpu_bytes += gpu_job_bytes(figures[i]);
	body->gpu_millijoules = energy.millijoules;
	body->gpu_steps = energy.steps;
}

static void write_job(const struct job *job)
{
	struct statistics_job body = {
		.heartbeat_ns = clock_now_ns(),
		.uid = job->uid,
		.stage = job->options.stage,
		.world_size = job->options.world_size,
		.ranks = job->members.count,
		.epoch = job->epoch.number,
		.step = job->step,
		.units = job->catalog.unit_count,
		.parameters = job->catalog.parameters,
		.host_bytes = budget_host_bytes(job),
		.cache_bytes = budget_cache_bytes(job),
		.host_budget = job->options.host_budget,
		.nvme_bytes = budget_nvme_bytes(job),
		.figures = *figures_of(job),
		.early_updates = update_early_count(job),
		.warm_bytes = warm_bytes(job),
		.warm_most_bytes = job->location.warm_most_bytes,
		.is_lost = job_is_lost(job),
	};

	fill_job_gpus(&body, job);
	body.has_durable_step = durable_survives(job, &body.durable_step);
	body.durable_lag_steps = job->step - body.durable_step;
	body.durable_lag_ns = durable_lag_ns(job);
	_Static_assert(sizeof(job->name) <= sizeof(body.name), "a job's name fits");
	snprintf(body.name, sizeof(body.name), "%s", job->name);
	snprintf(body.status, sizeof(body.status), "%s", job_status_name(job));
	statistics_page_write(telemetry_page(job)->base, &body);
}

/* ---- Pages of clients ---- */

static int make_page(const char *name, enum statistics_subject subject, size_t body_bytes,
		     struct memory *page)
{
	struct memory memory = MEMORY_INIT;
	int r = memory_new_shared(name, STATISTICS_PAGE_BYTES, &memory);

	if (r < 0)
		return r;
	statistics_page_init(memory.base, subject, body_bytes);
	r = memory_seal(&memory);
	if (r < 0)
		memory_free(&memory);
	else
		*page = memory;
	return r;
}

static void reply_page(struct pending *pending, const struct memory *page)
{
	_cleanup_close_ int fd = memory_client_fd(page, MEMORY_READ_ONLY);

	if (fd < 0)
		pending_error(pending, fd, "no descriptor for a page of statistics: %s", strerror(-fd));
	else
		pending_reply_fds(pending, NULL, &fd, 1);
}

static void map_node(struct pending *pending, struct node *node)
{
	struct statistics_node body;
	int r = 0;

	if (node->observe->page.fd < 0)
		r = make_page("tierd-node", STATISTICS_OF_NODE, sizeof(struct statistics_node),
			      &node->observe->page);
	if (r < 0) {
		pending_error(pending, r, "no memory for a page of statistics: %s", strerror(-r));
		return;
	}
	statistics_look(node, &body);
	write_node(node, &body);
	reply_page(pending, &node->observe->page);
}

static int make_job_page(struct job *job, char *message, size_t size)
{
	int r = budget_charge(job, STATISTICS_PAGE_BYTES, message, size);

	if (r < 0)
		return r;
	r = make_page("tierd-job", STATISTICS_OF_JOB, sizeof(struct statistics_job), telemetry_page(job));
	if (r == 0)
		return 0;
	budget_uncharge(job, STATISTICS_PAGE_BYTES);
	snprintf(message, size, "%s", strerror(-r));
	return r;
}

static void map_job(struct pending *pending, struct job *job)
{
	char message[640];
	int r = telemetry_page(job)->fd < 0 ? make_job_page(job, message, sizeof(message)) : 0;

	if (r < 0) {
		pending_error(pending, r, "job %s: no memory for a page of statistics: %s", job->name,
			      message);
		return;
	}
	count_job(job);
	write_job(job);
	reply_page(pending, telemetry_page(job));
}

void statistics_map(struct pending *pending, const Tierd__Wire__StatisticsMap *request)
{
	const struct port *port = pending_port(pending);
	struct node *node = pending_node(pending);
	uid_t owner = request->has_owner ? request->owner : port->uid;
	struct job *job = request->job[0] ? job_find(node, owner, request->job) : NULL;

	if (!request->job[0])
		map_node(pending, node);
	else if (!job || !access_may_see(job, port))
		pending_error(pending, -ENOENT, "there is no job %.*s%s", name_fit(request->job, 80),
			      request->job, request->has_owner ? " of that user" : "");
	else
		map_job(pending, job);
}

/* ---- The published page ---- */

static void write_all(const struct statistics *statistics)
{
	struct node *node = statistics->node;
	struct statistics_node body;

	statistics_look(node, &body);
	QUEUE_FOREACH (link, &node->jobs.live) {
		struct job *job = queue_entry(link, struct job, link);

		waits_check(job);
		if (telemetry_page(job)->fd >= 0)
			write_job(job);
	}
	write_node(node, &body);
	load_note(&node->observe->load, &body);
}

static void on_timer(evutil_socket_t fd, short what, void *argument)
{
	write_all(argument);
}

/* A file, since descriptors come from the loop alone, and who finds it stuck has none yet. Its blocks are
 * reserved, so that a full disk cannot fail a write to the mapping. Only the daemon's own user could cut it
 * short. */
static int map_file(const char *path, mode_t mode, void **ret_page)
{
	_cleanup_close_ int fd = -1;
	void *page;

	if (unlink(path) < 0 && errno != ENOENT)
		return -errno;
	fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (fd < 0)
		return -errno;
	int r = -posix_fallocate(fd, 0, STATISTICS_PAGE_BYTES);

	if (r < 0)
		return r;
	page = mmap(NULL, STATISTICS_PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (page == MAP_FAILED)
		return -errno;
	statistics_page_init(page, STATISTICS_OF_NODE, sizeof(struct statistics_node));
	if (fchmod(fd, mode) < 0) {
		r = -errno;
		munmap(page, STATISTICS_PAGE_BYTES);
		return r;
	}
	*ret_page = page;
	return 0;
}

static void publish(struct statistics *statistics, const char *socket, mode_t socket_mode)
{
	int r = statistics_file(socket, statistics->path);

	if (r == 0)
		r = map_file(statistics->path, socket_mode & 0640, &statistics->node->observe->published);
	if (r < 0)
		log_warning("%s cannot be made: %s; nobody sees the figures of a tierd that is stuck",
			    statistics->path, strerror(-r));
}

int statistics_new(struct node *node, const char *socket, mode_t socket_mode,
		   struct statistics **ret_statistics)
{
	static const struct timeval interval = { .tv_usec = STATISTICS_INTERVAL_MS * 1000 };
	_cleanup_(statistics_freep) struct statistics *statistics = calloc(1, sizeof(*statistics));

	if (!statistics)
		return -ENOMEM;
	statistics->node = node;
	statistics->timer = event_new(node->loop, -1, EV_PERSIST, on_timer, statistics);
	if (!statistics->timer || event_add(statistics->timer, &interval) < 0)
		return -ENOMEM;
	publish(statistics, socket, socket_mode);
	write_all(statistics);
	*ret_statistics = TAKE_PTR(statistics);
	return 0;
}

struct statistics *statistics_free(struct statistics *statistics)
{
	if (!statistics)
		return NULL;
	if (statistics->timer)
		event_free(statistics->timer);
	if (statistics->node->observe->published) {
		munmap(statistics->node->observe->published, STATISTICS_PAGE_BYTES);
		statistics->node->observe->published = NULL;
		unlink(statistics->path);
	}
	free(statistics);
	return NULL;
}
