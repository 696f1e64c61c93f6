#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <xxhash.h>

#include "common/size.h"
#include "offload/device/host.h"
#include "offload/device/nvme.h"
#include "offload/store/checksum.h"
#include "offload/store/store_backend.h"
#include "tests/unit/kernel_support.h"
#include "tests/unit/store_support.h"
#include "tests/unit/test.h"

#define ONE_EXTENT 4 /* a section of the second stream */
#define MANY_EXTENTS 6

/* Of the second stream, of which most tests are. */
static uint64_t block_bytes = STORE_BLOCK_BYTES, extent_bytes = STORE_EXTENT_BYTES;

static int widen(void **state)
{
	store_fixture_set_blocks(STORE_BLOCK_BYTES, WIDE_BLOCK_BYTES);
	block_bytes = WIDE_BLOCK_BYTES;
	extent_bytes = STORE_EXTENT_BLOCKS * block_bytes;
	return 0;
}

static uint64_t padded(unsigned section)
{
	return size_align(section_lengths[section], STORE_PAGE_BYTES);
}

static void check_section(struct store_fixture *fixture, unsigned section, uint64_t seed)
{
	uint64_t length = padded(section), offset = fixture->offsets[section];
	unsigned char *out = pages_new(length), *in = pages_new(length);

	pages_fill(out, length, seed);
	assert_int_equal(store_fixture_transfer(fixture, TIER_WRITE, STREAM_SECOND, offset, length, out), 0);
	assert_int_equal(store_fixture_transfer(fixture, TIER_READ, STREAM_SECOND, offset, length, in), 0);
	assert_memory_equal(in, out, section_lengths[section]);
	/* Block by block, too. */
	for (uint64_t start = 0; start < length; start += block_bytes) {
		uint64_t rest = length - start;
		uint64_t part = rest < block_bytes ? rest : block_bytes;

		assert_int_equal(
			store_fixture_transfer(fixture, TIER_READ, STREAM_SECOND, offset + start, part, in),
			0);
		rest = section_lengths[section] - start;
		assert_memory_equal(in, out + start, rest < part ? rest : part);
	}
	free(out);
	free(in);
}

static void bytes_come_back_for_every_length_and_number_of_devices(void **state)
{
	for (unsigned devices = 1; devices <= STORE_TEST_DEVICES; devices++) {
		struct store_fixture fixture;

		store_fixture_open(&fixture, devices, 0, NULL);
		for (unsigned round = 0; round < 3; round++)
			for (unsigned section = 0; section < SECTION_COUNT; section++)
				check_section(&fixture, section, round * 100 + section);
		store_fixture_close(&fixture);
	}
}

static void what_was_never_written_is_zero_and_costs_no_io(void **state)
{
	unsigned char *in = pages_new(padded(MANY_EXTENTS));
	struct store_fixture fixture;

	store_fixture_open(&fixture, 1, 0, NULL);
	assert_int_equal(store_fixture_transfer(&fixture, TIER_READ, STREAM_SECOND,
						fixture.offsets[MANY_EXTENTS], padded(MANY_EXTENTS), in),
			 0);
	for (uint64_t i = 0; i < padded(MANY_EXTENTS); i++)
		assert_int_equal(in[i], 0);
	assert_int_equal(fixture.tiers[0]->submitted[TIER_READ].requests, 0);
	assert_int_equal(store_bytes(fixture.store, TIER_READ), 0);
	store_fixture_close(&fixture);
	free(in);
}

static void extents_are_striped_over_the_devices(void **state)
{
	unsigned char *out = pages_new(3 * STORE_EXTENT_BYTES);
	struct store_fixture fixture;

	store_fixture_open(&fixture, 3, 0, NULL);
	assert_int_equal(
		store_fixture_transfer(&fixture, TIER_WRITE, STREAM_FIRST, 0, 3 * STORE_EXTENT_BYTES, out),
		0);
	for (unsigned device = 0; device < 3; device++)
		assert_int_equal(fixture.tiers[device]->submitted[TIER_WRITE].bytes, STORE_EXTENT_BYTES);
	assert_int_equal(store_bytes(fixture.store, TIER_WRITE), 3 * STORE_EXTENT_BYTES);
	store_fixture_close(&fixture);
	free(out);
}

/* Writes one block of the extent with a byte of its own. */
static void write_block(struct store_fixture *fixture, unsigned block, unsigned char byte)
{
	unsigned char *out = pages_new(block_bytes);

	memset(out, byte, block_bytes);
	assert_int_equal(store_fixture_transfer(fixture, TIER_WRITE, STREAM_SECOND,
						fixture->offsets[ONE_EXTENT] + block * block_bytes,
						block_bytes, out),
			 0);
	free(out);
}

