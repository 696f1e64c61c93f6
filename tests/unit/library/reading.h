/* Threads of a program, of which one reads what tierd sends. */
#ifndef TIERD_TESTS_READING_H
#define TIERD_TESTS_READING_H

#include <sched.h>

#include "client/library/connection/connection.h"
#include "tests/unit/test.h"

/* With the lock, in a moment in which another thread waits for what comes. */
static inline void lock_while_another_thread_reads(struct tierd_node *node)
{
	assert_int_equal(connection_enter(node), 0);
	while (!node->has_reader) {
		connection_exit(node);
		sched_yield();
		assert_int_equal(connection_enter(node), 0);
	}
}

#endif
