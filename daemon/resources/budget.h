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

/* The job holds nothing yet, and has no limits. -ENOMEM. */
int budget_new(struct job *job);
/* The job has no plan any more. What it was charged is given back. Takes a job that has no budget. */
void budget_free(struct job *job);

void budget_set_limits(struct job *job, const struct budget_limits *limits);
const struct budget_limits *budget_limits(const struct job *job);
/* Its share of the devices: for the files of its store and of its draft. */
struct tier_share budget_device_share(const struct job *job);

/* What the job holds: host memory; the cache in that; NVMe; of each path, by its number. */
uint64_t budget_host_bytes(const struct job *job);
uint64_t budget_cache_bytes(const struct job *job);
uint64_t budget_nvme_bytes(const struct job *job);
const uint64_t *budget_path_bytes(const struct job *job);
/* Host memory that all jobs, readers and the node itself hold. */
uint64_t budget_host_used(const struct node *node);
/* For a node that only makes plans. */
void budget_pretend(struct node *node, uint64_t host_used);

/* Host memory that a job takes beside its arena. */
struct budget_needs {
	uint64_t sums, gradients, spares, windows, pages, state, metadata;
};

/* Takes what a job uses before it is planned, or beside its plan. The job has it until it ends, or gives it
 * back. -ENOMEM with a message that begins with the bytes. */
int budget_charge(struct job *job, uint64_t bytes, char *message, size_t size);
void budget_uncharge(struct job *job, uint64_t bytes);

/* As budget_charge(): the window of a rank that joins before there is a plan. */
int budget_charge_window(struct job *job, char *message, size_t size);
/* The windows that were not charged yet, of all ranks. */
uint64_t budget_window_bytes(const struct job *job);

/* Takes more than was planned, and more than the job's own budget, if the node has it. */
bool budget_take_beyond(struct job *job, uint64_t bytes);
void budget_give_beyond(struct job *job, uint64_t bytes);

/* Takes a reader's memory from the budgets of the node and of the reader's user, not from its job's. -ENOMEM
 * with a message; the shortage says then what is missing. */
int budget_take_reader(struct shortage *shortage, uint64_t bytes, char *message, size_t size);
/* Counts memory that the reader has already, even beyond the budgets. */
void budget_force_reader(struct node *node, uint64_t bytes);
void budget_give_reader(struct node *node, uint64_t bytes);

/* Plans the arena within what the job may have, and takes it with the rest from the node's budget, with as
 * much cache as there is room for: its segments are planned then. A negative errno with a message for the
 * client; budget_shortage() says what would do if others gave it back. */
int budget_take_host(struct job *job, const struct budget_needs *needs, struct slots *slots, char *message,
		     size_t size);

/* The job may have what it needs and the least arena, now or when caches have shrunk. */
bool budget_fits_host(const struct job *job, const struct budget_needs *needs);
/* Whether it may have so much, now or then. -ENOMEM with a message. */
int budget_check_least(const struct job *job, uint64_t bytes, char *message, size_t size);
/* What it may have beyond that. ret_arena: how much of that an arena can use. */
uint64_t budget_spare_host(const struct job *job, const struct budget_needs *needs, uint64_t *ret_arena);
/* False: caches have to leave the rest free, for what other jobs take before they are planned. */
bool budget_take_cache(struct job *job, uint64_t bytes);
void budget_give_cache(struct job *job, uint64_t bytes);
/* What its own budget still allows. */
uint64_t budget_own_headroom(const struct job *job);

/* As budget_charge(): what a job that comes back keeps while it is released. It is a part of its plan. */
int budget_keep(struct job *job, uint64_t metadata, char *message, size_t size);

/* Takes so many bytes of each path: for state, and for sums, which budget_release_host() gives back. */
int budget_take_paths(struct job *job, uint64_t state, uint64_t sums, char *message, size_t size);

/* Takes what its state has on each path already. It may have grown for forks, beyond the job's own budget. */
int budget_take_found(struct job *job, uint64_t bytes, char *message, size_t size);

/* Notes what its state has of each path now. Jobs with files in common move such space among them, so no
 * budget is checked. */
void budget_set_state(struct job *job, uint64_t bytes);

/* Takes so much of each path for another job that will get it. The job's own budget does not count. -ENOSPC
 * with a message. */
int budget_lend(struct job *job, uint64_t bytes, char *message, size_t size);
void budget_take_back(struct job *job, uint64_t bytes);

/* Takes so much of each path for its draft. -ENOSPC with a message. */
int budget_take_draft(struct job *job, uint64_t bytes, char *message, size_t size);
void budget_give_draft(struct job *job, uint64_t bytes);
uint64_t budget_draft_bytes(const struct job *job);

/* Takes what its store is to grow by. -ENOMEM, -ENOSPC with a message. One of two calls follows:
 * budget_end_growth(), when the store has grown and budget_set_state() counts that; or budget_shrink(). */
int budget_grow(struct job *job, const struct store_space *more, char *message, size_t size);
void budget_end_growth(struct job *job, const struct store_space *more);
void budget_shrink(struct job *job, const struct store_space *less);

/* Gives back what a job without ranks does not need: all but its metadata and definitions. */
void budget_release_host(struct job *job);
/* How much that would give back, without its cache; with_kept: all of its plan, with its cache. */
uint64_t budget_releasable_bytes(const struct job *job, bool with_kept);
bool budget_is_planned(const struct job *job);

/* Host memory that the plan lacks. */
struct shortage *budget_shortage(const struct job *job);

/* Gives all of its plan back, but not what it was charged, nor its draft. */
void budget_give_back(struct job *job);

/* Why a file of the job's store cannot grow by so many bytes: which of its disks has the least left. who:
 * what needs them, and what for. */
void budget_explain_disk(const struct job *job, const char *who, uint64_t bytes, char *message, size_t size);

/* If the job replaces another one, which still uses NVMe: that, and what to do about it; else "". */
#define BUDGET_HINT (200 + WIRE_MAX_JOB_NAME)
const char *budget_explain_replaced(const struct job *job, char *text, size_t size);

/* Bytes that are there are rounded down, and bytes that are needed up: so the two differ if there are too
 * few, and what is printed would be enough. */
const char *budget_print(uint64_t bytes, char text[16]);
const char *budget_print_needed(uint64_t bytes, char text[16]);

#endif
