#include <errno.h>
#include <event2/event.h>
#include <event2/event_struct.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include "common/log.h"
#include "common/size.h"
#include "daemon/life/life.h"
#include "daemon/observe/observe.h"
#include "daemon/recovery/recovery.h"
#include "daemon/resources/resources.h"
#include "daemon/scrub/scrub.h"
#include "daemon/service/config.h"
#include "daemon/service/config_defaults.h"
#include "daemon/service/lock.h"
#include "daemon/service/node_parts.h"
#include "daemon/service/reload.h"
#include "daemon/service/systemd.h"
#include "daemon/service/turns.h"
#include "daemon/session/session.h"
#include "daemon/telemetry/telemetry.h"

enum { EXIT_RUNTIME = 1, EXIT_USAGE = 2 };

struct daemon {
	struct config *config;
	int argc;
	char **argv;
	struct event_base *loop;
	struct node *node;
	struct server *server;
	struct statistics *statistics;
	int lock, inherited_socket;
	bool is_stopping;
	struct event terminate, interrupt, hang_up, heartbeat;
	char status[256]; /* as the service manager knows it */
};

static void raise_limit(int resource, const char *name)
{
	struct rlimit limit;

	if (getrlimit(resource, &limit) < 0)
		return;
	limit.rlim_cur = limit.rlim_max;
	if (setrlimit(resource, &limit) < 0)
		log_debug("the limit %s cannot be raised: %s", name, strerror(errno));
}

/* ---- What the service manager sees ---- */

static void describe(const struct daemon *daemon, char *text, size_t size)
{
	const struct node *node = daemon->node;
	unsigned jobs = 0;

	QUEUE_FOREACH (link, &node->jobs.live)
		jobs++;
	snprintf(text, size,
		 "listening at %.100s; jobs: %u, clients: %u; host memory: %llu MiB used, budget %llu MiB; "
		 "NVMe paths: %u",
		 daemon->config->socket, jobs, telemetry_clients(node)->connected,
		 (unsigned long long)(budget_host_used(node) / MIB),
		 (unsigned long long)(node->settings.host_budget / MIB), node->path_count);
}

/* The loop itself says that it lives, so that one that hangs falls silent, and is killed. */
static void on_heartbeat(evutil_socket_t fd, short what, void *argument)
{
	struct daemon *daemon = argument;
	char status[sizeof(daemon->status)];

	notify_alive();
	if (daemon->is_stopping)
		return;
	describe(daemon, status, sizeof(status));
	if (strcmp(status, daemon->status) == 0)
		return;
	memcpy(daemon->status, status, sizeof(status));
	notify_status(status);
}

/* At half of the interval, so that a late one is no dead one. */
static int start_heartbeat(struct daemon *daemon)
{
	uint64_t half_us = notify_watchdog_us() / 2;
	struct timeval period = { .tv_sec = (time_t)(half_us / 1000000),
				  .tv_usec = (suseconds_t)(half_us % 1000000) };

	if (half_us == 0)
		return 0;
	event_assign(&daemon->heartbeat, daemon->loop, -1, EV_PERSIST, on_heartbeat, daemon);
	return event_add(&daemon->heartbeat, &period) < 0 ? -ENOMEM : 0;
}

static void say_ready(struct daemon *daemon)
{
	describe(daemon, daemon->status, sizeof(daemon->status));
	notify_ready(daemon->status);
}

/* ---- Signals ---- */

static void on_idle(void *argument)
{
	struct daemon *daemon = argument;

	event_base_loopbreak(daemon->loop);
}

static void on_terminate(evutil_socket_t number, short what, void *argument)
{
	struct daemon *daemon = argument;

	if (daemon->is_stopping) {
		log_warning("ending at once, without finishing the running steps");
		event_base_loopbreak(daemon->loop);
		return;
	}
	daemon->is_stopping = true;
	events_of_node(daemon->node, EVENT_STOPPING, NULL, "ending: finishing the steps that were decided");
	notify_stopping("finishing the running steps");
	server_close(daemon->server);
	node_stop(daemon->node, on_idle, daemon);
}

static struct node_settings settings_of(const struct config *config)
{
	return (struct node_settings){
		.host_budget = config->host_budget,
		.cache_patience_ms = NODE_CACHE_PATIENCE_MS,
		.idle_release_ms = (uint64_t)config->idle_release_seconds * 1000,
		.durability = config->durability,
		.administrators = &config->administrators,
		.limits = &config->limits,
		.jobs_per_user = config->jobs_per_user,
		.units_per_job = config->units_per_job,
		.tensors_per_job = config->tensors_per_job,
		.job_name_length = config->job_name_length,
		.name_length = config->name_length,
		.dimensions_per_tensor = config->dimensions_per_tensor,
		.connections_per_user = config->connections_per_user < config->connections
						? config->connections_per_user
						: config->connections,
		.gpu_exchange = config->gpu_exchange,
		.gpu_exchange_seconds = config->gpu_exchange_seconds,
		.gpu_sums = config->gpu_sums,
	};
}

