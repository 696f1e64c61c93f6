/* A raid: a user with jobs of many units, and connections that loop over one request each. */
#ifndef TIERD_TESTS_BENCH_RAID_H
#define TIERD_TESTS_BENCH_RAID_H

#include <stdatomic.h>
#include <stdint.h>
#include <sys/types.h>

#include "proto/frame.h"

#define RAID_CONNECTIONS 14 /* each with a job of its own, and one has one more */
#define RAID_USER 60001

/* What a raid can ask for, as its connections send it. */
struct raid_request {
	const char *name;
	/* A connection asks for it once before, where there is something to begin with. */
	void (*begin)(Tierd__Wire__Request *request, uint32_t connection);
	void (*fill)(Tierd__Wire__Request *request, uint32_t connection);
};
extern const struct raid_request raid_requests[];
extern const unsigned raid_request_count;

/* What a raid does: nothing, spin without a request, or a request by its index. */
enum { RAID_IDLE = -1, RAID_SPIN = -2 };

struct raid {
	pid_t pid;
	struct raid_orders {
		atomic_int wanted, at; /* at: what it does by now */
		atomic_uint_least64_t answers;
		atomic_int is_ready; /* 1, or a negative errno */
	} * orders;
};

/* Jobs of so many units are made, and ready, when it returns. 0, or a negative errno. */
int raid_start(struct raid *raid, const char *path, uint32_t units);
/* Returns when the raid does that. -ECHILD: it has ended. */
int raid_turn_to(struct raid *raid, int what);
void raid_end(struct raid *raid);

/* What its jobs are called, by their connections. */
#define RAID_JOB "raid-%u"

#endif
