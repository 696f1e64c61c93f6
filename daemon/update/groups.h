/* The parameter groups that tensors are in. Between two steps ranks move tensors to others, all ranks the
 * same ones; the step that is decided next has them there, updates them by the new groups, and its commit
 * keeps that. */
#ifndef TIERD_DAEMON_GROUPS_H
#define TIERD_DAEMON_GROUPS_H

#include "daemon/model/model.h"

void groups_set(struct pending *pending, const Tierd__Wire__GroupsSet *set);
void groups_get(struct pending *pending, const Tierd__Wire__GroupsGet *get);

/* Whether the unit's tensors may be in these groups. -EINVAL with a message. */
int groups_check(const struct job *job, const struct unit *unit, const uint32_t *groups, char *message,
		 size_t size);

/* The rank's, beside those of the ranks that have closed the step. -EINVAL with a message. */
int groups_compare(const struct member *member, char *message, size_t size);

/* A step is decided, for which all ranks have the same. */
void groups_decide(struct job *job);

#endif
