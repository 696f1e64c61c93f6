/* What a store makes of devices that fail, lie and mix up. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "common/size.h"
#include "offload/device/fault.h"
#include "offload/device/host.h"
#include "tests/unit/store_support.h"
#include "tests/unit/test.h"

/* Of the first stream. */
static uint64_t block_bytes, extent_bytes;
#define LENGTH (3 * extent_bytes)

static void set_blocks(uint64_t bytes)
{
	block_bytes = bytes;
	extent_bytes = STORE_EXTENT_BLOCKS * bytes;
	store_fixture_set_blocks(bytes, STORE_BLOCK_BYTES);
}

static unsigned char *old_bytes, *new_bytes, *in;

static int open_pages(void **state)
{
	old_bytes = pages_new(LENGTH);
	new_bytes = pages_new(LENGTH);
	in = pages_new(LENGTH);
	pages_fill(old_bytes, LENGTH, 1);
	pages_fill(new_bytes, LENGTH, 2);
	return 0;
}

static int close_pages(void **state)
{
	free(old_bytes);
	free(new_bytes);
	free(in);
	return 0;
}

static int write_all(struct store_fixture *fixture, void *bytes)
{
	return store_fixture_transfer(fixture, TIER_WRITE, STREAM_FIRST, 0, LENGTH, bytes);
}

static int read_all(struct store_fixture *fixture)
{
	memset(in, 0x77, LENGTH);
	return store_fixture_transfer(fixture, TIER_READ, STREAM_FIRST, 0, LENGTH, in);
}

static void a_wrong_read_is_found_and_named(void **state)
{
	static const char *const faults[] = { "corrupt:read:2", "misdirect:read:2" };

	for (size_t i = 0; i < ARRAY_LENGTH(faults); i++) {
		struct store_fixture fixture;

		store_fixture_open(&fixture, 1, 0, faults[i]);
		assert_int_equal(write_all(&fixture, old_bytes), 0);
		assert_int_equal(read_all(&fixture), -EBADMSG);
		assert_int_equal(last_transfer.transfer.fault.stream_offset, extent_bytes);
		assert_string_equal(last_transfer.transfer.fault.device, "host memory");
		assert_int_equal(read_all(&fixture), 0);
		assert_memory_equal(in, old_bytes, LENGTH);
		store_fixture_close(&fixture);
	}
}

/* Every block of every extent, at its first and last byte, where it lies on the device. */
static void no_rotten_block_is_served(void **state)
{
	struct store_fixture fixture;

	store_fixture_open(&fixture, 1, 0, NULL);
	assert_int_equal(write_all(&fixture, old_bytes), 0);
	for (uint64_t at = 0; at < LENGTH; at += at % block_bytes ? 1 : block_bytes - 1) {
		unsigned char *byte = memmem(fixture.memory[0], fixture.memory_bytes,
					     old_bytes + at / block_bytes * block_bytes, 64);

		assert_non_null(byte);
		byte += at % block_bytes;
		*byte ^= 0x80;
		assert_int_equal(read_all(&fixture), -EBADMSG);
		assert_int_equal(last_transfer.transfer.fault.stream_offset, at / block_bytes * block_bytes);
		assert_int_equal(last_transfer.transfer.fault.device_offset,
				 (uint64_t)(byte - fixture.memory[0]) / block_bytes * block_bytes);
		*byte ^= 0x80;
	}
	assert_int_equal(read_all(&fixture), 0);
	store_fixture_close(&fixture);
}

/* Of the second version, so that the place holds older bytes; the countdown goes through every write. */
static void expect_detected(const char *kind)
{
	char text[64];

	for (unsigned nth = 1; nth <= 6; nth++) {
		struct store_fixture fixture;

		snprintf(text, sizeof(text), "%s:write:%u", kind, nth);
		store_fixture_open(&fixture, 1, 0, text);
		assert_int_equal(write_all(&fixture, old_bytes), 0);
		if (nth > 3)
			assert_int_equal(write_all(&fixture, new_bytes), 0);
		assert_true(fault_tier_has_tripped(fixture.tiers[0]));
		assert_int_equal(read_all(&fixture), -EBADMSG);
		store_fixture_close(&fixture);
	}
}

static void a_lost_or_misdirected_or_corrupt_write_is_found(void **state)
{
	expect_detected("lose");
	expect_detected("misdirect");
	expect_detected("corrupt");
}

