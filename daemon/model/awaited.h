/* Awaited: the steps of a rank that are applied and not yet durable. Their requests get a second answer when
 * they are; nothing else is kept of them, so that a rank may have many. */
#ifndef TIERD_DAEMON_AWAITED_H
#define TIERD_DAEMON_AWAITED_H

#include <stdbool.h>
#include <stdint.h>

struct member;

#define AWAITED_MOST 512

struct awaited {
	struct {
		uint64_t step;
		uint32_t request;
	} steps[AWAITED_MOST]; /* the oldest at first, and on from there, around the end */
	unsigned first, count;
};

/* Not when it is full. */
void awaited_add(struct awaited *awaited, uint64_t step, uint32_t request);
/* There is room for the two steps that may still be applied before a commit has ended. */
bool awaited_has_room(const struct awaited *awaited);
bool awaited_has(const struct awaited *awaited, uint32_t request);

/* Answers those up to that step: they are durable. */
void awaited_answer(struct member *member, uint64_t step);
/* Answers all of them: they will not be. */
void awaited_fail(struct member *member, int r, const char *reason);

#endif
