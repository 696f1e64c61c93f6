/* A store keeps a job's streams: on NVMe as checksummed extents with copy on write, in host memory in place.
 */
#ifndef TIERD_OFFLOAD_STORE_H
#define TIERD_OFFLOAD_STORE_H

#include <stdbool.h>

#include "common/workers.h"
#include "offload/device/tier.h"

/* A block is the unit of checksums; an extent, of placement. These are those of a stream that says no other:
 * see store_layout_set_blocks(). A page is what O_DIRECT can move. */
#define STORE_EXTENT_BLOCKS 4
#define STORE_BLOCK_BYTES (UINT64_C(1) << 18)
#define STORE_EXTENT_BYTES (STORE_EXTENT_BLOCKS * STORE_BLOCK_BYTES)
#define STORE_PAGE_BYTES UINT64_C(4096)
#define STORE_MAX_BLOCK_BYTES (5 * STORE_BLOCK_BYTES / 4)
#define STORE_MAX_EXTENT_BYTES (STORE_EXTENT_BLOCKS * STORE_MAX_BLOCK_BYTES)

struct store;
struct store_layout;
struct store_verification;

/* One transfer of whole blocks within a section of a stream (the section's last block may be shorter: then up
 * to the section's length, rounded up to a page; the buffer has room for that, and what lies in it beyond the
 * section means nothing). The caller owns it, and leaves it and its buffer alone from store_submit() until
 * done(), once, on the loop thread, from the reap of a tier's engine or of the workers. A read delivers only
 * bytes whose checksums match those of their last write, or zeros where nothing was written. A write becomes
 * visible extent by extent, when all blocks of an extent have been rewritten, by one transfer or several;
 * until then reads see the previous content. After an error the rewrite of that extent is abandoned: reads
 * see the previous content, and the next write of it begins from nothing. A block is in one write at a
 * time. */
struct store_transfer {
	enum tier_direction direction;
	enum tier_priority priority;
	uint32_t stream;
	uint64_t offset; /* in the stream; a multiple of its blocks */
	uint64_t length; /* a multiple of its blocks, or up to the end of a section, rounded up to a page */
	void *buffer;	 /* page-aligned */
	/* Writes: the XXH3-64 of each block, as store_checksum() gives it, where the caller has them at hand;
	 * else NULL, and workers compute them. Borrowed until done(). */
	const uint64_t *checksums;
	/* Writes: what they rewrite becomes visible when it is published, not before. All writes of an extent
	 * are so, or none. */
	bool is_held;
	/* 0; -EBADMSG: a checksum does not match; -EIO and others: the device's; -ENOSPC: too many places
	 * are broken. */
	void (*done)(struct store_transfer *transfer, int status);

	/* The caller's alone: what it notes of a transfer that it tells of when that is done. */
	struct {
		uint64_t began_ns;
		unsigned kind;
	} note;

	/* After an error: where the first one was. device is NULL for one without a place. */
	struct {
		uint64_t stream_offset, device_offset;
		const char *device;
	} fault;

	/* Of the store, while submitted. */
	struct queue link, operations;
	uint64_t issued, completed;
	int status;
};

/* Something that takes time; the caller's until done(), which runs once, on the loop, never inside the call.
 */
struct store_request {
	void (*done)(struct store_request *request, int status);
};

/* A write that failed and has another place now. */
struct store_failure {
	const char *device;
	uint64_t device_offset;
	int status;
};

/* Whose a store is. */
struct store_owner {
	/* Told of each, on the loop; the store must not be used in it. NULL: nobody is. */
	void (*on_moved)(const struct store_failure *failure, void *argument);
	void *argument;
	struct tier_share share; /* of the devices; a weight of 0: as it is */
};

/* A commit that is kept under a name, until it is deleted. */
#define STORE_MAX_SNAPSHOTS 14
#define STORE_SNAPSHOT_NAME_BYTES 64
struct store_snapshot {
	char name[STORE_SNAPSHOT_NAME_BYTES];
	uint64_t step;
	uint64_t seconds; /* since 1970, when it was taken */
	bool is_lost;	  /* its map cannot be read */
};