static void a_stale_block_is_found(void **state)
{
	unsigned char *place;
	struct store_fixture fixture;

	store_fixture_open(&fixture, 1, 0, NULL);
	assert_int_equal(write_all(&fixture, new_bytes), 0);
	place = memmem(fixture.memory[0], fixture.memory_bytes, new_bytes, 64);
	assert_non_null(place);
	memcpy(place, old_bytes, block_bytes);
	assert_int_equal(read_all(&fixture), -EBADMSG);
	store_fixture_close(&fixture);
}

/* The countdown goes through every write; the device takes so many. */
static void expect_written_elsewhere(const char *kind, const char *error, uint64_t writes)
{
	for (unsigned nth = 1; nth <= 6; nth++) {
		struct store_fixture fixture;
		char text[64];

		snprintf(text, sizeof(text), "%s:write:%u:%s", kind, nth, error);
		store_fixture_open(&fixture, 1, 1, text);
		assert_int_equal(write_all(&fixture, old_bytes), 0);
		assert_int_equal(write_all(&fixture, new_bytes), 0);
		assert_true(fault_tier_has_tripped(fixture.tiers[0]));
		assert_int_equal(fixture.tiers[0]->submitted[TIER_WRITE].requests, writes);
		assert_int_equal(read_all(&fixture), 0);
		assert_memory_equal(in, new_bytes, LENGTH);
		store_fixture_close(&fixture);
	}
}

static void a_write_that_fails_or_is_refused_goes_to_another_place(void **state)
{
	expect_written_elsewhere("complete", "EIO", 7);
	expect_written_elsewhere("submit", "ENOMEM", 6);
}

static void after_a_write_error_the_old_content_is_read(void **state)
{
	struct store_fixture fixture;

	/* The first three writes succeed, the others never. */
	store_fixture_open(&fixture, 1, 0, "complete:write:4:ENOSPC:lasting");
	assert_int_equal(write_all(&fixture, old_bytes), 0);
	assert_int_equal(write_all(&fixture, new_bytes), -ENOSPC);
	assert_string_equal(last_transfer.transfer.fault.device, "host memory");
	assert_int_equal(read_all(&fixture), 0);
	assert_memory_equal(in, old_bytes, LENGTH);
	store_fixture_close(&fixture);
}

static void a_dead_device_never_runs_out_of_answers(void **state)
{
	struct store_fixture fixture;

	store_fixture_open(&fixture, 1, 2, "complete:write:1:EIO:lasting");
	for (unsigned i = 0; i < 40; i++)
		assert_true(write_all(&fixture, new_bytes) < 0);
	assert_int_equal(read_all(&fixture), 0);
	assert_int_equal(in[0] | in[LENGTH - 1], 0);
	store_fixture_close(&fixture);
}

/* And no place is lost by it, or there would be none left at last. */
static void a_write_that_is_refused_twice_fails_its_transfer(void **state)
{
	struct store_fixture fixture;

	store_fixture_open(&fixture, 1, 1, "submit:write:5:ENOMEM:lasting");
	assert_int_equal(write_all(&fixture, old_bytes), 0);
	for (unsigned i = 0; i < 40; i++) {
		assert_int_equal(write_all(&fixture, new_bytes), -ENOMEM);
		assert_int_equal(last_transfer.transfer.fault.stream_offset, i == 0 ? extent_bytes : 0);
	}
	assert_int_equal(read_all(&fixture), 0);
	/* The first extent of the first attempt had become visible. */
	assert_memory_equal(in, new_bytes, extent_bytes);
	assert_memory_equal(in + extent_bytes, old_bytes + extent_bytes, LENGTH - extent_bytes);
	store_fixture_close(&fixture);
}

/* Of the first device, which has two of the three extents. */
static void expect_failed_read(const char *kind, const char *error, int status)
{
	for (unsigned nth = 1; nth <= 3; nth++) {
		struct store_fixture fixture;
		char text[64];

		snprintf(text, sizeof(text), "%s:read:%u:%s", kind, nth, error);
		store_fixture_open(&fixture, 2, 1, text);
		assert_int_equal(write_all(&fixture, new_bytes), 0);
		for (unsigned attempt = 1; attempt <= 3; attempt++) {
			bool fails = attempt == (nth + 1) / 2;

			assert_int_equal(read_all(&fixture), fails ? status : 0);
			if (!fails)
				assert_memory_equal(in, new_bytes, LENGTH);
		}
		store_fixture_close(&fixture);
	}
}

