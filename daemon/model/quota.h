/* Quotas: what the configuration gives to users and to their jobs, and whom it means. Data alone; the
 * configuration is read by daemon/service/limit.h and principal.h. */
#ifndef TIERD_DAEMON_QUOTA_H
#define TIERD_DAEMON_QUOTA_H

#include <stdint.h>

/* A user, a group, or everyone. In this order the more exact word counts. */
enum principal_kind { PRINCIPAL_USER, PRINCIPAL_GROUP, PRINCIPAL_EVERYONE };

struct principal {
	enum principal_kind kind;
	uint32_t id; /* uid or gid */
};

#define PRINCIPALS_MAXIMUM 32

/* Such as "root, @wheel", without everyone. The text is owned. */
struct principal_list {
	char *text;
	struct principal entries[PRINCIPALS_MAXIMUM];
	unsigned count;
};

/* The budgets of a job that asks for none, and what all jobs of one user may hold together; 0: as much as
 * there is. For how many snapshots a job has room that does not say it, and may have at most: one more than
 * that, or 0: nothing is said. A user's share of the devices, and the greatest io_weight of his jobs. All are
 * words of 64 bits: access.c goes through them. */
struct quota {
	uint64_t host_default, host_maximum, nvme_default, nvme_maximum;
	uint64_t snapshots_default, snapshots_maximum;
	uint64_t io_share, io_weight_maximum;
};

/* A line "limit =" of the configuration. */
struct limit {
	struct principal principal;
	struct quota quota;
	char *text; /* owned; as written */
};

#define LIMITS_MAXIMUM 64

struct limit_list {
	struct limit entries[LIMITS_MAXIMUM];
	unsigned count;
};

/* Jobs that a user may have, unless the configuration says otherwise. */
#define QUOTA_JOBS_PER_USER 256

#endif