/* A job whose state is in a store. */
struct store_job {
	char name[STORE_SNAPSHOT_NAME_BYTES];
	uint64_t step, serial;
	uint64_t origin; /* the serial of the job for which the store was made */
	bool is_lost;	 /* its map cannot be read */
};

/* What the jobs of a store have together. */
struct store_family {
	unsigned jobs;	 /* open or not */
	unsigned others; /* that are open, beside this one */
	bool is_fenced; /* nothing is written any more, until all of them have been freed, and opened again */
	bool has_lost;	/* or as long as a job or a snapshot is lost */
	uint64_t device_bytes; /* that each device has for all of them */
	uint64_t own_bytes;    /* of these: for what one of them may change */
	uint64_t held_bytes; /* whole extents in which its state is now, but zeros that were never written */
	uint64_t shared_bytes; /* of these: in which that of another open one is, too */
};

/* What a store takes: of each device, and of host memory for what it knows of their places. */
struct store_room {
	uint64_t device_bytes, host_bytes;
};

/* A job that begins as another one is, in the same store. */
struct store_fork {
	const char *snapshot; /* of that one; NULL: its last commit */
	const char *name;     /* of the new one: 1 to 63 bytes */
	uint64_t serial;      /* of the new one: store_config's */
	unsigned snapshots;   /* that all jobs of the store have room for then */
};

struct store_section {
	uint64_t first_extent; /* in the stream */
	uint64_t length;       /* bytes */
};

/* The layout of a store: streams made of sections, each starting at an extent. */
int store_layout_new(struct store_layout **ret_layout);
struct store_layout *store_layout_free(struct store_layout *layout);
DEFINE_FREEP(struct store_layout *, store_layout_free)
/* Adds a stream ("m.bf16"); name is copied. Returns its index or -errno. */
int store_layout_add_stream(struct store_layout *layout, const char *name);
/* A scratch stream has one place for each extent, not two: what an extent holds is lost as soon as a write of
 * it begins, and it reads as zeros until that has ended well. For what no commit ever needs. */
int store_layout_add_scratch_stream(struct store_layout *layout, const char *name);
/* What a fixed stream holds stays as it is from the first commit on, before which all writes of it have
 * ended: so it has one place for each extent, which snapshots and forks of the job share for good. Rewrites
 * before that are of whole extents: one may wait for the place of another, which comes free only when all
 * blocks of that are written. */
int store_layout_add_fixed_stream(struct store_layout *layout, const char *name);
/* Before its first section: a stream has blocks of so many bytes, whole pages, from STORE_BLOCK_BYTES to
 * STORE_MAX_BLOCK_BYTES, and STORE_EXTENT_BLOCKS of them in an extent. So what has an odd size for each
 * element is cut at the same elements as other streams are. -EINVAL. */
int store_layout_set_blocks(struct store_layout *layout, uint32_t stream, uint64_t bytes);
/* Before its first stream: a store of this layout commits, and is there after a crash. It has no scratch
 * streams (-EINVAL). */
void store_layout_set_durable(struct store_layout *layout);
/* Appends a section of length bytes (> 0) to a stream; ret_offset: where it starts in the stream, in bytes.
 * -EINVAL; -EOVERFLOW: the layout would have more than STORE_MAX_EXTENTS. */
int store_layout_add_section(struct store_layout *layout, uint32_t stream, uint64_t length,
			     uint64_t *ret_offset);
/* A durable store of this layout has room for so many snapshots, at most STORE_MAX_SNAPSHOTS, that share
 * nothing with what the job is then, or with each other; at first for none. */
