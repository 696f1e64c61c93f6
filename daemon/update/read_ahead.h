/* State that is read ahead: what the next updates come to first is read while the ranks still compute, and
 * nothing else is to do.
 *
 * It waits in staging buffers that are lent: whoever wants one gets it, and what was in it is read again when
 * it is its turn. Nothing changes a state between two sweeps, so what was read once is right whichever update
 * comes to it, before the decision or after it. */
#ifndef TIERD_DAEMON_READ_AHEAD_H
#define TIERD_DAEMON_READ_AHEAD_H

#include "daemon/model/model.h"
#include "daemon/resources/resources.h"

/* Of a job that is planned. */
uint64_t read_ahead_metadata_bytes(const struct job *job);

/* A step has been applied: the ranks train, and what it has updated will be wanted again. */
void read_ahead_begin(struct job *job);
/* In the job's turn. */
void read_ahead_go_on(struct job *job);

/* What becomes of the states of the chunk that begins at that element of the pack's section: nothing of them
 * has been asked for; they are on their way, and when they are there the job's turn comes; the caller has the
 * buffer in which they are, beside the parameters' place. */
enum read_ahead_answer { READ_AHEAD_NOTHING, READ_AHEAD_COMING, READ_AHEAD_HERE };
enum read_ahead_answer read_ahead_take(struct job *job, uint32_t pack, enum unit_section section,
				       uint64_t first, enum tier_priority priority,
				       struct staging_buffer **ret_buffer);
/* Nobody will take them. */
void read_ahead_forget(struct job *job, uint32_t pack, enum unit_section section, uint64_t first);
/* The first pack, in their order, of which something has been asked for, and for which is_sought();
 * SLOT_NONE: there is none. */
uint32_t read_ahead_find(const struct job *job, bool (*is_sought)(const struct job *job, uint32_t pack));

/* Something is on its way, so that it goes on without anybody. */
bool read_ahead_is_reading(const struct job *job);
/* It has buffers. */
bool read_ahead_is_busy(const struct job *job);
/* Of a job that is freed: it is not busy. */
void read_ahead_clear(struct job *job);

#endif
