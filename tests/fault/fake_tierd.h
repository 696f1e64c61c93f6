/* A libtierd of one small job, for tests of commands that need no daemon: what it hands out it counts. Its
 * own allocations fail like all others. */
#ifndef TIERD_TESTS_FAULT_FAKE_TIERD_H
#define TIERD_TESTS_FAULT_FAKE_TIERD_H

struct tierd_reader;

struct fake_tierd {
	int nodes, jobs, tickets; /* that are not closed, or freed */
	int ready;		  /* ranks that have waited until all were ready */
};
extern struct fake_tierd fake_tierd;

/* Two tensors in a unit, one of them frozen, with the states of AdamW. All values are the byte 1. */
struct tierd_reader *fake_tierd_reader(void);

#endif
