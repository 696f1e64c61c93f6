/* A store keeps a job's streams: on NVMe as checksummed extents with copy on write, in host memory in place.
 */
#ifndef TIERD_OFFLOAD_STORE_H
#define TIERD_OFFLOAD_STORE_H

#include <stdbool.h>

#include "common/workers.h"
#include "offload/device/tier.h"

/* A block has a checksum; an extent has a place on a device. These are the default sizes: see
 * store_layout_set_blocks(). O_DIRECT moves whole pages. */
#define STORE_EXTENT_BLOCKS 4
#define STORE_BLOCK_BYTES (UINT64_C(1) << 18)
#define STORE_EXTENT_BYTES (STORE_EXTENT_BLOCKS * STORE_BLOCK_BYTES)
#define STORE_PAGE_BYTES UINT64_C(4096)
#define STORE_MAX_BLOCK_BYTES (5 * STORE_BLOCK_BYTES / 4)
#define STORE_MAX_EXTENT_BYTES (STORE_EXTENT_BLOCKS * STORE_MAX_BLOCK_BYTES)

struct store;
struct store_layout;
struct store_verification;

/* One transfer of whole blocks of a section. It may end with the section, whose last block may be short: its
 * length is then rounded up to a page, and the bytes of the buffer behind the section mean nothing.
 *
 * The caller owns the transfer, and leaves it and its buffer alone from store_submit() until done(), which
 * runs once, on the loop thread.
 *
 * A read delivers bytes whose checksums match those of their last write, or zeros where nothing was written;
 * but see expected.
 * A write becomes visible extent by extent, once all blocks of the extent have been rewritten, by one
 * transfer or several. Until then reads see the previous content. An error abandons the rewrite of its
 * extent: reads see the previous content, and the next write begins anew. A block is in one write at a time.
 */
struct store_transfer {
	enum tier_direction direction;
	enum tier_priority priority;
	uint32_t stream;
	uint64_t offset; /* in the stream; a multiple of its blocks */
	uint64_t length; /* a multiple of its blocks, or up to the end of a section, rounded up to a page */
	void *buffer;	 /* page-aligned */
	/* Writes: the checksum of each block, as store_checksum() gives it; NULL: workers compute them.
	 * Borrowed until done(). */
	const uint64_t *checksums;
	/* Reads: where the checksum that each block should have is put. Its bytes are not verified then:
	 * whoever reads does that when it uses them, while they are in the cache, by store_has_checksums();
	 * and reads what does not match once more, without this, to know whether it is damaged, and where.
	 * NULL: workers verify them. Borrowed until done(). */
	uint64_t *expected;
	/* Writes: the rewrite becomes visible when it is published. Set in all writes of an extent, or in
	 * none. */
	bool is_held;
	/* -EBADMSG: a checksum does not match; -ENOSPC: too many places are broken; or the device's error. */
	void (*done)(struct store_transfer *transfer, int status);

	/* The caller's. */
	struct {
		uint64_t began_ns;
		unsigned kind;
	} note;

	/* Where the first error was. device is NULL if it was on none. */
	struct {
		uint64_t stream_offset, device_offset;
		const char *device;
	} fault;

	/* Of the store, while submitted. */
	struct queue link, operations;
	uint64_t issued, completed;
	int status;
};

/* A request takes time. It is the caller's; done() runs once, on the loop, never inside the call. */
struct store_request {
	void (*done)(struct store_request *request, int status);
};

/* A write that failed, and went to another place. */
struct store_failure {
	const char *device;
	uint64_t device_offset;
	int status;
};

/* The owner of a store. */
struct store_owner {
	/* May be NULL. Runs on the loop, and must not use the store. */
	void (*on_moved)(const struct store_failure *failure, void *argument);
	void *argument;
	struct tier_share share; /* of the devices; a weight of 0 changes nothing */
};

