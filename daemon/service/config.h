/* The configuration says what the daemon may use and where it listens: defaults, then a file, then flags. */
#ifndef TIERD_DAEMON_CONFIG_H
#define TIERD_DAEMON_CONFIG_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "common/cleanup.h"
#include "daemon/service/limit.h"
#include "daemon/service/principal.h"

#define CONFIG_MAX_PATHS 16
#define CONFIG_SYSTEM_FILE "/etc/tierd/tierd.conf"

enum config_action { CONFIG_RUN, CONFIG_CHECK, CONFIG_PLAN, CONFIG_HELP, CONFIG_VERSION };
enum config_io_engine { CONFIG_ENGINE_AUTO, CONFIG_ENGINE_IO_URING, CONFIG_ENGINE_PLAIN };
enum config_file_system { CONFIG_FILE_SYSTEM_RESERVING, CONFIG_FILE_SYSTEM_ANY, CONFIG_FILE_SYSTEM_MEMORY };
enum config_direct_io { CONFIG_DIRECT_AUTO, CONFIG_DIRECT_OFF };

struct config_path {
	char *path;
	uint64_t capacity;
	uint64_t endurance; /* 0: that of all */
};

/* Strings are owned. */
struct config {
	enum config_action action;
	char *file; /* NULL: none was read */

	char *socket, *state_directory;
	unsigned log_level; /* enum log_level */
	unsigned workers;
	uint64_t host_budget;
	unsigned idle_release_seconds;
	struct config_path paths[CONFIG_MAX_PATHS];
	unsigned path_count;
	unsigned file_system; /* enum config_file_system */
	unsigned durability;  /* DURABILITY_…, or seconds */
	unsigned scrub_days;  /* 0: never */
	uint64_t endurance;   /* of paths that say nothing of it; 0: not known */
	unsigned io_engine;   /* enum config_io_engine */
	unsigned queue_depth;
	uint64_t background_bytes;
	unsigned direct_io;    /* enum config_direct_io */
	unsigned gpu_exchange; /* enum gpu_exchange_mode */
	unsigned gpu_exchange_seconds;
	unsigned gpu_sums; /* enum gpu_sums_mode */
	unsigned connections, connections_per_user, requests_per_connection;
	uint64_t output_queue, frame_size;
	unsigned jobs_per_user, units_per_job, tensors_per_job;
	unsigned job_name_length, name_length, dimensions_per_tensor;
	unsigned first_frame_seconds, frame_seconds;
	struct principal_list administrators;
	struct limit_list limits;
	char *fault; /* NULL: none */
};

/* What is wrong with a configuration, for a person: where, key, value, what is allowed. */
struct config_problem {
	char text[1024];
};

/* Says it; returns r. */
int config_fail(struct config_problem *problem, int r, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

/* The whole way: flags are looked at for an action and a file, the file is read, flags replace what it says
 * (--nvme replaces all its paths), defaults fill the rest. -EINVAL with a problem, -ENOMEM. With CONFIG_HELP,
 * CONFIG_VERSION and CONFIG_PLAN nothing else is set. */
int config_new(int argc, char *const argv[], struct config **ret_config, struct config_problem *problem);
struct config *config_free(struct config *config);
DEFINE_FREEP(struct config *, config_free)

/* Reads one file; name is for problems. What it does not mention stays as it is. */
int config_read(struct config *config, FILE *stream, const char *name, struct config_problem *problem);

/* Fills what nobody set from the machine and the environment. */
int config_fill(struct config *config, struct config_problem *problem);

/* ---- config_check.c: whether it can work on this machine ---- */

/* -EINVAL with a problem: the daemon could not start, or not do what it is told. */
int config_check(const struct config *config, struct config_problem *problem);
/* Logs what is allowed and hardly meant: more than the machine has. */
void config_warn(const struct config *config);

/* ---- Printing ---- */

/* Prints in the format of the file, so that what comes out can be read back. */
void config_print(const struct config *config, FILE *stream);
void config_print_help(FILE *stream);

#endif