static void expect_blocks(struct store_fixture *fixture, unsigned char byte)
{
	unsigned char *in = pages_new(extent_bytes);

	assert_int_equal(store_fixture_transfer(fixture, TIER_READ, STREAM_SECOND,
						fixture->offsets[ONE_EXTENT], extent_bytes, in),
			 0);
	for (unsigned block = 0; block < STORE_EXTENT_BLOCKS; block++) {
		assert_int_equal(in[block * block_bytes], byte);
		assert_int_equal(in[(block + 1) * block_bytes - 1], byte);
	}
	free(in);
}

static void the_old_content_is_seen_until_all_blocks_are_rewritten(void **state)
{
	struct store_fixture fixture;

	store_fixture_open(&fixture, 2, 0, NULL);
	for (unsigned char version = 1; version <= 3; version++) {
		for (unsigned block = 0; block < STORE_EXTENT_BLOCKS; block++) {
			expect_blocks(&fixture, version - 1);
			write_block(&fixture, (block + version) % STORE_EXTENT_BLOCKS, version);
		}
		expect_blocks(&fixture, version);
	}
	store_fixture_close(&fixture);
}

static void checksums_of_the_caller_are_kept(void **state)
{
	unsigned char *out = pages_new(padded(MANY_EXTENTS));
	struct store_fixture fixture;
	struct test_transfer test;
	uint64_t checksums[5 * STORE_EXTENT_BLOCKS], offset;

	store_fixture_open(&fixture, 2, 0, NULL);
	offset = fixture.offsets[MANY_EXTENTS];
	pages_fill(out, padded(MANY_EXTENTS), 5);
	/* Whether the padding is counted in the length makes no difference. */
	for (uint64_t start = 0; start < padded(MANY_EXTENTS); start += block_bytes)
		checksums[start / block_bytes] = store_checksum(fixture.store, STREAM_SECOND, offset + start,
								out + start, block_bytes);
	test_transfer_init(&test, TIER_WRITE, STREAM_SECOND, offset, padded(MANY_EXTENTS), out);
	test.transfer.checksums = checksums;
	assert_int_equal(store_submit(fixture.store, &test.transfer), 0);
	assert_int_equal(test_transfer_wait(&fixture, &test), 0);
	assert_int_equal(
		store_fixture_transfer(&fixture, TIER_READ, STREAM_SECOND, offset, padded(MANY_EXTENTS), out),
		0);
	checksums[6] ^= 1;
	test_transfer_init(&test, TIER_WRITE, STREAM_SECOND, offset, padded(MANY_EXTENTS), out);
	test.transfer.checksums = checksums;
	assert_int_equal(store_submit(fixture.store, &test.transfer), 0);
	assert_int_equal(test_transfer_wait(&fixture, &test), 0);
	assert_int_equal(
		store_fixture_transfer(&fixture, TIER_READ, STREAM_SECOND, offset, padded(MANY_EXTENTS), out),
		-EBADMSG);
	assert_int_equal(last_transfer.transfer.fault.stream_offset, offset + 6 * block_bytes);
	store_fixture_close(&fixture);
	free(out);
}

/* ---- Reads that are verified later ---- */

#define MANY_CHECKSUMS (5 * STORE_EXTENT_BLOCKS)

static int read_unverified(struct store_fixture *fixture, struct test_transfer *test, void *buffer,
			   uint64_t expected[MANY_CHECKSUMS])
{
	test_transfer_init(test, TIER_READ, STREAM_SECOND, fixture->offsets[MANY_EXTENTS],
			   padded(MANY_EXTENTS), buffer);
	test->transfer.expected = expected;
	assert_int_equal(store_submit(fixture->store, &test->transfer), 0);
	return test_transfer_wait(fixture, test);
}

/* Each part has those of the blocks that end in it. */
static void expect_checksums_in_parts(const struct store_fixture *fixture,
				      const struct store_transfer *transfer,
				      const uint64_t expected[MANY_CHECKSUMS])
{
	const uint64_t ends[] = { block_bytes - 1, block_bytes, 3 * block_bytes + 1, transfer->length };
	size_t count = size_divide_up(transfer->length, block_bytes), known[] = { 0, 1, 3, count };
	uint64_t found[MANY_CHECKSUMS] = { 0 }, from = 0;

	for (size_t i = 0; i < ARRAY_LENGTH(ends); from = ends[i++]) {
		store_find_checksums(fixture->store, transfer, from, ends[i], found);
		assert_memory_equal(found, expected, known[i] * sizeof(*found));
		for (size_t block = known[i]; block < count; block++)
			assert_int_equal(found[block], 0);
	}
}

