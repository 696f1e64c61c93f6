/* Endurance: how much was ever written to each NVMe path, which a restart does not forget, and how long its
 * device lasts at this rate. */
#ifndef TIERD_DAEMON_ENDURANCE_H
#define TIERD_DAEMON_ENDURANCE_H

#include <stdbool.h>
#include <stdint.h>

struct node;
struct endurance;

/* With fewer days left it warns. */
#define ENDURANCE_WARN_DAYS 90

/* directory: of the daemon's state, borrowed; NULL: nothing is kept. bytes: that the device of each path that
 * has no endurance of its own may be written with; 0: not known. -ENOMEM; what else goes wrong is logged, and
 * it counts from here on. */
int endurance_new(struct node *node, const char *directory, uint64_t bytes, struct endurance **ret_endurance);
/* Writes the file once more. Nothing is in flight. */
struct endurance *endurance_free(struct endurance *endurance);
void endurance_set(struct endurance *endurance, uint64_t bytes);

struct endurance_account {
	uint64_t today, total, bytes; /* bytes: of the endurance, 0: not known */
	bool has_days;
	uint64_t days; /* that are left */
};

void endurance_read(struct endurance *endurance, unsigned path, struct endurance_account *ret_account);

#endif
