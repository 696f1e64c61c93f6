/* Each allocation of the constructors in offload's I/O fails in turn, until a run needs no more of them. */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "common/size.h"
#include "offload/device/fault.h"
#include "offload/device/host.h"
#include "offload/device/nvme.h"
#include "offload/store/store.h"
#include "tests/fault/alloc_fault.h"
#include "tests/unit/io_support.h"

#define EXPECT(r, tripped) assert_int_equal((r), (tripped) ? -ENOMEM : 0)

static void engine_new_survives(void **state)
{
	for (int is_plain = 0; is_plain <= 1; is_plain++) {
		struct engine_config config = { .queue_depth = 4, .is_plain = is_plain };
		bool tripped = true;
		unsigned nth = 1;

		for (; tripped; nth++) {
			struct engine *engine = NULL;
			int r;

			alloc_fault_arm(nth);
			r = engine_new(&config, &engine);
			tripped = alloc_fault_tripped();
			EXPECT(r, tripped);
			assert_int_equal(engine == NULL, tripped);
			engine = engine_free(engine);
		}
		assert_true(nth > 2);
	}
}

static void nvme_tier_new_survives(void **state)
{
	struct engine_config engine_config = { .queue_depth = 4 };
	struct nvme_config config = { .name = "data", .capacity = MIB };
	struct scratch scratch;
	bool tripped = true;

	scratch_open(&scratch);
	assert_int_equal(engine_new(&engine_config, &config.engine), 0);
	config.directory = scratch.path;
	config.directory_fd = scratch.fd;
	for (unsigned nth = 1; tripped; nth++) {
		struct tier *tier = NULL;
		int r;

		alloc_fault_arm(nth);
		r = nvme_tier_new(&config, &tier);
		tripped = alloc_fault_tripped();
		EXPECT(r, tripped);
		tier = tier_free(tier);
		/* Nothing is left behind. */
		assert_int_equal(faccessat(scratch.fd, "data", F_OK, 0), -1);
	}
	config.engine = engine_free(config.engine);
	scratch_close(&scratch);
}

static void stacked_tiers_survive(void **state)
{
	static const struct fault_config config = { .kind = FAULT_LOSE, .countdown = 1 };
	static unsigned char memory[4096], buffer[4096];
	bool tripped = true;

	for (unsigned nth = 1; tripped; nth++) {
		struct tier *host = NULL, *tier = NULL;
		struct test_io test;
		int r;

		test_io_init(&test, TIER_WRITE, buffer, 0, sizeof(buffer));
		alloc_fault_arm(nth);
		r = host_tier_new(memory, sizeof(memory), &host);
		if (r == 0)
			r = fault_tier_new(host, &config, &tier);
		if (r == 0)
			r = tier_submit(tier, &test.io);
		tripped = alloc_fault_tripped();
		EXPECT(r, tripped);
		if (r == 0)
			host_tier_reap(host);
		assert_int_equal(test.done_count, r == 0);
		tier = tier_free(tier);
	}
}

static int make_layout(struct store_layout *layout)
{
	int r = 0;

	for (uint32_t stream = 0; stream < 20 && r >= 0; stream++) {
		uint64_t offset;

		r = store_layout_add_stream(layout, "stream");
		for (unsigned section = 0; section < 20 && r >= 0; section++)
			r = store_layout_add_section(layout, stream, 1000, &offset);
	}
	return r < 0 ? r : 0;
}

static void store_layout_survives(void **state)
{
	bool tripped = true;

	for (unsigned nth = 1; tripped; nth++) {
		struct store_layout *layout = NULL;
		int r;

		alloc_fault_arm(nth);
		r = store_layout_new(&layout);
		if (r == 0)
			r = make_layout(layout);
		tripped = alloc_fault_tripped();
		EXPECT(r, tripped);
		layout = store_layout_free(layout);
	}
}

static void open_layout(struct store_layout **ret_layout)
{
	uint64_t offset;

	assert_int_equal(store_layout_new(ret_layout), 0);
	assert_int_equal(store_layout_add_stream(*ret_layout, "only"), 0);
	assert_int_equal(store_layout_add_section(*ret_layout, 0, 3 * MIB, &offset), 0);
}

static void store_new_host_survives(void **state)
{
	bool tripped = true;

	for (unsigned nth = 1; tripped; nth++) {
		struct store_layout *layout;
		struct store *store = NULL;
		int r;

		open_layout(&layout);
		alloc_fault_arm(nth);
		r = store_new_host(layout, &store);
		tripped = alloc_fault_tripped();
		EXPECT(r, tripped);
		store = store_free(store);
	}
}

static void store_new_nvme_survives(void **state)
{
	static char memory;
	struct store_config config = { 0 };
	bool tripped = true;

	for (unsigned nth = 1; tripped; nth++) {
		struct store_layout *layout;
		struct tier *tiers[2];
		struct store *store = NULL;
		int r;

		open_layout(&layout);
		for (unsigned i = 0; i < 2; i++)
			assert_int_equal(host_tier_new(&memory, GIB, &tiers[i]), 0);
		alloc_fault_arm(nth);
		r = store_new_nvme(&config, layout, tiers, 2, &store);
		tripped = alloc_fault_tripped();
		EXPECT(r, tripped);
		store = store_free(store);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(engine_new_survives),	   cmocka_unit_test(nvme_tier_new_survives),
		cmocka_unit_test(stacked_tiers_survive),   cmocka_unit_test(store_layout_survives),
		cmocka_unit_test(store_new_host_survives), cmocka_unit_test(store_new_nvme_survives),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