static void a_read_that_is_verified_later_tells_what_checksums_there_should_be(void **state)
{
	unsigned char *out = pages_new(padded(MANY_EXTENTS)), *in = pages_new(padded(MANY_EXTENTS));
	uint64_t expected[MANY_CHECKSUMS];
	struct store_fixture fixture;
	struct test_transfer test;

	store_fixture_open(&fixture, 2, 0, NULL);
	memset(out, 0, padded(MANY_EXTENTS));
	/* Zeros that nobody has written, then what was written. */
	for (unsigned version = 0; version < 2; version++) {
		pages_fill(in, padded(MANY_EXTENTS), 9);
		assert_int_equal(read_unverified(&fixture, &test, in, expected), 0);
		assert_memory_equal(in, out, section_lengths[MANY_EXTENTS]);
		assert_true(store_has_checksums(fixture.store, &test.transfer, expected));
		expect_checksums_in_parts(&fixture, &test.transfer, expected);
		in[section_lengths[MANY_EXTENTS] - 1] ^= 1;
		assert_false(store_has_checksums(fixture.store, &test.transfer, expected));
		pages_fill(out, padded(MANY_EXTENTS), 5);
		assert_int_equal(store_fixture_transfer(&fixture, TIER_WRITE, STREAM_SECOND,
							fixture.offsets[MANY_EXTENTS], padded(MANY_EXTENTS),
							out),
				 0);
	}
	store_fixture_close(&fixture);
	free(out);
	free(in);
}

static void damage_is_left_to_whoever_verifies_later(void **state)
{
	unsigned char *bytes = pages_new(padded(MANY_EXTENTS));
	uint64_t expected[MANY_CHECKSUMS];
	struct store_fixture fixture;
	struct test_transfer test;

	store_fixture_open(&fixture, 1, 0, "corrupt:write:2");
	assert_int_equal(store_fixture_transfer(&fixture, TIER_WRITE, STREAM_SECOND,
						fixture.offsets[MANY_EXTENTS], padded(MANY_EXTENTS), bytes),
			 0);
	assert_int_equal(read_unverified(&fixture, &test, bytes, expected), 0);
	assert_false(store_has_checksums(fixture.store, &test.transfer, expected));
	assert_int_equal(store_fixture_transfer(&fixture, TIER_READ, STREAM_SECOND,
						fixture.offsets[MANY_EXTENTS], padded(MANY_EXTENTS), bytes),
			 -EBADMSG);
	store_fixture_close(&fixture);
	free(bytes);
}

static void every_kernel_gives_the_checksums_of_the_library(void **state)
{
	static const size_t lengths[] = { 0, 1, 16, 240, 241, 4096, 65537, STORE_BLOCK_BYTES };
	unsigned char *bytes = pages_new(STORE_BLOCK_BYTES);

	pages_fill(bytes, STORE_BLOCK_BYTES, 7);
	for (size_t i = 0; i < ARRAY_LENGTH(lengths); i++) {
		uint64_t expected = XXH3_64bits_withSeed(bytes, lengths[i], i << 48 | 12345);

		FOREACH_LEVEL(level)
		assert_true(checksum_find_kernel(level)(bytes, lengths[i], i << 48 | 12345) == expected);
		assert_true(checksum(bytes, lengths[i], i << 48 | 12345) == expected);
	}
	free(bytes);
}

/* So many that blocks of other sizes have other numbers there. */
#define MANY_BLOCKS (20 * STORE_EXTENT_BLOCKS)

static void the_number_of_a_block_is_in_its_checksum(void **state)
{
	uint64_t offset, length = MANY_BLOCKS * block_bytes, checksums[MANY_BLOCKS];
	unsigned char *bytes = pages_new(length);
	struct store_fixture fixture;
	struct store_layout *layout;
	struct test_transfer test;

	assert_int_equal(store_layout_new(&layout), 0);
	assert_int_equal(store_layout_add_stream(layout, "none"), 0);
	assert_int_equal(store_layout_add_stream(layout, "many"), 1);
	assert_int_equal(store_layout_set_blocks(layout, 1, block_bytes), 0);
	assert_int_equal(store_layout_add_section(layout, 1, length, &offset), 0);
	store_fixture_open_layout(&fixture, layout, 1, 0, NULL);
	pages_fill(bytes, length, 3);
	for (uint64_t i = 0; i < MANY_BLOCKS; i++) {
		const unsigned char *block = bytes + i * block_bytes;

		checksums[i] = XXH3_64bits_withSeed(block, block_bytes, UINT64_C(1) << 48 | i);
		assert_true(store_checksum(fixture.store, 1, i * block_bytes, block, block_bytes) ==
			    checksums[i]);
	}
	test_transfer_init(&test, TIER_WRITE, 1, 0, length, bytes);
	test.transfer.checksums = checksums;
	assert_int_equal(store_submit(fixture.store, &test.transfer), 0);
	assert_int_equal(test_transfer_wait(&fixture, &test), 0);
	assert_int_equal(store_fixture_transfer(&fixture, TIER_READ, 1, 0, length, bytes), 0);
	store_fixture_close(&fixture);
	free(bytes);
}

