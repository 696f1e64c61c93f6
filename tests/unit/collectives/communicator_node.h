/* What the tests of communicators share: nodes that have one each, and operations with the memory of their
 * ranks. Several nodes are played by one process: each has some of the members. */
#ifndef TIERD_TESTS_UNIT_COLLECTIVES_COMMUNICATOR_NODE_H
#define TIERD_TESTS_UNIT_COLLECTIVES_COMMUNICATOR_NODE_H

#include "tests/unit/collectives/gpu_machine.h"

#define SECOND UINT64_C(1000000000)
#define CREATION_TIMEOUT (30 * SECOND)
#define OPERATION_TIMEOUT (60 * SECOND)

struct node {
	struct machine *machine;
	struct nccl nccl;
	struct communicator *communicator;
	unsigned rank_count, member_of_rank[MACHINE_RANKS], gpu_of_rank[MACHINE_RANKS];
	unsigned first, count; /* its members */
	uint64_t now_ns;
};

struct node_plan {
	unsigned rank_count;
	unsigned gpu_of_rank[MACHINE_RANKS];
	unsigned first, count;	  /* the node's members; count 0: all */
	const struct nccl_id *id; /* NULL: a new one */
	size_t staging_bytes;	  /* 0: plenty */
	bool has_no_staging;	  /* it is for gathers and broadcasts */
	bool has_nccl;		  /* with one member, too */
};

/* Begins to create a communicator. Returns what communicator_new() does. */
int node_new(struct node *node, struct machine *machine, const struct node_plan *plan);
/* Aborts the communicator, unless that is over. */
void node_free(struct node *node);

void nodes_poll(struct node *nodes, unsigned count);
/* Poll nodes until the first is in that state, or all that was asked for is done. */
struct trial;
void nodes_await(struct node *nodes, unsigned count, enum communicator_state state);
void nodes_await_done(struct node *nodes, unsigned count, const struct trial *trial);

/* A request, and how often and with what it was done. */
struct asked {
	struct communicator_request request;
	bool is_asked;
	unsigned before, after, done;
	int status;
	void (*then)(struct asked *asked); /* NULL, or called when it is done */
};

/* An operation with the memory of all ranks. */
struct trial {
	struct communicator_operation operation;
	uint64_t bounds[MACHINE_RANKS + 1];
	bool absent[MACHINE_RANKS];
	struct asked asked[MACHINE_RANKS];
	char *expected; /* the whole array, or the whole sum */
	bool is_expected;
};

/* Of so many elements: random ones where ranks have some already, poison elsewhere. The root is the last
 * rank.
 */
void trial_new(struct trial *trial, struct node *node, uint64_t sequence, enum communicator_kind kind,
	       enum reduce_format format, uint64_t count);
void trial_free(struct trial *trial);
int trial_announce(struct trial *trial, struct node *node);
/* Asks for all ranks of the node. The first time it works out what is expected. */
void trial_ask(struct trial *trial, struct node *node);
/* All ranks' requests were done once, with what is expected. */
void trial_assert_good(const struct trial *trial, const struct node *node);
/* All ranks' requests were done once, with that status. */
void trial_assert_failed(const struct trial *trial, const struct node *node, int status);

/* What its communicator says has that text in it. */
void node_assert_says(const struct node *node, const char *text);
/* What was broken is whole again: a new communicator combines. */
void machine_assert_works(struct machine *machine, const struct node_plan *plan);

#endif
