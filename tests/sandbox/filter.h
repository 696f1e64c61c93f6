/* The filters: which system calls a sandboxed process may make. */
#ifndef TIERD_TESTS_SANDBOX_FILTER_H
#define TIERD_TESTS_SANDBOX_FILTER_H

#include "tests/sandbox/unit.h"

/* Learns from systemd-analyze(1) which calls a group such as @system-service has; skips where there is none.
 */
void filter_learn_groups(void);

/* For this process and what it becomes, for good. NoNewPrivileges is on. */
void filter_apply(const struct unit *unit);

#endif
