/* State that is read ahead: while the ranks compute and the devices are idle, the state that the next update
 * needs first is read.
 *
 * It waits in staging buffers that are lent. Who wants a buffer gets one of them, and its state is read again
 * when the update comes to it. Nothing changes state between two sweeps, so state that was read is right for
 * any update, before the decision or after it. */
#ifndef TIERD_DAEMON_READ_AHEAD_H
#define TIERD_DAEMON_READ_AHEAD_H

#include "daemon/model/model.h"
#include "daemon/resources/resources.h"

/* Of a job that is planned. */
uint64_t read_ahead_metadata_bytes(const struct job *job);

/* A step has been applied: the state that it has updated is read for the next one. */
void read_ahead_begin(struct job *job);
/* In the job's turn. */
void read_ahead_go_on(struct job *job);

/* The state of the chunk that begins at that element of the pack's section. NOTHING: it has not been asked
 * for. COMING: it is being read; the job has a turn when it is there. HERE: the caller has the buffer now, in
 * which the state lies behind room for the parameters. */
enum read_ahead_answer { READ_AHEAD_NOTHING, READ_AHEAD_COMING, READ_AHEAD_HERE };
enum read_ahead_answer read_ahead_take(struct job *job, uint32_t pack, enum unit_section section,
				       uint64_t first, enum tier_priority priority,
				       struct staging_buffer **ret_buffer);
/* Nobody will take it. */
void read_ahead_forget(struct job *job, uint32_t pack, enum unit_section section, uint64_t first);
/* The first pack, in the order in which they are read, whose state has been asked for and for which
 * is_sought() holds; SLOT_NONE: there is none. */
uint32_t read_ahead_find(const struct job *job, bool (*is_sought)(const struct job *job, uint32_t pack));

/* State is being read: the job has another turn. */
bool read_ahead_is_reading(const struct job *job);
/* It has buffers. */
bool read_ahead_is_busy(const struct job *job);
/* Of a job that is freed: it is not busy. */
void read_ahead_clear(struct job *job);

#endif
