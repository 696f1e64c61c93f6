#include "daemon/resources/node.h"

#include <errno.h>
#include <dirent.h>
#include <event2/event.h>
#include <fcntl.h>
#include <pwd.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/log.h"
#include "common/own.h"
#include "common/plural.h"
#include "common/reservation.h"
#include "common/size.h"
#include "daemon/resources/disposal.h"
#include "daemon/model/model.h"
#include "daemon/resources/own.h"
#include "daemon/telemetry/telemetry.h"

#define NODE_EVENTS 3

struct node_events {
	struct event *events[NODE_EVENTS];
};

/* ---- Paths ---- */

static bool is_scratch_file(const char *name)
{
	const char *end = strrchr(name, '.');

	return end && (strcmp(end, ".sums") == 0 || strcmp(end, ".draft") == 0);
}

/* Those in a user's folder, and the folder, if nothing else is in it. */
static void remove_scratch(int parent, const char *name)
{
	int fd = own_open_folder(parent, name);
	DIR *folder = fd >= 0 ? fdopendir(fd) : NULL;

	if (!folder) {
		fd_close(fd);
		return;
	}
	for (struct dirent *entry = readdir(folder); entry; entry = readdir(folder))
		if (is_scratch_file(entry->d_name))
			(void)unlinkat(fd, entry->d_name, 0);
	closedir(folder);
	(void)unlinkat(parent, name, AT_REMOVEDIR);
}

static bool is_users_folder(const char *name)
{
	return name[strspn(name, "0123456789")] == '\0';
}

/* Sums of gradients of a step that a dead daemon never ended, and drafts of jobs that never began; what jobs
 * keep is restored (restore.c). */
