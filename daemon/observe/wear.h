/* Wear: how much was written to a path, in all and on each of the last days, and how long its device lasts at
 * this rate. Data and arithmetic, no clock and no files. */
#ifndef TIERD_DAEMON_WEAR_H
#define TIERD_DAEMON_WEAR_H

#include <stdbool.h>
#include <stdint.h>

/* Today, and as many days before it as the rate is that of. */
#define WEAR_DAYS 8
#define WEAR_DAY_S 86400

struct wear {
	uint64_t total;		  /* bytes */
	uint64_t began_s;	  /* counts since then, in seconds since 1970; 0: never yet */
	uint64_t day;		  /* the last one on which something was counted, since 1970 */
	uint64_t days[WEAR_DAYS]; /* bytes of each, at its number modulo WEAR_DAYS */
};

/* If the clock goes back, bytes count for the last day that was counted. */
void wear_add(struct wear *wear, uint64_t bytes, uint64_t now_s);
uint64_t wear_today(const struct wear *wear, uint64_t now_s);
/* Bytes per day, over the last days; false: it has counted for less than an hour. */
bool wear_rate(const struct wear *wear, uint64_t now_s, uint64_t *ret_bytes);
/* Whole days until so many bytes are written; false: the rate is not known, or is 0. endurance 0: none is
 * given. */
bool wear_days_left(const struct wear *wear, uint64_t endurance, uint64_t now_s, uint64_t *ret_days);

#endif
