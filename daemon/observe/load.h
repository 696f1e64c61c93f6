/* The load: how busy the daemon and its devices were in the last seconds, so that one can tell which of both
 * limits what ranks wait for. */
#ifndef TIERD_DAEMON_LOAD_H
#define TIERD_DAEMON_LOAD_H

#include <stdint.h>

#include "daemon/request/request.h"
#include "proto/statistics.h"

struct node;

/* As many as the statistics' timer makes in two seconds. */
#define LOAD_LOOKS 4

/* Embedded. */
struct load {
	int turns_fd; /* what the kernel counts of the loop's thread; -1: its processor time alone is known */
	uint64_t look_count;
	struct statistics_node looks[LOAD_LOOKS]; /* the last ones; each at its number modulo LOAD_LOOKS */
};

/* On the loop's thread. */
void load_open(struct load *load);
void load_close(struct load *load);

/* How long the loop has had something to do. */
uint64_t load_loop_ns(const struct load *load);

void load_note(struct load *load, const struct statistics_node *look);

/* What becomes a part of an answer. */
struct report_load {
	Tierd__Wire__Load wire;
	uint64_t stall_ns[STATISTICS_CAUSES];
};

/* Since the oldest look; without one, nothing. The paths of the answer are there already. */
void load_report(struct node *node, struct report_load *load, Tierd__Wire__NodeReply *body);

#endif