static struct server_limits limits_of(const struct config *config)
{
	return (struct server_limits){
		.maximum_connections = config->connections,
		.maximum_per_user = config->connections_per_user,
		.maximum_requests = config->requests_per_connection,
		.maximum_output = config->output_queue,
		.maximum_frame = config->frame_size,
		.first_frame_ms = config->first_frame_seconds * 1000,
		.frame_ms = config->frame_seconds * 1000,
	};
}

static void on_hang_up(evutil_socket_t number, short what, void *argument)
{
	struct daemon *daemon = argument;
	struct config_problem problem;
	struct server_limits limits;
	int changes;

	if (daemon->is_stopping)
		return;
	notify_reloading();
	changes = reload(daemon->config, daemon->argc, daemon->argv, &problem);
	if (changes < 0)
		log_error("%s; the configuration stays as it was", problem.text);
	else
		events_of_node(daemon->node, EVENT_RELOADED, NULL,
			       "the configuration was read again; keys that have changed: %d", changes);
	log_open((enum log_level)daemon->config->log_level);
	daemon->node->settings = settings_of(daemon->config);
	observe_set_endurance(daemon->node, daemon->config->endurance);
	scrub_set_period(daemon->node, scrub_period_ns(daemon->config->scrub_days));
	limits = limits_of(daemon->config);
	server_limit(daemon->server, &limits);
	say_ready(daemon);
}

/* Before it listens: nobody has been promised anything yet, and what is on the devices bears an end at any
 * moment. */
static void end_at_once(int number)
{
	_exit(EXIT_SUCCESS);
}

static int watch_signal(struct daemon *daemon, struct event *event, int number, event_callback_fn callback)
{
	event_assign(event, daemon->loop, number, EV_SIGNAL | EV_PERSIST, callback, daemon);
	return event_add(event, NULL) < 0 ? -ENOMEM : 0;
}

static int watch_signals(struct daemon *daemon)
{
	int r = watch_signal(daemon, &daemon->terminate, SIGTERM, on_terminate);

	if (r == 0)
		r = watch_signal(daemon, &daemon->interrupt, SIGINT, on_terminate);
	if (r == 0)
		r = watch_signal(daemon, &daemon->hang_up, SIGHUP, on_hang_up);
	return r;
}

/* ---- Start and end ---- */

static int take_lock(struct daemon *daemon)
{
	char message[1024];
	int r = lock_take(daemon->config->state_directory, message, sizeof(message));

	if (r < 0)
		log_error("%s", message);
	if (r < 0)
		return r;
	daemon->lock = r;
	return 0;
}

static int start_node(struct daemon *daemon)
{
	const struct config *config = daemon->config;
	struct node_config node = {
		.settings = settings_of(config),
		.workers = config->workers,
		.queue_depth = config->queue_depth,
		.background_bytes = config->background_bytes,
		.is_plain_io = config->io_engine == CONFIG_ENGINE_PLAIN,
		.needs_io_uring = config->io_engine == CONFIG_ENGINE_IO_URING,
		.is_buffered_io = config->direct_io == CONFIG_DIRECT_OFF,
		.path_count = config->path_count,
		.needs_reservation = config->file_system == CONFIG_FILE_SYSTEM_RESERVING,
		.needs_disk = config->file_system != CONFIG_FILE_SYSTEM_MEMORY,
		.scrub_days = config->scrub_days,
		.endurance = config->endurance,
		.state_directory = config->state_directory,
		.fault = config->fault,
	};
	int r;

	_Static_assert(CONFIG_MAX_PATHS <= NODE_MAX_PATHS, "every configured path has a place in the node");
	for (unsigned i = 0; i < config->path_count; i++) {
		node.paths[i].path = config->paths[i].path;
		node.paths[i].capacity = config->paths[i].capacity;
		node.paths[i].endurance = config->paths[i].endurance;
	}
	r = node_new(daemon->loop, &node, &node_parts, &daemon->node);
	if (r < 0)
		return r;
	if (config->path_count == 0)
		log_warning("no NVMe path is configured (path = in [nvme]): all state stays in host memory, "
			    "and a job that does not fit there is refused");
	return 0;
}

