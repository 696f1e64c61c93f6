/* State: what a job keeps for each trainable element beside its parameter. Number 0 is what the parameter
 * lacks of its fp32 master, the others are the optimizer's slots. */
#ifndef TIERD_DAEMON_STATE_H
#define TIERD_DAEMON_STATE_H

#include "daemon/model/options.h"
#include "proto/unit_layout.h"

/* Instead of a state's number, where either is meant. */
#define STATE_PARAMETER (-1)
#define STATE_MASTER 0
#define STATE_SLOTS 1
#define STATES_MAXIMUM (STATE_SLOTS + OPTIMIZER_MAX_SLOTS)

/* For a frozen section: that of its format, which says how to convert it. Not for bytes. */
enum master_kind state_master_kind(enum unit_section section);

/* How its slots are kept. */
enum moment_format state_moments(enum unit_section section);

static inline unsigned state_count(const struct job_options *options)
{
	return STATE_SLOTS + options->slot_count;
}

/* The section's elements have something of it. */
bool state_exists(enum unit_section section, unsigned state);

/* Elements that are kept as one piece: 1, or a block. */
uint64_t state_grain(enum unit_section section, unsigned state);

/* What so many elements take, in whole pieces. */
uint64_t state_bytes(enum unit_section section, unsigned state, uint64_t elements);

/* Where the element's piece begins, in bytes from that of the section's first one. */
uint64_t state_offset(enum unit_section section, unsigned state, uint64_t element);

/* Of all of them together. */
uint64_t state_all_bytes(const struct job_options *options, enum unit_section section, uint64_t elements);

/* "remainder", "master", "m", …: the name of its stream, and in messages. */
const char *state_stream_name(const struct job_options *options, enum unit_section section, unsigned state);

/* What "parameter", "master" or the name of a slot, the optimizer's or PyTorch's ("exp_avg"), means:
 * STATE_PARAMETER or a state's number; -ENODATA with a message that lists what there is: the job has none of
 * this name. */
int state_find(const struct job_options *options, const char *name, int *ret_state, char *message,
	       size_t size);

#endif
