/* Backup: writes what is in host memory to NVMe, before a commit that has it. It writes the state of one
 * step, in the background, while the next ones are computed: a sweep waits for the packs that it is about to
 * update, one by one. Nothing is copied; each pack is written from where it is. */
#ifndef TIERD_DAEMON_BACKUP_H
#define TIERD_DAEMON_BACKUP_H

#include "daemon/model/model.h"

/* In the job's turn. */
void backup_go_on(struct job *job);

/* A sweep is about to update the pack: false, if that is still to be written, and is written first now. */
bool backup_lets(struct job *job, uint32_t pack);

#endif
