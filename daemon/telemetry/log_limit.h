/* A limit on how often what clients cause is logged: whoever floods the daemon must not flood its log. */
#ifndef TIERD_DAEMON_LOG_LIMIT_H
#define TIERD_DAEMON_LOG_LIMIT_H

#include <stdbool.h>
#include <stdint.h>

#define LOG_LIMIT_LINES 20
#define LOG_LIMIT_SECONDS 10

struct log_limit {
	const char *what; /* "refusals of clients" */
	uint64_t began_ns;
	unsigned lines, dropped; /* since then */
};

/* Whether another line may be logged now. Says when lines are left out, and later how many were. */
bool log_limit_allows(struct log_limit *limit, uint64_t now_ns);

#endif
