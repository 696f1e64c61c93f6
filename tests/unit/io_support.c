#include "tests/unit/io_support.h"

#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "offload/device/host.h"
#include "tests/unit/test.h"

static unsigned next_order;

void scratch_open(struct scratch *scratch)
{
	const char *parent = getenv("TMPDIR");

	snprintf(scratch->path, sizeof(scratch->path), "%s/tierd-test-XXXXXX", parent ? parent : "/tmp");
	assert_non_null(mkdtemp(scratch->path));
	scratch->fd = open(scratch->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	assert_true(scratch->fd >= 0);
}

void scratch_close(struct scratch *scratch)
{
	close(scratch->fd);
	assert_int_equal(rmdir(scratch->path), 0);
}

static bool reap_hosts(struct io_loop *loop)
{
	bool has_hosts = false;

	for (size_t i = 0; i < ARRAY_LENGTH(loop->hosts); i++) {
		if (!loop->hosts[i])
			continue;
		host_tier_reap(loop->hosts[i]);
		has_hosts = true;
	}
	return has_hosts;
}

void io_loop_turn(struct io_loop *loop)
{
	struct pollfd wanted[2] = {
		{ .fd = loop->engine ? engine_fd(loop->engine) : -1, .events = POLLIN },
		{ .fd = loop->workers ? workers_fd(loop->workers) : -1, .events = POLLIN },
	};

	if (poll(wanted, 2, reap_hosts(loop) ? 0 : -1) <= 0)
		return;
	if (wanted[0].revents)
		engine_reap(loop->engine);
	if (wanted[1].revents)
		workers_reap(loop->workers);
}

static void test_io_done(struct tier_io *io, int status)
{
	struct test_io *test = container_of(io, struct test_io, io);

	test->status = status;
	test->done_count++;
	test->order = ++next_order;
}

void test_io_init(struct test_io *test, enum tier_direction direction, void *buffer, uint64_t offset,
		  size_t length)
{
	*test = (struct test_io){ .io = { .direction = direction,
					  .buffer = buffer,
					  .offset = offset,
					  .length = length,
					  .done = test_io_done } };
}

int test_io_wait(struct io_loop *loop, struct test_io *test)
{
	while (test->done_count == 0)
		io_loop_turn(loop);
	return test->status;
}

unsigned char *pages_new(size_t length)
{
	unsigned char *pages = aligned_alloc(4096, (length + 4095) / 4096 * 4096);

	assert_non_null(pages);
	memset(pages, 0xa5, (length + 4095) / 4096 * 4096);
	return pages;
}

void pages_fill(unsigned char *pages, size_t length, uint64_t seed)
{
	uint64_t state = seed * UINT64_C(0x9e3779b97f4a7c15) + 1, word;
	size_t at;

	/* By words: sanitizers look at each access. The low bits of such a state are hardly random. */
	for (at = 0; at + sizeof(word) <= length; at += sizeof(word)) {
		state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
		word = state ^ state >> 32;
		memcpy(&pages[at], &word, sizeof(word));
	}
	memcpy(&pages[at], &state, length - at);
}
