/* The phases of a rank: each has an order of gathers, which the rank's trace teaches. */
#ifndef TIERD_DAEMON_PHASE_H
#define TIERD_DAEMON_PHASE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct job;
struct member;

/* Makes phase the current one, and ends the pass of the last one, unless steps do that. -E2BIG: too many
 * phases; -ENOMEM: no memory for another. Message: for the client, if it fails. The first phase is in the
 * job's plan. */
int member_set_phase(struct member *member, const char *phase, char *message, size_t size);
uint64_t member_phase_bytes(const struct job *job);
void member_free_phases(struct member *member);

/* The pass of a training phase ends with its step. */
void member_finish_pass(struct member *member);

/* Reads what is new in the trace. True if there was something. */
bool member_read_trace(struct member *member);

/* Adds what it has gathered since the last call to the job's figures. */
void member_count_gathers(struct member *member);

#endif
