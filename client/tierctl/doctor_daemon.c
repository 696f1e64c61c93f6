/* The daemon: whether it answers, and if it does not, whose it is and what would become of its jobs. */
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <pwd.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "client/tierctl/command.h"
#include "client/tierctl/doctor.h"
#include "common/cleanup.h"
#include "common/plural.h"
#include "proto/statistics.h"

bool doctor_is_service(const struct doctor *doctor, pid_t process)
{
	return doctor->service.is_loaded && (process == 0 || doctor->service.pid == process);
}

/* The number is one of the daemon's own machine or container, which need not be ours. */
static pid_t find_process(uint64_t pid)
{
	char path[64], name[32] = "";
	FILE *stream;

	snprintf(path, sizeof(path), "/proc/%u/comm", (unsigned)pid);
	stream = fopen(path, "re");
	if (!stream)
		return 0;
	if (!fgets(name, sizeof(name), stream))
		name[0] = '\0';
	fclose(stream);
	return strcmp(name, "tierd\n") == 0 ? (pid_t)pid : 0;
}

/* The status of the socket, or of the deepest folder above it that can be seen. */
static int find_place(const char *socket, struct stat *ret_status)
{
	_cleanup_free_ char *path = strdup(socket);
	char *slash;

	while (path && stat(path, ret_status) < 0) {
		slash = strrchr(path, '/');
		if (!slash || slash == path)
			return -ENOENT;
		*slash = '\0';
	}
	return path ? 0 : -ENOMEM;
}

const char *doctor_user(const struct doctor *doctor, char text[TEXT_SIZE])
{
	char path[64];
	struct stat status;

	snprintf(path, sizeof(path), "/proc/%d", (int)doctor->daemon);
	if (doctor->daemon && stat(path, &status) == 0)
		return command_user_name(status.st_uid, text);
	return "tierd's user";
}

/* ---- One that does not answer ---- */

/* A group of that name is the service's: of a daemon that was started by hand the group is its user's own. */
static char *remedy_of_denial(const char *socket)
{
	char caller[TEXT_SIZE], owner[TEXT_SIZE];
	const struct group *group;
	struct stat status;
	char *remedy;
	int r;

	if (find_place(socket, &status) < 0)
		return NULL;
	group = getgrgid(status.st_gid);
	if (group && strcmp(group->gr_name, "tierd") == 0)
		r = asprintf(&remedy, "adduser %s tierd, and log in again",
			     command_user_name(getuid(), caller));
	else
		r = asprintf(&remedy,
			     "run it as %s, who has started that tierd, or name another tierd with --socket",
			     command_user_name(status.st_uid, owner));
	return r < 0 ? NULL : remedy;
}

/* As it was when its loop turned last. */
static int read_page(const char *socket, struct statistics_node *ret_node)
{
	_Alignas(8) char page[STATISTICS_PAGE_BYTES], path[STATISTICS_FILE_SIZE];
	_cleanup_close_ int fd = -1;

	if (statistics_file(socket, path) < 0)
		return -ENAMETOOLONG;
	fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
	if (fd < 0)
		return -errno;
	if (read(fd, page, sizeof(page)) != (ssize_t)sizeof(page))
		return -EPROTO;
	return statistics_page_read(page, STATISTICS_OF_NODE, ret_node, sizeof(*ret_node));
}

static void describe_jobs(const struct statistics_node *node, char *text, size_t size)
{
	/* An older daemon counts neither. */
	if (node->durable_jobs + node->fleeting_jobs != node->jobs)
		snprintf(text, size,
			 "durable jobs come back at their last durable steps, others lose their state");
	else if (node->jobs == 0)
		snprintf(text, size, "it has no jobs");
	else if (node->fleeting_jobs == 0)
		snprintf(text, size,
			 "all of its jobs (%u) are durable, and come back at their last durable steps",
			 (unsigned)node->jobs);
	else
		snprintf(
			text, size,
			"of its %u job%s %u %s durable and come%s back at the last durable step; the other%s "
			"(%u) lose%s what %s in memory",
			(unsigned)node->jobs, PLURAL(node->jobs), (unsigned)node->durable_jobs,
			node->durable_jobs == 1 ? "is" : "are", node->durable_jobs == 1 ? "s" : "",
			PLURAL(node->fleeting_jobs), (unsigned)node->fleeting_jobs,
			node->fleeting_jobs == 1 ? "s" : "",
			node->fleeting_jobs == 1 ? "it has" : "they have");
}

static char *remedy_of_stuck(const struct doctor *doctor, const char *socket)
{
	struct statistics_node node = { .jobs = 1 };
	char jobs[256], way[128] = "ending and starting it again";
	pid_t process = 0;
	char *remedy;

	if (read_page(socket, &node) == 0)
		process = find_process(node.pid);
	describe_jobs(&node, jobs, sizeof(jobs));
	if (doctor_is_service(doctor, process))
		snprintf(way, sizeof(way), "systemctl restart tierd");
	else if (process)
		snprintf(way, sizeof(way), "kill -KILL %d, and starting it again as it was", (int)process);
	if (asprintf(&remedy, "tierctl top says how long it has been stuck; %s ends that: %s", way, jobs) < 0)
		return NULL;
	return remedy;
}

static char *remedy_of_absence(const struct doctor *doctor, const char *socket)
{
	char *remedy;

	if (doctor_is_service(doctor, 0))
		return strdup("systemctl start tierd");
	return asprintf(&remedy, "tierd --socket %s, with what tierd(8) says", socket) < 0 ? NULL : remedy;
}

/* r: what ask_open() said. One that is there needs no start: it is stuck, or its socket is not for us, or we
 * have enough of its connections. */
static void add_unreachable(struct doctor *doctor, const char *socket, const struct ask *ask, int r)
{
	_cleanup_free_ char *remedy = NULL;
	enum finding finding = FINDING_POOR;

	if (r == -ETIMEDOUT) {
		finding = FINDING_MISSING;
		remedy = remedy_of_stuck(doctor, socket);
	} else if (r == -EACCES) {
		finding = FINDING_UNKNOWN;
		remedy = remedy_of_denial(socket);
	} else if (ask && ask_was_refused(ask)) {
		finding = FINDING_UNKNOWN;
	} else {
		remedy = remedy_of_absence(doctor, socket);
	}
	doctor_add(doctor, finding, "tierd", remedy, "%s; what follows is of its configuration",
		   ask ? ask_message(ask) : "out of memory");
}

int doctor_look_for_daemon(struct doctor *doctor, const struct command_context *context, struct ask **ret_ask)
{
	const Tierd__Wire__NodeReply *node;
	int r = ask_open(context->socket, ASK_TIMEOUT_MS, 0, ret_ask);
	struct ask *ask = *ret_ask;

	if (r < 0) {
		add_unreachable(doctor, context->socket, ask, r);
		return COMMAND_DONE;
	}
	if (command_ask_node(ask, &node) != COMMAND_DONE)
		return COMMAND_FAILED;
	doctor->node = node;
	doctor->daemon = find_process(node->pid);
	doctor->host_budget = node->host_budget_bytes;
	doctor_add(doctor, FINDING_FOUND, "tierd", NULL, "%s at %s, pid %u", node->version, context->socket,
		   node->pid);
	return COMMAND_DONE;
}
