#include "tests/unit/store_support.h"

#include <stdlib.h>
#include <string.h>

#include "offload/device/fault.h"
#include "offload/device/host.h"
#include "tests/unit/test.h"

#define LENGTHS(block)                                                                                       \
	{                                                                                                    \
		1, 4096, (block), (block) + 1, 4 * (block), 8 * (block) + 300000, 20 * (block)-4095          \
	}

uint64_t section_lengths[SECTION_COUNT] = LENGTHS(STORE_BLOCK_BYTES);
static uint64_t block_bytes[STREAM_COUNT] = { STORE_BLOCK_BYTES, STORE_BLOCK_BYTES };

void store_fixture_set_blocks(uint64_t first, uint64_t second)
{
	const uint64_t lengths[] = LENGTHS(second);

	memcpy(section_lengths, lengths, sizeof(section_lengths));
	block_bytes[STREAM_FIRST] = first;
	block_bytes[STREAM_SECOND] = second;
}

struct test_transfer last_transfer;

static unsigned next_order;

struct store_layout *store_fixture_layout(struct store_fixture *fixture)
{
	struct store_layout *layout;

	assert_int_equal(store_layout_new(&layout), 0);
	assert_int_equal(store_layout_add_stream(layout, "first"), STREAM_FIRST);
	assert_int_equal(store_layout_add_stream(layout, "second"), STREAM_SECOND);
	for (uint32_t stream = 0; stream < STREAM_COUNT; stream++)
		assert_int_equal(store_layout_set_blocks(layout, stream, block_bytes[stream]), 0);
	for (unsigned i = 0; i < SECTION_COUNT; i++)
		assert_int_equal(store_layout_add_section(layout, STREAM_SECOND, section_lengths[i],
							  &fixture->offsets[i]),
				 0);
	assert_int_equal(store_layout_add_section(layout, STREAM_FIRST,
						  3 * STORE_EXTENT_BLOCKS * block_bytes[STREAM_FIRST],
						  &fixture->first_offset),
			 0);
	return layout;
}

static struct tier *open_device(struct store_fixture *fixture, unsigned device, const char *fault)
{
	struct fault_config config;
	struct tier *tier;

	fixture->memory[device] = pages_new(fixture->memory_bytes);
	assert_int_equal(host_tier_new(fixture->memory[device], fixture->memory_bytes, &tier), 0);
	fixture->loop.hosts[device] = tier;
	if (!fault)
		return tier;
	assert_int_equal(fault_config_parse(fault, &config), 0);
	assert_int_equal(fault_tier_new(tier, &config, &tier), 0);
	return tier;
}

void store_fixture_open(struct store_fixture *fixture, unsigned device_count, unsigned depth,
			const char *fault)
{
	struct store_layout *layout = store_fixture_layout(fixture);
	struct store_fixture offsets = *fixture;

	store_fixture_open_layout(fixture, layout, device_count, depth, fault);
	fixture->first_offset = offsets.first_offset;
	memcpy(fixture->offsets, offsets.offsets, sizeof(fixture->offsets));
}

void store_fixture_open_layout(struct store_fixture *fixture, struct store_layout *layout,
			       unsigned device_count, unsigned depth, const char *fault)
{
	struct store_config config = { .depth = depth };

	*fixture = (struct store_fixture){ .device_count = device_count };
	fixture->memory_bytes = store_layout_device_bytes(layout, device_count) / device_count;
	for (unsigned device = 0; device < device_count; device++)
		fixture->tiers[device] = open_device(fixture, device, device == 0 ? fault : NULL);
	assert_int_equal(workers_new(2, "test", &fixture->loop.workers), 0);
	config.workers = fixture->loop.workers;
	assert_int_equal(store_new_nvme(&config, layout, fixture->tiers, device_count, &fixture->store), 0);
}

void store_fixture_close(struct store_fixture *fixture)
{
	fixture->store = store_free(fixture->store);
	fixture->loop.workers = workers_free(fixture->loop.workers);
	for (unsigned device = 0; device < fixture->device_count; device++)
		free(fixture->memory[device]);
}

static void on_found(struct store_verification *verification, const struct store_flaw *flaw)
{
	struct store_finder *finder = container_of(verification, struct store_finder, verification);

	assert_true(finder->count < ARRAY_LENGTH(finder->flaws));
	finder->flaws[finder->count++] = *flaw;
}

static bool goes_on(struct store_verification *verification)
{
	return !container_of(verification, struct store_finder, verification)->is_stopped;
}

static void on_verified(struct store_verification *verification)
{
	container_of(verification, struct store_finder, verification)->is_over = true;
}

void store_finder_init(struct store_finder *finder)
{
	*finder = (struct store_finder){
		.verification = { .found = on_found, .goes_on = goes_on, .done = on_verified }
	};
	finder->verification.buffer = pages_new(STORE_MAX_BLOCK_BYTES);
}

void store_finder_destroy(struct store_finder *finder)
{
	store_verification_clear(&finder->verification);
	free(finder->verification.buffer);
}

static void test_transfer_done(struct store_transfer *transfer, int status)
{
	struct test_transfer *test = container_of(transfer, struct test_transfer, transfer);

	test->status = status;
	test->done_count++;
	test->order = ++next_order;
}

void test_transfer_init(struct test_transfer *test, enum tier_direction direction, uint32_t stream,
			uint64_t offset, uint64_t length, void *buffer)
{
	*test = (struct test_transfer){ .transfer = { .direction = direction,
						      .stream = stream,
						      .offset = offset,
						      .length = length,
						      .buffer = buffer,
						      .done = test_transfer_done } };
}

int test_transfer_wait(struct store_fixture *fixture, struct test_transfer *test)
{
	while (test->done_count == 0)
		io_loop_turn(&fixture->loop);
	assert_int_equal(test->done_count, 1);
	return test->status;
}

int store_fixture_transfer(struct store_fixture *fixture, enum tier_direction direction, uint32_t stream,
			   uint64_t offset, uint64_t length, void *buffer)
{
	test_transfer_init(&last_transfer, direction, stream, offset, length, buffer);
	assert_int_equal(store_submit(fixture->store, &last_transfer.transfer), 0);
	assert_int_equal(last_transfer.done_count, 0);
	return test_transfer_wait(fixture, &last_transfer);
}
