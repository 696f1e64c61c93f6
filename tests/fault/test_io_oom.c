/* Each allocation of the constructors in offload's I/O fails in turn, until a run needs no more of them. */
#include <errno.h>
#include <fcntl.h>

#include "common/size.h"
#include "offload/device/fault.h"
#include "offload/device/host.h"
#include "offload/device/nvme.h"
#include "offload/store/store.h"
#include "tests/fault/alloc_fault.h"
#include "tests/unit/io_support.h"
#include "tests/unit/test.h"

/* ---- The engine ---- */

static int make_engine(const struct engine_config *config)
{
	struct engine *made = NULL;
	int r = engine_new(config, &made);

	assert_int_equal(made == NULL, r < 0);
	engine_free(made);
	return r;
}

static int make_ring(void)
{
	return make_engine(&(struct engine_config){ .queue_depth = 4 });
}

static int make_plain(void)
{
	return make_engine(&(struct engine_config){ .queue_depth = 4, .is_plain = true });
}

static void engine_new_survives(void **state)
{
	assert_true(alloc_fault_each(make_ring) > 1);
	assert_true(alloc_fault_each(make_plain) > 1);
}

/* ---- Tiers ---- */

static struct scratch scratch;
static struct engine *engine;

/* Nothing is left behind. */
static int make_nvme_tier(void)
{
	const struct nvme_config config = { .engine = engine,
					    .directory = scratch.path,
					    .directory_fd = scratch.fd,
					    .name = "data",
					    .capacity = MIB };
	struct tier *tier = NULL;
	int r = nvme_tier_new(&config, &tier);

	tier_free(tier);
	assert_int_equal(faccessat(scratch.fd, "data", F_OK, 0), -1);
	return r;
}

static void nvme_tier_new_survives(void **state)
{
	scratch_open(&scratch);
	assert_int_equal(engine_new(&(struct engine_config){ .queue_depth = 4 }, &engine), 0);
	alloc_fault_each(make_nvme_tier);
	engine = engine_free(engine);
	scratch_close(&scratch);
}

static int write_to_stack(void)
{
	static const struct fault_config config = { .kind = FAULT_LOSE, .countdown = 1 };
	static unsigned char memory[4096], buffer[4096];
	struct tier *host = NULL, *tier = NULL;
	struct test_io test;
	int r = host_tier_new(memory, sizeof(memory), &host);

	test_io_init(&test, TIER_WRITE, buffer, 0, sizeof(buffer));
	if (r == 0)
		r = fault_tier_new(host, &config, &tier);
	if (r == 0)
		r = tier_submit(tier, &test.io);
	if (r == 0)
		host_tier_reap(host);
	assert_int_equal(test.done_count, r == 0);
	tier_free(tier);
	return r;
}

static void stacked_tiers_survive(void **state)
{
	alloc_fault_each(write_to_stack);
}

/* ---- Stores ---- */

static int fill_layout(struct store_layout *layout)
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

static int make_layout(void)
{
	struct store_layout *layout = NULL;
	int r = store_layout_new(&layout);

	if (r == 0)
		r = fill_layout(layout);
	store_layout_free(layout);
	return r;
}

static void store_layout_survives(void **state)
{
	alloc_fault_each(make_layout);
}

/* The stores own the layouts and tiers that they were given. */
static int make_store(bool is_nvme)
{
	static char memory;
	const struct store_config config = { 0 };
	struct store_layout *layout = NULL;
	struct store *store = NULL;
	struct tier *tiers[2] = { NULL };
	int r = store_layout_new(&layout);

	if (r == 0)
		r = fill_layout(layout);
	for (unsigned i = 0; is_nvme && i < ARRAY_LENGTH(tiers) && r == 0; i++)
		r = host_tier_new(&memory, GIB, &tiers[i]);
	if (r < 0) {
		store_layout_free(layout);
		tier_free(tiers[0]);
		return r;
	}
	r = is_nvme ? store_new_nvme(&config, layout, tiers, ARRAY_LENGTH(tiers), &store)
		    : store_new_host(layout, &store);
	store_free(store);
	return r;
}

static int make_host_store(void)
{
	return make_store(false);
}

static int make_nvme_store(void)
{
	return make_store(true);
}

static void stores_survive(void **state)
{
	assert_true(alloc_fault_each(make_nvme_store) > alloc_fault_each(make_host_store));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(engine_new_survives),	 cmocka_unit_test(nvme_tier_new_survives),
		cmocka_unit_test(stacked_tiers_survive), cmocka_unit_test(store_layout_survives),
		cmocka_unit_test(stores_survive),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
