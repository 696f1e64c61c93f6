/* The mounts: what a sandboxed process sees of the machine's files, and what it may change of them. */
#ifndef TIERD_TESTS_SANDBOX_MOUNTS_H
#define TIERD_TESTS_SANDBOX_MOUNTS_H

#include "tests/sandbox/identity.h"

/* Leaves the machine's namespaces of mounts (and of the network and the host's name, where the unit says so);
 * skips where that is not allowed. */
void mounts_begin(const struct unit *unit);

/* In place of destination, source is seen. */
void mounts_bind(const char *source, const char *destination);

void mounts_restrict(const struct unit *unit, struct identity identity);

#endif
