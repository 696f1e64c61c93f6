/* One rank of a configuration: a process of its own that trains through tierd and compares. */
#ifndef TIERD_TESTS_MATRIX_RANK_H
#define TIERD_TESTS_MATRIX_RANK_H

#include "reference.h"

struct rank {
	struct configuration configuration;
	char label[128];
	unsigned rank;
	struct model model;
	struct reference reference;
	struct tierd_node *node;
	struct tierd_job *job;
	struct tierd_ticket *ticket; /* of the last step, or NULL */
	unsigned ticket_step;
	struct owner *owner; /* NULL: tierd updates its shard */
	uint64_t gpu_budget;
	struct gpu_reader *gpu; /* NULL: it gathers in host memory alone */
	/* What it did, by its own count. */
	uint64_t gathers, gathered_elements, pushes, pushed_elements;
};

/* Every third rank runs ahead into the next step, before the last one is decided. */
static inline bool rank_runs_ahead(const struct rank *rank)
{
	return rank->rank % 3 == 1;
}

/* Describes a configuration for people and for its ranks. */
void configuration_print(const struct configuration *configuration, char *text, size_t size);

/* Opens the job, replacing one that exists, and defines its units. Prints and exits on failure, as all of the
 * following do. */
void rank_join(struct rank *rank, uint64_t host_budget);
void rank_write(const struct rank *rank);
void rank_train(struct rank *rank);
void rank_compare(const struct rank *rank);
void rank_check_account(const struct rank *rank, uint64_t host_budget);

/* Fails the test with what tierd says, unless r is 0. */
void rank_must(const struct rank *rank, int r, const char *what);
void rank_fail(const struct rank *rank, const char *format, ...)
	__attribute__((format(printf, 2, 3), noreturn));

/* Compares count values of bytes each; on a difference prints it and exits. */
void rank_equal(const struct rank *rank, const char *state, unsigned unit, unsigned tensor, uint64_t first,
		uint64_t count, uint64_t bytes, const void *actual, const void *expected);

#endif
