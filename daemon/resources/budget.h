/* Budgets: what a job needs of host memory and of the NVMe paths, and what there is. */
#ifndef TIERD_DAEMON_BUDGET_H
#define TIERD_DAEMON_BUDGET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "offload/device/tier.h"

struct job;
struct node;
struct shortage;
struct slots;
struct store_space;

/* What a job may have, and its owner; 0: as much as there is. */
struct budget_limits {
	uint64_t host_budget, nvme_budget;   /* of the job */
	uint64_t host_maximum, nvme_maximum; /* of all jobs of its owner */
	unsigned io_share;		     /* its owner's, of the devices */
};

/* A job's, which holds nothing yet, and has no limits. -ENOMEM. */
int budget_new(struct job *job);
/* Nothing is planned any more: what was charged is given back, too. Takes a job that has none. */
void budget_free(struct job *job);

void budget_set_limits(struct job *job, const struct budget_limits *limits);
const struct budget_limits *budget_limits(const struct job *job);
/* Of the devices; for the files of its store, and for its draft. */
struct tier_share budget_device_share(const struct job *job);

/* What it holds; of host memory, what of that is cache; of NVMe, in all, and of each path by its number. */
uint64_t budget_host_bytes(const struct job *job);
uint64_t budget_cache_bytes(const struct job *job);
uint64_t budget_nvme_bytes(const struct job *job);
const uint64_t *budget_path_bytes(const struct job *job);
/* Of host memory, by all jobs, readers and the node itself. */
uint64_t budget_host_used(const struct node *node);
/* Of a node that only plans are made for. */
void budget_pretend(struct node *node, uint64_t host_used);

/* Host memory that a job takes beside its arena. */
struct budget_needs {
	uint64_t sums, gradients, spares, windows, pages, state, metadata;
};

/* Takes what a job uses before it is planned, or beside its plan: it is the job's until it ends, or gives it
 * back. -ENOMEM with a message that begins with the bytes. */
int budget_charge(struct job *job, uint64_t bytes, char *message, size_t size);
void budget_uncharge(struct job *job, uint64_t bytes);

/* The window of a rank that joins, as long as it is not in the plan. As budget_charge(). */
int budget_charge_window(struct job *job, char *message, size_t size);
/* Of all ranks' windows, those that were not charged yet. */
uint64_t budget_window_bytes(const struct job *job);

/* More than planned, as long as the node has some, beyond the job's own budget, too. */
bool budget_take_beyond(struct job *job, uint64_t bytes);
void budget_give_beyond(struct job *job, uint64_t bytes);

/* A reader's memory: of the node's budget and its own user's, not of its job's. -ENOMEM with a message;
 * what lacks is noted. */
int budget_take_reader(struct shortage *shortage, uint64_t bytes, char *message, size_t size);
/* It is there already, whatever there is. */
void budget_force_reader(struct node *node, uint64_t bytes);
void budget_give_reader(struct node *node, uint64_t bytes);

/* Plans the arena within what the job may have, and takes it with the rest from the node's budget, with as
 * much cache as there is room for: its segments are coming then. A negative errno with a message for the
 * client; budget_shortage() says what would do if others gave it back. */
int budget_take_host(struct job *job, const struct budget_needs *needs, struct slots *slots, char *message,
		     size_t size);

/* Whether the job may have what it needs, beside the least arena, now or when caches have shrunk. */
bool budget_fits_host(const struct job *job, const struct budget_needs *needs);
/* Whether it may have so much, now or then: its plan takes that, whatever else it does. -ENOMEM with a
 * message.
 */
int budget_check_least(const struct job *job, uint64_t bytes, char *message, size_t size);
/* What it may have beyond that; ret_arena: as much of it as an arena has use for. */
uint64_t budget_spare_host(const struct job *job, const struct budget_needs *needs, uint64_t *ret_arena);
/* Caches leave something of the node's and the user's budget: what comes with other jobs before they are
 * planned. */
bool budget_take_cache(struct job *job, uint64_t bytes);
void budget_give_cache(struct job *job, uint64_t bytes);
/* Of its own budget. */
uint64_t budget_own_room(const struct job *job);

/* What a job that is brought back keeps while it is released: budget_charge(), but of its plan. */
int budget_keep(struct job *job, uint64_t metadata, char *message, size_t size);

/* As many bytes of each path: of state, and of sums, which budget_release_host() gives back. */
int budget_take_paths(struct job *job, uint64_t state, uint64_t sums, char *message, size_t size);

/* What its state has there already: whatever its own budget is, it may have grown for forks. */
int budget_take_found(struct job *job, uint64_t bytes, char *message, size_t size);

/* What its state has of each of its paths now, of what others with files in common had, or have: nobody is
 * asked for it. */
void budget_set_state(struct job *job, uint64_t bytes);

/* So much of each path, for another job that will have it: its own budget is not asked. -ENOSPC with a
 * message. */
int budget_lend(struct job *job, uint64_t bytes, char *message, size_t size);
void budget_take_back(struct job *job, uint64_t bytes);

/* So much of each path for its draft. -ENOSPC with a message. */
int budget_take_draft(struct job *job, uint64_t bytes, char *message, size_t size);
void budget_give_draft(struct job *job, uint64_t bytes);
uint64_t budget_draft_bytes(const struct job *job);

/* What its store is to take more than it does, until the job ends. -ENOMEM, -ENOSPC with a message. It ends
 * with one of the two: the store has it, and budget_set_state() counts it; or it does not. */
int budget_grow(struct job *job, const struct store_space *more, char *message, size_t size);
void budget_end_growth(struct job *job, const struct store_space *more);
void budget_shrink(struct job *job, const struct store_space *less);

/* What a job without ranks does not need: all but its metadata and definitions. */
void budget_release_host(struct job *job);
/* How much that would give back beside its cache; with_kept: all that is planned, its cache included. */
uint64_t budget_releasable_bytes(const struct job *job, bool with_kept);
bool budget_is_planned(const struct job *job);

/* Host memory that the plan lacks. */
struct shortage *budget_shortage(const struct job *job);

/* What was taken, but not what was charged, nor its draft. */
void budget_give_back(struct job *job);

/* Why a file of the job's store cannot grow by so many bytes: the disk among those of its paths that has the
 * least left. who: what needs them, and what for. */
void budget_explain_disk(const struct job *job, const char *who, uint64_t bytes, char *message, size_t size);

/* Why there is less room on NVMe for a job than its user may think, and what to do about it; or "". */
#define BUDGET_HINT (200 + WIRE_MAX_JOB_NAME)
const char *budget_explain_replaced(const struct job *job, char *text, size_t size);

/* What there is is rounded down and what is needed up, so that they differ where there is too little, and
 * what is printed would do. */
const char *budget_print(uint64_t bytes, char text[16]);
const char *budget_print_needed(uint64_t bytes, char text[16]);

#endif