void store_layout_set_snapshots(struct store_layout *layout, unsigned snapshots);
uint64_t store_layout_extents(const struct store_layout *layout);     /* of all streams */
uint64_t store_layout_whole_bytes(const struct store_layout *layout); /* of these, whole */
/* What an NVMe store of this layout needs on its devices together (each the same), and at most in metadata
 * in host memory (with up to 8 devices at the default depth). */
uint64_t store_layout_device_bytes(const struct store_layout *layout, unsigned devices);
uint64_t store_layout_metadata_bytes(const struct store_layout *layout);

/* 128 TiB of those that are default: all of its snapshots beside it, an extent has 16 places on a device,
 * whose number has 32 bits. */
#define STORE_MAX_EXTENTS (UINT64_C(1) << 27)

struct store_config {
	struct workers *workers; /* compute and verify checksums; borrowed */
	struct store_owner owner;
	unsigned depth;	  /* extents in flight per device, at most 1024; 0: 16 */
	const char *name; /* of whose state it is, on the devices; NULL: nobody's */
	uint64_t serial;  /* and which of that name, for whoever gives jobs numbers; 0: nobody does */
};

/* A store on one or several NVMe (or, in tests, other) tiers, striped by extent. Owns layout and tiers, also
 * after an error. Each tier has at least store_layout_device_bytes() / tier_count bytes: else
 * -ENOSPC. -EINVAL: no tier, or depth too large; -EOVERFLOW: with all of its snapshots a device would have
 * more places than have a number. */
int store_new_nvme(const struct store_config *config, struct store_layout *layout, struct tier **tiers,
		   unsigned tier_count, struct store **ret_store);

/* A store that lies on these tiers already, to be opened: store_open(). Its layout is one stream of all its
 * extents, each whole, until store_adopt() gives it the one that it was made with. */
int store_new_found(const struct store_config *config, struct tier **tiers, unsigned tier_count,
		    struct store **ret_store);

/* A store in host memory of this process, allocated here. Owns layout, also after an error. Its state is
 * reached by address, not by transfers. */
int store_new_host(struct store_layout *layout, struct store **ret_store);

/* Everything submitted must be done. */
struct store *store_free(struct store *store);
DEFINE_FREEP(struct store *, store_free)

/* -EINVAL: not whole blocks, or outside the sections; -EROFS: what is fixed has been committed, or is being;
 * -EOPNOTSUPP: a host store. After an error done() never runs. */
int store_submit(struct store *store, struct store_transfer *transfer);

/* Somebody has come to wait for a transfer that is submitted and not done: what has not reached a device goes
 * on at that priority. Nothing happens if it has it already. done() does not run inside. */
void store_raise(struct store *store, struct store_transfer *transfer, enum tier_priority priority);

/* Gives up rewrites that have begun and not become visible, of all extents that the range touches, so that
 * the next writes begin from nothing, what was held back too. No write of them may be submitted. -EINVAL:
 * outside the sections; -EOPNOTSUPP: a host store. */
int store_abandon(struct store *store, uint32_t stream, uint64_t offset, uint64_t length);

/* Rewrites that were held back become visible, at once, of all extents that the range touches; all of their
 * blocks have been written. Until then commits take what those replace; so that both find a place, only what
 * is as the last commit has it may be rewritten so. -EINVAL: outside the sections; -EBUSY: a commit is under
 * way; -EOPNOTSUPP: it commits nothing. */
int store_publish(struct store *store, uint32_t stream, uint64_t offset, uint64_t length);

/* Where the bytes of a host store lie: contiguous to the end of the section. NULL for an NVMe store. */
void *store_address(struct store *store, uint32_t stream, uint64_t offset);

/* Durable stores; others: -EOPNOTSUPP. One request at a time: -EBUSY. store_message() says why one has
 * failed.
 *
 * store_create() makes an empty one on devices whose content means nothing; before the first transfer.
 * store_open() finds the last commit, as lineage_open() does; before the first transfer, too. -ENOENT: it was
 * made, and nothing has ever been committed.
 * store_commit() makes everything that is visible now durable, atomically, as that step, while transfers go
 * on; one that has failed, or a device that has, ends all writing: -EROFS. */
