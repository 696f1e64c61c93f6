/* Damage: what cannot be read of a job's store, told as an event. */
#ifndef TIERD_DAEMON_DAMAGE_H
#define TIERD_DAEMON_DAMAGE_H

#include "daemon/location.h"
#include "daemon/scan.h"

/* A read that failed, of somebody who wants the bytes, with what follows from that. */
void damage_tell_read(const struct job *job, const struct store_transfer *transfer, int status,
		      const char *consequence);

/* Of what a scan has found: names are borrowed from the job. */
struct damage {
	struct location location; /* the part, if it is no extent, as the state of no unit */
	char part[64];
};
void damage_find(const struct job *job, const struct store_flaw *flaw, struct damage *ret_damage);

/* by: who has found it, "verify" or "scrub". */
void damage_tell(const struct job *job, const struct store_flaw *flaw, const char *by);

#endif
