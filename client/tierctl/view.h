/* A view: the statistics of the node and of the jobs that the user may see, in pages that stay readable when
 * the daemon does not turn any more. */
#ifndef TIERD_CLIENT_TIERCTL_VIEW_H
#define TIERD_CLIENT_TIERCTL_VIEW_H

#include "client/tierctl/command.h"
#include "proto/statistics.h"

/* The loop writes twice a second: after so long it does not turn. */
#define VIEW_STUCK_MS 2000

struct view_job {
	const void *page;
	char user[TEXT_SIZE];
	struct statistics_job body;
};

struct view {
	const struct command_context *context;
	struct ask *ask;  /* NULL: there is no connection */
	const void *page; /* the node's */
	struct statistics_node node;
	uint64_t read_ns; /* when the bodies were read */
	struct view_job *jobs;
	size_t job_count;
};

/* COMMAND_DONE, also of a daemon that is stuck: then without jobs. Or an exit code, after saying why. */
int view_open(const struct command_context *context, struct view *view);

/* Reads all pages again. Of a daemon that turns, the jobs are asked for first. */
int view_refresh(struct view *view);
void view_close(struct view *view);

/* Since the loop wrote last. */
uint64_t view_silent_ns(const struct view *view);
bool view_is_stuck(const struct view *view);

/* "GPU-…", or "MIG-…" of a slice. Returns the text. */
#define VIEW_UUID_SIZE 41
const char *view_gpu_uuid(const struct statistics_gpu *gpu, char text[VIEW_UUID_SIZE]);

/* "demand", "read", "nvme_read"; "?" if there is none. */
const char *view_kind_name(unsigned kind);
const char *view_direction_name(unsigned direction);
const char *view_cause_name(unsigned cause);

#endif
