/* Each allocation in the life of a durable store fails in turn: it says so, and what was acknowledged before
 * is there when it is opened again. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/size.h"
#include "offload/device/host.h"
#include "offload/store/store_verify.h"
#include "tests/fault/alloc_fault.h"
#include "tests/unit/io_support.h"
#include "tests/unit/test.h"

#define EXTENTS 3

struct life {
	unsigned char *device, *buffer;
	size_t bytes;
	struct io_loop loop;
	struct store *store, *view, *fork;
	struct store_request request;
	struct store_transfer transfer;
	bool is_done;
	int status;
	/* What has been acknowledged: the snapshot, and a step; 0: none has. */
	bool is_kept;
	uint64_t step;
};

static void on_request(struct store_request *request, int status)
{
	struct life *life = container_of(request, struct life, request);

	life->is_done = true;
	life->status = status;
}

static void on_transfer(struct store_transfer *transfer, int status)
{
	struct life *life = container_of(transfer, struct life, transfer);

	life->is_done = true;
	life->status = status;
}

static int wait(struct life *life, int r)
{
	if (r < 0)
		return r;
	while (!life->is_done)
		io_loop_turn(&life->loop);
	life->is_done = false;
	return life->status;
}

static int make_layout(struct store_layout **ret_layout)
{
	_cleanup_(store_layout_freep) struct store_layout *layout = NULL;
	uint64_t offset;
	int r = store_layout_new(&layout);

	if (r < 0)
		return r;
	store_layout_set_durable(layout);
	store_layout_set_snapshots(layout, 1);
	r = store_layout_add_stream(layout, "only");
	if (r == 0)
		r = store_layout_add_section(layout, 0, EXTENTS * MIB, &offset);
	if (r < 0)
		return r;
	*ret_layout = TAKE_PTR(layout);
	return 0;
}

static int make_tier(struct life *life, struct tier **ret_tier)
{
	int r = host_tier_new(life->device, life->bytes, ret_tier);

	if (r == 0)
		life->loop.hosts[0] = *ret_tier;
	return r;
}

/* ---- A life ---- */

static int create(struct life *life)
{
	struct store_config config = { .workers = life->loop.workers, .name = "job" };
	struct store_layout *layout = NULL;
	struct tier *tier;
	int r = make_layout(&layout);

	if (r == 0)
		r = make_tier(life, &tier);
	if (r < 0) {
		store_layout_free(layout);
		return r;
	}
	r = store_new_nvme(&config, layout, &tier, 1, &life->store);
	return r < 0 ? r : wait(life, store_create(life->store, &life->request));
}

static int move(struct life *life, struct store *store, enum tier_direction direction)
{
	life->transfer = (struct store_transfer){
		.direction = direction, .length = EXTENTS * MIB, .buffer = life->buffer, .done = on_transfer
	};
	return wait(life, store_submit(store, &life->transfer));
}

static int take_step(struct life *life)
{
	int r;

	memset(life->buffer, (int)life->step + 1, EXTENTS * MIB);
	r = move(life, life->store, TIER_WRITE);
	if (r == 0)
		r = wait(life, store_commit(life->store, life->step + 1, &life->request));
	if (r == 0)
		life->step++;
	return r;
}

static int keep(struct life *life)
{
	int r = wait(life, store_snapshot(life->store, "kept", &life->request));

	life->is_kept = r == 0;
	return r;
}

/* The device is larger than it has to be. */
static int reserve(struct life *life)
{
	return wait(life, store_reserve(life->store, 2, &life->request));
}

static int count(struct life *life)
{
	uint64_t bytes = 0;
	int r = wait(life, store_measure_snapshot(life->store, "kept", &life->request, &bytes));

	if (r == 0)
		r = wait(life, store_diff(life->store, "kept", NULL, &life->request, &bytes));
	if (r == 0)
		assert_int_equal(bytes, EXTENTS * MIB);
	return r;
}

static int look_at(struct life *life, const char *name, uint64_t step)
{
	int r = wait(life, store_open_snapshot(life->store, name, &life->request, &life->view));

	if (r < 0)
		return r;
	r = move(life, life->view, TIER_READ);
	if (r == 0)
		assert_int_equal(life->buffer[EXTENTS * MIB - 1], step);
	life->view = store_free(life->view);
	return r;
}

static int look(struct life *life)
{
	return look_at(life, "kept", 1);
}

static int look_at_last(struct life *life)
{
	return look_at(life, NULL, life->step);
}

/* What is verified, and whose it is. */
struct verifying {
	struct store_verification verification;
	struct life *life;
};

static void on_found(struct store_verification *verification, const struct store_flaw *flaw)
{
	fail_msg("byte %llu is called damaged", (unsigned long long)flaw->device_offset);
}

static bool goes_on(struct store_verification *verification)
{
	return true;
}

static void on_verified(struct store_verification *verification)
{
	container_of(verification, struct verifying, verification)->life->is_done = true;
}

static int verify(struct life *life)
{
	struct verifying verifying = { .life = life,
				       .verification = { .buffer = life->buffer,
							 .found = on_found,
							 .goes_on = goes_on,
							 .done = on_verified } };
	int r = wait(life, store_verify(life->store, &verifying.verification, &life->request));

	if (r < 0) {
		store_verification_clear(&verifying.verification);
		return r;
	}
	assert_true(store_verify_extents(&verifying.verification));
	life->status = 0;
	wait(life, 0);
	assert_int_equal(verifying.verification.bytes, EXTENTS * MIB);
	return 0;
}

