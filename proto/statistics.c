#include "proto/statistics.h"

#include <assert.h>
#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#define COPY_WORDS 504
#define READ_TRIES 1000

/* Words, since bytes cannot be copied atomically otherwise. */
struct page {
	uint32_t magic, version;
	uint32_t subject, body_bytes;
	_Atomic uint64_t sequence; /* copies shown so far; the last one is at its number modulo 2 */
	uint64_t reserved[5];
	_Atomic uint64_t copies[2][COPY_WORDS];
};

_Static_assert(sizeof(struct page) <= STATISTICS_PAGE_BYTES, "a page holds both copies");
_Static_assert(sizeof(struct statistics_node) <= COPY_WORDS * 8, "the largest body fits");
_Static_assert(sizeof(struct statistics_node) % 8 == 0 && sizeof(struct statistics_job) % 8 == 0,
	       "bodies are whole words");

void statistics_page_init(void *place, enum statistics_subject subject, size_t body_bytes)
{
	struct page *page = place;

	assert(body_bytes <= sizeof(page->copies[0]));
	page->magic = STATISTICS_MAGIC;
	page->version = STATISTICS_VERSION;
	page->subject = subject;
	page->body_bytes = (uint32_t)body_bytes;
}

void statistics_page_write(void *place, const void *body)
{
	struct page *page = place;
	const uint64_t *words = body;
	uint64_t next = atomic_load_explicit(&page->sequence, memory_order_relaxed) + 1;

	/* Who sees one of the words below sees that the copy they replace is not shown any more. */
	atomic_thread_fence(memory_order_release);
	for (size_t i = 0; i < page->body_bytes / 8; i++)
		atomic_store_explicit(&page->copies[next % 2][i], words[i], memory_order_relaxed);
	atomic_store_explicit(&page->sequence, next, memory_order_release);
}

int statistics_page_read(const void *place, enum statistics_subject subject, void *body, size_t body_bytes)
{
	const struct page *page = place;
	size_t page_bytes = page->body_bytes;
	uint64_t *words = body;

	if (page->magic != STATISTICS_MAGIC || page->subject != (uint32_t)subject)
		return -EPROTO;
	if (page->version != STATISTICS_VERSION)
		return -EPROTONOSUPPORT;
	if (page_bytes % 8 != 0 || page_bytes > sizeof(page->copies[0]))
		return -EPROTO;
	memset(body, 0, body_bytes);
	if (body_bytes > page_bytes)
		body_bytes = page_bytes;
	for (unsigned tries = 0; tries < READ_TRIES; tries++) {
		uint64_t sequence = atomic_load_explicit(&page->sequence, memory_order_acquire);

		if (sequence == 0)
			return -EAGAIN;
		for (size_t i = 0; i < body_bytes / 8; i++)
			words[i] = atomic_load_explicit(&page->copies[sequence % 2][i], memory_order_relaxed);
		atomic_thread_fence(memory_order_acquire);
		if (atomic_load_explicit(&page->sequence, memory_order_relaxed) == sequence)
			return 0;
	}
	return -EAGAIN;
}

uint32_t statistics_page_version(const void *place)
{
	const struct page *page = place;

	return page->version;
}

int statistics_file(const char *socket, char path[STATISTICS_FILE_SIZE])
{
	int length = snprintf(path, STATISTICS_FILE_SIZE, "%s.statistics", socket);

	return length < STATISTICS_FILE_SIZE ? 0 : -ENAMETOOLONG;
}