/* Waits for all of them. */
static void expect_order(struct store_fixture *fixture, struct test_transfer *tests, const unsigned *expected,
			 unsigned count)
{
	for (unsigned i = 0; i < count; i++)
		assert_int_equal(test_transfer_wait(fixture, &tests[i]), 0);
	for (unsigned i = 1; i < count; i++)
		assert_true(tests[expected[i - 1]].order < tests[expected[i]].order);
}

/* With one operation the order of completion is that of the start. */
static void a_demand_read_overtakes_what_waits(void **state)
{
	static const enum tier_priority given[] = { TIER_WRITE_BACK, TIER_PREFETCH, TIER_DEMAND };
	static const unsigned expected[] = { 2, 1, 0 };
	unsigned char *pages = pages_new(4 * 2 * STORE_EXTENT_BYTES);
	struct test_transfer busy, tests[ARRAY_LENGTH(given)];
	struct store_fixture fixture;

	store_fixture_open(&fixture, 1, 1, NULL);
	test_transfer_init(&busy, TIER_READ, STREAM_FIRST, 0, STORE_EXTENT_BYTES, pages);
	busy.transfer.priority = TIER_WRITE_BACK;
	assert_int_equal(store_submit(fixture.store, &busy.transfer), 0);
	for (unsigned i = 0; i < ARRAY_LENGTH(given); i++) {
		test_transfer_init(&tests[i], TIER_READ, STREAM_FIRST, STORE_EXTENT_BYTES,
				   2 * STORE_EXTENT_BYTES, pages + (i + 1) * 2 * STORE_EXTENT_BYTES);
		tests[i].transfer.priority = given[i];
		assert_int_equal(store_submit(fixture.store, &tests[i].transfer), 0);
	}
	expect_order(&fixture, tests, expected, ARRAY_LENGTH(expected));
	assert_int_equal(busy.done_count, 1);
	store_fixture_close(&fixture);
	free(pages);
}

#define AT_ONCE 40
#define LENGTH_OF_FIRST (3 * STORE_EXTENT_BYTES)

static void many_transfers_at_once_are_each_done_once(void **state)
{
	uint64_t length = padded(MANY_EXTENTS);
	struct test_transfer write, reads[AT_ONCE];
	uint64_t expected[AT_ONCE][STORE_EXTENT_BLOCKS];
	unsigned char *out = pages_new(length), *in = pages_new(AT_ONCE * extent_bytes);
	struct store_fixture fixture;

	store_fixture_open(&fixture, 3, 2, NULL);
	pages_fill(out, length, 1);
	assert_int_equal(store_fixture_transfer(&fixture, TIER_WRITE, STREAM_SECOND,
						fixture.offsets[MANY_EXTENTS], length, out),
			 0);
	/* The same bytes are written again while they are read. */
	test_transfer_init(&write, TIER_WRITE, STREAM_SECOND, fixture.offsets[MANY_EXTENTS], length, out);
	write.transfer.priority = TIER_WRITE_BACK;
	assert_int_equal(store_submit(fixture.store, &write.transfer), 0);
	for (unsigned i = 0; i < AT_ONCE; i++) {
		test_transfer_init(&reads[i], TIER_READ, STREAM_SECOND,
				   fixture.offsets[MANY_EXTENTS] + i % 13 * block_bytes, extent_bytes,
				   in + i * extent_bytes);
		reads[i].transfer.priority = i % 2 ? TIER_PREFETCH : TIER_DEMAND;
		reads[i].transfer.expected = i % 3 ? expected[i] : NULL;
		assert_int_equal(store_submit(fixture.store, &reads[i].transfer), 0);
	}
	assert_int_equal(test_transfer_wait(&fixture, &write), 0);
	for (unsigned i = 0; i < AT_ONCE; i++)
		assert_int_equal(test_transfer_wait(&fixture, &reads[i]), 0);
	for (unsigned i = 0; i < AT_ONCE; i++)
		assert_memory_equal(in + i * extent_bytes, out + i % 13 * block_bytes, extent_bytes);
	for (unsigned i = 0; i < AT_ONCE; i++)
		assert_true(i % 3 == 0 ||
			    store_has_checksums(fixture.store, &reads[i].transfer, expected[i]));
	store_fixture_close(&fixture);
	free(out);
	free(in);
}

