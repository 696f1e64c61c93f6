/* Retention: of a job's durable steps every k-th is kept as a snapshot by itself, named step-N, and of those
 * the last ones. */
#ifndef TIERD_DAEMON_RETENTION_H
#define TIERD_DAEMON_RETENTION_H

struct job;

/* A step has become durable. */
void retention_note_commit(struct job *job);

#endif
