/* A node: how it is made, stopped and freed. Its structures are the model's: daemon/model/node.h. */
#ifndef TIERD_DAEMON_NODE_H
#define TIERD_DAEMON_NODE_H

#include "daemon/model/model.h"

struct event_base;

/* Creates the daemon's folder in each path (and removes the sums of gradients that a dead daemon
 * left there), the engine and the threads, and adds their descriptors to the loop. Errors are logged. -EBUSY:
 * another daemon uses a path. parts: borrowed. */
int node_new(struct event_base *loop, const struct node_config *config, const struct node_parts *parts,
	     struct node **ret_node);

/* Staging buffers of a node with that budget. */
unsigned node_staging_count(uint64_t host_budget);
/* The same of a node whose budget, staging buffers included, is the least that leaves so many bytes, as any
 * larger one does. */
unsigned node_staging_beside(uint64_t bytes);

/* Nothing more is taken of ranks from now on; on_idle runs on the loop, once, when the steps that were
 * decided have been applied and committed. */
void node_stop(struct node *node, void (*on_idle)(void *argument), void *argument);

/* As they are configured, but those that are absent. */
struct path_list node_all_paths(const struct node *node);
/* What its file system has left for tierd, bytes, whatever tierd may use of it; on any thread. */
uint64_t node_path_left(const struct node_path *path);

/* No dropped job holds memory or disk any more, and of the user's it is known what clients withhold. */
bool node_has_settled(const struct node *node, uid_t uid);

/* Calls on_idle once it is due. */
void node_check_idle(struct node *node);

/* Something of the node's is under way off the loop: node_free() waits for its end. */
void node_begin_work(struct node *node);
void node_end_work(struct node *node);

/* Says, once, that memory could not be pinned (r: what engine_buffer_add() said), and what to do about it. */
void node_note_pinning(struct node *node, int r);

/* All clients are freed. */
struct node *node_free(struct node *node);

#endif