static void senseless_transfers_are_refused(void **state)
{
	unsigned char *pages = pages_new(STORE_BLOCK_BYTES);
	struct store_fixture fixture;
	struct test_transfer test;

	store_fixture_open(&fixture, 1, 0, NULL);
	test_transfer_init(&test, TIER_READ, STREAM_FIRST, 4096, STORE_BLOCK_BYTES, pages);
	assert_int_equal(store_submit(fixture.store, &test.transfer), -EINVAL);
	test_transfer_init(&test, TIER_READ, STREAM_FIRST, 3 * STORE_EXTENT_BYTES, STORE_BLOCK_BYTES, pages);
	assert_int_equal(store_submit(fixture.store, &test.transfer), -EINVAL);
	test_transfer_init(&test, TIER_READ, STREAM_FIRST, 0, STORE_BLOCK_BYTES, pages + 1);
	assert_int_equal(store_submit(fixture.store, &test.transfer), -EINVAL);
	assert_int_equal(store_abandon(fixture.store, 7, 0, STORE_BLOCK_BYTES), -EINVAL);
	assert_int_equal(store_publish(fixture.store, 7, 0, STORE_BLOCK_BYTES), -EINVAL);
	assert_int_equal(test.done_count, 0);
	assert_null(store_address(fixture.store, STREAM_FIRST, 0));
	assert_int_equal(store_commit(fixture.store, 1, &(struct store_request){ NULL }), -EOPNOTSUPP);
	store_fixture_close(&fixture);
	free(pages);
}

struct last_word {
	struct store_transfer transfer;
	struct store *store;
};

static void free_store(struct store_transfer *transfer, int status)
{
	struct last_word *last = container_of(transfer, struct last_word, transfer);

	assert_int_equal(status, 0);
	last->store = store_free(last->store);
}

static void the_store_may_be_freed_when_the_last_transfer_is_done(void **state)
{
	unsigned char *pages = pages_new(STORE_EXTENT_BYTES);
	struct store_fixture fixture;
	struct last_word last;

	store_fixture_open(&fixture, 1, 0, NULL);
	last = (struct last_word){ .store = fixture.store };
	last.transfer = (struct store_transfer){ .direction = TIER_READ,
						 .stream = STREAM_FIRST,
						 .length = STORE_EXTENT_BYTES,
						 .buffer = pages,
						 .done = free_store };
	assert_int_equal(store_submit(fixture.store, &last.transfer), 0);
	fixture.loop.hosts[0] = NULL;
	while (last.store)
		io_loop_turn(&fixture.loop);
	fixture.store = NULL;
	store_fixture_close(&fixture);
	free(pages);
}

#define ONCE_EXTENTS 40

/* Many of its extents are on their way at a time, and none has a second place. */
static void expect_rewritten(int (*add_stream)(struct store_layout *layout, const char *name))
{
	uint64_t length = ONCE_EXTENTS * STORE_EXTENT_BYTES, offset;
	unsigned char *out = pages_new(length), *in = pages_new(length);

	for (unsigned devices = 1; devices <= STORE_TEST_DEVICES; devices++) {
		struct store_fixture fixture;
		struct store_layout *layout;

		assert_int_equal(store_layout_new(&layout), 0);
		assert_int_equal(store_layout_add_stream(layout, "kept"), 0);
		assert_int_equal(add_stream(layout, "once"), 1);
		assert_int_equal(store_layout_add_section(layout, 1, length, &offset), 0);
		assert_true(store_layout_device_bytes(layout, devices) < 2 * length);
		store_fixture_open_layout(&fixture, layout, devices, 0, NULL);
		for (unsigned round = 0; round < 5; round++) {
			pages_fill(out, length, round);
			assert_int_equal(store_fixture_transfer(&fixture, TIER_WRITE, 1, 0, length, out), 0);
			assert_int_equal(store_fixture_transfer(&fixture, TIER_READ, 1, 0, length, in), 0);
			assert_memory_equal(in, out, length);
		}
		store_fixture_close(&fixture);
	}
	free(out);
	free(in);
}

static void a_scratch_stream_is_rewritten_within_its_places(void **state)
{
	expect_rewritten(store_layout_add_scratch_stream);
}

/* A store that commits nothing never knows that it was the last time. */
static void a_fixed_stream_is_rewritten_within_its_places(void **state)
{
	expect_rewritten(store_layout_add_fixed_stream);
}

