/* Holders: who has the memory or the disk that a job lacks, and who can give some of it up. */
#ifndef TIERD_DAEMON_HOLDERS_H
#define TIERD_DAEMON_HOLDERS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct claim;
struct job;
struct node;

/* What belongs to one user, and to all others. */
struct holder_bytes {
	uint64_t own, others;
};

/* A module above this one that holds memory or disk, of all jobs and users. It leaves out (NULL) what it does
 * not hold, and ways in which it gives nothing up. */
struct holder {
	/* Host memory that no job is charged with. */
	struct holder_bytes (*host_bytes)(const struct node *node, uid_t uid);
	/* NVMe that belongs to the job, and is not charged to it. */
	uint64_t (*nvme_bytes)(const struct job *job);

	/* Host memory that it gives up after a while. It begins to give up so many bytes, those that are on
	 * their way included; how many are on their way; and these with all that it still has. */
	void (*reclaim)(const struct claim *claim, uint64_t bytes);
	uint64_t (*bytes_on_the_way)(const struct claim *claim);
	uint64_t (*bytes_at_most)(const struct claim *claim);
	/* It keeps what has not gone yet. */
	void (*keep_all)(struct node *node);

	/* Host memory that it gives up at once, when nothing else helps: how much it could give (is_at_once:
	 * without what is still in use); and it gives so many bytes, if it has them, and returns how many. */
	uint64_t (*spare_bytes)(const struct claim *claim, bool is_at_once);
	uint64_t (*give_up)(const struct claim *claim, uint64_t bytes);
};

/* The same of all holders of the node, in their order. */
void holders_reclaim(const struct claim *claim, uint64_t bytes);
uint64_t holders_bytes_on_the_way(const struct claim *claim);
uint64_t holders_bytes_at_most(const struct claim *claim);
void holders_keep_all(struct node *node);
uint64_t holders_spare_bytes(const struct claim *claim, bool is_at_once);
uint64_t holders_give_up(const struct claim *claim, uint64_t bytes);

/* Somebody takes bytes without waiting for them. Holders give up what he lacks, and what caches have to leave
 * free. False: they have less than that. */
bool holders_make_room(const struct claim *claim, uint64_t bytes);

enum holders_of { HOLDERS_OF_HOST, HOLDERS_OF_NVME };

/* Enough for the longest names. */
#define HOLDERS_TEXT 700

/* What all jobs of a user have; of host memory also what his readers have, and what is withheld of his jobs
 * that ended. */
uint64_t holders_user_bytes(const struct node *node, enum holders_of what, uid_t uid);

/* Text such as "; gpt has 3.0 GiB (idle for 5 min), other users have 1.0 GiB", or "". It names the largest
 * jobs of the user who claims memory, but the one that claims it; then his readers, and what is withheld of
 * his jobs that ended; then, with_others, all other users; and what he can do about idle jobs. */
void holders_describe(const struct claim *claim, enum holders_of what, bool with_others, char *text,
		      size_t size);

#endif
