/* Refusal: why a rank could not open its job. The other ranks that open the job are told when that rank has
 * gone. As long as it is there it may try again. */
#ifndef TIERD_DAEMON_REFUSAL_H
#define TIERD_DAEMON_REFUSAL_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct job;
struct node;
struct pending;
struct refusal; /* the last one of a client, or none */

int refusal_new(struct refusal **ret_refusal);
struct refusal *refusal_free(struct refusal *refusal);
uint64_t refusal_bytes(void);

/* Notes that the rank is refused. refusal: its client's. */
void refusal_note(struct refusal *refusal, const struct job *job, uint32_t rank, int r, const char *text);

/* The rank is in the job: an earlier refusal is over, and nobody is told. */
void refusal_forget(struct refusal *refusal, const struct job *job, uint32_t rank);

/* The refusal's client has left the job, or is gone (job: NULL). Each other rank that opens the job is told
 * once: at once if it waits in tierd_job_ready, else when it calls that. */
void refusal_tell(struct refusal *refusal, struct node *node, const struct job *job);

/* Answers the request with the refusal of another rank, if there is one to tell. */
bool refusal_answer(struct pending *ready);

#endif
