/* Each allocation of the daemon's front fails in turn, until a run needs no more of them. */
#include <errno.h>
#include <event2/event.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include "common/log.h"
#include "common/size.h"
#include "daemon/session/client.h"
#include "daemon/service/config.h"
#include "daemon/telemetry/events.h"
#include "daemon/service/reload.h"
#include "daemon/session/request.h"
#include "daemon/session/server.h"
#include "daemon/session/throttle.h"
#include "daemon/session/session.h"
#include "tests/fault/alloc_fault.h"
#include "tests/unit/test.h"

struct client {
	struct port *port;
};

static struct client fake;
static bool is_over;

int client_new(struct node *node, struct port *port, unsigned maximum_requests, struct client **ret_client)
{
	fake.port = port;
	*ret_client = &fake;
	return 0;
}

void client_request(struct client *client, uint32_t number, const Tierd__Wire__Request *request)
{
	port_reply_fds(client->port, number, NULL, (int[]){ 0 }, 1);
}

bool request_holds_nothing(const Tierd__Wire__Request *request)
{
	return true;
}

void client_hang_up(struct client *client, const char *reason)
{
}

void client_catch_up(struct client *client)
{
}

bool client_has_leases(const struct client *client)
{
	return false;
}

bool client_has_jobs(const struct client *client)
{
	return false;
}

bool client_has_epochs(const struct client *client)
{
	return false;
}

struct client *client_free(struct client *client)
{
	return NULL;
}

void events_of_node(struct node *node, enum event_kind kind, const struct log_fields *about,
		    const char *format, ...)
{
}

static int make_configuration(void)
{
	char *arguments[] = { (char *)"tierd", (char *)"--config", (char *)"/dev/null", (char *)"--socket",
			      (char *)"/s",    (char *)"--nvme",   (char *)"/tmp:1G",	NULL };
	struct config_problem problem;
	struct config *config = NULL;
	int r = config_new(7, arguments, &config, &problem);

	assert_int_equal(config == NULL, r < 0);
	config_free(config);
	return r;
}

static void a_configuration_survives(void **state)
{
	alloc_fault_each(make_configuration);
}

/* What is in effect stays as it is, to the last option, or all of it is taken over. */
static void a_reload_survives(void **state)
{
	char *arguments[] = { (char *)"tierd",	   (char *)"--config",
			      (char *)"/dev/null", (char *)"--socket",
			      (char *)"/s",	   (char *)"--max-connections",
			      (char *)"17",	   (char *)"--log-level",
			      (char *)"debug",	   NULL };
	struct config_problem problem;
	bool has_tripped = true;

	for (unsigned nth = 1; has_tripped; nth++) {
		_cleanup_(config_freep) struct config *config = NULL;

		assert_int_equal(config_new(5, arguments, &config, &problem), 0);
		alloc_fault_arm(nth);
		int r = reload(config, 9, arguments, &problem);

		has_tripped = alloc_fault_tripped();
		assert_int_equal(r, has_tripped ? -ENOMEM : 2);
		assert_int_equal(config->connections, has_tripped ? 256 : 17);
		assert_int_equal(config->log_level, has_tripped ? LOG_LEVEL_INFO : LOG_LEVEL_DEBUG);
	}
}

static char folder[64], path[80];
static struct event_base *loop;

static int make_server(int inherited)
{
	const struct server_config config = { path, 0600, inherited, { 1, 1, 1, MIB, MIB, 1000, 1000 } };
	struct server *server = NULL;
	int r = server_new(loop, NULL, &config, &server);

	server_free(server);
	return r;
}

static int listen_and_close(void)
{
	int r = make_server(-1);

	assert_int_equal(access(path, F_OK), -1);
	return r;
}

static int listen_at_path(void)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	snprintf(address.sun_path, sizeof(address.sun_path), "%s", path);
	assert_int_equal(bind(fd, (struct sockaddr *)&address, sizeof(address)), 0);
	assert_int_equal(listen(fd, 1), 0);
	return fd;
}

