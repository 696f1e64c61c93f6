/* What a store may never do to its disks, whoever writes it: seen from the disks alone, by what docs/store.md
 * says of the format. The first breach fails the test, and says which rule it was. */
#ifndef TIERD_TESTS_UNIT_SIM_WATCH_H
#define TIERD_TESTS_UNIT_SIM_WATCH_H

#include "offload/store/superblock.h"
#include "tests/unit/sim_disk.h"

struct sim_watch;

/* Of a store that has been made on these disks; they are borrowed. */
struct sim_watch *sim_watch_new(struct sim_disk *const *disks, unsigned count);
/* NULL is left alone. */
void sim_watch_free(struct sim_watch *watch);

/* From now on maps of snapshots may be unreadable: nodes that are not there lead nowhere. */
void sim_watch_allow_lost(struct sim_watch *watch);

/* A session begins. */
void sim_watch_begin(struct sim_watch *watch);
/* It has been told that this step is durable, or has been opened with it. */
void sim_watch_promise(struct sim_watch *watch, uint64_t step);
/* Somebody looks at the map below that node, of so many extents, until he ends that. One of SIM_VIEWS. */
#define SIM_VIEWS 2
void sim_watch_view(struct sim_watch *watch, unsigned view, const struct node_pointer *map, uint64_t extents);
void sim_watch_end_view(struct sim_watch *watch, unsigned view);
/* Somebody reads that extent of a disk until the place is given back; or does not any more. */
void sim_watch_read(struct sim_watch *watch, unsigned disk, uint64_t offset);
void sim_watch_end_read(struct sim_watch *watch);

#endif
