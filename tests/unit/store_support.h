/* A store on devices in memory, for tests that look at what lies there and at what fails. */
#ifndef TIERD_TESTS_UNIT_STORE_SUPPORT_H
#define TIERD_TESTS_UNIT_STORE_SUPPORT_H

#include "offload/store/store_verify.h"
#include "tests/unit/io_support.h"

#define STORE_TEST_DEVICES 3

/* Two streams, the second with sections of these lengths, which follow from its blocks. */
enum { STREAM_FIRST, STREAM_SECOND, STREAM_COUNT };
#define SECTION_COUNT 7
extern uint64_t section_lengths[SECTION_COUNT];

/* Blocks that are wider than the default. */
#define WIDE_BLOCK_BYTES (UINT64_C(260) << 10)
/* Of the fixtures that follow; without it both streams have the default. */
void store_fixture_set_blocks(uint64_t first, uint64_t second);

struct store_fixture {
	struct io_loop loop;
	struct store *store;
	unsigned device_count;
	unsigned char *memory[STORE_TEST_DEVICES];
	size_t memory_bytes;
	struct tier *tiers[STORE_TEST_DEVICES]; /* the store's */
	uint64_t first_offset;			/* of the first stream's one section, of 3 extents */
	uint64_t offsets[SECTION_COUNT];	/* of the second stream's sections */
};

struct store_layout *store_fixture_layout(struct store_fixture *fixture);

/* fault: as fault_config_parse() reads it, for the first device; or NULL. */
void store_fixture_open(struct store_fixture *fixture, unsigned device_count, unsigned depth,
			const char *fault);
/* Of this layout, which it owns. */
void store_fixture_open_layout(struct store_fixture *fixture, struct store_layout *layout,
			       unsigned device_count, unsigned depth, const char *fault);
void store_fixture_close(struct store_fixture *fixture);

/* A verification that remembers what it finds. */
struct store_finder {
	struct store_verification verification;
	struct store_flaw flaws[16];
	unsigned count;
	bool is_over, is_stopped;
};

void store_finder_init(struct store_finder *finder);
void store_finder_destroy(struct store_finder *finder);

struct test_transfer {
	struct store_transfer transfer;
	int status;
	unsigned done_count;
	unsigned order;
};

void test_transfer_init(struct test_transfer *test, enum tier_direction direction, uint32_t stream,
			uint64_t offset, uint64_t length, void *buffer);
int test_transfer_wait(struct store_fixture *fixture, struct test_transfer *test);

/* Submits, waits, and returns the status; the transfer stays in last_transfer. */
int store_fixture_transfer(struct store_fixture *fixture, enum tier_direction direction, uint32_t stream,
			   uint64_t offset, uint64_t length, void *buffer);
extern struct test_transfer last_transfer;

#endif
