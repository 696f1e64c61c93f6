#include "daemon/session/server.h"

#include <errno.h>
#include <event2/event.h>
#include <event2/event_struct.h>
#include <fcntl.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include "common/clock.h"
#include "common/log.h"
#include "common/own.h"
#include "common/plural.h"
#include "daemon/telemetry/telemetry.h"
#include "daemon/resources/resources.h"
#include "daemon/session/session_inside.h"
#include "proto/pages.h"

#define PAUSE_MS 100
#define LEASE_LOOK_MS 1000
/* So many connections in so long are taken at most: a connection costs as much as two requests, and who has
 * one need not feel how many others come and go. The kernel keeps the rest waiting, in order. */
#define PACE_COUNT 8
#define PACE_MS 1
/* So many wait at most for that: a user who connects again and again may have all of these places, and the
 * next one waits until they are through. Who finds none waits in connect(). */
#define BACKLOG 128

struct server {
	struct session_shared shared;
	struct throttles throttles;
	struct queue sessions; /* the oldest first */
	char *path;
	int socket;
	bool is_inherited; /* the socket, from the service manager, which keeps its file */
	bool is_pausing;   /* there are no descriptors to accept with */
	bool is_pacing;	   /* enough have come for now */
	unsigned burst;	   /* connections taken since burst_ns */
	uint64_t burst_ns;
	struct event accepting, pause, pace;
};

/* ---- The socket ---- */

static int make_address(const char *path, struct sockaddr_un *address)
{
	*address = (struct sockaddr_un){ .sun_family = AF_UNIX };
	if (strlen(path) >= sizeof(address->sun_path))
		return -ENAMETOOLONG;
	strcpy(address->sun_path, path);
	return 0;
}

/* Bytes of the folder in a path; 0: it is the root, or none is named. */
static size_t folder_bytes(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash ? (size_t)(slash - path) : 0;
}

static bool is_runtime_folder(const char *folder)
{
	const char *const parents[] = { "/run", getenv("XDG_RUNTIME_DIR") };

	for (size_t i = 0; i < ARRAY_LENGTH(parents); i++) {
		size_t length = parents[i] ? strlen(parents[i]) : 0;

		while (length > 0 && parents[i][length - 1] == '/')
			length--;
		if (length > 0 && length == folder_bytes(folder) && strncmp(folder, parents[i], length) == 0)
			return true;
	}
	return false;
}

/* Where it goes by itself, when the machine ends or the user leaves: elsewhere one that is missing is a
 * mistake. True: it is new. */
static bool make_folder(const char *folder)
{
	return is_runtime_folder(folder) && mkdir(folder, 0700) == 0;
}

/* Group and others may search it where they may use the socket. Whoever could put something else in the place
 * of the socket would be taken for us by its clients. */