/* A snapshot keeps a commit under a name until it is deleted. */
#define STORE_MAX_SNAPSHOTS 14
#define STORE_SNAPSHOT_NAME_BYTES 64
struct store_snapshot {
	char name[STORE_SNAPSHOT_NAME_BYTES];
	uint64_t step;
	uint64_t seconds; /* since 1970, when it was taken */
	bool is_lost;	  /* its map cannot be read */
};

struct memory;

/* A job whose state is in a store. */
struct store_job {
	char name[STORE_SNAPSHOT_NAME_BYTES];
	uint64_t step, serial;
	uint64_t origin; /* the serial of the job for which the store was made */
	bool is_lost;	 /* its map cannot be read */
};

/* All jobs of a store. */
struct store_family {
	unsigned jobs;	       /* open or not */
	unsigned others;       /* open, without this one */
	bool is_fenced;	       /* read only until all of them have been freed and opened again */
	bool has_lost;	       /* read only while a job or a snapshot is lost */
	uint64_t device_bytes; /* of each device, for all jobs */
	uint64_t own_bytes;    /* of these, for what one job may change */
	uint64_t held_bytes;   /* whole extents that this job has written */
	uint64_t shared_bytes; /* of these, extents that another open job has, too */
};

/* What a store takes: of each device, and of host memory for what it knows of their places. */
struct store_space {
	uint64_t device_bytes, host_bytes;
};

/* A fork: a new job that begins with the state of another one, in the same store. */
struct store_fork {
	const char *snapshot; /* of the other job; NULL: its last commit */
	const char *name;     /* of the fork: 1 to 63 bytes */
	uint64_t serial;      /* of the fork: as in store_config */
	unsigned snapshots;   /* all jobs of the store have space for so many then */
};

struct store_section {
	uint64_t first_extent; /* in the stream */
	uint64_t length;       /* bytes */
};

/* The layout of a store: streams of sections. A section begins at an extent. */
int store_layout_new(struct store_layout **ret_layout);
struct store_layout *store_layout_free(struct store_layout *layout);
DEFINE_FREEP(struct store_layout *, store_layout_free)
/* Adds a stream ("m.bf16"); name is copied. Returns its index or -errno. */
int store_layout_add_stream(struct store_layout *layout, const char *name);
/* A scratch stream has one place for each extent, not two: a write loses the extent's content when it begins,
 * and the extent reads as zeros until the write has succeeded. No commit contains it. */
int store_layout_add_scratch_stream(struct store_layout *layout, const char *name);
/* A fixed stream never changes after the first commit; all writes of it have ended before. It has one place
 * for each extent, which all snapshots and forks share. Rewrites before the first commit are of whole
 * extents, because one may wait for the place that another frees when all its blocks are written. */
int store_layout_add_fixed_stream(struct store_layout *layout, const char *name);
/* Sets the size of a stream's blocks before its first section: whole pages, from STORE_BLOCK_BYTES to
 * STORE_MAX_BLOCK_BYTES. A format with an odd size per element is then cut at the same elements as other
 * streams. -EINVAL. */
int store_layout_set_blocks(struct store_layout *layout, uint32_t stream, uint64_t bytes);
/* Before the first stream: a store of this layout commits, and survives a crash. Scratch streams are refused
 * (-EINVAL). */
void store_layout_set_durable(struct store_layout *layout);
/* Appends a section of length bytes (> 0) to a stream; ret_offset: its first byte in the stream.
 * -EINVAL; -EOVERFLOW: the layout would have more than STORE_MAX_EXTENTS. */
int store_layout_add_section(struct store_layout *layout, uint32_t stream, uint64_t length,
			     uint64_t *ret_offset);
/* A durable store of this layout has space for so many snapshots that share nothing with the job or with each
 * other: at most STORE_MAX_SNAPSHOTS. The default is none. */
