#include "daemon/service/config_defaults.h"

#include <errno.h>
#include <inttypes.h>
#include <pwd.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>

#include "common/cleanup.h"
#include "common/size.h"
#include "daemon/service/config.h"

#define CGROUP_ROOT "/sys/fs/cgroup"

static void file_closep(FILE **place)
{
	if (*place)
		fclose(*place);
}

/* UINT64_MAX: no limit there. */
static uint64_t cgroup_limit(const char *folder)
{
	_cleanup_(file_closep) FILE *file = NULL;
	_cleanup_free_ char *path = NULL;
	uint64_t limit;

	if (asprintf(&path, CGROUP_ROOT "%s/memory.max", folder) < 0)
		return UINT64_MAX;
	file = fopen(path, "re");
	if (!file || fscanf(file, "%" SCNu64, &limit) != 1)
		return UINT64_MAX;
	return limit;
}

/* The limit of a group holds for all below it, so the smallest on the way up counts. */
static uint64_t smallest_cgroup_limit(void)
{
	_cleanup_(file_closep) FILE *file = fopen("/proc/self/cgroup", "re");
	uint64_t smallest = UINT64_MAX;
	char line[4096];

	while (file && fgets(line, sizeof(line), file)) {
		if (strncmp(line, "0::/", 4) != 0)
			continue;
		line[strcspn(line, "\n")] = '\0';
		for (char *slash = line + strlen(line); slash; slash = strrchr(line + 3, '/')) {
			*slash = '\0';
			uint64_t limit = cgroup_limit(line + 3);

			smallest = limit < smallest ? limit : smallest;
		}
	}
	return smallest;
}

uint64_t config_default_memory(void)
{
	uint64_t memory = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);
	uint64_t limit = smallest_cgroup_limit();

	return limit < memory ? limit : memory;
}

uint64_t config_default_host_budget(void)
{
	return config_default_memory() / 2 / MIB * MIB;
}

unsigned config_default_workers(void)
{
	cpu_set_t processors;

	if (sched_getaffinity(0, sizeof(processors), &processors) == 0)
		return (unsigned)CPU_COUNT(&processors);
	return (unsigned)sysconf(_SC_NPROCESSORS_ONLN);
}

bool config_is_system(void)
{
	struct passwd *user;

	if (geteuid() == 0)
		return true;
	user = getpwuid(geteuid());
	return user && strcmp(user->pw_name, "tierd") == 0;
}

/* $variable/rest, or $HOME/fallback/rest; as the XDG specification says, a relative path counts as unset. */
static int path_from_environment(const char *variable, const char *fallback, const char *rest,
				 char **ret_path)
{
	const char *folder = getenv(variable), *home = getenv("HOME");
	char *path;
	int r;

	if (folder && folder[0] == '/')
		r = asprintf(&path, "%s/%s", folder, rest);
	else if (fallback && home && home[0] == '/')
		r = asprintf(&path, "%s/%s/%s", home, fallback, rest);
	else
		return -ENOENT;
	if (r < 0)
		return -ENOMEM;
	*ret_path = path;
	return 0;
}

static int copy_path(const char *text, char **ret_path)
{
	char *path = strdup(text);

	if (!path)
		return -ENOMEM;
	*ret_path = path;
	return 0;
}

int config_default_socket(char **ret_path)
{
	if (config_is_system())
		return copy_path("/run/tierd/tierd.sock", ret_path);
	return path_from_environment("XDG_RUNTIME_DIR", NULL, "tierd/tierd.sock", ret_path);
}

int config_default_state_directory(char **ret_path)
{
	if (config_is_system())
		return copy_path("/var/lib/tierd", ret_path);
	return path_from_environment("XDG_STATE_HOME", ".local/state", "tierd", ret_path);
}

int config_default_file(char **ret_path)
{
	_cleanup_free_ char *path = NULL;
	int r;

	if (config_is_system())
		r = copy_path(CONFIG_SYSTEM_FILE, &path);
	else
		r = path_from_environment("XDG_CONFIG_HOME", ".config", "tierd/tierd.conf", &path);
	if (r < 0)
		return r;
	if (access(path, F_OK) < 0)
		return -ENOENT;
	*ret_path = TAKE_PTR(path);
	return 0;
}