static int open_folder(const char *path, mode_t mode)
{
	size_t length = folder_bytes(path);
	_cleanup_free_ char *folder = length ? strndup(path, length) : strdup(path[0] == '/' ? "/" : ".");
	_cleanup_close_ int fd = -1;
	char message[1024];
	bool is_new;
	int r;

	if (!folder)
		return -ENOMEM;
	is_new = make_folder(folder);
	fd = open(folder, O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	r = own_check_shared(fd, folder, message, sizeof(message));
	if (r < 0) {
		log_error("cannot listen at %s: %s; or choose another --socket", path, message);
		return -ENOTUNIQ;
	}
	return is_new && fchmodat(fd, ".", mode & 0060 ? 0750 : 0700, 0) < 0 ? -errno : TAKE_FD(fd);
}

/* Removes a socket file that a dead daemon left. */
static int remove_stale(const struct sockaddr_un *address)
{
	_cleanup_close_ int probe = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	struct stat file;

	if (lstat(address->sun_path, &file) < 0)
		return errno == ENOENT ? 0 : -errno;
	if (!S_ISSOCK(file.st_mode))
		return -EEXIST;
	if (probe < 0)
		return -errno;
	if (connect(probe, (const struct sockaddr *)address, sizeof(*address)) == 0 || errno == EAGAIN)
		return -EADDRINUSE;
	if (errno != ECONNREFUSED)
		return -errno;
	return unlink(address->sun_path) < 0 ? -errno : 0;
}

/* Another folder may have come to that path meanwhile. */
static int set_mode(int folder, const char *path, mode_t mode)
{
	const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
	struct stat file;

	if (fstatat(folder, name, &file, AT_SYMLINK_NOFOLLOW) < 0)
		return -errno;
	if (!S_ISSOCK(file.st_mode) || file.st_uid != geteuid())
		return -EEXIST;
	return fchmodat(folder, name, mode, 0) < 0 ? -errno : 0;
}

static int listen_at(const char *path, mode_t mode, int *ret_socket)
{
	_cleanup_close_ int listening = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	_cleanup_close_ int folder = -1;
	struct sockaddr_un address;
	int r = make_address(path, &address);

	if (listening < 0)
		return -errno;
	if (r < 0)
		return r;
	folder = open_folder(path, mode);
	if (folder < 0)
		return folder;
	r = remove_stale(&address);
	if (r < 0)
		return r;
	/* Made for nobody else, as all that the daemon makes; in a folder where nobody can have put anything
	 * in its place its mode is changed, before anybody can connect. */
	if (bind(listening, (const struct sockaddr *)&address, sizeof(address)) < 0)
		return -errno;
	r = set_mode(folder, path, mode);
	if (r < 0)
		return r;
	if (listen(listening, BACKLOG) < 0)
		return -errno;
	*ret_socket = TAKE_FD(listening);
	return 0;
}

static const char *explain_listen(int r)
{
	switch (r) {
	case -EADDRINUSE:
		return "another daemon listens there; end it, or choose another --socket";
	case -EEXIST:
		return "there is a file that is not a socket; remove it, or choose another --socket";
	case -ENAMETOOLONG:
		return "the path of a socket has at most 107 bytes";
	default:
		return strerror(-r);
	}
}

/* ---- Sessions ---- */

static void resume(struct server *server)
{
	if (!server->is_pausing)
		return;
	server->is_pausing = false;
	event_del(&server->pause);
	if (!server->is_pacing)
		event_add(&server->accepting, NULL);
}

static void on_over(struct session *session, void *argument)
{
	struct server *server = argument;

	session_free(session);
	resume(server);
}

/* The connections of one user (but the spare one), or of all, and of those the oldest that never said hello:
 * it makes room for a new one, so that no number of them keeps others out. */
struct census {
	unsigned count;
	struct session *silent;
};

static bool is_own(const struct session *session, const struct session *newest)
{
	return session->port.uid == newest->port.uid;
}

/* It has ended, and nothing keeps it beyond this turn of the loop. */
static bool is_going(const struct session *session)
{
	return session->state == SESSION_ENDED && !session->has_hung_up;
}

static struct census count_sessions(struct server *server, const struct session *newest, bool of_all)
{
	struct census census = { 0 };

	QUEUE_FOREACH (link, &server->sessions) {
		struct session *session = queue_entry(link, struct session, link);

		if (is_going(session) || !(of_all || is_own(session, newest)))
			continue;
		census.count += of_all || !session->is_spare;
		if (!census.silent && session != newest && session->state == SESSION_HELLO)
			census.silent = session;
	}
	return census;
}

static void refuse_user(struct server *server, struct session *session)
{
	const struct principal_list *administrators = server->shared.node->settings.administrators;

	session_refuse(
		session, 0, -EBUSY,
		"user %u has %u connection%s, all that he may have (a job takes one for each rank); end one "
		"(tierctl goes on), or ask %s to raise connections_per_user in tierd.conf",
		session->port.uid, server->shared.limits.maximum_per_user,
		PLURAL(server->shared.limits.maximum_per_user),
		administrators && administrators->count > 0 ? administrators->text : "those who run tierd");
}

/* Whoever has all his connections gets one more, to see and end what has them. The silent go first; then it
 * is the newest that may turn out to need no more than that. */
static void make_place_of_user(struct server *server, struct session *newest)
{
	struct census own = count_sessions(server, newest, false);
	bool has_place = own.silent && !own.silent->is_spare;

	if (own.count <= server->shared.limits.maximum_per_user)
		return;
	if (own.silent)
		refuse_user(server, own.silent);
	if (!has_place)
		newest->is_spare = true;
}

/* Of the same user first, so that nobody takes a place from others who has enough himself. */
static void make_place(struct server *server, struct session *newest)
{
	struct census all;

	make_place_of_user(server, newest);
	all = count_sessions(server, newest, true);
	if (all.count > server->shared.limits.maximum_connections && all.silent)
		session_refuse(all.silent, 0, -EBUSY, "it said nothing, and others need its connection");
	else if (all.count > server->shared.limits.maximum_connections)
		session_refuse(newest, 0, -EBUSY,
			       "all connections (%u) are in use; end one, or raise connections in tierd.conf",
			       server->shared.limits.maximum_connections);
}

/* There is one for each user: the newest, so that none that hangs keeps him out. */
static void on_greeted(struct session *newest, bool is_trainer, void *argument)
{
	struct server *server = argument;

	if (is_trainer) {
		refuse_user(server, newest);
		return;
	}
	QUEUE_FOREACH (link, &server->sessions) {
		struct session *session = queue_entry(link, struct session, link);

		if (session != newest && is_own(session, newest) && session->is_spare &&
		    session->state != SESSION_HELLO)
			session_refuse(
				session, 0, -EBUSY,
				"user %u has all his connections, and a newer one took the place of this",
				session->port.uid);
	}
}

static void add_session(struct server *server, int socket)
{
	struct session *session;
	int r = session_new(socket, &server->shared, &session);

	if (r < 0) {
		if (r != -ESRCH)
			events_of_node(server->shared.node, EVENT_NOT_CONNECTED, NULL,
				       "a connection is refused: %s; its client may try again", strerror(-r));
		return;
	}
	queue_push(&server->sessions, &session->link);
	make_place(server, session);
}

/* ---- The loop's calls ---- */

/* Without descriptors the listening socket stays readable: waiting for it would be spinning. */
static void pause_accepting(struct server *server, int r)
{
	struct timeval delay = { .tv_usec = PAUSE_MS * 1000 };

	events_of_node(server->shared.node, EVENT_NOT_CONNECTED, NULL,
		       "a connection cannot be accepted, and waits: %s%s", strerror(-r),
		       r == -EMFILE || r == -ENFILE ? "; raise LimitNOFILE" : "");
	server->is_pausing = true;
	event_del(&server->accepting);
	event_add(&server->pause, &delay);
}

static void keep_pace(struct server *server)
{
	const struct timeval delay = { .tv_usec = PACE_MS * 1000 };
	uint64_t now = clock_now_ns();

	if (now - server->burst_ns >= PACE_MS * UINT64_C(1000000)) {
		server->burst_ns = now;
		server->burst = 0;
	}
	if (++server->burst < PACE_COUNT)
		return;
	server->is_pacing = true;
	event_del(&server->accepting);
	event_add(&server->pace, &delay);
}

static void on_pace(evutil_socket_t fd, short what, void *argument)
{
	struct server *server = argument;

	server->is_pacing = false;
	if (!server->is_pausing)
		event_add(&server->accepting, NULL);
}

/* One in each turn of the loop: a connection costs more than a request, and those who have theirs do not wait
 * for a crowd of others. */
static void on_connection(evutil_socket_t fd, short what, void *argument)
{
	struct server *server = argument;
	int socket = accept4(fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

	if (socket >= 0) {
		add_session(server, socket);
		keep_pace(server);
	} else if (errno != EAGAIN && errno != ECONNABORTED && errno != EINTR) {
		pause_accepting(server, -errno);
	}
}

static void on_pause_over(evutil_socket_t fd, short what, void *argument)
{
	resume(argument);
}

/* ---- Life ---- */

void server_limit(struct server *server, const struct server_limits *limits)
{
	server->shared.limits = *limits;
}

static int open_socket(struct server *server, const struct server_config *config)
{
	if (!server->is_inherited)
		return listen_at(config->path, config->mode, &server->socket);
	/* Once more: whoever made it may have let more of them wait. */
	return evutil_make_socket_nonblocking(server->socket) < 0 || listen(server->socket, BACKLOG) < 0
		       ? -errno
		       : 0;
}

static int start(struct server *server, const struct server_config *config)
{
	int r;

	server->path = strdup(config->path);
	if (!server->path)
		return -ENOMEM;
	r = frame_arena_new(&server->shared.arena);
	if (r < 0)
		return r;
	r = open_socket(server, config);
	if (r < 0)
		return r;
	event_assign(&server->accepting, server->shared.loop, server->socket, EV_READ | EV_PERSIST,
		     on_connection, server);
	evtimer_assign(&server->pause, server->shared.loop, on_pause_over, server);
	evtimer_assign(&server->pace, server->shared.loop, on_pace, server);
	return event_add(&server->accepting, NULL) < 0 ? -ENOMEM : 0;
}

int server_new(struct event_base *loop, struct node *node, const struct server_config *config,
	       struct server **ret_server)
{
	_cleanup_(server_freep) struct server *server = calloc(1, sizeof(*server));
	int r;

	if (!server) {
		log_error("out of memory");
		fd_close(config->inherited);
		return -ENOMEM;
	}
	server->socket = config->inherited;
	server->is_inherited = config->inherited >= 0;
	queue_init(&server->sessions);
	server->shared = (struct session_shared){
		.throttles = &server->throttles,
		.loop = loop,
		.node = node,
		.limits = config->limits,
		.versions = FRAME_VERSIONS,
		.pages = PAGES_VERSIONS,
		.lease_look_ms = LEASE_LOOK_MS,
		.over = on_over,
		.greeted = on_greeted,
		.argument = server,
	};
	r = start(server, config);
	if (r == -ENOENT)
		log_error("cannot listen at %s: there is no folder %.*s; make it, or choose another --socket",
			  config->path, (int)folder_bytes(config->path), config->path);
	else if (r < 0 && r != -ENOTUNIQ)
		log_error("cannot listen at %s: %s", config->path, explain_listen(r));
	if (r < 0)
		return r;
	*ret_server = TAKE_PTR(server);
	return 0;
}

void server_close(struct server *server)
{
	if (server->socket < 0)
		return;
	if (event_initialized(&server->accepting)) {
		event_del(&server->accepting);
		event_del(&server->pause);
		event_del(&server->pace);
	}
	server->is_pausing = server->is_pacing = false;
	if (!server->is_inherited)
		unlink(server->path);
	server->socket = fd_close(server->socket);
}

struct server *server_free(struct server *server)
{
	struct queue *link;

	if (!server)
		return NULL;
	/* All of them first: else the ranks that are still there would be told that others have left. */
	QUEUE_FOREACH (each, &server->sessions)
		session_close(queue_entry(each, struct session, link));
	while ((link = queue_first(&server->sessions)))
		session_free(queue_entry(link, struct session, link));
	throttles_clear(&server->throttles);
	server_close(server);
	frame_arena_free(server->shared.arena);
	free(server->path);
	free(server);
	return NULL;
}