/* Nobody gives a place back who could wake them. */
static void writes_that_wait_for_places_end_when_all_others_fail(void **state)
{
	/* When each extent has been written once. */
	static const char *const faults[] = { "submit:write:41:EIO:lasting",
					      "complete:write:41:EIO:lasting" };
	uint64_t length = ONCE_EXTENTS * STORE_EXTENT_BYTES, offset;
	unsigned char *page = pages_new(length), *in = pages_new(length);

	for (unsigned i = 0; i < ARRAY_LENGTH(faults); i++) {
		struct store_fixture fixture;
		struct store_layout *layout;

		assert_int_equal(store_layout_new(&layout), 0);
		assert_int_equal(store_layout_add_fixed_stream(layout, "once"), 0);
		assert_int_equal(store_layout_add_section(layout, 0, length, &offset), 0);
		store_fixture_open_layout(&fixture, layout, 1, 0, faults[i]);
		pages_fill(page, length, 1);
		assert_int_equal(store_fixture_transfer(&fixture, TIER_WRITE, 0, 0, length, page), 0);
		pages_fill(in, length, 2);
		assert_int_equal(store_fixture_transfer(&fixture, TIER_WRITE, 0, 0, length, in), -EIO);
		assert_int_equal(store_fixture_transfer(&fixture, TIER_READ, 0, 0, length, in), 0);
		assert_memory_equal(in, page, length);
		store_fixture_close(&fixture);
	}
	free(page);
	free(in);
}

static void a_device_that_is_too_small_is_refused(void **state)
{
	struct store_fixture fixture = { .device_count = 1 };
	struct store_layout *layout = store_fixture_layout(&fixture);
	struct store_config config = { .depth = 2 };
	struct store *store = NULL;
	struct tier *tier;
	static char memory;

	assert_int_equal(
		host_tier_new(&memory, store_layout_device_bytes(layout, 1) - STORE_EXTENT_BYTES, &tier), 0);
	assert_int_equal(store_new_nvme(&config, layout, &tier, 1, &store), -ENOSPC);
	layout = store_fixture_layout(&fixture);
	assert_int_equal(store_new_nvme(&config, layout, &tier, 0, &store), -EINVAL);
	assert_null(store);
}

static void a_host_store_is_reached_by_address(void **state)
{
	struct store_fixture fixture;
	struct store_layout *layout = store_fixture_layout(&fixture);
	struct test_transfer test;
	struct store *store;
	char *one, *two;

	assert_int_equal(store_new_host(layout, &store), 0);
	one = store_address(store, STREAM_FIRST, 0);
	two = store_address(store, STREAM_SECOND, fixture.offsets[MANY_EXTENTS]);
	for (uint64_t i = 0; i < section_lengths[MANY_EXTENTS]; i++)
		assert_int_equal(two[i], 0);
	memset(one, 1, 3 * STORE_EXTENT_BYTES);
	memset(two, 2, section_lengths[MANY_EXTENTS]);
	assert_int_equal(one[3 * STORE_EXTENT_BYTES - 1], 1);
	assert_ptr_equal(store_address(store, STREAM_SECOND, fixture.offsets[MANY_EXTENTS] + 12345),
			 two + 12345);
	assert_int_equal((uintptr_t)one % STORE_EXTENT_BYTES, 0);
	assert_ptr_equal(two, one + 3 * STORE_EXTENT_BYTES + fixture.offsets[MANY_EXTENTS]);
	test_transfer_init(&test, TIER_READ, STREAM_FIRST, 0, STORE_EXTENT_BYTES, one);
	assert_int_equal(store_submit(store, &test.transfer), -EOPNOTSUPP);
	assert_int_equal(store_abandon(store, STREAM_FIRST, 0, STORE_EXTENT_BYTES), -EOPNOTSUPP);
	assert_int_equal(store_publish(store, STREAM_FIRST, 0, STORE_EXTENT_BYTES), -EOPNOTSUPP);
	assert_int_equal(store_commit(store, 1, &(struct store_request){ NULL }), -EOPNOTSUPP);
	assert_true(store_host_bytes(store) >= 3 * STORE_EXTENT_BYTES + 13 * extent_bytes);
	store = store_free(store);
}

static void open_on_files(struct store_fixture *fixture, struct scratch *scratch, bool is_plain,
			  unsigned queue_depth)
{
	struct engine_config engine = { .queue_depth = queue_depth, .is_plain = is_plain };
	struct store_config config = { 0 };
	struct store_layout *layout = store_fixture_layout(fixture);

	assert_int_equal(engine_new(&engine, &fixture->loop.engine), 0);
	assert_int_equal(workers_new(1, "test", &fixture->loop.workers), 0);
	for (unsigned device = 0; device < 2; device++) {
		struct nvme_config nvme = {
			.engine = fixture->loop.engine,
			.directory_fd = scratch->fd,
			.directory = scratch->path,
			.name = device ? "one" : "two",
			.capacity = store_layout_device_bytes(layout, 2) / 2,
		};

		assert_int_equal(nvme_tier_new(&nvme, &fixture->tiers[device]), 0);
	}
	config.workers = fixture->loop.workers;
	assert_int_equal(store_new_nvme(&config, layout, fixture->tiers, 2, &fixture->store), 0);
}

