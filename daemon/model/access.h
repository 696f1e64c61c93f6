/* Access: what a peer may see and do of jobs. A job belongs to a user; for others it does not exist, unless
 * it is shared with a group of theirs, or they administer the daemon. */
#ifndef TIERD_DAEMON_ACCESS_H
#define TIERD_DAEMON_ACCESS_H

#include "daemon/model/job.h"
#include "daemon/model/quota.h"
#include "daemon/request/request.h"

/* It administers the daemon, or runs it. */
bool access_may_rule(const struct node *node, const struct port *port);

/* What the configuration gives to the peer's jobs: of each word what is said of the user, else the most that
 * is said of one of his groups, else what is said of everyone. */
struct quota access_quota(const struct node *node, const struct port *port);

/* The same for a user who has no process here. His groups come from the user database; a user that it does
 * not know has none. */
struct quota access_quota_of_user(const struct node *node, uid_t uid);
/* Where nothing is said: none, and as many as a store can have. The default is never more than the maximum.
 */
uint32_t access_snapshots_default(const struct quota *quota);
/* 0, or why a job must not have room for so many. */
int access_check_snapshots(const struct quota *quota, uint32_t snapshots, char *message, size_t size);

/* Where nothing is said, SCHEDULE_DEFAULT_WEIGHT; never more than the maximum. */
uint32_t access_io_weight_default(const struct quota *quota);
/* 0, or why a job must not ask for so much. */
int access_check_io_weight(const struct quota *quota, uint32_t weight, char *message, size_t size);

/* It is listed for the peer, with its units and members. */
bool access_may_see(const struct job *job, const struct port *port);

/* That user's job, or without has_owner the peer's own; NULL, and the request is answered, if the peer sees
 * none of that name, or it comes back just now. */
struct job *access_find(struct pending *pending, const char *name, bool has_owner, uid_t owner);

/* Whether a job that the peer may see comes back under that name: then the request is answered. */
bool access_refuse_returning(struct pending *pending, const char *name, uid_t owner);

/* It may be one of its ranks. */
bool access_may_train(const struct job *job, const struct port *port);

/* It may end it. */
bool access_may_drop(const struct job *job, const struct port *port);

#endif
