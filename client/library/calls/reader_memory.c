/* Memory of the caller's that tierd writes the values of a reader to. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "client/library/calls/calls.h"
#include "client/library/calls/reader.h"
#include "common/cleanup.h"
#include "common/size.h"
#include "proto/vocabulary.h"

#define PAGE_BYTES 4096

/* ---- The file ---- */

static const struct ticket_kind file_kind = { .name = "tierd_reader_memory",
					      .fd_count = 1,
					      .is_jobless = true };

static int ask_for_file(struct tierd_reader *reader, const Tierd__Wire__Request *request, uint64_t deadline,
			int *ret_fd)
{
	struct tierd_ticket *ticket = NULL;
	int r = reader_ticket_new(reader, &file_kind, &ticket);

	if (r == 0)
		r = ticket_ask(ticket, request, deadline);
	if (r < 0)
		return r;
	*ret_fd = TAKE_FD(ticket->fd);
	ticket_abandon(ticket);
	return 0;
}

/* ---- Its memory ---- */

/* Writes to every page: tierd refuses a file with pages that are not allocated. */
static int fill(int fd, uint64_t bytes, const void *values, struct mapping *mapping)
{
	if (ftruncate(fd, (off_t)bytes) < 0 || fallocate(fd, 0, 0, (off_t)bytes) < 0 ||
	    fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) < 0)
		return -errno;
	int r = mapping_new(fd, bytes, PROT_READ | PROT_WRITE, mapping);

	if (r < 0)
		return r;
	/* It is the caller's memory: its children inherit it. */
	(void)madvise(mapping->address, bytes, MADV_DOFORK);
	if (values)
		memcpy(mapping->address, values, bytes);
	else
		memset(mapping->address, 0, bytes);
	return 0;
}

/* Replaces the old memory at its address by the new one, which has the same values. */
static int put(struct mapping *mapping, void *place)
{
	if (mremap(mapping->address, mapping->bytes, mapping->bytes, MREMAP_MAYMOVE | MREMAP_FIXED, place) ==
	    MAP_FAILED)
		return -errno;
	mapping->address = place;
	return 0;
}

static int lend(struct tierd_reader *reader, Tierd__Wire__Request *request, uint64_t bytes, void **memory,
		uint64_t deadline)
{
	struct mapping mapping = { NULL, 0 };
	_cleanup_close_ int fd = -1;
	int r = ask_for_file(reader, request, deadline, &fd);

	if (r < 0)
		return r;
	connection_exit(reader->node);
	r = fill(fd, bytes, *memory, &mapping);
	pthread_mutex_lock(&reader->node->lock);
	if (r < 0)
		r = message_fail(r, "%lu bytes of memory to be read to: %s", bytes, strerror(-r));
	else
		r = reader_check(reader);
	request->reader_memory->bytes = bytes;
	if (r == 0)
		r = reader_call(reader, &reader_read_kind, request, deadline);
	if (r == 0 && *memory && put(&mapping, *memory) < 0)
		r = message_fail(-errno, "replacing memory at its address: %s", strerror(errno));
	if (r < 0) {
		mapping_free(&mapping);
		return r;
	}
	reader->memory = mapping;
	*memory = mapping.address;
	return 0;
}

int tierd_reader_memory(struct tierd_reader *reader, size_t size, void **memory)
{
	Tierd__Wire__ReaderMemory body = TIERD__WIRE__READER_MEMORY__INIT;
	uint64_t deadline;
	int r = CHECK_GIVEN(reader, memory);

	if (r < 0)
		return r;
	if (size == 0 || size > WIRE_MAX_READER_MEMORY || (uintptr_t)*memory % PAGE_BYTES != 0)
		return message_fail(-EINVAL, "memory of a reader has 1 byte to 1 TiB, in whole pages");
	r = reader_take(reader, &deadline);
	if (r < 0)
		return r;
	body.reader = reader->number;
	r = lend(reader, WIRE_REQUEST(READER_MEMORY, reader_memory, &body), size_align(size, PAGE_BYTES),
		 memory, deadline);
	reader_give(reader);
	return r;
}
