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
#include "daemon/config.h"
#include "daemon/config_defaults.h"
#include "daemon/lock.h"
#include "daemon/node.h"
#include "daemon/notify.h"
#include "daemon/server.h"

enum { EXIT_RUNTIME = 1, EXIT_USAGE = 2 };

struct daemon {
	const struct config *config;
	struct event_base *loop;
	struct node *node;
	struct server *server;
	int lock;
	bool is_stopping;
	struct event terminate, interrupt, hang_up;
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

/* ---- Signals ---------------------------------------------------------------------------------------------
 */

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
	log_info("ending: finishing the steps that were decided");
	notify_stopping("finishing the running steps");
	server_close(daemon->server);
	node_stop(daemon->node, on_idle, daemon);
}

static void on_hang_up(evutil_socket_t number, short what, void *argument)
{
	log_warning("SIGHUP: the configuration is read at start only; restart tierd to change it");
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

/* ---- Start and end ---------------------------------------------------------------------------------------
 */

static int take_lock(struct daemon *daemon)
{
	const char *folder = daemon->config->state_directory;
	pid_t holder = 0;
	int r = lock_take(folder, &holder);

	if (r == -EBUSY && holder > 0)
		log_error("the state directory %s is in use by another tierd, pid %d", folder, holder);
	else if (r == -EBUSY)
		log_error("the state directory %s is in use by another tierd", folder);
	else if (r < 0)
		log_error("the state directory %s cannot be used: %s", folder, strerror(-r));
	if (r < 0)
		return r;
	daemon->lock = r;
	return 0;
}

static int start_node(struct daemon *daemon)
{
	const struct config *config = daemon->config;
	struct node_config node = {
		.host_budget = config->host_budget,
		.workers = config->workers,
		.queue_depth = config->queue_depth,
		.background_bytes = config->background_bytes,
		.is_plain_io = config->io_engine == CONFIG_ENGINE_PLAIN,
		.is_buffered_io = config->direct_io == CONFIG_DIRECT_OFF,
		.path_count = config->path_count,
		.fault = config->fault,
	};
	int r;

	_Static_assert(CONFIG_MAX_PATHS <= NODE_MAX_PATHS, "every configured path has a place in the node");
	for (unsigned i = 0; i < config->path_count; i++) {
		node.paths[i].path = config->paths[i].path;
		node.paths[i].capacity = config->paths[i].capacity;
	}
	r = node_new(daemon->loop, &node, &daemon->node);
	if (r < 0)
		return r;
	if (config->io_engine == CONFIG_ENGINE_IO_URING && engine_why(daemon->node->engine)) {
		log_error("io_uring is configured (engine = io_uring) but cannot be used: %s",
			  engine_why(daemon->node->engine));
		return -EOPNOTSUPP;
	}
	if (config->path_count == 0)
		log_warning("no NVMe path is configured: all state stays in host memory");
	return 0;
}

static int start_server(struct daemon *daemon)
{
	const struct config *config = daemon->config;
	struct server_config server = {
		.path = config->socket,
		.mode = config_is_system() ? 0660 : 0600,
		.maximum_connections = config->connections,
		.maximum_requests = config->requests_per_connection,
		.maximum_output = config->output_queue,
		.first_frame_ms = config->first_frame_seconds * 1000,
		.frame_ms = config->frame_seconds * 1000,
	};

	return server_new(daemon->loop, daemon->node, &server, &daemon->server);
}

static int start(struct daemon *daemon)
{
	int r = take_lock(daemon);

	if (r < 0)
		return r;
	daemon->loop = event_base_new();
	if (!daemon->loop) {
		log_error("the event loop cannot be created");
		return -ENOMEM;
	}
	r = start_node(daemon);
	if (r == 0)
		r = start_server(daemon);
	if (r == 0)
		r = watch_signals(daemon);
	return r;
}

static void stop(struct daemon *daemon)
{
	server_free(daemon->server);
	node_free(daemon->node);
	if (event_initialized(&daemon->terminate))
		event_del(&daemon->terminate);
	if (event_initialized(&daemon->interrupt))
		event_del(&daemon->interrupt);
	if (event_initialized(&daemon->hang_up))
		event_del(&daemon->hang_up);
	if (daemon->loop)
		event_base_free(daemon->loop);
	fd_close(daemon->lock);
}

static int run(const struct config *config)
{
	struct daemon daemon = { .config = config, .lock = -1 };
	char status[256];
	int r;

	signal(SIGPIPE, SIG_IGN);
	umask(077);
	raise_limit(RLIMIT_MEMLOCK, "MEMLOCK");
	raise_limit(RLIMIT_NOFILE, "NOFILE");

	r = start(&daemon);
	if (r == 0) {
		snprintf(status, sizeof(status),
			 "listening at %.100s; host memory: %llu MiB, NVMe paths: %u; state ends with the "
			 "daemon",
			 config->socket, (unsigned long long)(config->host_budget / MIB), config->path_count);
		log_info("tierd " TIERD_VERSION " is %s", status);
		notify_ready(status);
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

	log_open(LOG_LEVEL_INFO);
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
		config_print(config, stdout);
		return EXIT_SUCCESS;
	case CONFIG_RUN:
		break;
	}
	return run(config);
}
