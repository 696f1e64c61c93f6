#include "client/tierctl/view.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "common/clock.h"
#include "offload/cuda/gpus.h"

/* How long a daemon that turns may take to answer; and one that does not: the latter is only probed. */
#define ANSWER_MS 2000
#define PROBE_MS 100

/* ---- Pages ---- */

/* Takes the descriptor. A page that is too short would be a signal to whoever reads it. */
static const void *map_page(int fd)
{
	_cleanup_close_ int owned = fd;
	struct stat status;
	void *page;

	if (owned < 0 || fstat(owned, &status) < 0 || status.st_size < STATISTICS_PAGE_BYTES)
		return NULL;
	page = mmap(NULL, STATISTICS_PAGE_BYTES, PROT_READ, MAP_SHARED, owned, 0);
	return page == MAP_FAILED ? NULL : page;
}

static void unmap_page(const void *page)
{
	if (page)
		munmap((void *)page, STATISTICS_PAGE_BYTES);
}

static const void *map_file(const char *socket)
{
	char path[STATISTICS_FILE_SIZE];

	if (statistics_file(socket, path) < 0)
		return NULL;
	return map_page(open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
}

/* Silent: a job may have gone since it was listed. */
static const void *ask_page(struct ask *ask, const Tierd__Wire__JobEntry *job)
{
	Tierd__Wire__StatisticsMap map = TIERD__WIRE__STATISTICS_MAP__INIT;
	const Tierd__Wire__Reply *reply;

	map.job = job ? job->name : (char *)"";
	map.has_owner = job != NULL;
	map.owner = job ? job->uid : 0;
	return ask_request(ask, WIRE_REQUEST(STATISTICS_MAP, statistics_map, &map), &reply) == 0
		       ? map_page(ask_take_descriptor(ask))
		       : NULL;
}

/* Asked for, a page has what is true now; the file is up to an interval behind. */
static void map_node(struct view *view)
{
	const void *page = ask_page(view->ask, NULL);

	if (!page)
		return;
	unmap_page(view->page);
	view->page = page;
}

/* A daemon that does not count how busy a path is may have the end of its name there. */
static void end_path(const struct statistics_node *node, struct statistics_path *path)
{
	path->path[STATISTICS_PATH_BYTES - 1] = '\0';
	if (node->workers == 0)
		path->busy_ns = 0;
}

static int read_node(struct view *view)
{
	struct statistics_node node;
	int r = view->page ? statistics_page_read(view->page, STATISTICS_OF_NODE, &node, sizeof(node))
			   : -ENOENT;

	if (r < 0)
		return r;
	if (node.path_count > STATISTICS_MAX_PATHS || node.gpu_count > STATISTICS_MAX_GPUS)
		return -EPROTO;
	for (size_t i = 0; i < node.path_count; i++)
		end_path(&node, &node.paths[i]);
	view->node = node;
	return 0;
}

/* ---- Jobs ---- */

static void forget_jobs(struct view_job *jobs, size_t count)
{
	for (size_t i = 0; i < count; i++)
		unmap_page(jobs[i].page);
	free(jobs);
}

/* The entries are valid until the next question, so their names are taken first. */
static int list_jobs(struct view *view, Tierd__Wire__JobEntry **ret_entries, size_t *ret_count)
{
	Tierd__Wire__JobEntry *entries;
	const Tierd__Wire__JobsReply *jobs;
	int code = command_ask_jobs(view->ask, &jobs);

	if (code != COMMAND_DONE)
		return code;
	entries = calloc(jobs->n_jobs + 1, sizeof(*entries));
	if (!entries)
		return command_fail_memory();
	for (size_t i = 0; i < jobs->n_jobs; i++) {
		entries[i].name = strdup(jobs->jobs[i]->name);
		entries[i].uid = jobs->jobs[i]->uid;
	}
	*ret_entries = entries;
	*ret_count = jobs->n_jobs;
	return COMMAND_DONE;
}

/* Jobs that were known stay if the daemon does not answer for all of those that it lists. */
static int map_jobs(struct view *view)
{
	Tierd__Wire__JobEntry *entries = NULL;
	struct view_job *jobs;
	size_t listed = 0, count = 0;
	int code = list_jobs(view, &entries, &listed);

	if (code != COMMAND_DONE)
		return code;
	jobs = calloc(listed + 1, sizeof(*jobs));
	for (size_t i = 0; jobs && i < listed; i++) {
		const void *page = entries[i].name ? ask_page(view->ask, &entries[i]) : NULL;

		if (page)
			jobs[count++].page = page;
	}
	for (size_t i = 0; i < listed; i++)
		free(entries[i].name);
	free(entries);
	if (!jobs)
		return command_fail_memory();
	if (!ask_is_connected(view->ask)) {
		forget_jobs(jobs, count);
		return COMMAND_UNREACHABLE;
	}
	forget_jobs(view->jobs, view->job_count);
	view->jobs = jobs;
	view->job_count = count;
	return COMMAND_DONE;
}

/* One that cannot be read any more keeps its last figures. */
static void read_jobs(struct view *view)
{
	for (size_t i = 0; i < view->job_count; i++) {
		struct view_job *job = &view->jobs[i];
		struct statistics_job body;

		if (statistics_page_read(job->page, STATISTICS_OF_JOB, &body, sizeof(body)) < 0)
			continue;
		body.name[STATISTICS_NAME_BYTES - 1] = body.status[sizeof(body.status) - 1] = '\0';
		job->body = body;
		command_user_name((uid_t)body.uid, job->user);
	}
}

/* ---- Names ---- */

const char *view_kind_name(unsigned kind)
{
	static const char *const names[] = { "demand", "prefetch", "update", "write_back", "gradient" };

	return kind < ARRAY_LENGTH(names) ? names[kind] : "?";
}

const char *view_direction_name(unsigned direction)
{
	return direction == STATISTICS_READ ? "read" : "written";
}

const char *view_cause_name(unsigned cause)
{
	static const char *const names[] = { "nvme_read", "slot", "step", "gradient_buffer", "gpu" };

	return cause < ARRAY_LENGTH(names) ? names[cause] : "?";
}

const char *view_gpu_uuid(const struct statistics_gpu *gpu, char text[VIEW_UUID_SIZE])
{
	struct gpu named = { .is_slice = gpu->is_slice };

	_Static_assert(GPU_UUID_TEXT <= VIEW_UUID_SIZE, "a UUID fits");
	memcpy(&named.uuid, gpu->uuid, sizeof(named.uuid));
	return gpu_uuid_text(&named, text);
}

/* ---- The view ---- */

uint64_t view_silent_ns(const struct view *view)
{
	uint64_t beat = view->node.heartbeat_ns;

	return view->read_ns > beat ? view->read_ns - beat : 0;
}

bool view_is_stuck(const struct view *view)
{
	return view_silent_ns(view) >= VIEW_STUCK_MS * UINT64_C(1000000);
}

/* The page is as old as the daemon's last turn, so it is read before jobs are asked for. */
static int look_at_node(struct view *view)
{
	int r = read_node(view);

	view->read_ns = clock_now_ns();
	return r;
}

static int fail_page(const struct view *view, int r)
{
	if (r == -EPROTONOSUPPORT)
		return command_fail_at(
			COMMAND_FAILED, r,
			"tierd at %s writes its statistics in version %u, and tierctl " TIERD_VERSION
			" reads %u; update the older of the two",
			view->context->socket, statistics_page_version(view->page), STATISTICS_VERSION);
	return command_fail_at(COMMAND_UNREACHABLE, r, "the statistics of tierd at %s cannot be read: %s",
			       view->context->socket, strerror(-r));
}

static int connect_view(struct view *view, bool is_stuck)
{
	struct ask *ask = NULL;
	int r = ask_open(view->context->socket, is_stuck ? PROBE_MS : ANSWER_MS, 0, &ask), code;

	if (r == 0) {
		view->ask = ask;
		return COMMAND_DONE;
	}
	/* Somebody listens who does not answer: that is what the file is for. */
	if (view->page && (r == -ETIMEDOUT || r == -EAGAIN)) {
		ask_free(ask);
		return COMMAND_DONE;
	}
	code = command_fail_to_connect(ask, r);
	ask_free(ask);
	return code;
}

static void read_file(struct view *view)
{
	view->page = map_file(view->context->socket);
	if (look_at_node(view) == 0)
		return;
	unmap_page(view->page);
	view->page = NULL;
}

int view_open(const struct command_context *context, struct view *view)
{
	int code;

	*view = (struct view){ .context = context };
	read_file(view);
	code = connect_view(view, view->page && view_is_stuck(view));
	if (code != COMMAND_DONE)
		return code;
	/* The file may be one that a dead daemon has left: this one has just answered. */
	if (view->ask)
		map_node(view);
	return view_refresh(view);
}

/* A daemon that has come back, or another one in its place, has another page and other jobs. */
static void connect_again(struct view *view)
{
	struct ask *ask = NULL;

	if (ask_open(view->context->socket, PROBE_MS, 0, &ask) < 0) {
		ask_free(ask);
		return;
	}
	view->ask = ask;
	map_node(view);
}

int view_refresh(struct view *view)
{
	int code, r;

	if (!view->ask)
		connect_again(view);
	r = look_at_node(view);

	if (r < 0)
		return fail_page(view, r);
	if (view->ask && !view_is_stuck(view)) {
		map_node(view);
		code = ask_is_connected(view->ask)
			       ? map_jobs(view)
			       : command_fail_at(COMMAND_UNREACHABLE, -EPIPE, "%s", ask_message(view->ask));
		if (code == COMMAND_UNREACHABLE)
			view->ask = ask_free(view->ask);
		else if (code != COMMAND_DONE)
			return code;
		look_at_node(view);
	}
	read_jobs(view);
	return COMMAND_DONE;
}

void view_close(struct view *view)
{
	forget_jobs(view->jobs, view->job_count);
	unmap_page(view->page);
	view->ask = ask_free(view->ask);
	view->page = NULL;
}
