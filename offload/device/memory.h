/* A region of host memory, private or shared by descriptor, aligned to huge pages and made of them where the
 * kernel agrees. */
#ifndef TIERD_OFFLOAD_MEMORY_H
#define TIERD_OFFLOAD_MEMORY_H

#include <stdbool.h>
#include <stddef.h>

struct memory {
	char *base;    /* 2 MiB-aligned */
	size_t length; /* a multiple of 4 KiB */
	int fd;	       /* memfd, or -1 for private memory */
	bool is_huge;  /* the kernel has given huge pages, or will as pages are touched */
};

#define MEMORY_INIT                                                                                          \
	{                                                                                                    \
		NULL, 0, -1, false                                                                           \
	}

/* What clients may do with shared memory. */
enum memory_access { MEMORY_READ_ONLY, MEMORY_WRITABLE };

/* Private memory, zero, not yet populated. length is rounded up to 4 KiB. Like all regions it is absent in
 * forked children. -EINVAL: length 0; -ENOMEM. */
int memory_new_private(size_t length, struct memory *ret_memory);

/* Shared memory, zero: a memfd of mode 0600, mapped here for writing, its size sealed only by memory_seal().
 * name is for /proc. */
int memory_new_shared(const char *name, size_t length, struct memory *ret_memory);

/* A memfd of mode 0600, for somebody else to fill. Its descriptor, or -errno. */
int memory_file_new(const char *name, size_t length);

/* Maps such a file for writing after somebody who is not trusted has filled it. No write to it may fail, or
 * need a new page: so its size must be sealed, and every page must exist. It is sealed against holes, and so
 * against further mappings for writing. -EINVAL: it is not like that; ret_reason is for people. The
 * descriptor stays the caller's. */
int memory_adopt(int fd, size_t length, struct memory *ret_memory, const char **ret_reason);

/* Asks for huge pages (MADV_HUGEPAGE; with should_populate also MADV_COLLAPSE, which is slow and allocates
 * every page now). is_huge has the result. Call it before the region is pinned with an engine: pages that are
 * pinned do not become huge. */
void memory_make_huge(struct memory *memory, bool should_populate);

/* Allocates every page of a part now. True: the kernel gave huge ones. */
bool memory_populate(const struct memory *memory, size_t offset, size_t length);

/* Allocates the pages of a range that are not there, in the size that the kernel chooses, as far as there is
 * memory. base: page-aligned. */
void memory_touch(void *base, size_t length);

/* Frees the pages of a part of shared memory, which is zero afterwards. Pages come back as they are touched.
 * Nothing of it may be pinned. */
int memory_discard(const struct memory *memory, size_t offset, size_t length);

/* Unmaps shared memory, and frees its pages, whoever has it open or mapped. Returns the bytes that are still
 * allocated: huge pages in use elsewhere, as in pipes, or pages that were touched since. It may be called
 * again; memory_free() follows. */
size_t memory_take_back(struct memory *memory);

/* Whether nobody else has the file open or mapped, by a descriptor of memory_client_fd(). */
bool memory_is_alone(const struct memory *memory);

/* Seals the size. Not against writing, because the kernel frees no page of a file that is sealed so. */
int memory_seal(struct memory *memory);

/* Returns a new descriptor for a client, with its own description: read-only for MEMORY_READ_ONLY.
 * Close-on-exec; the caller's. Or -errno. */
int memory_client_fd(const struct memory *memory, enum memory_access access);

/* Bytes of the region that the kernel has allocated (of a memfd: its blocks). */
size_t memory_resident(const struct memory *memory);

/* Unmaps and closes; leaves MEMORY_INIT behind. */
void memory_free(struct memory *memory);

#endif
