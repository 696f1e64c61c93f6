/* Lost: jobs whose stores an earlier daemon has left, and this one cannot open. Each is a broken job that
 * says why. Its files stay as they are until somebody replaces or drops it. It is tried again when somebody
 * opens it, and, if there was no room for it, when there is more. */
#ifndef TIERD_DAEMON_LOST_H
#define TIERD_DAEMON_LOST_H

#include "daemon/model/model.h"
#include "daemon/durability/durability.h"

/* Without memory for such a job the failure is only logged. */
void lost_new(struct node *node, const struct job_file *file, const struct loss *loss, const char *why);

/* In the job's turn: there may be more room than there was. */
void lost_go_on(struct job *job);
/* Somebody opens it. False: it was just tried, in vain. */
bool lost_try_again(struct job *job);

/* What brings it back, or any broken job: a command, or an action. */
#define LOST_REMEDY_TEXT 320
const char *lost_remedy(const struct job *job, char text[static LOST_REMEDY_TEXT]);

/* It is lost, or was when it ended. */
bool lost_has_files(const struct job *job);
/* The files of a lost job that was replaced or dropped. */
void lost_remove(const struct job *job);

/* Removes the files of a job that nobody has open; if other jobs are in its store, only what is its own. */
void lost_remove_file(struct node *node, const struct job_file *file);

#endif
