/* An owner: a rank that updates its shard itself, with moments that it keeps in its own memory. */
#ifndef TIERD_TESTS_MATRIX_OWNER_H
#define TIERD_TESTS_MATRIX_OWNER_H

#include "rank.h"

struct owner;

struct owner *owner_new(const struct rank *rank);
struct owner *owner_free(struct owner *owner);

/* Waits until the step of the rank's ticket, counted from 0, is reduced; updates the shard and finishes. */
void owner_take_step(struct owner *owner, const struct rank *rank, unsigned step);

/* Compares its moments with the reference's. */
void owner_compare(const struct owner *owner, const struct rank *rank);

#endif
