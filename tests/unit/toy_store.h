/* A toy store: the map of a lineage, of extents of a page each, on simulated disks, so that many sessions are
 * cheap. It remembers what every step was. */
#ifndef TIERD_TESTS_UNIT_TOY_STORE_H
#define TIERD_TESTS_UNIT_TOY_STORE_H

#include "offload/store/lineage.h"
#include "tests/unit/sim_disk.h"
#include "tests/unit/sim_watch.h"

#define TOY_MAX_EXTENTS 400
#define TOY_MAX_DEVICES 3
#define TOY_PAGE 4096
#define TOY_STEPS 64
/* That there is room for, if they share nothing. */
#define TOY_SNAPSHOTS 2

/* An extent, and the steps that wrote what its places hold. */
struct toy_extent {
	uint32_t place, committed, frozen; /* UINT32_MAX: none */
	uint64_t content, frozen_content;
};

#define TOY_MAX_VIEWS SIM_VIEWS

/* A commit that was kept, and what it was. */
struct toy_kept {
	char name[HEAD_NAME_BYTES];
	uint64_t step;
	uint64_t content[TOY_MAX_EXTENTS];
};

struct toy_view {
	struct lineage_head head;
	struct toy *toy; /* NULL: it is not open */
	struct toy_kept kept;
	struct node_extent map[TOY_MAX_EXTENTS];
};

struct toy {
	struct lineage_head head;
	struct lineage *lineage;
	unsigned device_count, extents;
	uint64_t place_bytes;
	unsigned fixed;	 /* extents, the first ones */
	bool is_settled; /* they have been committed, or may be */
	struct sim_disk *disks[TOY_MAX_DEVICES];
	struct sim_watch *watch;
	struct toy_extent map[TOY_MAX_EXTENTS];
	bool is_frozen[TOY_MAX_EXTENTS];
	struct lineage_request request;
	unsigned done_count;
	int status;
	uint64_t random, session;
	/* What each step was, as its commit would have it. */
	uint64_t history[TOY_STEPS][TOY_MAX_EXTENTS];
	struct toy_view views[TOY_MAX_VIEWS];
};

/* Made on disks of its own, which the seed rules, and how large places are. */
void toy_open(struct toy *toy, unsigned extents, unsigned devices, uint64_t seed);
/* The same, of whose extents so many are written before the first commit alone, and have one place each. */
void toy_open_fixed(struct toy *toy, unsigned extents, unsigned fixed, unsigned devices, uint64_t seed);
/* None, almost half, or almost all. */
static inline unsigned toy_choose_fixed(unsigned extents, uint64_t seed)
{
	return extents * (unsigned)(seed / TOY_MAX_DEVICES % 3) * 9 / 20;
}
void toy_close(struct toy *toy);

/* A session: a lineage that is neither made nor opened yet. Nothing is on its way when it ends. */
void toy_begin(struct toy *toy);
void toy_end(struct toy *toy);
/* Ends a session, and opens another, which must succeed. */
void toy_reopen(struct toy *toy);

/* Of all of its disks: sim_disk_count(); sim_disk_kill() or sim_disk_fail_power(), as the seed says. */
uint64_t toy_count(const struct toy *toy);
void toy_interrupt(struct toy *toy);
/* The power fails after so many turns, or when the request that is on its way has ended; another session
 * opens. */
void toy_fail_power(struct toy *toy, unsigned turns);

/* Below bound; from the seed. */
unsigned toy_choose(struct toy *toy, unsigned bound);
/* Ends something that is on its way. False: nothing is. */
bool toy_turn(struct toy *toy);
/* Until the request that r began has ended; its status. */
int toy_wait(struct toy *toy, int r);

/* The first extent that may be written. */
unsigned toy_first(const struct toy *toy);
/* Writes an extent, to a free place; there must be one. */
int toy_update(struct toy *toy, unsigned number, uint64_t content);
/* Some of the extents, or all; contents are never used twice. */
int toy_take_step(struct toy *toy);
/* Of what it is now; that ends with toy->request. */
int toy_begin_commit(struct toy *toy);
int toy_commit(struct toy *toy);
/* Everything is what it was at the step that was found. */
void toy_expect_step(struct toy *toy);

/* No place is free that somebody needs, and none is lost: nothing is on its way, and nobody reads but by
 * views. */
void toy_expect_places(struct toy *toy);

/* Opens one of the views of what was kept, or (without a name) of the last commit; what it shows must be
 * that.
 */
int toy_open_view(struct toy *toy, struct toy_view *view, const struct toy_kept *kept);
void toy_expect_view(struct toy_view *view);
void toy_close_view(struct toy_view *view);

/* Keeps the last commit, which must succeed. */
void toy_keep(struct toy *toy, const char *name);

/* So many steps, each of which writes everything. */
void toy_make_steps(struct toy *toy, unsigned steps);

/* The table, and the nodes of the job's map, one after the other; false: there are no more. */
bool toy_node(struct toy *toy, unsigned number, struct node_pointer *ret_pointer);
/* Where a copy of a node lies. */
struct sim_disk *toy_disk_of(struct toy *toy, const struct node_pointer *pointer, unsigned copy);
uint64_t toy_offset_of(const struct node_pointer *pointer, unsigned copy);
/* A bit of one of its bytes is another: of one copy, or of both. */
void toy_flip_node(struct toy *toy, const struct node_pointer *pointer, unsigned copy, unsigned at);
void toy_flip_nodes(struct toy *toy, const struct node_pointer *pointer, unsigned at);

struct places *toy_places(struct toy *toy, unsigned extent);
/* Of each of its disks. */
struct lineage_geometry toy_geometry(const struct toy *toy);
/* Where a place begins on its disk. */
uint64_t toy_offset(const struct toy *toy, uint32_t place);

#endif
