/* Gathers by message: of units that are not resident, or not at the version that is awaited. */
#ifndef TIERD_CLIENT_GATHER_H
#define TIERD_CLIENT_GATHER_H

#include "client/library/pages/job.h"

/* Who asks, which says whether somebody waits at once, and who notes the gather. */
enum gather_call { GATHER_ONE, GATHER_BEGIN, GATHER_MANY };

/* All with the lock held. The ticket is done already if the unit has come meanwhile. */
int gather_begin_locked(struct tierd_job *job, uint32_t unit, enum gather_call call,
			struct tierd_ticket **ret_ticket);

/* Waits for the ticket, and passes its lease to the caller, who abandons the ticket in any case. */
int gather_finish(struct tierd_ticket *ticket, uint64_t deadline, struct tierd_view *ret_parameters);

#endif
