/* The way back from a record: a job. */
#ifndef TIERD_DAEMON_RECORD_READ_H
#define TIERD_DAEMON_RECORD_READ_H

#include "daemon/durability/durability.h"

/* What a job is made from; all borrowed for the call. */
struct record_source {
	const struct path_list *paths; /* on which it lies */
	/* Whatever the definition says: a fork's says its origin's at first. NULL: that. */
	const char *name;
	struct record_message definition, progress;
	const uid_t *owner; /* in whose folder it lies; NULL: whoever the definition says */
};

/* Makes a job of them: one of the node's, idle and released, as daemon/life/idle.c leaves it, but without its
 * stores. Those are for the caller to add, in the same turn of the loop, or he calls job_free(). Its owner's
 * groups are those that the user database names now, until he opens it himself.
 *
 * Nothing in the bytes is believed: what they say is checked as if a client had said it. Errors come with a
 * message: -EPERM: it is another user's than the folder; -EPROTONOSUPPORT: a format of another tierd;
 * -EBADMSG: these are no such messages, or they cannot be of one job; -EEXIST: the user has a job of that
 * name; -EOPNOTSUPP: some of its state was in host memory alone; or what a client would be told. */
int record_decode(struct node *node, const struct record_source *source, struct job **ret_job, char *message,
		  size_t size);

#endif