int store_create(struct store *store, struct store_request *request);
int store_open(struct store *store, struct store_request *request);
int store_commit(struct store *store, uint64_t step, struct store_request *request);
/* Takes over the layout of a store that was opened; nothing is in flight, and no view is open. One that knows
 * less may come first: as long as nothing is written, what it says of the rest does not matter. -EINVAL: it
 * is not what the store was made with, or needs larger places; it stays the caller's. */
int store_adopt(struct store *store, struct store_layout *layout);
/* That its layout has, and what each of them in a place of its own takes of the devices. */
uint64_t store_extents(const struct store *store);
uint64_t store_placed_bytes(const struct store *store);
/* Of a block of the stream, and of an extent. */
uint64_t store_block_bytes(const struct store *store, uint32_t stream);
uint64_t store_extent_bytes(const struct store *store, uint32_t stream);
/* What is in use of those: all of it has changed where store_diff() says as much. */
uint64_t store_state_bytes(const struct store *store);
/* Of the last commit. */
uint64_t store_step(const struct store *store);
const char *store_message(const struct store *store);
/* It has another owner, or one at last. */
void store_belong(struct store *store, const struct store_owner *owner);
/* Whether it is there after store_free(), to be opened again: at first no, of one that was found yes. */
void store_keep(struct store *store, bool is_kept);

/* What an extent of all that the layout has is: one transfer would read it. */
struct store_piece {
	uint32_t stream;
	uint64_t offset, length;
};
void store_find_extent(const struct store *store, uint64_t extent, struct store_piece *ret_piece);
/* Bytes of a section with what else is in their blocks, or extents: what one transfer would move. */
void store_find_blocks(const struct store *store, uint32_t stream, uint64_t offset, uint64_t length,
		       struct store_piece *ret_piece);
void store_find_extents(const struct store *store, uint32_t stream, uint64_t offset, uint64_t length,
			struct store_piece *ret_piece);
/* "m.fp32" */
const char *store_stream_name(const struct store *store, uint32_t stream);

/* Snapshots of a durable store; others: -EOPNOTSUPP. Each is a request as those above are, one at a time,
 * commits among them; store_message() says why one was refused. What is written by transfers goes on
 * meanwhile.
 *
 * store_snapshot() keeps the last commit under a name of 1 to 63 bytes, by a commit that writes nothing else,
 * whatever the size of the store. -EINVAL: no such name; -ENODATA: nothing has been committed; -EEXIST;
 * -EMFILE: there are STORE_MAX_SNAPSHOTS; -ENOSPC: if what the snapshots keep would all be rewritten, the
 * next steps would not find room beside it.
 * store_delete_snapshot() ends when what only it kept is free. -ENOENT.
 * As long as a snapshot is lost nothing is written: -EROFS, of commits too. store_delete_lost() deletes one;
 * then the store is freed, and opened again: until then nothing is written. -EINVAL: it is not lost; -ENOENT.
 * store_roll_back() makes the last commit what a snapshot is; nothing is in flight. Then the store is freed,
 * and opened again: until then nothing is written (-EROFS). -ENOENT.
 * store_measure_snapshot() counts the bytes that only this snapshot keeps, and that its deletion would free.
 * -EAGAIN: it is being read, and nobody can tell before that ends.
 * store_diff() counts the bytes, in whole blocks, that have changed from a snapshot to another one, or to the
 * last commit (to: NULL). */
int store_snapshot(struct store *store, const char *name, struct store_request *request);
int store_delete_snapshot(struct store *store, const char *name, struct store_request *request);
int store_delete_lost(struct store *store, const char *name, struct store_request *request);
int store_roll_back(struct store *store, const char *name, struct store_request *request);
int store_measure_snapshot(struct store *store, const char *name, struct store_request *request,
			   uint64_t *ret_bytes);