void store_layout_set_snapshots(struct store_layout *layout, unsigned snapshots);
uint64_t store_layout_extents(const struct store_layout *layout);     /* of all streams */
uint64_t store_layout_whole_bytes(const struct store_layout *layout); /* of these, whole */
/* An NVMe store of this layout needs so many bytes of all its devices (each the same), and at most so many of
 * host memory for metadata (with up to 8 devices, at the default depth). */
uint64_t store_layout_device_bytes(const struct store_layout *layout, unsigned devices);
uint64_t store_layout_metadata_bytes(const struct store_layout *layout);

/* 128 TiB of default extents. With all snapshots an extent has 16 places on a device, and the number of a
 * place has 32 bits. */
#define STORE_MAX_EXTENTS (UINT64_C(1) << 27)

struct store_config {
	struct workers *workers; /* compute and verify checksums; borrowed */
	struct store_owner owner;
	unsigned depth;	  /* extents in flight per device, at most 1024; 0: 16 */
	const char *name; /* of the job, as the devices have it; NULL: none */
	uint64_t serial;  /* of the job, as its user counts; 0: none */
};

/* A store on NVMe (or, in tests, other) tiers, striped by extent. Owns layout and tiers, also after an error.
 * -ENOSPC: a tier has less than store_layout_device_bytes() / tier_count bytes; -EINVAL: no tier, or depth
 * too large; -EOVERFLOW: with all snapshots a device would have more places than can be numbered. */
int store_new_nvme(const struct store_config *config, struct store_layout *layout, struct tier **tiers,
		   unsigned tier_count, struct store **ret_store);

/* A store that is on these tiers already, for store_open(). Its layout is one stream of whole extents until
 * store_adopt() gives it its own. */
int store_new_found(const struct store_config *config, struct tier **tiers, unsigned tier_count,
		    struct store **ret_store);

/* A store in host memory. Owns layout, also after an error. Its state is reached by address, not by
 * transfers.
 */
int store_new_host(struct store_layout *layout, struct store **ret_store);

/* Everything submitted must be done. */
struct store *store_free(struct store *store);
DEFINE_FREEP(struct store *, store_free)

/* -EINVAL: not whole blocks, or outside the sections; -EROFS: a fixed stream after its first commit began;
 * -EOPNOTSUPP: a host store. After an error done() never runs. */
int store_submit(struct store *store, struct store_transfer *transfer);

/* Raises the priority of a transfer that is submitted and not done, if it is lower. done() does not run
 * inside. */
void store_raise(struct store *store, struct store_transfer *transfer, enum tier_priority priority);

/* Gives up the invisible rewrites of all extents that the range touches, also those that are held back. No
 * write of them may be submitted. -EINVAL: outside the sections; -EOPNOTSUPP: a host store. */
int store_abandon(struct store *store, uint32_t stream, uint64_t offset, uint64_t length);

/* Publishes held-back rewrites of all extents that the range touches; all their blocks have been written.
 * Until then commits contain what they replace. An extent may be held back only while it is as the last
 * commit has it: there is no third place. -EINVAL: outside the sections; -EBUSY: a commit is under way;
 * -EOPNOTSUPP: not durable. */
int store_publish(struct store *store, uint32_t stream, uint64_t offset, uint64_t length);

/* The bytes of a host store, contiguous to the end of the section. NULL for an NVMe store. */
void *store_address(struct store *store, uint32_t stream, uint64_t offset);
/* All memory of a host store; NULL for another one. Borrowed. */
const struct memory *store_host_memory(const struct store *store);

/* Of durable stores; others: -EOPNOTSUPP. One request at a time: -EBUSY. store_message() says why the last
 * one failed.
 *
 * store_create() makes an empty store, before the first transfer. What the devices had is lost.
 * store_open() finds the last commit, as lineage_open() does, before the first transfer. -ENOENT: nothing was
 * ever committed.
 * store_commit() makes all that is visible now durable, atomically, as that step. Transfers go on meanwhile.
 * A commit that fails ends all writing: -EROFS from then on. */
