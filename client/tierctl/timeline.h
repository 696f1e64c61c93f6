/* A timeline: what a job has done, as a file that Perfetto and chrome://tracing show. */
#ifndef TIERD_CLIENT_TIERCTL_TIMELINE_H
#define TIERD_CLIENT_TIERCTL_TIMELINE_H

#include <stdbool.h>
#include <stdio.h>

#include "common/cleanup.h"
#include "proto/frame.h"

/* In memory, until it is written: 160 MiB. */
#define TIMELINE_MOST_EVENTS ((size_t)2 << 20)

struct timeline;

/* job: borrowed. -ENOMEM. */
int timeline_new(const char *job, struct timeline **ret_timeline);
struct timeline *timeline_free(struct timeline *timeline);
DEFINE_FREEP(struct timeline *, timeline_free)

/* Leaves events of unknown kinds out. -ENOMEM; -E2BIG: it has TIMELINE_MOST_EVENTS. */
int timeline_add(struct timeline *timeline, const Tierd__Wire__TraceEvent *event);
/* Units have names in the order of their numbers; -ENOMEM. */
int timeline_name_unit(struct timeline *timeline, const char *name);
/* The daemon has lost this many events. */
void timeline_lose(struct timeline *timeline, uint64_t count);

size_t timeline_events(const struct timeline *timeline);
uint64_t timeline_steps(const struct timeline *timeline); /* that were applied */
uint64_t timeline_lost(const struct timeline *timeline);
uint32_t timeline_units(const struct timeline *timeline); /* that have names */
/* Some event is of a unit that has none. */
bool timeline_lacks_names(const struct timeline *timeline);

/* Once, at the end. -ENOMEM; what the stream says of an error stays there. */
int timeline_write(struct timeline *timeline, FILE *stream);

#endif
