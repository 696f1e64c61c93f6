/* Events: what happens to jobs and to the node, told once, with its cause and what follows from it. */
#ifndef TIERD_DAEMON_EVENTS_H
#define TIERD_DAEMON_EVENTS_H

#include "common/log.h"

struct job;
struct node;

enum event_kind {
	EVENT_OPENED,
	EVENT_ATTACHED,
	EVENT_LEFT,
	EVENT_LOST,
	EVENT_INITIALIZED,
	EVENT_READY,
	EVENT_EPOCH_ENDED,
	EVENT_WAITING,
	EVENT_APPLIED,
	EVENT_SKIPPED,
	EVENT_DURABLE,
	EVENT_SNAPSHOT_TAKEN,
	EVENT_SNAPSHOT_DELETED,
	EVENT_RESERVED,
	EVENT_RETAINED,
	EVENT_SHARED,
	EVENT_FORKED,
	EVENT_SNAPSHOT_FAILED,
	EVENT_ROLLED_BACK,
	EVENT_BROKEN,
	EVENT_RELEASED,
	EVENT_RESTORED,
	EVENT_RETURNED,
	EVENT_EVICTED,
	EVENT_DROPPED,
	EVENT_WITHHELD,
	EVENT_REFUSED,
	EVENT_READ_FAILED,
	EVENT_DAMAGED,
	EVENT_REMOVED,
	EVENT_MENDED,
	EVENT_SCRUBBED,
	EVENT_WORN,
	EVENT_WRITE_FAILED,
	EVENT_THROWN_OUT,
	EVENT_CLIENT_REFUSED,
	EVENT_RANK_REFUSED, /* the same, of one whose end is a line of its own */
	EVENT_CLIENT_LOST,
	EVENT_RANK_UNSERVED, /* likewise */
	EVENT_NOT_CONNECTED,
	EVENT_DRAINING,
	EVENT_DRAIN_ENDED,
	EVENT_RELOADED,
	EVENT_STOPPING,
};

/* about: fields beside the job, its owner and its step; or NULL. The number of log lines that a user can
 * cause is limited. Allocates nothing unless somebody watches. */
void events_of_job(const struct job *job, enum event_kind kind, const struct log_fields *about,
		   const char *format, ...) __attribute__((format(printf, 4, 5)));

/* about->user: the one whom it concerns; NULL: nobody in particular. */
void events_of_node(struct node *node, enum event_kind kind, const struct log_fields *about,
		    const char *format, ...) __attribute__((format(printf, 4, 5)));

#endif
