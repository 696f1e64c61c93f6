/* Monotonic time. */
#ifndef TIERD_COMMON_CLOCK_H
#define TIERD_COMMON_CLOCK_H

#include <stdbool.h>
#include <stdint.h>
#include <time.h>

static inline uint64_t clock_now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * UINT64_C(1000000000) + (uint64_t)now.tv_nsec;
}

/* What began then takes longer than that by now. Of what has not begun since_ns is 0. */
static inline bool clock_is_late(uint64_t since_ns, uint64_t patience_ns)
{
	return since_ns > 0 && clock_now_ns() - since_ns > patience_ns;
}

static inline void clock_sleep_ns(uint64_t ns)
{
	struct timespec pause = { .tv_sec = (time_t)(ns / 1000000000), .tv_nsec = (long)(ns % 1000000000) };

	nanosleep(&pause, NULL);
}

#endif
