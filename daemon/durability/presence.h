/* Presence: whether the files of running jobs are still in their places, under their names. A file that is
 * removed while a job has it open goes on working, and is gone when tierd ends. So nothing that is written to
 * it is called durable. */
#ifndef TIERD_DAEMON_PRESENCE_H
#define TIERD_DAEMON_PRESENCE_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

struct job;
struct node;

/* Which file is not there, and what to do; "" if all are there. */
const char *presence_describe(const struct job *job, char *text, size_t size);
#define PRESENCE_TEXT 640
/* The same as an error: 0, or -EIO with a message that names the job. */
int presence_refuse(const struct job *job, char *message, size_t size);

#endif
