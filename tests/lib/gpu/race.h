/* Finds races between streams, also of several processes: an access to memory that another stream accesses,
 * one of them writing, where neither has waited for the other.
 *
 * An access is ordered after another if its stream had been told to wait for an event that was recorded
 * behind the other, or if a process had seen the other's end before this one was submitted. All is found when
 * a stream is told, not when it does it, so a race is found whether it happens or not. What host code reads
 * and writes is not seen here. */
#ifndef TIERD_TESTS_LIB_GPU_RACE_H
#define TIERD_TESTS_LIB_GPU_RACE_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define RACE_ACTORS 128
#define RACE_ACCESSES 480

/* Which accesses of each stream come before: those up to that time of it. */
struct race_clock {
	unsigned count;
	struct {
		uint64_t stream, time;
	} entries[RACE_ACTORS];
};

struct race_actor {
	uint64_t stream; /* its number, in all processes */
	struct race_clock clock;
};

/* The accesses to one allocation, or to a range of host memory, whose end no process has seen. Processes
 * share it. */
struct race_table {
	pthread_mutex_t lock;
	unsigned count;
	struct race_access {
		size_t begin, end;
		uint64_t stream, time;
		bool is_write;
	} accesses[RACE_ACCESSES];
};

struct race_range {
	struct race_table *table;
	size_t offset, bytes;
	bool is_write;
};

void race_table_init(struct race_table *table);
void race_actor_init(struct race_actor *actor);

/* The stream's accesses from now on are later than those so far. */
void race_step(struct race_actor *actor);
void race_join(struct race_clock *clock, const struct race_clock *other);

/* The stream is told to access a range. Ends the process at a race. */
void race_check(const struct race_actor *actor, const struct race_range *range, const char *what);

/* This process has seen the end of all that comes before. */
void race_see(struct race_table *table, const struct race_clock *clock);

/* Whether this process may still access the range. */
bool race_is_quiet(struct race_table *table, size_t offset, size_t bytes);

#endif