static int start_server(struct daemon *daemon)
{
	const struct config *config = daemon->config;
	struct server_config server = {
		.path = config->socket,
		.mode = config_is_system() ? 0660 : 0600,
		.inherited = TAKE_FD(daemon->inherited_socket),
		.limits = limits_of(config),
	};

	int r = server_new(daemon->loop, daemon->node, &server, &daemon->server);

	if (r < 0)
		return r;
	/* Now the folder of the socket is there. */
	r = statistics_new(daemon->node, server.path, server.mode, &daemon->statistics);
	if (r < 0)
		log_error("no memory for the statistics: %s; tierd cannot start", strerror(-r));
	return r;
}

static int start(struct daemon *daemon)
{
	int r = activation_take(daemon->config->socket, &daemon->inherited_socket);

	if (r == 0)
		r = take_lock(daemon);
	if (r < 0)
		return r;
	daemon->loop = loop_new();
	if (!daemon->loop) {
		log_error("the event loop cannot be created: no memory or descriptors are left; tierd cannot "
			  "start");
		return -ENOMEM;
	}
	r = start_node(daemon);
	if (r == 0)
		r = restore_all(daemon->node);
	if (r < 0)
		return r;
	r = watch_signals(daemon);
	if (r == 0)
		r = start_heartbeat(daemon);
	if (r < 0)
		log_error("no memory for signals and heartbeat: %s; tierd cannot start", strerror(-r));
	return r == 0 ? start_server(daemon) : r;
}

/* Who asks again for what is happening would otherwise kill it, once nobody handles signals any more; and the
 * loop, which turns on while jobs end, has nothing to say of them. */
static void ignore_signals(struct daemon *daemon)
{
	struct event *events[] = { &daemon->terminate, &daemon->interrupt, &daemon->hang_up };
	sigset_t signals;

	sigemptyset(&signals);
	sigaddset(&signals, SIGTERM);
	sigaddset(&signals, SIGINT);
	sigaddset(&signals, SIGHUP);
	sigprocmask(SIG_BLOCK, &signals, NULL);
	for (size_t i = 0; i < ARRAY_LENGTH(events); i++)
		if (event_initialized(events[i]))
			event_del(events[i]);
}

static void stop(struct daemon *daemon)
{
	ignore_signals(daemon);
	/* The heartbeat goes on meanwhile: jobs may have much to give back. */
	daemon->is_stopping = true;
	server_free(daemon->server);
	statistics_free(daemon->statistics);
	node_free(daemon->node);
	if (event_initialized(&daemon->heartbeat))
		event_del(&daemon->heartbeat);
	if (daemon->loop)
		event_base_free(daemon->loop);
	fd_close(daemon->lock);
	fd_close(daemon->inherited_socket);
}

static int run(struct config *config, int argc, char *argv[])
{
	struct daemon daemon = {
		.config = config, .argc = argc, .argv = argv, .lock = -1, .inherited_socket = -1
	};
	int r;

	signal(SIGPIPE, SIG_IGN);
	/* To whoever has a lease on a file that another one opens: see memory_is_alone(). */
	signal(SIGIO, SIG_IGN);
	umask(077);
	raise_limit(RLIMIT_MEMLOCK, "MEMLOCK");
	raise_limit(RLIMIT_NOFILE, "NOFILE");
	turns_take_soon();
	config_warn(config);

	r = start(&daemon);
	if (r == 0) {
		say_ready(&daemon);
		log_info("tierd " TIERD_VERSION " is %s", daemon.status);
		event_base_dispatch(daemon.loop);
	}
	stop(&daemon);
	if (r == 0)
		log_info("ended");
	return r < 0 ? EXIT_RUNTIME : EXIT_SUCCESS;
}

int main(int argc, char *argv[])
{
	_cleanup_(config_freep) struct config *config = NULL;
	struct config_problem problem;

	signal(SIGTERM, end_at_once);
	signal(SIGINT, end_at_once);
	log_open(LOG_LEVEL_INFO);
	journal_open();
	if (config_new(argc, argv, &config, &problem) < 0) {
		log_error("%s", problem.text);
		return EXIT_USAGE;
	}
	log_open((enum log_level)config->log_level);
	switch (config->action) {
	case CONFIG_HELP:
		config_print_help(stdout);
		return EXIT_SUCCESS;
	case CONFIG_VERSION:
		puts("tierd " TIERD_VERSION);
		return EXIT_SUCCESS;
	case CONFIG_CHECK:
		config_warn(config);
		config_print(config, stdout);
		return EXIT_SUCCESS;
	case CONFIG_PLAN:
		log_open(LOG_LEVEL_ERROR);
		return plan_serve(stdin, stdout) < 0 ? EXIT_RUNTIME : EXIT_SUCCESS;
	case CONFIG_RUN:
		break;
	}
	return run(config, argc, argv);
}
