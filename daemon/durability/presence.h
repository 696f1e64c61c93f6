/* Presence: the files of running jobs are where they were, under their names. What is removed while a job has
 * it open goes on working, and is gone when tierd ends: so nothing that is written there is called durable.
 */
#ifndef TIERD_DAEMON_PRESENCE_H
#define TIERD_DAEMON_PRESENCE_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

struct job;
struct node;
struct presence;

/* Looks at all of them every few seconds. -ENOMEM. */
int presence_new(struct node *node, struct presence **ret_presence);
struct presence *presence_free(struct presence *presence);

/* Looks now, and tells it if that has changed: they are there, as they were found first. */
bool presence_check(struct job *job);
/* What is not there, and what to do; "" if all is. */
const char *presence_describe(const struct job *job, char *text, size_t size);
#define PRESENCE_TEXT 640
/* The same as an error: 0, or -EIO with a message that names the job. */
int presence_refuse(const struct job *job, char *message, size_t size);

#endif
