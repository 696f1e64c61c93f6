/* A store keeps a job's streams: on NVMe as checksummed extents with copy on write, in host memory in place.
 */
#ifndef TIERD_OFFLOAD_STORE_H
#define TIERD_OFFLOAD_STORE_H

#include <stdbool.h>

#include "common/workers.h"
#include "offload/tier.h"

/* An extent is the unit of placement; a block, of checksums. A page is what O_DIRECT can move. */
#define STORE_EXTENT_BYTES (UINT64_C(1) << 20)
#define STORE_BLOCK_BYTES (UINT64_C(1) << 18)
#define STORE_PAGE_BYTES UINT64_C(4096)

struct store;

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
	uint64_t offset; /* in the stream; a multiple of STORE_BLOCK_BYTES */
	uint64_t length; /* a multiple of STORE_BLOCK_BYTES, or up to the end of a section, rounded up to a
			    page */
	void *buffer;	 /* page-aligned */
	/* Writes: the XXH3-64 of each block, as store_checksum() gives it, where the caller has them at hand;
	 * else NULL, and workers compute them. Borrowed until done(). */
	const uint64_t *checksums;
	/* 0; -EBADMSG: a checksum does not match; -EIO and others: the device's; -ENOSPC: too many places
	 * are broken. */
	void (*done)(struct store_transfer *transfer, int status);

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

struct store_ops {
	const char *name; /* "nvme" or "host" */
	int (*submit)(struct store *store, struct store_transfer *transfer);
	void (*raise)(struct store *store, struct store_transfer *transfer, enum tier_priority priority);
	int (*abandon)(struct store *store, uint32_t stream, uint64_t offset, uint64_t length);
	void *(*address)(struct store *store, uint32_t stream, uint64_t offset);
	int (*commit)(struct store *store);
	/* NULL: it has no devices. */
	uint64_t (*device_bytes)(const struct store *store, unsigned device, enum tier_direction direction);
	void (*free)(struct store *store);
};

struct store_section {
	uint64_t first_extent; /* in the stream */
	uint64_t length;       /* bytes */
};

/* The layout of a store: streams made of sections, each starting at an extent. */
struct store_layout;
int store_layout_new(struct store_layout **ret_layout);
struct store_layout *store_layout_free(struct store_layout *layout);
DEFINE_FREEP(struct store_layout *, store_layout_free)
/* Adds a stream ("m.bf16"); name is copied. Returns its index or -errno. */
int store_layout_add_stream(struct store_layout *layout, const char *name);
/* A scratch stream has one place for each extent, not two: what an extent holds is lost as soon as a write of
 * it begins, and it reads as zeros until that has ended well. For what no commit ever needs. */
int store_layout_add_scratch_stream(struct store_layout *layout, const char *name);
/* Appends a section of length bytes (> 0) to a stream; ret_offset: where it starts in the stream, in bytes.
 * -EINVAL, -EOVERFLOW. */
int store_layout_add_section(struct store_layout *layout, uint32_t stream, uint64_t length,
			     uint64_t *ret_offset);
uint64_t store_layout_extents(const struct store_layout *layout); /* of all streams */
/* What an NVMe store of this layout needs on its devices together (each the same), and at most in metadata
 * in host memory (with up to 8 devices at the default depth). */
uint64_t store_layout_device_bytes(const struct store_layout *layout, unsigned devices);
uint64_t store_layout_metadata_bytes(const struct store_layout *layout);

/* A write that failed and has another place now. */
struct store_failure {
	const char *device;
	uint64_t device_offset;
	int status;
};

struct store_config {
	struct workers *workers; /* compute and verify checksums; borrowed */
	/* Told of each, on the loop; the store must not be used in it. NULL: nobody is. */
	void (*on_moved)(const struct store_failure *failure, void *argument);
	void *argument;
	unsigned depth; /* extents in flight per device, at most 1024; 0: 16 */
};

/* A store on one or several NVMe (or, in tests, other) tiers, striped by extent. Owns layout and tiers, also
 * after an error. Each tier has at least store_layout_device_bytes() / tier_count bytes: else
 * -ENOSPC. -EINVAL: no tier, or depth too large. */
int store_new_nvme(const struct store_config *config, struct store_layout *layout, struct tier **tiers,
		   unsigned tier_count, struct store **ret_store);

/* A store in host memory of this process, allocated here. Owns layout, also after an error. Its state is
 * reached by address, not by transfers. */
int store_new_host(struct store_layout *layout, struct store **ret_store);

/* Everything submitted must be done. */
struct store *store_free(struct store *store);
DEFINE_FREEP(struct store *, store_free)

const char *store_name(const struct store *store);

/* -EINVAL: not whole blocks, or outside the sections; -EOPNOTSUPP: a host store. After an error done() never
 * runs. */
int store_submit(struct store *store, struct store_transfer *transfer);

/* Somebody has come to wait for a transfer that is submitted and not done: what has not reached a device goes
 * on at that priority. Nothing happens if it has it already. done() does not run inside. */
void store_raise(struct store *store, struct store_transfer *transfer, enum tier_priority priority);

/* Gives up rewrites that have begun and not become visible, of all extents that the range touches, so that
 * the next writes begin from nothing. No write of them may be submitted. -EINVAL: outside the sections;
 * -EOPNOTSUPP: a host store. */
int store_abandon(struct store *store, uint32_t stream, uint64_t offset, uint64_t length);

/* Where the bytes of a host store lie: contiguous to the end of the section. NULL for an NVMe store. */
void *store_address(struct store *store, uint32_t stream, uint64_t offset);

/* Makes everything written so far durable, atomically. -EOPNOTSUPP: no store does, yet. */
int store_commit(struct store *store);

/* Bytes moved from and to the devices so far, by direction. */
uint64_t store_bytes(const struct store *store, enum tier_direction direction);
/* Bytes that one of the devices was asked to move so far. */
uint64_t store_device_bytes(const struct store *store, unsigned device, enum tier_direction direction);
/* Host memory that the store holds. */
uint64_t store_host_bytes(const struct store *store);

/* The checksum that a store keeps of the block at an offset of a stream: seeded by its position, so that
 * bytes of another place never match. What lies beyond the end of the section does not count. May be called
 * by workers. */
uint64_t store_checksum(const struct store *store, uint32_t stream, uint64_t offset, const void *block,
			size_t length);

#endif