int store_create(struct store *store, struct store_request *request);
int store_open(struct store *store, struct store_request *request);
int store_commit(struct store *store, uint64_t step, struct store_request *request);
/* Takes over the layout of a store that was opened. Nothing is in flight, and no view is open. As long as
 * nothing is written, the layout may be wrong about streams that are not read. -EINVAL: it has another number
 * of extents, or needs larger places; it stays the caller's. */
int store_adopt(struct store *store, struct store_layout *layout);
/* Extents of the layout, and the bytes that they take on the devices, each in a place of its own. */
uint64_t store_extents(const struct store *store);
uint64_t store_placed_bytes(const struct store *store);
/* The size of a stream's blocks, and of its extents. */
uint64_t store_block_bytes(const struct store *store, uint32_t stream);
uint64_t store_extent_bytes(const struct store *store, uint32_t stream);
/* Bytes of the sections, each rounded up to a page; store_diff() returns no more. */
uint64_t store_state_bytes(const struct store *store);
/* The step of the last commit. */
uint64_t store_step(const struct store *store);
const char *store_message(const struct store *store);
/* Changes the owner. */
void store_belong(struct store *store, const struct store_owner *owner);
/* Whether its files stay after store_free(). The default: those of store_new_found() stay. */
void store_keep(struct store *store, bool is_kept);

/* What an extent of all that the layout has is: one transfer would read it. */
struct store_range {
	uint32_t stream;
	uint64_t offset, length;
};
void store_find_extent(const struct store *store, uint64_t extent, struct store_range *ret_range);
/* The whole blocks, or extents, that contain these bytes of a section. */
void store_find_blocks(const struct store *store, uint32_t stream, uint64_t offset, uint64_t length,
		       struct store_range *ret_range);
void store_find_extents(const struct store *store, uint32_t stream, uint64_t offset, uint64_t length,
			struct store_range *ret_range);
/* "m.fp32" */
const char *store_stream_name(const struct store *store, uint32_t stream);

/* Snapshots of a durable store; others: -EOPNOTSUPP. These are requests like those above: one at a time, and
 * transfers go on meanwhile.
 *
 * store_snapshot() keeps the last commit under a name of 1 to 63 bytes. It commits a table, whatever the size
 * of the store. -EINVAL: no such name; -ENODATA: nothing was committed; -EEXIST; -EMFILE: there are
 * STORE_MAX_SNAPSHOTS; -ENOSPC: the next steps might not find space beside all snapshots.
 * store_delete_snapshot() ends when the snapshot's space is free. -ENOENT.
 * store_delete_lost() deletes a lost snapshot. While one is lost, nothing is written: -EROFS, also of
 * commits. After the deletion nothing is written until the store has been freed and opened again. -EINVAL: it
 * is not lost; -ENOENT. store_roll_back() makes a snapshot the last commit; nothing is in flight. Nothing is
 * written (-EROFS) until the store has been freed and opened again. -ENOENT. store_measure_snapshot() counts
 * the bytes that its deletion would free. -EAGAIN: somebody reads it, and so it cannot be counted.
 * store_diff() counts the bytes, in whole blocks, that differ between a snapshot and another one, or the last
 * commit (to: NULL). */
int store_snapshot(struct store *store, const char *name, struct store_request *request);
int store_delete_snapshot(struct store *store, const char *name, struct store_request *request);
int store_delete_lost(struct store *store, const char *name, struct store_request *request);
int store_roll_back(struct store *store, const char *name, struct store_request *request);
int store_measure_snapshot(struct store *store, const char *name, struct store_request *request,
			   uint64_t *ret_bytes);
int store_diff(struct store *store, const char *from, const char *to, struct store_request *request,
	       uint64_t *ret_bytes);
