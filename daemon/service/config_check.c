#include "daemon/service/config.h"

#include <errno.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/un.h>

#include "common/log.h"
#include "common/plural.h"
#include "common/size.h"
#include "daemon/service/config_defaults.h"
#include "daemon/service/config_values.h"
#include "daemon/resources/resources.h"
#include "offload/device/fault.h"

/* A connection has a socket and a process; a rank on it, its pages and doorbell. */
#define FILES_PER_CONNECTION 8
#define FILES_OF_DAEMON 64

/* Of one rank, on NVMe: its window, its page, buffers. */
#define LEAST_JOB_BYTES (3 * MIB)

static int check_paths(const struct config *config, struct config_problem *problem)
{
	struct stat folders[CONFIG_MAX_PATHS];

	for (unsigned i = 0; i < config->path_count; i++) {
		const char *path = config->paths[i].path;

		if (stat(path, &folders[i]) < 0)
			return config_fail(problem, -EINVAL, "NVMe path %s: %s; create the folder first",
					   path, strerror(errno));
		if (!S_ISDIR(folders[i].st_mode))
			return config_fail(problem, -EINVAL, "NVMe path %s is not a folder", path);
		for (unsigned k = 0; k < i; k++)
			if (folders[i].st_dev == folders[k].st_dev && folders[i].st_ino == folders[k].st_ino)
				return config_fail(problem, -EINVAL, "NVMe path %s is the same folder as %s",
						   path, config->paths[k].path);
	}
	return 0;
}

int config_check(const struct config *config, struct config_problem *problem)
{
	size_t longest = sizeof(((struct sockaddr_un *)NULL)->sun_path) - 1;
	struct fault_config fault;

	if (strlen(config->socket) > longest)
		return config_fail(problem, -EINVAL, "the socket's path is longer than %zu bytes: %s",
				   longest, config->socket);
	if (config->fault && fault_config_parse(config->fault, &fault) < 0)
		return config_fail(problem, -EINVAL, "\"%s\" is no fault; an example is complete:write:3:EIO",
				   config->fault);
	return check_paths(config, problem);
}

static void warn_memory(uint64_t budget)
{
	char wanted[CONFIG_SIZE_TEXT], there[CONFIG_SIZE_TEXT];
	uint64_t memory = config_default_memory();

	if (budget <= memory)
		return;
	config_format_size(budget, wanted);
	config_format_size(memory / MIB * MIB, there);
	log_warning(
		"host_budget = %s is more than the memory that there is (%s): the kernel will end the daemon "
		"before the budget is used up",
		wanted, there);
}

/* What is left is to be enough for some job. */
static void warn_budget(uint64_t budget)
{
	char there[CONFIG_SIZE_TEXT], own[CONFIG_SIZE_TEXT], least[CONFIG_SIZE_TEXT];
	uint64_t bytes = staging_bytes(STAGING_LEAST);

	if (budget >= bytes + LEAST_JOB_BYTES)
		return;
	config_format_size(budget, there);
	config_format_size(bytes, own);
	config_format_size(bytes + LEAST_JOB_BYTES, least);
	log_warning(
		"host_budget = %s has no room for a job, however small: the daemon's own buffers take %s; "
		"give it %s at least, and what models need beside that (tierctl plan)",
		there, own, least);
}

static void warn_path(const struct config_path *path)
{
	char wanted[CONFIG_SIZE_TEXT], there[CONFIG_SIZE_TEXT];
	struct statvfs disk;
	uint64_t bytes;

	if (statvfs(path->path, &disk) < 0)
		return;
	bytes = (uint64_t)disk.f_blocks * disk.f_frsize;
	if (path->capacity <= bytes)
		return;
	config_format_size(path->capacity, wanted);
	config_format_size(bytes / MIB * MIB, there);
	log_warning("NVMe path %s: %s is more than its disk has (%s): jobs will be refused before that is "
		    "used up",
		    path->path, wanted, there);
}

static void warn_files(unsigned connections)
{
	uint64_t needed = (uint64_t)connections * FILES_PER_CONNECTION + FILES_OF_DAEMON;
	struct rlimit limit;

	if (getrlimit(RLIMIT_NOFILE, &limit) < 0 || limit.rlim_max >= needed)
		return;
	log_warning(
		"connections = %u may take %llu descriptors, and RLIMIT_NOFILE allows %llu: raise it (ulimit "
		"-n, or LimitNOFILE= of the service), or allow fewer connections",
		connections, (unsigned long long)needed, (unsigned long long)limit.rlim_max);
}

/* He who has all of them keeps everybody out, administrators too. */
static void warn_connections(const struct config *config)
{
	if (config->connections_per_user >= config->connections)
		log_warning("connections_per_user = %u lets one user take all %u connection%s",
			    config->connections_per_user, config->connections, PLURAL(config->connections));
}

void config_warn(const struct config *config)
{
	warn_memory(config->host_budget);
	warn_budget(config->host_budget);
	for (unsigned i = 0; i < config->path_count; i++)
		warn_path(&config->paths[i]);
	warn_files(config->connections);
	warn_connections(config);
}
