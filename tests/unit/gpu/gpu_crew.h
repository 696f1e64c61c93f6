/* Ranks of a job on several GPUs that stand-ins play, for tests of what these sum together: how the ranks
 * attach, what they push, and what comes of it. */
#ifndef TIERD_TESTS_UNIT_GPU_CREW_H
#define TIERD_TESTS_UNIT_GPU_CREW_H

#include "daemon/gpu/exchange.h"
#include "tests/unit/gpu/gpu_actor.h"
#include "tests/unit/scene_test.h"

#define CREW_RANKS 4 /* at most */

struct crew {
	unsigned ranks, stage;
	unsigned gpus[CREW_RANKS]; /* by rank */
	uint64_t budget;
	bool has_no_exchange, has_no_sums;
	bool is_measured; /* whether sums are faster */
	bool has_few;	  /* one more unit, with few elements */
};

/* A round takes some of a unit, where a rank has 2^20 elements of it. Units of one format, and of two, that
 * divide into nothing. */
enum { HALVES, BOTH, UNITS, FEW = UNITS };

/* The one that plays, and its ranks. */
extern const struct crew *crew;
extern struct actor crew_actors[CREW_RANKS];
extern const struct crew crew_pair;

/* For cmocka. */
int crew_setup(void **state);
int crew_teardown(void **state);

/* What the node allows it. */
void crew_set_node(void);
void crew_enter(unsigned rank);
void crew_get_ready(void);
void crew_attach(unsigned rank);
int crew_try_to_attach(unsigned rank);
/* As if each rank had gathered all units, one after the other. */
void crew_learn_order(void);
/* All of this, without an exchange yet; or with one that is ready. */
struct job *crew_begin(const struct crew *whom);
struct job *crew_play(const struct crew *whom);

struct gpu_exchange *crew_exchange(void);
void crew_await(enum exchange_state wanted);
struct gpu_rank *crew_rank(unsigned rank);

/* Pushes of a rank with the same salt are equal. The number of the request, and how it ends. */
uint32_t crew_push(unsigned rank, uint32_t unit, unsigned salt);
uint32_t crew_push_from_host(unsigned rank, uint32_t unit, unsigned salt);
int crew_result(unsigned rank, uint32_t number);
void crew_push_all(uint32_t unit, unsigned salt);
/* What is pushed is complete on the GPUs. */
void crew_await_complete(const struct job *job);
/* The sum of so many micro-batches, each with its number as salt, by the ranks from first on. */
void crew_expect_from(unsigned first, uint32_t unit, unsigned micro_batches);
void crew_expect(uint32_t unit, unsigned micro_batches);
/* Of a rank's contribution. */
uint64_t crew_bytes(uint32_t unit);
/* By the GPUs of its ranks, to host memory. */
uint64_t crew_copied_bytes(void);

#endif