static void bytes_come_back_from_files(void **state)
{
	for (int is_plain = 0; is_plain <= 1; is_plain++) {
		struct store_fixture fixture = { .device_count = 0 };
		struct scratch scratch;

		scratch_open(&scratch);
		open_on_files(&fixture, &scratch, is_plain, 8);
		for (unsigned section = 0; section < SECTION_COUNT; section++)
			check_section(&fixture, section, section);
		store_fixture_close(&fixture);
		fixture.loop.engine = engine_free(fixture.loop.engine);
		scratch_close(&scratch);
	}
}

/* Waiting in the store, where one operation is all there is. */
static void a_raised_transfer_overtakes_what_waits(void **state)
{
	static const unsigned expected[] = { 0, 3, 1, 2 };
	unsigned char *pages = pages_new(4 * 2 * STORE_EXTENT_BYTES);
	struct test_transfer tests[ARRAY_LENGTH(expected)];
	struct store_fixture fixture;

	store_fixture_open(&fixture, 1, 1, NULL);
	for (unsigned i = 0; i < ARRAY_LENGTH(expected); i++) {
		test_transfer_init(&tests[i], TIER_READ, STREAM_FIRST, 0, 2 * STORE_EXTENT_BYTES,
				   pages + i * 2 * STORE_EXTENT_BYTES);
		tests[i].transfer.priority = i == 2 ? TIER_WRITE_BACK : TIER_PREFETCH;
		assert_int_equal(store_submit(fixture.store, &tests[i].transfer), 0);
	}
	/* The first has begun: raised, it goes on first. */
	store_raise(fixture.store, &tests[0].transfer, TIER_DEMAND);
	store_raise(fixture.store, &tests[3].transfer, TIER_DEMAND);
	expect_order(&fixture, tests, expected, ARRAY_LENGTH(expected));
	store_fixture_close(&fixture);
	free(pages);
}

/* Waiting in the devices' schedule, to which the store has passed all of them. */
static void a_raised_transfer_overtakes_what_waits_for_the_device(void **state)
{
	static const unsigned expected[] = { 0, 3, 1, 2 };
	unsigned char *pages = pages_new(LENGTH_OF_FIRST);
	struct test_transfer tests[ARRAY_LENGTH(expected)];
	struct store_fixture fixture = { .device_count = 0 };
	struct scratch scratch;

	scratch_open(&scratch);
	open_on_files(&fixture, &scratch, false, 1);
	assert_int_equal(
		store_fixture_transfer(&fixture, TIER_WRITE, STREAM_FIRST, 0, LENGTH_OF_FIRST, pages), 0);
	for (unsigned i = 0; i < ARRAY_LENGTH(expected); i++) {
		test_transfer_init(&tests[i], TIER_READ, STREAM_FIRST, 0, STORE_BLOCK_BYTES,
				   pages + i * STORE_BLOCK_BYTES);
		tests[i].transfer.priority = TIER_PREFETCH;
		assert_int_equal(store_submit(fixture.store, &tests[i].transfer), 0);
	}
	/* The first is with the device. Raised too: a worker that is late checks what is urgent first. */
	store_raise(fixture.store, &tests[0].transfer, TIER_DEMAND);
	store_raise(fixture.store, &tests[3].transfer, TIER_DEMAND);
	expect_order(&fixture, tests, expected, ARRAY_LENGTH(expected));
	store_fixture_close(&fixture);
	fixture.loop.engine = engine_free(fixture.loop.engine);
	scratch_close(&scratch);
	free(pages);
}

