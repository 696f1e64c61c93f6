/* Principals: users and groups that the configuration names. */
#ifndef TIERD_DAEMON_PRINCIPAL_H
#define TIERD_DAEMON_PRINCIPAL_H

#include "daemon/model/model.h"

/* "alice", "1001", "@research", "@2001", "*". -EINVAL: none of these; -ENOENT: there is no such user or group
 * here (a number need not have a name). */
int principal_parse(const char *text, struct principal *ret_principal);

/* Replaces what the list has. An empty text gives an empty list. On failure the list stays as it was:
 * -EINVAL, also for '*', -ENOENT, -ENOMEM. */
int principal_list_set(struct principal_list *list, const char *text);
void principal_list_clear(struct principal_list *list);

#endif
