/* TIERD_DEBUG=leases: pages of the arena that no leased unit covers cannot be read. */
#ifndef TIERD_CLIENT_DEBUG_H
#define TIERD_CLIENT_DEBUG_H

#include <stdbool.h>
#include <stdint.h>

struct debug;
struct attachment;
struct tierd_job;

bool debug_is_wanted(void);

/* For an attachment of the job: closes its arena. */
int debug_new(const struct tierd_job *job, const struct attachment *attachment, struct debug **ret_debug);
struct debug *debug_free(struct debug *debug);

/* A lease on the unit, whose values begin at offset in the arena, was taken; opens its pages. Any thread. */
int debug_take(struct debug *debug, uint32_t unit, uint64_t offset);

/* Closes what no other lease covers, then gives the lease back. False: there was none. */
bool debug_give(struct debug *debug, uint32_t unit);

/* ---- For code that moves leased memory: with the lock held no lease is taken or given back ---- */

void debug_lock(struct debug *debug);
void debug_unlock(struct debug *debug);
bool debug_holds(const struct debug *debug, uint32_t unit);
/* Closes the pages that no lease covers. */
int debug_close_others(struct debug *debug);

#endif
