/* Holders: who has the memory or the disk that a job lacks. */
#ifndef TIERD_DAEMON_HOLDERS_H
#define TIERD_DAEMON_HOLDERS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct claim;
struct node;

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
