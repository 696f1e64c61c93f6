/* Reservation: whether a file system keeps the space that was reserved in it for a file, when that is
 * written, and what was written, when the machine ends. The daemon relies on it, and doctor says so before.
 */
#ifndef TIERD_COMMON_RESERVATION_H
#define TIERD_COMMON_RESERVATION_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* Why it does not, for people. */
struct reservation_breach {
	const char *what; /* it is on */
	const char *why, *remedy;
	bool is_memory; /* what lies there ends with the machine */
};

/* Of a file, or a folder that says how files in it will be; NULL: there is none that can be seen. */
const struct reservation_breach *reservation_look(int fd);

/* Its parts. magic: as statfs() gives it; is_copied: its file has no attribute against that. */
const struct reservation_breach *reservation_of_type(uint64_t magic, bool is_copied);
/* devices: /sys/dev/block, or a folder like it. */
const struct reservation_breach *reservation_of_device(const char *devices, dev_t device);

#endif