/* Makes space for so many snapshots, as store_layout_set_snapshots() does beforehand. Each device grows.
 * -EINVAL: it has that much; -EMFILE: more than STORE_MAX_SNAPSHOTS; -ENODATA; -ENOSPC, -EOPNOTSUPP: a device
 * cannot grow. */
int store_reserve(struct store *store, unsigned snapshots, struct store_request *request);
/* For how many snapshots an open durable store has space, and what so many would need. */
unsigned store_reserved(const struct store *store);
struct store_space store_space_for(const struct store *store, unsigned snapshots);
/* All snapshots, the oldest first. ret_snapshots: STORE_MAX_SNAPSHOTS. */
unsigned store_snapshots(const struct store *store, struct store_snapshot *ret_snapshots);

/* Forks of a durable store. Each is a store of its own on the same devices, which have what is shared once.
 * They make one request at a time between them, in the order in which they ask. The last store that is freed
 * gives the devices back. store_keep() applies to all of them, and removes nothing while there are jobs that
 * are not open.
 *
 * store_fork() commits a table; the devices grow for what the fork may change. -EEXIST, -EINVAL: no such
 * name; -EMFILE: a store has STORE_MAX_SNAPSHOTS + 1 jobs and snapshots at most; -ENOENT, -ENODATA; -ENOSPC,
 * -EOPNOTSUPP: a device cannot grow.
 * store_attach() opens an existing job. -ENOENT; -EBUSY: it is open; -EROFS: a commit has failed.
 * Both give a store as store_new_found() does, which then adopts its layout. It is set before done(request,
 * 0). store_drop() ends the job, with its snapshots; nothing is in flight, and the store is freed next. It
 * writes nothing for the last job: that one goes with the devices, by store_keep(). store_drop_lost() ends
 * another job, which is lost. Nothing is written until all stores have been freed and opened again. -EINVAL:
 * it is not lost; -ENOENT. */
int store_fork(struct store *store, const struct store_fork *fork, struct store_request *request,
	       struct store **ret_fork);
int store_attach(struct store *store, const char *name, struct store_request *request,
		 struct store **ret_job);
int store_drop(struct store *store, struct store_request *request);
int store_drop_lost(struct store *store, const char *name, struct store_request *request);
/* All jobs, open or not. ret_jobs: STORE_MAX_SNAPSHOTS + 1. */
unsigned store_jobs(const struct store *store, struct store_job *ret_jobs);
/* A store that is not durable has one job. */
void store_get_family(const struct store *store, struct store_family *ret_family);
/* What one more job would need. */
struct store_space store_space_for_fork(const struct store *store, unsigned snapshots);

/* A view: a snapshot as a read-only store (writes: -EROFS) of the same layout. It is freed before its store,
 * and keeps what it shows until then, also when the snapshot is deleted. *ret_view is set before
 * done(request, 0). -ENOENT.
 * name: NULL: a view of the last commit. It needs the space of a snapshot, but has no record on the devices.
 * -ENODATA, -ENOSPC: as store_snapshot(). */
int store_open_snapshot(struct store *store, const char *name, struct store_request *request,
			struct store **ret_view);

/* Bytes moved from and to the devices so far, by direction. */
uint64_t store_bytes(const struct store *store, enum tier_direction direction);
/* Host memory that the store holds. */
uint64_t store_host_bytes(const struct store *store);

/* The checksum of the block at an offset of a stream. Its position is the seed, so that bytes of another
 * place never match. Bytes behind the section do not count. Workers may call it. */
uint64_t store_checksum(const struct store *store, uint32_t stream, uint64_t offset, const void *block,
			size_t length);
/* Those of the blocks of a transfer that end in the bytes from … to of it, or with it, of what is in its
 * buffer; and whether all of them are these. Workers may call both. */
void store_find_checksums(const struct store *store, const struct store_transfer *transfer, uint64_t from,
			  uint64_t to, uint64_t *checksums);
bool store_has_checksums(const struct store *store, const struct store_transfer *transfer,
			 const uint64_t *checksums);

#endif