static void each_read_that_fails_or_is_refused_fails_its_transfer(void **state)
{
	expect_failed_read("complete", "EIO", -EIO);
	expect_failed_read("submit", "ENOMEM", -ENOMEM);
}

/* A tier that holds its reads back until it is told. */
struct gate {
	struct tier tier;
	struct tier_ops ops;
	struct tier *next;
	bool is_closed;
	struct queue held;
};

static int gate_submit(struct tier *tier, struct tier_io *io)
{
	struct gate *gate = container_of(tier, struct gate, tier);

	if (!gate->is_closed || io->direction == TIER_WRITE)
		return tier_submit(gate->next, io);
	queue_push(&gate->held, &io->link);
	return 0;
}

static void gate_free(struct tier *tier)
{
	tier_free(container_of(tier, struct gate, tier)->next);
}

static void gate_init(struct gate *gate, struct tier *next)
{
	*gate = (struct gate){ .next = next };
	gate->ops = (struct tier_ops){ .block_size = 1, .submit = gate_submit, .free = gate_free };
	gate->tier = (struct tier){ .ops = &gate->ops, .capacity = next->capacity, .label = next->label };
	queue_init(&gate->held);
}

static void gate_open(struct gate *gate)
{
	struct queue *link;

	gate->is_closed = false;
	while ((link = queue_pop(&gate->held)))
		assert_int_equal(tier_submit(gate->next, queue_entry(link, struct tier_io, link)), 0);
}

static void open_with_gate(struct store_fixture *fixture, struct gate *gate)
{
	struct store_config config = { 0 };
	struct store_layout *layout;
	struct tier *tier = &gate->tier;

	/* The store of the fixture gives way to one behind the gate, on the same memory. */
	store_fixture_open(fixture, 1, 0, NULL);
	fixture->store = store_free(fixture->store);
	layout = store_fixture_layout(fixture);
	assert_int_equal(host_tier_new(fixture->memory[0], fixture->memory_bytes, &fixture->loop.hosts[0]),
			 0);
	gate_init(gate, fixture->loop.hosts[0]);
	config.workers = fixture->loop.workers;
	assert_int_equal(store_new_nvme(&config, layout, &tier, 1, &fixture->store), 0);
}

static void a_read_whose_place_was_reused_meanwhile_starts_again(void **state)
{
	struct store_fixture fixture;
	struct test_transfer read;
	struct gate gate;

	open_with_gate(&fixture, &gate);
	assert_int_equal(write_all(&fixture, old_bytes), 0);
	gate.is_closed = true;
	test_transfer_init(&read, TIER_READ, STREAM_FIRST, 0, LENGTH, in);
	assert_int_equal(store_submit(fixture.store, &read.transfer), 0);
	/* The second one takes the places that the first has freed, where the read is going to look. */
	assert_int_equal(write_all(&fixture, new_bytes), 0);
	assert_int_equal(write_all(&fixture, new_bytes), 0);
	assert_int_equal(read.done_count, 0);
	gate_open(&gate);
	assert_int_equal(test_transfer_wait(&fixture, &read), 0);
	assert_memory_equal(in, new_bytes, LENGTH);
	store_fixture_close(&fixture);
}

#define PAGES_TEST(name) cmocka_unit_test_setup_teardown(name, open_pages, close_pages)

int main(void)
{
	const struct CMUnitTest tests[] = {
		PAGES_TEST(a_wrong_read_is_found_and_named),
		PAGES_TEST(no_rotten_block_is_served),
		PAGES_TEST(a_lost_or_misdirected_or_corrupt_write_is_found),
		PAGES_TEST(a_stale_block_is_found),
		PAGES_TEST(a_write_that_fails_or_is_refused_goes_to_another_place),
		PAGES_TEST(after_a_write_error_the_old_content_is_read),
		PAGES_TEST(a_dead_device_never_runs_out_of_answers),
		PAGES_TEST(a_write_that_is_refused_twice_fails_its_transfer),
		PAGES_TEST(each_read_that_fails_or_is_refused_fails_its_transfer),
		PAGES_TEST(a_read_whose_place_was_reused_meanwhile_starts_again),
	};

	int r;

	set_blocks(STORE_BLOCK_BYTES);
	r = cmocka_run_group_tests(tests, NULL, NULL);
	set_blocks(WIDE_BLOCK_BYTES);
	return r ? r : cmocka_run_group_tests_name("wide blocks", tests, NULL, NULL);
}
