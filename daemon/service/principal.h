/* Principals: users and groups, as the configuration names them. */
#ifndef TIERD_DAEMON_PRINCIPAL_H
#define TIERD_DAEMON_PRINCIPAL_H

#include "daemon/model/model.h"

/* "alice", "1001", "@research", "@2001", "*". -EINVAL: none of these; -ENOENT: there is no such user or group
 * here (a number need not have a name). */
int principal_parse(const char *text, struct principal *ret_principal);

/* Replaces what the list has, unless it fails: -EINVAL, also for '*', -ENOENT, -ENOMEM. An empty text is an
 * empty list. */
int principal_list_set(struct principal_list *list, const char *text);
void principal_list_clear(struct principal_list *list);

#endif
