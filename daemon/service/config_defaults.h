/* Defaults that depend on the machine, on the user and on the environment. */
#ifndef TIERD_DAEMON_CONFIG_DEFAULTS_H
#define TIERD_DAEMON_CONFIG_DEFAULTS_H

#include <stdbool.h>
#include <stdint.h>

/* The physical memory, or the cgroup's limit if that is smaller; and half of it. */
uint64_t config_default_memory(void);
uint64_t config_default_host_budget(void);

/* The processors that this process may run on. */
unsigned config_default_workers(void);

/* Root or the user tierd: paths in /run, /var and /etc instead of the user's own. */
bool config_is_system(void);

/* The caller frees the path. -ENOENT: the environment does not say where; -ENOMEM. */
int config_default_socket(char **ret_path);
int config_default_state_directory(char **ret_path);
int config_default_file(char **ret_path);

#endif