/* The socket is closed, and its file stays. */
static int inherit_and_close(void)
{
	int fd = listen_at_path(), r = make_server(fd);

	assert_int_equal(fcntl(fd, F_GETFD), -1);
	assert_int_equal(unlink(path), 0);
	return r;
}

static void a_server_survives(void **state)
{
	snprintf(folder, sizeof(folder), "/tmp/tierd-front-XXXXXX");
	assert_non_null(mkdtemp(folder));
	snprintf(path, sizeof(path), "%s/socket", folder);
	loop = event_base_new();
	alloc_fault_each(listen_and_close);
	alloc_fault_each(inherit_and_close);
	rmdir(folder);
	event_base_free(loop);
}

static void on_over(struct session *session, void *argument)
{
	is_over = true;
	session_free(session);
}

/* A Hello and a request of 8 KiB. */
static size_t make_input(uint8_t input[16384])
{
	Tierd__Wire__Hello hello = TIERD__WIRE__HELLO__INIT;
	Tierd__Wire__Request request = TIERD__WIRE__REQUEST__INIT;
	Tierd__Wire__Phase phase = TIERD__WIRE__PHASE__INIT;
	static char name[8193];
	_cleanup_free_ uint8_t *first = NULL, *second = NULL;
	size_t first_length, second_length;

	memset(name, 'x', sizeof(name) - 1);
	hello.version_minimum = hello.version_maximum = 1;
	phase.name = name;
	request.body_case = TIERD__WIRE__REQUEST__BODY_PHASE;
	request.phase = &phase;
	assert_int_equal(frame_encode(1, FRAME_HELLO, 1, &hello.base, &first, &first_length), 0);
	assert_int_equal(frame_encode(1, FRAME_REQUEST, 2, &request.base, &second, &second_length), 0);
	memcpy(input, first, first_length);
	memcpy(input + first_length, second, second_length);
	return first_length + second_length;
}

static bool run_session(unsigned nth, const struct session_shared *shared, const uint8_t *input,
			size_t length)
{
	struct session *session = NULL;
	int ends[2], r;

	is_over = false;
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends), 0);
	assert_int_equal(write(ends[1], input, length), length);
	shutdown(ends[1], SHUT_WR);
	alloc_fault_arm(nth);
	r = session_new(ends[0], shared, &session);
	while (r == 0 && !is_over)
		event_base_loop(shared->loop, EVLOOP_ONCE);
	close(ends[1]);
	return alloc_fault_tripped();
}

static unsigned count_fds(void)
{
	unsigned count = 0;

	for (int fd = 0; fd < 256; fd++)
		count += fcntl(fd, F_GETFD) >= 0;
	return count;
}

static void a_session_ends_at_worst(void **state)
{
	static uint8_t input[16384];
	struct node node = { .incarnation = 1 };
	struct throttles throttles = { 0 };
	struct session_shared shared = {
		.throttles = &throttles,
		.loop = event_base_new(),
		.node = &node,
		.versions = FRAME_VERSIONS,
		.limits = { .maximum_requests = 8,
			    .maximum_output = 1 << 20,
			    .maximum_frame = FRAME_MAX_BYTES,
			    .first_frame_ms = 1000000,
			    .frame_ms = 1000000 },
		.lease_look_ms = 1,
		.over = on_over,
	};
	size_t length = make_input(input);

	assert_int_equal(frame_arena_new(&shared.arena), 0);
	unsigned nth = 1, before = count_fds();

	while (run_session(nth, &shared, input, length)) {
		assert_int_equal(count_fds(), before);
		nth++;
	}
	assert_true(nth > 5);
	throttles_clear(&throttles);
	frame_arena_free(shared.arena);
	event_base_free(shared.loop);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_configuration_survives),
		cmocka_unit_test(a_reload_survives),
		cmocka_unit_test(a_server_survives),
		cmocka_unit_test(a_session_ends_at_worst),
	};

	/* What fails here is logged as an error, as it should be. */
	log_open(0);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