/* Whatever else waits, or it would wait for what waits itself in a device's schedule. */
static void each_priority_has_operations_left_for_it(void **state)
{
	enum { DEPTH = 8, MANY = 12 };
	unsigned char *pages = pages_new((MANY + 3) * STORE_BLOCK_BYTES);
	static const enum tier_priority others[] = { TIER_WRITE_BACK, TIER_WRITE_BACK, TIER_DEMAND };
	static const unsigned expected[] = { 6, 6, 7 };
	struct test_transfer many[MANY], few[ARRAY_LENGTH(others)];
	struct store_fixture fixture;

	store_fixture_open(&fixture, 1, DEPTH, NULL);
	assert_int_equal(
		store_fixture_transfer(&fixture, TIER_WRITE, STREAM_FIRST, 0, LENGTH_OF_FIRST, pages), 0);
	for (unsigned i = 0; i < MANY; i++) {
		test_transfer_init(&many[i], TIER_READ, STREAM_FIRST, 0, STORE_BLOCK_BYTES,
				   pages + i * STORE_BLOCK_BYTES);
		many[i].transfer.priority = TIER_PREFETCH;
		assert_int_equal(store_submit(fixture.store, &many[i].transfer), 0);
	}
	/* The host tier moves nothing before the loop turns. */
	assert_int_equal(fixture.tiers[0]->submitted[TIER_READ].requests, 5);
	for (unsigned i = 0; i < ARRAY_LENGTH(others); i++) {
		test_transfer_init(&few[i], TIER_READ, STREAM_FIRST, 0, STORE_BLOCK_BYTES,
				   pages + (MANY + i) * STORE_BLOCK_BYTES);
		few[i].transfer.priority = others[i];
		assert_int_equal(store_submit(fixture.store, &few[i].transfer), 0);
		assert_int_equal(fixture.tiers[0]->submitted[TIER_READ].requests, expected[i]);
	}
	/* What is raised gives its operation back to the others. */
	store_raise(fixture.store, &many[0].transfer, TIER_DEMAND);
	assert_int_equal(fixture.tiers[0]->submitted[TIER_READ].requests, DEPTH);
	for (unsigned i = 0; i < MANY; i++)
		assert_int_equal(test_transfer_wait(&fixture, &many[i]), 0);
	for (unsigned i = 0; i < ARRAY_LENGTH(others); i++)
		assert_int_equal(test_transfer_wait(&fixture, &few[i]), 0);
	store_fixture_close(&fixture);
	free(pages);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(bytes_come_back_for_every_length_and_number_of_devices),
		cmocka_unit_test(what_was_never_written_is_zero_and_costs_no_io),
		cmocka_unit_test(extents_are_striped_over_the_devices),
		cmocka_unit_test(the_old_content_is_seen_until_all_blocks_are_rewritten),
		cmocka_unit_test(checksums_of_the_caller_are_kept),
		cmocka_unit_test(a_read_that_is_verified_later_tells_what_checksums_there_should_be),
		cmocka_unit_test(damage_is_left_to_whoever_verifies_later),
		cmocka_unit_test(every_kernel_gives_the_checksums_of_the_library),
		cmocka_unit_test(the_number_of_a_block_is_in_its_checksum),
		cmocka_unit_test(a_demand_read_overtakes_what_waits),
		cmocka_unit_test(many_transfers_at_once_are_each_done_once),
		cmocka_unit_test(senseless_transfers_are_refused),
		cmocka_unit_test(the_store_may_be_freed_when_the_last_transfer_is_done),
		cmocka_unit_test(a_scratch_stream_is_rewritten_within_its_places),
		cmocka_unit_test(a_fixed_stream_is_rewritten_within_its_places),
		cmocka_unit_test(writes_that_wait_for_places_end_when_all_others_fail),
		cmocka_unit_test(a_device_that_is_too_small_is_refused),
		cmocka_unit_test(a_host_store_is_reached_by_address),
		cmocka_unit_test(bytes_come_back_from_files),
		cmocka_unit_test(a_raised_transfer_overtakes_what_waits),
		cmocka_unit_test(a_raised_transfer_overtakes_what_waits_for_the_device),
		cmocka_unit_test(each_priority_has_operations_left_for_it),
	};
	const struct CMUnitTest wide[] = {
		cmocka_unit_test(bytes_come_back_for_every_length_and_number_of_devices),
		cmocka_unit_test(what_was_never_written_is_zero_and_costs_no_io),
		cmocka_unit_test(the_old_content_is_seen_until_all_blocks_are_rewritten),
		cmocka_unit_test(checksums_of_the_caller_are_kept),
		cmocka_unit_test(a_read_that_is_verified_later_tells_what_checksums_there_should_be),
		cmocka_unit_test(damage_is_left_to_whoever_verifies_later),
		cmocka_unit_test(the_number_of_a_block_is_in_its_checksum),
		cmocka_unit_test(many_transfers_at_once_are_each_done_once),
		cmocka_unit_test(a_device_that_is_too_small_is_refused),
		cmocka_unit_test(a_host_store_is_reached_by_address),
		cmocka_unit_test(bytes_come_back_from_files),
	};
	int r = cmocka_run_group_tests(tests, NULL, NULL);

	return r ? r : cmocka_run_group_tests_name("wide blocks", wide, widen, NULL);
}
