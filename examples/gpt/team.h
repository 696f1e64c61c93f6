/* A team of threads that share out the numbered tasks of one piece of work. */
#ifndef GPT_TEAM_H
#define GPT_TEAM_H

#include <stddef.h>

#include "common/cleanup.h"

struct team;

/* Runs one task; scratch belongs to the thread that runs it, until it returns. A result never depends on
 * which thread that is. */
typedef void team_task(void *argument, size_t index, void *scratch);

/* threads counts the caller, who works too. Each thread gets scratch_bytes, aligned to a cache line. */
int team_new(unsigned threads, size_t scratch_bytes, struct team **ret_team);
struct team *team_free(struct team *team);
DEFINE_FREEP(struct team *, team_free)

/* Returns when task has run for every index below count. */
void team_run(struct team *team, size_t count, team_task *task, void *argument);

#endif