int store_diff(struct store *store, const char *from, const char *to, struct store_request *request,
	       uint64_t *ret_bytes);
/* Makes room for so many snapshots that share nothing, as store_layout_set_snapshots() does beforehand, while
 * transfers go on; each device grows for that. -EINVAL: it has as much room; -EMFILE: more than
 * STORE_MAX_SNAPSHOTS; -ENODATA; -ENOSPC, -EOPNOTSUPP: a device cannot grow. */
int store_reserve(struct store *store, unsigned snapshots, struct store_request *request);
/* For how many snapshots a durable store that is open has room, and what it would take for so many. */
unsigned store_reserved(const struct store *store);
struct store_room store_room_for(const struct store *store, unsigned snapshots);
/* All that there are, in the order in which they were taken. ret_snapshots: STORE_MAX_SNAPSHOTS. */
unsigned store_snapshots(const struct store *store, struct store_snapshot *ret_snapshots);

/* Forks of a durable store: each is a store of its own, on the same devices, with what it shares with the
 * others there once. They do one request at a time between them, in the order in which they ask. The devices
 * are given back after the last store; store_keep() means all of them, and nothing is removed while there
 * are jobs that are not open.
 *
 * store_fork() makes one, by a commit that writes nothing else; the devices grow for what it may change.
 * -EEXIST, -EINVAL: no such name; -EMFILE: jobs and snapshots of a store are STORE_MAX_SNAPSHOTS + 1
 * together; -ENOENT, -ENODATA; -ENOSPC, -EOPNOTSUPP: a device cannot grow.
 * store_attach() opens one that is there. -ENOENT; -EBUSY: it is open; -EROFS: nothing is written any more.
 * Both give a store as store_new_found() does, which is to adopt its layout; *ret is set before
 * done(request, 0).
 * store_drop() ends the job of a store that is to be freed then, with its snapshots; nothing is in flight. Of
 * the last one nothing is written: it is there as long as the devices, and store_keep() removes them.
 * store_drop_lost() ends another one, whose map is lost; then all stores are freed, and opened again: until
 * then nothing is written. -EINVAL: it is not lost; -ENOENT. */
int store_fork(struct store *store, const struct store_fork *fork, struct store_request *request,
	       struct store **ret_fork);
int store_attach(struct store *store, const char *name, struct store_request *request,
		 struct store **ret_job);
int store_drop(struct store *store, struct store_request *request);
int store_drop_lost(struct store *store, const char *name, struct store_request *request);
/* Of all jobs, open or not. ret_jobs: STORE_MAX_SNAPSHOTS + 1. */
unsigned store_jobs(const struct store *store, struct store_job *ret_jobs);
/* Of a store that does not commit: one job, which is alone. */
void store_get_family(const struct store *store, struct store_family *ret_family);
/* What each device would have with one more. */
struct store_room store_room_for_fork(const struct store *store, unsigned snapshots);

/* A snapshot as a store of the same layout that is read only (writes: -EROFS), and freed before the one that
 * it is of. What it shows stays where it is until then, also when the snapshot is deleted. *ret_view is set
 * before done(request, 0). -ENOENT.
 * name: NULL: the last commit, as if it were a snapshot that ends with the view. It has no record on the
 * devices, so no crash leaves anything of it; but it takes the room of one. -ENODATA, -ENOSPC: as
 * store_snapshot(). */
int store_open_snapshot(struct store *store, const char *name, struct store_request *request,
			struct store **ret_view);

/* Bytes moved from and to the devices so far, by direction. */
uint64_t store_bytes(const struct store *store, enum tier_direction direction);
/* Host memory that the store holds. */
uint64_t store_host_bytes(const struct store *store);

/* The checksum that a store keeps of the block at an offset of a stream: seeded by its position, so that
 * bytes of another place never match. What lies beyond the end of the section does not count. May be called
 * by workers. */
uint64_t store_checksum(const struct store *store, uint32_t stream, uint64_t offset, const void *block,
			size_t length);

#endif
