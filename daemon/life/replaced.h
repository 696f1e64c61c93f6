/* Replaced: a durable job whose name a new job takes. The old job is closed. Its files stay until the state
 * of the new job is durable, too; if the new job ends before, they are opened again. */
#ifndef TIERD_DAEMON_REPLACED_H
#define TIERD_DAEMON_REPLACED_H

#include "daemon/durability/durability.h"
#include "daemon/model/model.h"
#include "daemon/resources/resources.h"

struct replaced;

/* Hears of the new job's commits. */
extern const struct durable_listener replaced_listener;

/* Ends a job that another one is to replace. ret_replaced: its files, for one of the next three functions;
 * NULL: it has none. -ENOMEM: nothing has happened. */
int replaced_new(struct job *old, struct replaced **ret_replaced);

/* The new job has a state of its own: the files are removed. These take NULL, and return it. */
struct replaced *replaced_remove(struct replaced *replaced);
/* There will be no new job: the old one is opened again. */
struct replaced *replaced_bring_back(struct replaced *replaced);
/* The daemon ends, and leaves it to the next one. */
struct replaced *replaced_leave(struct replaced *replaced);

/* The old job is about to be freed. What its files take of the paths is still counted. */
void replaced_inherit(struct job *old);

/* Their files are counted for their users. */
extern const struct holder replaced_holder;

/* False also for NULL. */
bool replaced_has_file(const struct replaced *replaced, const char *file);

#endif
