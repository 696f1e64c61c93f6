/* Damage: what cannot be read of a job's store, told as an event. */
#ifndef TIERD_DAEMON_DAMAGE_H
#define TIERD_DAEMON_DAMAGE_H

#include "daemon/model/model.h"
#include "offload/store/store_verify.h"

/* A read that failed, of somebody who wants the bytes, with what follows from that. */
void damage_tell_read(const struct job *job, const struct store_transfer *transfer, int status,
		      const char *consequence);

/* The same for who wants them, or writes them: "WHAT cannot be read: …", and the remedy. what: where nobody
 * knows where the bytes are, or fault is NULL. No longer than DAMAGE_TEXT; the job is for the caller to name.
 */
#define DAMAGE_TEXT (LOCATION_FAULT_TEXT + 240)
const char *damage_explain(const struct job *job, const char *what, const struct store_transfer *fault,
			   int status, char text[DAMAGE_TEXT]);

/* Of what a scan has found: names are borrowed from the job. */
struct damage {
	struct location location; /* the part, if it is no extent, as the state of no unit */
	char part[64];
};
void damage_find(const struct job *job, const struct store_flaw *flaw, struct damage *ret_damage);

/* by: who has found it, "verify" or "scrub". */
void damage_tell(const struct job *job, const struct store_flaw *flaw, const char *by);

#endif
