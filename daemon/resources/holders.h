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

/* Of a user, and of all others. */
struct holder_bytes {
	uint64_t own, others;
};

/* What a module above this one holds of it, of all jobs and users. NULL: it holds none of that, or does not
 * give it up so. */
struct holder {
	/* Of host memory, what no job is charged with. */
	struct holder_bytes (*host_bytes)(const struct node *node, uid_t uid);
	/* Of NVMe, what belongs to the job, and is not charged to it. */
	uint64_t (*nvme_bytes)(const struct job *job);

	/* Of host memory, what it gives up to who claims it, which takes a while: it begins to give up as
	 * many bytes, with what is on its way already; how many these are; and with what it still has. */
	void (*reclaim)(const struct claim *claim, uint64_t bytes);
	uint64_t (*bytes_on_the_way)(const struct claim *claim);
	uint64_t (*bytes_at_most)(const struct claim *claim);
	/* What has not gone yet is not given up. */
	void (*keep_all)(struct node *node);

	/* Of host memory, what others do not get for less, and then at once: how much it could give to who
	 * claims it, is_at_once: without what is still in use; and it gives as many bytes back, if it has
	 * them. Returns how much it gave. */
	uint64_t (*spare_bytes)(const struct claim *claim, bool is_at_once);
	uint64_t (*give_up)(const struct claim *claim, uint64_t bytes);
};

/* Of all holders of the node, which are asked in their order: as each says of itself. */
void holders_reclaim(const struct claim *claim, uint64_t bytes);
uint64_t holders_bytes_on_the_way(const struct claim *claim);
uint64_t holders_bytes_at_most(const struct claim *claim);
void holders_keep_all(struct node *node);
uint64_t holders_spare_bytes(const struct claim *claim, bool is_at_once);
uint64_t holders_give_up(const struct claim *claim, uint64_t bytes);

/* Bytes are taken without being waited for: holders give up what lacks for that, and for what caches are to
 * leave. False: they have not so much. */
bool holders_make_room(const struct claim *claim, uint64_t bytes);

enum holders_of { HOLDERS_OF_HOST, HOLDERS_OF_NVME };

/* Enough for the longest names. */
#define HOLDERS_TEXT 700

/* Of all jobs of a user, and of host memory what his readers have, and what is withheld of jobs that ended.
 */
uint64_t holders_user_bytes(const struct node *node, enum holders_of what, uid_t uid);

/* The largest jobs of who claims it, but the one that it is for, by name, with their bytes and since when
 * they are idle; what his readers have; what is withheld of jobs that ended; and what other users have, if
 * wanted, as one sum. Such as "; gpt has 3.0 GiB (idle for 5 min), other users have 1.0 GiB", and what can be
 * done about idle ones, or nothing.
 */
void holders_describe(const struct claim *claim, enum holders_of what, bool with_others, char *text,
		      size_t size);

#endif
