/* The identity: user, limits and capabilities of a sandboxed process. */
#ifndef TIERD_TESTS_SANDBOX_IDENTITY_H
#define TIERD_TESTS_SANDBOX_IDENTITY_H

#include <sys/types.h>

#include "tests/sandbox/unit.h"

struct identity {
	uid_t uid;
	gid_t gid;
};

/* Of the unit's User= and Group=, which /etc/passwd and /etc/group know. */
struct identity identity_of(const struct unit *unit);

/* Becomes the user, for good. What this machine does not let us raise is said on stdout. */
void identity_take(const struct unit *unit, struct identity identity);

#endif