static int drop(struct life *life)
{
	int r = wait(life, store_delete_snapshot(life->store, "kept", &life->request));

	if (r == 0)
		life->is_kept = false;
	return r;
}

/* Its fork has a store of its own, beside which the other one goes on. */
static int adopt_fork(struct life *life)
{
	struct store_layout *layout = NULL;
	int r = make_layout(&layout);

	if (r == 0)
		assert_int_equal(store_adopt(life->fork, layout), 0);
	if (r == 0)
		r = move(life, life->fork, TIER_READ);
	if (r == 0)
		assert_int_equal(life->buffer[0], 1);
	return r;
}

static int fork_it(struct life *life)
{
	const struct store_fork fork = { .snapshot = "kept", .name = "fork", .serial = 2 };
	int r = wait(life, store_fork(life->store, &fork, &life->request, &life->fork));

	return r < 0 ? r : adopt_fork(life);
}

static int attach_fork(struct life *life)
{
	int r;

	life->fork = store_free(life->fork);
	r = wait(life, store_attach(life->store, "fork", &life->request, &life->fork));
	return r < 0 ? r : adopt_fork(life);
}

static int drop_fork(struct life *life)
{
	int r = wait(life, store_drop(life->fork, &life->request));

	life->fork = store_free(life->fork);
	return r;
}

static int open_again(struct life *life)
{
	struct store_config config = { .workers = life->loop.workers };
	struct store_layout *layout = NULL;
	struct tier *tier;
	int r;

	life->fork = store_free(life->fork);
	life->store = store_free(life->store);
	r = make_tier(life, &tier);
	if (r == 0)
		r = store_new_found(&config, &tier, 1, &life->store);
	if (r == 0)
		r = wait(life, store_open(life->store, &life->request));
	if (r == 0)
		r = make_layout(&layout);
	if (r == 0)
		assert_int_equal(store_adopt(life->store, layout), 0);
	return r;
}

/* What is acknowledged from then on is the snapshot's step; nobody goes on with the store that has it. */
static int roll_back(struct life *life)
{
	int r = wait(life, store_roll_back(life->store, "kept", &life->request));

	if (r < 0)
		return r;
	life->step = 1;
	r = open_again(life);
	if (r == 0)
		r = look_at_last(life);
	return r;
}

static int live(struct life *life)
{
	int (*const parts[])(struct life *) = { create,	   take_step,	keep,	    reserve,	  take_step,
						count,	   verify,	look,	    look_at_last, fork_it,
						take_step, attach_fork, open_again, count,	  attach_fork,
						drop_fork, roll_back,	take_step,  drop,	  take_step };
	int r = 0;

	for (unsigned i = 0; i < ARRAY_LENGTH(parts) && r == 0; i++)
		r = parts[i](life);
	return r;
}

/* ---- What is left of it ---- */

static void expect_left(struct life *life)
{
	struct store_snapshot snapshots[STORE_MAX_SNAPSHOTS];

	if (life->step == 0)
		return;
	assert_int_equal(open_again(life), 0);
	assert_int_equal(store_step(life->store), life->step);
	assert_int_equal(store_snapshots(life->store, snapshots), life->is_kept);
	assert_int_equal(move(life, life->store, TIER_READ), 0);
	assert_int_equal(life->buffer[0], life->step);
	if (life->is_kept)
		assert_int_equal(look(life), 0);
}

static void life_begin(struct life *life)
{
	*life = (struct life){ .bytes = 64 * MIB, .request.done = on_request };
	life->device = pages_new(life->bytes);
	life->buffer = pages_new(EXTENTS * MIB);
	assert_int_equal(workers_new(1, "test", &life->loop.workers), 0);
}

static void life_end(struct life *life)
{
	life->store = store_free(life->store);
	workers_free(life->loop.workers);
	free(life->buffer);
	free(life->device);
}

/* A step that was taken must not be lost for want of memory. */
static void a_commit_needs_no_memory(void **state)
{
	struct life life;

	life_begin(&life);
	assert_int_equal(create(&life), 0);
	for (unsigned i = 0; i < 3; i++) {
		alloc_fault_arm(1);
		assert_int_equal(take_step(&life), 0);
		assert_false(alloc_fault_tripped());
	}
	life_end(&life);
}

static void a_store_that_lacks_memory_says_so_and_loses_nothing(void **state)
{
	struct life life;
	bool tripped = true;
	unsigned nth = 1;

	life_begin(&life);
	for (; tripped; nth++) {
		int r;

		life.is_kept = false;
		life.step = 0;
		alloc_fault_arm(nth);
		r = live(&life);
		tripped = alloc_fault_tripped();
		assert_int_equal(r, tripped ? -ENOMEM : 0);
		expect_left(&life);
		life.fork = store_free(life.fork);
		life.store = store_free(life.store);
	}
	assert_true(nth > 30);
	life_end(&life);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_commit_needs_no_memory),
		cmocka_unit_test(a_store_that_lacks_memory_says_so_and_loses_nothing),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
