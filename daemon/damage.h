/* Damage: what cannot be read of a job's store, told as an event. */
#ifndef TIERD_DAEMON_DAMAGE_H
#define TIERD_DAEMON_DAMAGE_H

#include "daemon/location.h"
#include "daemon/scan.h"

/* A read that failed, of somebody who wants the bytes, with what follows from that. */
void damage_tell_read(const struct job *job, const struct store_transfer *transfer, int status,
		      const char *consequence);

/* by: who has found it, "verify" or "scrub". */
void damage_tell(const struct job *job, const struct scan_finding *finding, const char *by);

#endif