static void remove_leftovers(struct node_path *path)
{
	int fd = openat(path->directory_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *directory = fd >= 0 ? fdopendir(fd) : NULL;

	if (!directory) {
		fd_close(fd);
		return;
	}
	for (struct dirent *entry = readdir(directory); entry; entry = readdir(directory))
		if (is_users_folder(entry->d_name))
			remove_scratch(path->directory_fd, entry->d_name);
	closedir(directory);
}

/* A file like those that will be there, without a name: nothing is left of it if tierd is ended meanwhile.
 * Not all file systems have such. */
static int open_probe(int directory_fd, int flags)
{
	int fd = openat(directory_fd, ".", O_RDWR | O_TMPFILE | O_CLOEXEC | flags, 0600);

	if (fd >= 0 || (errno != EOPNOTSUPP && errno != EISDIR))
		return fd;
	unlinkat(directory_fd, ".probe", 0);
	fd = openat(directory_fd, ".probe", O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | flags, 0600);
	unlinkat(directory_fd, ".probe", 0);
	return fd;
}

static bool probe_direct(int directory_fd)
{
	_cleanup_close_ int fd = open_probe(directory_fd, O_DIRECT);

	return fd >= 0;
}

/* A running job must never meet a full disk: that is what the reservation is for. */
static const struct file_system_rule {
	const char *follows, *way;
} reserving = { "so a running job may meet a full disk, unless you keep room free there",
		"set file_system = any in [nvme]" },
  lasting = { "so no job is durable there", "for tests alone, set file_system = memory in [nvme]" };

static int check_file_system(const struct node_path *path, const struct node_config *config)
{
	_cleanup_close_ int fd = open_probe(path->directory_fd, 0);
	const struct reservation_breach *breach = fd >= 0 ? reservation_look(fd) : NULL;
	const struct file_system_rule *rule;

	if (!breach)
		return 0;
	rule = breach->is_memory ? &lasting : &reserving;
	if (breach->is_memory ? config->needs_disk : config->needs_reservation) {
		log_error("%s cannot be used: it is on %s, %s, %s; %s; or %s", path->path, breach->what,
			  breach->why, rule->follows, breach->remedy, rule->way);
		return -EOPNOTSUPP;
	}
	log_warning("%s is on %s, %s, %s", path->path, breach->what, breach->why, rule->follows);
	return 0;
}

static int open_folder(struct node_path *path)
{
	_cleanup_close_ int parent = open(path->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	if (parent < 0)
		return -errno;
	if (mkdirat(parent, "tierd", 0700) < 0 && errno != EEXIST)
		return -errno;
	path->directory_fd = openat(parent, "tierd", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (path->directory_fd < 0)
		return -errno;
	/* It may be read-only for us alone, in a sandbox: found out by the first job, that would be too late.
	 */
	if (faccessat(path->directory_fd, ".", W_OK | X_OK, AT_EACCESS) < 0)
		return -errno;
	return flock(path->directory_fd, LOCK_EX | LOCK_NB) == 0 ? 0 : errno == EWOULDBLOCK ? -EBUSY : -errno;
}

/* Paths on one disk have one schedule, or each would leave room for demand reads that the other fills. */
static int find_device(struct node *node, unsigned index)
{
	struct node_path *path = &node->paths[index];
	struct stat status;

	if (fstat(path->directory_fd, &status) < 0)
		return -errno;
	path->file_system = status.st_dev;
	for (unsigned i = 0; i < index; i++)
		if (node->paths[i].file_system == path->file_system) {
			path->device = node->paths[i].device;
			return 0;
		}
	path->device = node->resources->device_count++;
	return 0;
}

/* What a plain "Permission denied" would leave to guess: what was wanted there, and as whom. */
static void log_unusable(const struct node_path *path, int r)
{
	const struct passwd *user = getpwuid(geteuid());
	const char *name = user ? user->pw_name : "tierd's user";

	if (r == -EBUSY)
		log_error("%s is in use by another tierd; end that one, or give each a path of its own",
			  path->path);
	else if (r == -EACCES || r == -EPERM)
		log_error("%s cannot be used: %s wants to make a folder \"tierd\" in it and to write there: "
			  "%s; as root: install -d -o %s -m 0700 %s",
			  path->path, name, strerror(-r), name, path->folder);
	else if (r == -EROFS)
		log_error("%s cannot be used: it is read-only; of a service, ReadWritePaths= has to name %s",
			  path->path, path->folder);
	else
		log_error("%s cannot be used: %s; a path is an existing folder that %s may write to",
			  path->path, strerror(-r), name);
}

/* Who may rename what is in it makes one user's job another's. */
static int check_owner(const struct node_path *path)
{
	char message[1024];
	int r = own_check_folder(path->directory_fd, path->folder, message, sizeof(message));

	if (r < 0)
		log_error("%s cannot be used: %s", path->path, message);
	return r;
}

static int open_path(struct node *node, const struct node_config *config, unsigned index)
{
	struct node_path *path = &node->paths[index];
	int r;

	path->directory_fd = -1;
	path->capacity = config->paths[index].capacity;
	path->endurance = config->paths[index].endurance;
	path->path = strdup(config->paths[index].path);
	if (!path->path || asprintf(&path->folder, "%s/tierd", path->path) < 0) {
		free(path->path);
		return -ENOMEM;
	}
	node->path_count++;
	r = open_folder(path);
	if (r == 0)
		r = find_device(node, index);
	if (r < 0) {
		log_unusable(path, r);
		return r;
	}
	r = check_owner(path);
	if (r == 0)
		r = check_file_system(path, config);
	if (r < 0)
		return r;
	remove_leftovers(path);
	path->is_direct = !config->is_buffered_io && probe_direct(path->directory_fd);
	if (!path->is_direct)
		log_warning("%s: %s, falling back to buffered input and output, which takes more memory and "
			    "processor time",
			    path->path,
			    config->is_buffered_io ? "O_DIRECT is turned off"
						   : "the file system refuses O_DIRECT");
	return 0;
}

/* ---- Loop ---- */

static void on_engine(evutil_socket_t fd, short events, void *argument)
{
	engine_reap(((struct node *)argument)->engine);
}

static void on_workers(evutil_socket_t fd, short events, void *argument)
{
	workers_reap(((struct node *)argument)->workers);
}

static void on_slow_workers(evutil_socket_t fd, short events, void *argument)
{
	workers_reap(((struct node *)argument)->slow_workers);
}

static int watch_all(struct node *node)
{
	const struct {
		int fd;
		event_callback_fn callback;
	} watched[NODE_EVENTS] = { { engine_fd(node->engine), on_engine },
				   { workers_fd(node->workers), on_workers },
				   { workers_fd(node->slow_workers), on_slow_workers } };

	node->resources->events = calloc(1, sizeof(*node->resources->events));
	for (unsigned i = 0; node->resources->events && i < NODE_EVENTS; i++) {
		struct event *event =
			event_new(node->loop, watched[i].fd, EV_READ | EV_PERSIST, watched[i].callback, node);

		node->resources->events->events[i] = event;
		if (!event || event_add(event, NULL) < 0)
			return -ENOMEM;
	}
	return node->resources->events ? 0 : -ENOMEM;
}

static void unwatch_all(struct node *node)
{
	for (unsigned i = 0; node->resources->events && i < NODE_EVENTS; i++)
		if (node->resources->events->events[i])
			event_free(node->resources->events->events[i]);
	free(node->resources->events);
}

/* ---- Life ---- */

static int start_engine(struct node *node, const struct node_config *config)
{
	struct engine_config engine = { .queue_depth = config->queue_depth,
					.devices = node->resources->device_count,
					.background_bytes = config->background_bytes,
					.is_plain = config->is_plain_io };
	int r = engine_new(&engine, &node->engine);

	if (r < 0) {
		log_error("no input and output engine: %s; tierd cannot start without memory, threads and "
			  "descriptors for it",
			  strerror(-r));
		return r;
	}
	if (engine_why(node->engine) && config->needs_io_uring) {
		log_error(
			"io_uring is configured (engine = io_uring) but cannot be used: %s; allow it (sysctl "
			"kernel.io_uring_disabled=0), or set engine = auto",
			engine_why(node->engine));
		return -EOPNOTSUPP;
	}
	if (engine_why(node->engine) && !config->is_plain_io)
		log_warning("%s, falling back to threads with pread and pwrite", engine_why(node->engine));
	return 0;
}

static int start_threads(struct node *node, const struct node_config *config)
{
	int r = workers_new(config->workers, "tierd-work", &node->workers);

	if (r == 0)
		r = workers_new(1, "tierd-slow", &node->slow_workers);
	if (r == 0)
		r = collective_new(node->workers, &node->collective);
	if (r < 0)
		log_error(
			"the worker threads cannot be started: %s; allow more (TasksMax= of the service), or "
			"set fewer workers",
			strerror(-r));
	return r;
}

/* A sixteenth of the budget, within what keeps the devices busy. */
#define STAGING_PART 16
#define STAGING_MOST 16

unsigned node_staging_count(uint64_t host_budget)
{
	uint64_t wanted = host_budget / STAGING_PART / staging_bytes(1);

	return wanted < STAGING_LEAST  ? STAGING_LEAST
	       : wanted > STAGING_MOST ? STAGING_MOST
				       : (unsigned)wanted;
}

/* Where the budget gets large enough for one buffer more, less may be left than before: so it is the largest
 * number of buffers with which too little may be left. */
unsigned node_staging_beside(uint64_t bytes)
{
	unsigned count = STAGING_MOST;

	while (count > STAGING_LEAST && bytes + staging_bytes(count) <= STAGING_PART * staging_bytes(count))
		count--;
	return count;
}

static int start_staging(struct node *node)
{
	unsigned count = node_staging_count(node->settings.host_budget);
	int r = staging_init(node->staging, count, node->engine);

	if (r < 0) {
		log_error("no memory for %u staging buffers: %s; free some, or lower host_budget", count,
			  strerror(-r));
		return r;
	}
	node_note_pinning(node, node->staging->pinning);
	node->resources->host_used += staging_bytes(count);
	return 0;
}

void node_note_pinning(struct node *node, int r)
{
	struct rlimit limit = { 0 };

	if (r >= 0 || node->resources->has_noted_pinning)
		return;
	node->resources->has_noted_pinning = true;
	getrlimit(RLIMIT_MEMLOCK, &limit);
	if (r == -ENOMEM || r == -EPERM)
		log_warning("memory cannot be pinned for the devices: RLIMIT_MEMLOCK allows %llu KiB (raise "
			    "it by "
			    "ulimit -l, or LimitMEMLOCK= of the service), falling back to transfers that "
			    "take more "
			    "processor time",
			    (unsigned long long)limit.rlim_cur / KIB);
	else
		log_warning(
			"memory cannot be pinned for the devices: %s, falling back to transfers that take "
			"more processor time",
			strerror(-r));
}

int node_new(struct event_base *loop, const struct node_config *config, const struct node_parts *parts,
	     struct node **ret_node)
{
	struct node *node = calloc(1, sizeof(*node));
	int r = 0;

	if (node)
		node->resources = calloc(1, sizeof(*node->resources));
	if (!node || !node->resources) {
		free(node);
		log_error("out of memory; tierd cannot start");
		return -ENOMEM;
	}
	node->staging = &node->resources->staging;
	node->parts = parts;
	node->loop = loop;
	node->settings = config->settings;
	node->started_ns = clock_now_ns();
	node->fault = config->fault;
	node->staging->memory = (struct memory)MEMORY_INIT;
	queue_init(&node->jobs.live);
	queue_init(&node->jobs.dying);
	queue_init(&node->resources->withheld);
	queue_init(&node->resources->shortages);
	if (getrandom(&node->incarnation, sizeof(node->incarnation), 0) != sizeof(node->incarnation))
		node->incarnation = node->started_ns;
	r = telemetry_open(node);
	for (unsigned i = 0; i < config->path_count && r == 0; i++)
		r = open_path(node, config, i);
	if (r == 0)
		r = start_engine(node, config);
	if (r == 0)
		r = start_threads(node, config);
	if (r == 0)
		r = start_staging(node);
	if (r == 0)
		r = watch_all(node);
	if (r == 0 && parts->open)
		r = parts->open(node, config);
	if (r < 0) {
		node_free(node);
		return r;
	}
	*ret_node = node;
	return 0;
}

uint64_t node_path_left(const struct node_path *path)
{
	struct statvfs status;

	return fstatvfs(path->directory_fd, &status) == 0 ? (uint64_t)status.f_bavail * status.f_frsize : 0;
}

struct path_list node_all_paths(const struct node *node)
{
	struct path_list list = { .count = 0 };

	for (unsigned i = 0; i < node->path_count; i++)
		if (!node->paths[i].is_absent)
			list.paths[list.count++] = (uint8_t)i;
	return list;
}

bool node_has_settled(const struct node *node, uid_t uid)
{
	return queue_is_empty(&node->jobs.dying) && disposal_withheld(node, uid).is_known;
}

static bool is_idle(const struct node *node)
{
	QUEUE_FOREACH (link, &node->jobs.live) {
		const struct job *job = queue_entry(link, struct job, link);

		if (!job_is_broken(job) && (job->decided > job->step || node->parts->is_behind(job)))
			return false;
	}
	return true;
}

void node_check_idle(struct node *node)
{
	void (*on_idle)(void *) = node->resources->on_idle;

	if (!node->is_stopping || !on_idle || !is_idle(node))
		return;
	node->resources->on_idle = NULL;
	on_idle(node->resources->idle_argument);
}

void node_stop(struct node *node, void (*on_idle)(void *argument), void *argument)
{
	node->is_stopping = true;
	node->resources->on_idle = on_idle;
	node->resources->idle_argument = argument;
	QUEUE_FOREACH (link, &node->jobs.live)
		node->parts->hasten(queue_entry(link, struct job, link));
	node_check_idle(node);
}

void node_begin_work(struct node *node)
{
	node->resources->works++;
}

void node_end_work(struct node *node)
{
	node->resources->works--;
}

static bool has_ended(const struct node *node)
{
	return queue_is_empty(&node->jobs.live) && queue_is_empty(&node->jobs.dying) &&
	       (!node->parts->has_ended || node->parts->has_ended(node)) && node->resources->works == 0;
}

/* But for calls that may never return. */
static bool has_nearly_ended(const struct node *node)
{
	const struct node_parts *parts = node->parts;

	if (!parts->give_up || !queue_is_empty(&node->jobs.live) ||
	    node->resources->works != parts->kept_works(node))
		return false;
	QUEUE_FOREACH (link, &node->jobs.dying)
		if (!parts->is_kept(queue_entry(link, struct job, link)))
			return false;
	return !parts->has_ended || parts->has_ended(node);
}

/* Nobody wakes the loop up for what does not happen. */
static void on_pause(evutil_socket_t fd, short events, void *argument)
{
}

static struct event *start_pauses(struct node *node)
{
	static const struct timeval pause = { .tv_usec = 500000 };
	struct event *event = event_new(node->loop, -1, EV_PERSIST, on_pause, NULL);

	if (event)
		event_add(event, &pause);
	return event;
}

/* Jobs end when nothing of theirs is in flight; the loop is not running any more. One that was on its way
 * back arrives first. */
static void end_jobs(struct node *node)
{
	struct event *pauses = node->loop ? start_pauses(node) : NULL;

	while (!has_ended(node)) {
		for (struct queue *link = queue_first(&node->jobs.live); link;
		     link = queue_first(&node->jobs.live))
			node->parts->end_job(queue_entry(link, struct job, link));
		event_base_loop(node->loop, EVLOOP_ONCE);
		if (has_nearly_ended(node))
			node->parts->give_up(node);
	}
	if (pauses)
		event_free(pauses);
}

struct node *node_free(struct node *node)
{
	if (!node)
		return NULL;
	end_jobs(node);
	disposal_forget_all(node);
	if (node->parts->close)
		node->parts->close(node);
	unwatch_all(node);
	collective_free(node->collective);
	workers_free(node->workers);
	workers_free(node->slow_workers);
	if (node->engine)
		staging_clear(node->staging, node->engine);
	engine_free(node->engine);
	telemetry_close(node);
	for (unsigned i = 0; i < node->path_count; i++) {
		fd_close(node->paths[i].directory_fd);
		free(node->paths[i].path);
		free(node->paths[i].folder);
	}
	free(node->resources);
	free(node);
	return NULL;
}
