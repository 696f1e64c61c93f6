/* A limit: what the configuration gives to users and to their jobs. */
#ifndef TIERD_DAEMON_LIMIT_H
#define TIERD_DAEMON_LIMIT_H

#include "daemon/service/who.h"

/* The budgets of a job that asks for none, and what all jobs of one user may hold together; 0: as much as
 * there is. For how many snapshots a job has room that does not say it, and may have at most: one more than
 * that, or 0: nothing is said. A user's share of the devices, and the greatest io_weight of his jobs. */
struct quota {
	uint64_t host_default, host_maximum, nvme_default, nvme_maximum;
	uint64_t snapshots_default, snapshots_maximum;
	uint64_t io_share, io_weight_maximum;
};

struct limit {
	struct who who;
	struct quota quota;
	char *text; /* owned; as written */
};

#define LIMIT_LIST_MAX 64

/* Jobs that a user may have, unless the configuration says otherwise. */
#define LIMIT_JOBS_PER_USER 256

struct limit_list {
	struct limit entries[LIMIT_LIST_MAX];
	unsigned count;
};

/* "alice host_maximum=64G nvme_maximum=1T", "@research host_default=8G", "* io_share=50". -EINVAL,
 * -ENOENT (there is no such user or group), -ENOMEM. */
int limit_parse(const char *text, struct limit *ret_limit);

/* Appends; -EINVAL as above, or if there is no place. */
int limit_list_add(struct limit_list *list, const char *text);
void limit_list_clear(struct limit_list *list);

#endif
