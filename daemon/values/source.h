/* A source: another job, or a snapshot of one, of which a new job takes its first values, tensor by tensor of
 * the same name, before it is initialized. Units, ranks, stage and number formats may all be others. */
#ifndef TIERD_DAEMON_SOURCE_H
#define TIERD_DAEMON_SOURCE_H

#include "daemon/model/model.h"

struct source;

/* What a rank asks for when it opens a job; *ret_source becomes NULL if it names no source. -EINVAL: no name
 * of a job or of a snapshot; -ENOENT: the peer sees no such job, or that has no such snapshot; others as
 * snapshots are refused. With a message. */
int source_new(struct node *node, const struct port *port, const Tierd__Wire__JobOpen *open,
	       struct source **ret_source, char *message, size_t size);
/* Nothing of it is in flight. Takes NULL. */
struct source *source_free(struct source *source);

/* Units begin with as many updates as those there had. Takes NULL. */
bool source_has_state(const struct source *source);

/* Of two ranks of a job: -EINVAL with the difference. Either may be NULL. */
int source_compare(const struct source *here, const struct source *job, char *message, size_t size);

/* In the turn of the job, all ranks of which are ready: takes what can be taken. 1: it is not done yet; 0: it
 * is; or a negative errno with a message: nothing of it is left, and the next call begins anew. */
int source_go_on(struct job *job, char *message, size_t size);
/* Neither a copy nor a write is under way. */
bool source_is_quiet(const struct job *job);

/* ---- For the job whose values are taken ---- */

/* In its turn. */
void sources_go_on(struct job *from);
void sources_end_job(struct job *from);
/* Those whose job's owner may not read any more what they take. */
void sources_end_denied(struct job *from, const char *reason);

#endif
