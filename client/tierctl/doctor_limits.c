#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>

#include "client/tierctl/doctor.h"
#include "client/tierctl/table.h"

#define CAP_IPC_LOCK 14

/* As tierd reckons before it warns (daemon/service/config_check.c). */
#define FILES_PER_CONNECTION 8
#define FILES_OF_DAEMON 64

struct limits {
	uint64_t files, locked_bytes;
	const char *whose;
};

/* A line "Max locked memory  SOFT  HARD  bytes"; the daemon has raised its own as far as it may. */
static uint64_t find_limit(const char *text, const char *name)
{
	const char *line = strstr(text, name);
	unsigned long long value;

	if (!line || sscanf(line + strlen(name), "%llu", &value) != 1)
		return UINT64_MAX;
	return value;
}

static bool read_process(pid_t process, const char *file, char *text, size_t size)
{
	char path[64];
	size_t length;
	FILE *stream;

	if (process > 0)
		snprintf(path, sizeof(path), "/proc/%d/%s", (int)process, file);
	else
		snprintf(path, sizeof(path), "/proc/self/%s", file);
	stream = fopen(path, "re");
	if (!stream)
		return false;
	length = fread(text, 1, size - 1, stream);
	text[length] = '\0';
	fclose(stream);
	return length > 0;
}

static uint64_t own_limit(int resource)
{
	struct rlimit limit;

	if (getrlimit((__rlimit_resource_t)resource, &limit) < 0 || limit.rlim_max == RLIM_INFINITY)
		return UINT64_MAX;
	return limit.rlim_max;
}

/* Those of the running daemon, else of the service that would start it, else of who would start it here. */
static struct limits read_limits(const struct doctor *doctor)
{
	char text[4096];

	if (doctor->daemon && read_process(doctor->daemon, "limits", text, sizeof(text)))
		return (struct limits){ .files = find_limit(text, "Max open files"),
					.locked_bytes = find_limit(text, "Max locked memory"),
					.whose = "of the running tierd" };
	if (!doctor->node && doctor->service.is_loaded)
		return (struct limits){ .files = doctor->service.files,
					.locked_bytes = doctor->service.locked_bytes,
					.whose = "of tierd.service" };
	return (struct limits){ .files = own_limit(RLIMIT_NOFILE),
				.locked_bytes = own_limit(RLIMIT_MEMLOCK),
				.whose = doctor->node ? NULL : "of a tierd that is started here" };
}

static bool has_lock_capability(pid_t process)
{
	unsigned long long effective = 0;
	const char *line;
	char text[4096];

	if (!read_process(process, "status", text, sizeof(text)))
		return false;
	line = strstr(text, "CapEff:");
	return line && sscanf(line, "CapEff: %llx", &effective) == 1 && (effective >> CAP_IPC_LOCK & 1);
}

static bool is_of_service(const struct doctor *doctor)
{
	return doctor_is_service(doctor, doctor->node ? (pid_t)doctor->node->pid : 0);
}

static void judge_locked(struct doctor *doctor, const struct limits *limits)
{
	const char *remedy = is_of_service(doctor)
				     ? "LimitMEMLOCK=infinity in [Service] (systemctl edit tierd)"
				     : "ulimit -l unlimited, before it is started: root may raise it, or "
				       "limits.conf(5)";
	bool is_service = !doctor->node && doctor->service.is_loaded;
	char a[TEXT_SIZE], b[TEXT_SIZE];

	if (limits->locked_bytes == UINT64_MAX)
		doctor_add(doctor, FINDING_FOUND, "memlock", NULL, "%s: no limit", limits->whose);
	else if (!is_service && has_lock_capability(doctor->daemon))
		doctor_add(doctor, FINDING_FOUND, "memlock", NULL, "%s: no limit, by its capability",
			   limits->whose);
	else if (doctor->host_budget == 0)
		doctor_add(doctor, FINDING_UNKNOWN, "memlock", NULL, "%s: %s; the host budget is not known",
			   limits->whose, text_bytes(limits->locked_bytes, a));
	else if (limits->locked_bytes < doctor->host_budget)
		doctor_add(doctor, FINDING_MISSING, "memlock", remedy,
			   "%s: %s may be pinned, less than the host budget of %s", limits->whose,
			   text_bytes(limits->locked_bytes, a), text_bytes(doctor->host_budget, b));
	else
		doctor_add(doctor, FINDING_FOUND, "memlock", NULL, "%s: %s, for a host budget of %s",
			   limits->whose, text_bytes(limits->locked_bytes, a),
			   text_bytes(doctor->host_budget, b));
}

static void judge_files(struct doctor *doctor, const struct limits *limits)
{
	const char *remedy = is_of_service(doctor)
				     ? "LimitNOFILE=65536 in [Service] (systemctl edit tierd); or fewer "
				       "connections in the configuration"
				     : "ulimit -n 65536, before it is started: root may raise it, or "
				       "limits.conf(5); or fewer connections in the configuration";
	uint64_t needed = doctor->connections * FILES_PER_CONNECTION + FILES_OF_DAEMON;

	if (limits->files == UINT64_MAX)
		doctor_add(doctor, FINDING_FOUND, "LimitNOFILE", NULL, "%s: no limit", limits->whose);
	else if (doctor->connections == 0)
		doctor_add(doctor, FINDING_UNKNOWN, "LimitNOFILE", NULL,
			   "%s: %" PRIu64 " descriptors; how many connections it allows is not known",
			   limits->whose, limits->files);
	else
		doctor_add(doctor, limits->files < needed ? FINDING_MISSING : FINDING_FOUND, "LimitNOFILE",
			   limits->files < needed ? remedy : NULL,
			   "%s: %" PRIu64 " descriptors; %" PRIu64 " connections may take %" PRIu64,
			   limits->whose, limits->files, doctor->connections, needed);
}

void doctor_look_at_limits(struct doctor *doctor)
{
	struct limits limits = read_limits(doctor);

	if (!limits.whose) {
		doctor_add(doctor, FINDING_UNKNOWN, "memlock", "run it where tierd runs",
			   "its process cannot be seen from here");
		doctor_add(doctor, FINDING_UNKNOWN, "LimitNOFILE", "run it where tierd runs",
			   "its process cannot be seen from here");
		return;
	}
	judge_locked(doctor, &limits);
	judge_files(doctor, &limits);
}
