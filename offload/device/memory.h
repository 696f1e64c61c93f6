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

/* Maps such a one for writing when it was filled, by somebody who is not trusted. It is taken only if no
 * write to it can fail, or get a page that is not his: its size is sealed, and every page is there, and
 * stays, since it is sealed against holes (and so against further mappings for writing) from here on.
 * -EINVAL: it is not like that; ret_reason is for a person. The descriptor is the caller's still. */
int memory_adopt(int fd, size_t length, struct memory *ret_memory, const char **ret_reason);

/* Asks for huge pages in place (MADV_HUGEPAGE; with should_populate also MADV_COLLAPSE, which is slow and
 * gives every page now). Failing is no error: is_huge says. Before pinning the region with an engine, and
 * that before sealing; the other order fails. */
void memory_make_huge(struct memory *memory, bool should_populate);

/* Gets every page of a part now, huge ones where the kernel agrees: true, if it does. */
bool memory_populate(const struct memory *memory, size_t offset, size_t length);

/* Gives the pages of a part of shared memory back; it is zero afterwards, and pages come again as they are
 * touched, by whoever maps it. Nothing of it is pinned any more. */
int memory_discard(const struct memory *memory, size_t offset, size_t length);

/* Unmaps shared memory, which nobody needs any more, and gives all of its pages back, whoever has it open or
 * mapped. Returns the bytes that are still allocated: huge pages that somebody uses otherwise, as those in
 * pipes, or what has been touched since. It can be called again, and memory_free() is the caller's. */
size_t memory_take_back(struct memory *memory);

/* Nobody has the file open or mapped but this process, memory_client_fd() being how others got it. */
bool memory_is_alone(const struct memory *memory);

/* Seals the size. Not against writing: the kernel takes no page out of a file that is. */
int memory_seal(struct memory *memory);

/* A new descriptor to send to a client, of a description of its own: read-only for MEMORY_READ_ONLY.
 * Close-on-exec; the caller's. Returns it or -errno. */
int memory_client_fd(const struct memory *memory, enum memory_access access);

/* Bytes of the region that the kernel has allocated (of a memfd: its blocks). */
size_t memory_resident(const struct memory *memory);

/* Unmaps and closes; leaves MEMORY_INIT behind. */
void memory_free(struct memory *memory);

#endif
