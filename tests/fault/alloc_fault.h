/* Fails the n-th allocation. Link with alloc_fault.c and alloc_fault_link_args (tests/fault/meson.build):
 * only calls of our own code are counted, not those inside shared libraries. */
#ifndef TIERD_TESTS_FAULT_ALLOC_FAULT_H
#define TIERD_TESTS_FAULT_ALLOC_FAULT_H

#include <stdbool.h>

/* The nth allocation from now on, counted from 1, fails, once. */
void alloc_fault_arm(unsigned nth);

/* Whether it has; disarms. */
bool alloc_fault_tripped(void);

/* Calls attempt() until no allocation is left that it needs: a first time without its first one, then without
 * its second one. It must return -ENOMEM each time, and 0 at last. Returns how many allocations there were.
 */
unsigned alloc_fault_each(int (*attempt)(void));

/* From one n to the next: 1, or by day ($TIERD_SEEDS_PART) 4. */
unsigned alloc_fault_stride(void);
/* The n to begin with: another one each time, so that what goes the way that another one went fails
 * in other places, and with sanitizers another one than without. */
unsigned alloc_fault_first(void);

#endif
