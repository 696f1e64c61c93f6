/* What the tests with dying and misbehaving ranks share: checks that say where they failed, small units, and
 * a crowd of rank processes that can be killed and started again. */
#ifndef TIERD_TESTS_CRASH_SUPPORT_H
#define TIERD_TESTS_CRASH_SUPPORT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/types.h>

#include "client/tierd.h"

/* Far more than anything here takes, on a busy machine and with sanitizers: who waits so long hangs. */
#define PATIENCE_MS 100000

#define REQUIRE(condition)                                                                                   \
	do {                                                                                                 \
		if (!(condition))                                                                            \
			support_fail(__FILE__, __LINE__, #condition);                                        \
	} while (0)

/* The call succeeds. */
#define OK(call) support_expect(__FILE__, __LINE__, #call, (call), 0, NULL)

/* The call fails with this negative errno, and tierd_message() has the text in it. */
#define FAILS(call, error, text) support_expect(__FILE__, __LINE__, #call, (call), (error), (text))

void support_fail(const char *file, int line, const char *what) __attribute__((noreturn));
void support_expect(const char *file, int line, const char *what, int r, int expected, const char *text);

/* A connection whose calls give up, with -ETIMEDOUT, after PATIENCE_MS. */
struct tierd_node *support_connect(void);
/* Until nobody listens any more: the daemon was told to end. */
void support_await_stopping(void);

/* Options of a job for world_size ranks, which gather on GPU 0 where $TIERD_TEST_GPU says so; the rest as
 * tierd.h has it. */
struct tierd_job_options support_options(const char *name, uint32_t rank, uint32_t world_size);

/* Defines a unit of one vector, initialized with value. */
uint32_t support_define(struct tierd_job *job, const char *name, uint32_t format, uint64_t elements,
			double value);

/* Connects, opens, defines `units` fp32 vectors of 1000 elements named u0, u1, …, all of them value 1. */
struct tierd_job *support_join(struct tierd_node *node, const struct tierd_job_options *options,
			       unsigned units);

/* The same, and ready: the job of one rank. */
struct tierd_job *support_begin(struct tierd_node *node, const struct tierd_job_options *options,
				unsigned units);

/* Defines units of one vector, u0, u1, …: values of the first, and how much more each has than the one
 * before. */
void support_define_all(struct tierd_job *job, unsigned units, uint32_t format, uint64_t elements,
			double value, double more);

/* Waits until all ranks of a job are ready, which are jobs of this process; each is told the same. */
void support_ready(struct tierd_job **ranks, unsigned count, int expected, const char *text);

/* Drops the job that is there, of which no rank may be alive. */
void support_drop(const char *name);

/* Gathers the unit, also on the rank's GPU, pushes gradients that are all `gradient`, and releases it. */
int support_push(struct tierd_job *job, uint32_t unit, uint64_t elements, float gradient);

/* Without anything else that a step may say. */
struct tierd_rates support_rates(float learning_rate);

/* Waits for the step's event, frees its ticket, and returns what came of it. */
struct tierd_step_result support_take(struct tierd_ticket *ticket, enum tierd_event event);

/* All ranks of a job, which are of this process, close a step and wait for its event. */
struct tierd_step_result support_step(struct tierd_job **ranks, unsigned count,
				      const struct tierd_rates *rates, enum tierd_event event);

/* An element of a bf16 or an fp32 tensor; for bf16 the lower bits are cut off. */
void support_put(void *values, uint32_t format, uint64_t at, float value);

#define CROWD_MAX 16

/* Ranks of this process, each with a connection of its own. */
struct ranks {
	unsigned count;
	struct tierd_node *nodes[CROWD_MAX];
	struct tierd_job *jobs[CROWD_MAX];
};

/* They leave the job in good order, and disconnect. */
void ranks_close(struct ranks *ranks);

/* With values between -1 and 1, fp32 or bf16, that follow from the seed. */
void support_fill(void *values, uint64_t count, bool is_bf16, uint64_t seed);

/* What the processes of a crowd share. */
struct crowd_board {
	_Atomic bool has_arrived[CROWD_MAX]; /* has nothing left to do */
	_Atomic bool may_finish;
	_Atomic uint64_t steps[CROWD_MAX]; /* where the rank was last seen */
	unsigned char space[];
};

struct crowd {
	unsigned count;
	pid_t pids[CROWD_MAX];
	struct crowd_board *board;
	size_t board_bytes;
	void (*run)(struct crowd_board *board, unsigned rank, void *argument);
	void *argument;
};

/* Starts count processes that run(), and exit with 0 when it returns. The board has space_bytes of zeros. */
void crowd_start(struct crowd *crowd, unsigned count, size_t space_bytes,
		 void (*run)(struct crowd_board *board, unsigned rank, void *argument), void *argument);

/* SIGKILL, and a new process in its place. */
void crowd_replace(struct crowd *crowd, unsigned rank);

/* Fails if a process has ended by itself. */
void crowd_check(struct crowd *crowd);

/* Waits until all ranks have arrived, lets them finish, and waits for their ends. The board is still there.
 */
void crowd_finish(struct crowd *crowd);
void crowd_free(struct crowd *crowd);

/* In a rank: it has arrived. True: all may finish. False: the epoch has ended, call tierd_job_ready. */
bool crowd_arrive(struct crowd_board *board, unsigned rank, struct tierd_job *job);

/* A moment of at most this length; not to wait for something, but so that what comes next comes at any time.
 */
void crowd_pass_time(uint64_t *seed, unsigned microseconds);

/* The next of a sequence of numbers that look random. */
uint64_t support_random(uint64_t *seed);

/* What the argument KEY=VALUE says, or else the other. */
const char *support_value(int count, char *arguments[], const char *key, const char *otherwise);
uint64_t support_number(int count, char *arguments[], const char *key, uint64_t otherwise);

#endif
