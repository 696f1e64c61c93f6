/* Replaced: a durable job that another one of its name takes the place of. It is closed, and its files stay
 * until the other one's state is as safe as they are; if that never comes, they are opened again. */
#ifndef TIERD_DAEMON_REPLACED_H
#define TIERD_DAEMON_REPLACED_H

#include "daemon/durability/durability.h"
#include "daemon/model/model.h"
#include "daemon/resources/resources.h"

struct replaced;

/* Of what the new job commits. */
extern const struct durable_listener replaced_listener;

/* Ends a job that another one is to replace. ret_replaced: what can come back of it, NULL: nothing; it is for
 * one of the next three. -ENOMEM: nothing has happened. */
int replaced_new(struct job *old, struct replaced **ret_replaced);

/* The new job has a state of its own: the files are removed. These take NULL, and return it. */
struct replaced *replaced_remove(struct replaced *replaced);
/* There will be no new job: the old one is opened again. */
struct replaced *replaced_bring_back(struct replaced *replaced);
/* The daemon ends, and leaves it to the next one. */
struct replaced *replaced_leave(struct replaced *replaced);

/* The old job is about to be freed: what it has taken of the paths stays taken. */
void replaced_inherit(struct job *old);

/* They are a holder of the node. */
extern const struct holder replaced_holder;

/* It is these, of NULL not. */
bool replaced_has_file(const struct replaced *replaced, const char *file);

#endif
