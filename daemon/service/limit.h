/* Limits: the lines "limit =" of the configuration, as text. */
#ifndef TIERD_DAEMON_LIMIT_H
#define TIERD_DAEMON_LIMIT_H

#include "daemon/model/model.h"

/* Appends one such as "alice host_maximum=64G nvme_maximum=1T", "@research host_default=8G" or "*
 * io_share=50". -EINVAL; -ENOENT: there is no such user or group; -ENOMEM. */
int limit_list_add(struct limit_list *list, const char *text);
void limit_list_clear(struct limit_list *list);

#endif
