/* A client's own memory, to which its reader's values go without another copy.
 *
 * The file is made here and filled there, so that no descriptor of a client's ever comes in, and its pages
 * are the client's all the same: they are of whoever writes to them first. */
#include <errno.h>
#include <string.h>

#include "common/size.h"
#include "daemon/resources/resources.h"
#include "daemon/values/reader.h"
#include "daemon/request/request.h"

/* What the page tables of so many bytes take: eight bytes for each page. */
static uint64_t table_bytes(uint64_t bytes)
{
	return size_align(bytes / 512, 4096);
}

void reader_memory_clear(struct reader *reader)
{
	reader->memory_fd = fd_close(reader->memory_fd);
	if (!reader->memory.base)
		return;
	reader_uncharge(reader, table_bytes(reader->memory.length));
	disposal_start_memory(reader->node, &reader->memory);
}

/* ---- The file ---- */

static void give_file(struct reader *reader, struct pending *pending)
{
	if (reader->memory_fd < 0)
		reader->memory_fd = memory_file_new("tierd-reader", 0);
	if (reader->memory_fd < 0)
		pending_error(pending, reader->memory_fd, "job %s: no file for memory of the client's: %s",
			      reader->job_name, strerror(-reader->memory_fd));
	else
		pending_reply_fds(pending, NULL, &reader->memory_fd, 1);
}

/* ---- Its memory ---- */

static void run_mapping(struct work *work)
{
	struct reader *reader = container_of(work, struct reader, mapping.work);

	reader->mapping.status = memory_adopt(reader->memory_fd, reader->mapping.bytes,
					      &reader->mapping.memory, &reader->mapping.reason);
}

static void take(struct reader *reader, int r)
{
	reader->is_mapping = false;
	reader->memory_fd = fd_close(reader->memory_fd);
	if (r < 0)
		reader_uncharge(reader, table_bytes(reader->mapping.bytes));
	else
		reader->memory = reader->mapping.memory;
}

static void on_mapped(struct work *work)
{
	struct reader *reader = container_of(work, struct reader, mapping.work);
	struct pending *pending = TAKE_PTR(reader->pending);
	int r = reader->mapping.status;

	take(reader, r);
	if (!pending)
		reader_release(reader);
	else if (r < 0)
		pending_error(pending, r, "job %s: the client's memory: %s", reader->job_name,
			      reader->mapping.reason);
	else
		pending_reply(pending, NULL);
}

/* Looking at all of its pages takes a while. */
static void start_mapping(struct reader *reader, struct pending *pending, uint64_t bytes)
{
	reader->pending = pending;
	reader->activity = MAPPING;
	reader->is_mapping = true;
	reader->mapping.bytes = bytes;
	reader->mapping.work = (struct work){ .run = run_mapping, .done = on_mapped, .urgency = WORK_NORMAL };
	workers_submit(reader->node->workers, &reader->mapping.work);
}

static int check(struct reader *reader, uint64_t bytes, char *message, size_t size)
{
	if (reader->memory_fd < 0)
		return refuse(message, size, -EINVAL, "its reader has no file for memory of the client's");
	if (bytes % 4096 != 0 || bytes > WIRE_MAX_READER_MEMORY)
		return refuse(message, size, -EINVAL,
			      "%llu bytes of memory: it has a multiple of 4096, and at most %llu",
			      (unsigned long long)bytes, (unsigned long long)WIRE_MAX_READER_MEMORY);
	return reader_charge(reader, table_bytes(bytes), message, size);
}

void reader_memory(struct reader *reader, struct pending *pending, const Tierd__Wire__ReaderMemory *memory)
{
	char message[READER_MESSAGE];
	int r;

	if (!reader_check(reader, pending))
		return;
	if (reader->memory.base || reader->is_mapping) {
		pending_error(pending, -EBUSY, "job %s: this reader has memory of its client's already",
			      reader->job_name);
		return;
	}
	if (memory->bytes == 0) {
		give_file(reader, pending);
		return;
	}
	r = check(reader, memory->bytes, message, sizeof(message));
	if (r < 0)
		pending_error(pending, r, "job %s: %s", reader->job_name, message);
	else
		start_mapping(reader, pending, memory->bytes);
}
