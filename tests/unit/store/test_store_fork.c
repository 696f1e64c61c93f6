/* Forks of a store on disks that lose power: jobs that share extents, write and commit beside each other,
 * come and go; every byte of each compared with what it has committed. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "offload/store/extent_store.h"
#include "tests/unit/family.h"
#include "tests/unit/seeds.h"
#include "tests/unit/store_support.h"
#include "tests/unit/test.h"

static struct lineage_head *head_of(const struct family_job *job)
{
	return &container_of(job->store, struct extent_store, store)->head;
}

/* ---- What they share ---- */

static uint32_t place_of(const struct family_job *job, unsigned extent)
{
	return container_of(job->store, struct extent_store, store)->map.extents[extent].place;
}

static bool is_shared(const struct family_job *job, unsigned extent)
{
	bool is_shared = false;

	for (unsigned i = 0; i < FAMILY_JOBS; i++) {
		const struct family_job *other = &job->family->jobs[i];

		is_shared |= other != job && other->store && place_of(other, extent) == place_of(job, extent);
	}
	return is_shared;
}

/* Beside what is counted as it happens, all is looked at. */
static void expect_shares(const struct family *family)
{
	for (unsigned i = 0; i < FAMILY_JOBS; i++) {
		const struct family_job *job = &family->jobs[i];
		struct store_family figures;
		uint64_t held = 0, shared = 0;

		if (!job->store)
			continue;
		for (unsigned extent = 0; extent < FAMILY_EXTENTS; extent++) {
			if (place_of(job, extent) == PLACES_NONE)
				continue;
			held++;
			shared += is_shared(job, extent);
		}
		store_get_family(job->store, &figures);
		assert_int_equal(figures.held_bytes, held * family->place_bytes);
		assert_int_equal(figures.shared_bytes, shared * family->place_bytes);
	}
}

/* ---- Seeds ---- */

static void act(struct family *family)
{
	static void (*const acts[])(struct family_job * job) = {
		family_commit, family_commit,	 family_commit,	   family_commit,    family_fork,
		family_fork,   family_take,	 family_delete,	   family_drop,	     family_leave,
		family_leave,  family_come_back, family_come_back, family_roll_back,
	};
	struct family_job *job = &family->jobs[family_choose(family, FAMILY_JOBS)];

	if (family_choose(family, 30) == 0)
		acts[family_choose(family, ARRAY_LENGTH(acts))](job);
	else if (family_choose(family, 2))
		family_write(family, job);
	else
		family_turn(family);
}

static void cut(struct family *family)
{
	void (*end)(struct sim_disk * disk) = family_choose(family, 2) ? sim_disk_fail_power : sim_disk_kill;

	for (unsigned i = 0; i < family->disk_count; i++)
		end(family->disks[i]);
}

static void run(uint64_t seed)
{
	struct family family;

	family_open(&family, 1 + seed % FAMILY_DISKS, seed);
	for (unsigned session = 0; session < 4; session++) {
		unsigned length = 200 + family_choose(&family, 2500);

		for (unsigned i = 0; i < length && !family.is_cut; i++)
			act(&family);
		if (family_choose(&family, 4)) {
			cut(&family);
		} else {
			family_settle(&family);
			expect_shares(&family);
		}
		family_reopen(&family);
		expect_shares(&family);
	}
	family_close(&family);
}

static void jobs_of_a_store_are_each_what_they_have_committed(void **state)
{
	seeds_run(40, run);
}

static void commit_all(struct family *family)
{
	for (unsigned i = 0; i < FAMILY_JOBS; i++)
		if (family->jobs[i].store)
			family_commit(&family->jobs[i]);
	family_settle(family);
}

/* What is counted while jobs come, change, and go is what another session counts on the disks. */
static void no_place_is_lost_and_none_is_given_twice(void **state)
{
	uint64_t before[FAMILY_DISKS + 1], after[FAMILY_DISKS + 1];
	struct family family;

	family_open(&family, 2, 99);
	for (unsigned round = 0; round < 30; round++) {
		for (unsigned i = 0; i < 400; i++)
			act(&family);
		family_settle(&family);
		for (unsigned i = 0; i < FAMILY_JOBS; i++) {
			if (family.jobs[i].has_ended)
				family_leave(&family.jobs[i]);
			if (family.jobs[i].has_ended)
				family_reopen(&family);
			family_come_back(&family.jobs[i]);
		}
		commit_all(&family);
		family_count_free(&family, before);
		family_reopen(&family);
		family_count_free(&family, after);
		assert_memory_equal(before, after, sizeof(before));
	}
	family_close(&family);
}

static void expect_share(const struct family_job *job, uint64_t own, uint64_t shared)
{
	struct store_family figures;

	store_get_family(job->store, &figures);
	assert_int_equal(figures.shared_bytes, shared * job->family->place_bytes);
	assert_int_equal(figures.held_bytes, (own + shared) * job->family->place_bytes);
	expect_shares(job->family);
}

static void what_jobs_share_is_counted(void **state)
{
	const uint64_t changing = FAMILY_EXTENTS - FAMILY_FIXED;
	struct family family;
	struct family_job *origin = &family.jobs[0], *fork = &family.jobs[1];

	family_open(&family, 2, 15);
	family_rewrite(&family, origin);
	commit_all(&family);
	expect_share(origin, FAMILY_EXTENTS, 0);
	family_fork(origin);
	family_settle(&family);
	expect_share(origin, 0, FAMILY_EXTENTS);
	expect_share(fork, 0, FAMILY_EXTENTS);
	family_rewrite(&family, fork);
	family_settle(&family);
	expect_share(origin, changing, FAMILY_FIXED);
	expect_share(fork, changing, FAMILY_FIXED);
	commit_all(&family);
	/* All three have what is fixed, and two of them the rest. */
	family_fork(fork);
	family_settle(&family);
	expect_share(origin, changing, FAMILY_FIXED);
	expect_share(fork, 0, FAMILY_EXTENTS);
	family_drop(origin);
	family_settle(&family);
	family_leave(origin);
	expect_share(fork, 0, FAMILY_EXTENTS);
	family_drop(&family.jobs[2]);
	family_settle(&family);
	family_leave(&family.jobs[2]);
	expect_share(fork, FAMILY_EXTENTS, 0);
	family_reopen(&family);
	expect_share(fork, FAMILY_EXTENTS, 0);
	family_close(&family);
}

/* It is dropped, and still open: what comes after it is another job all the same. */
static void a_job_that_was_dropped_is_in_nobodys_way(void **state)
{
	struct family family;

	family_open(&family, 1, 9);
	family_fork(&family.jobs[0]);
	family_settle(&family);
	family_rewrite(&family, &family.jobs[1]);
	family_drop(&family.jobs[1]);
	family_settle(&family);
	assert_true(family.jobs[1].has_ended);
	family_fork(&family.jobs[0]);
	family_settle(&family);
	assert_non_null(family.jobs[2].store);
	family_leave(&family.jobs[2]);
	family_come_back(&family.jobs[2]);
	assert_non_null(family.jobs[2].store);
	assert_int_equal(store_commit(family.jobs[1].store, 7, &family.jobs[1].request), -EROFS);
	family_leave(&family.jobs[1]);
	family_reopen(&family);
	family_close(&family);
}

/* It ends with the disks, which whoever frees it removes: nothing is written, as nothing would be there. */
static void the_last_job_of_a_store_ends_with_it(void **state)
{
	struct family family;
	struct family_job *first = &family.jobs[0], *last = &family.jobs[1];

	family_open(&family, 1, 14);
	family_fork(first);
	family_settle(&family);
	family_drop(first);
	family_settle(&family);
	assert_true(lineage_has_others(head_of(first)));
	family_wait(last, store_drop(last->store, &last->request));
	assert_false(lineage_has_others(head_of(last)));
	/* On its way out, and in nobody's way. */
	assert_false(lineage_has_others(head_of(first)));
	assert_int_equal(store_commit(last->store, 7, &last->request), -EROFS);
	/* A crash comes before the disks are removed. */
	family_reopen(&family);
	assert_non_null(last->store);
	family_close(&family);
}

static void refuse_all(struct family_job *job)
{
	struct store_fork fork = { .name = "new" };
	struct store_family figures;
	struct store *store;

	store_get_family(job->store, &figures);
	assert_true(figures.is_fenced);
	for (unsigned i = 0; i < 2; i++)
		assert_int_equal(store_commit(job->store, 9, &job->request), -EROFS);
	assert_int_equal(store_snapshot(job->store, "new", &job->request), -EROFS);
	assert_int_equal(store_fork(job->store, &fork, &job->request, &store), -EROFS);
	assert_int_equal(store_attach(job->store, "new", &job->request, &store), -EROFS);
	assert_int_equal(store_drop(job->store, &job->request), -EROFS);
	assert_int_equal(store_reserve(job->store, STORE_MAX_SNAPSHOTS, &job->request), -EROFS);
}

/* It is the devices that have failed: nobody knows what they have of any job. */
static void a_commit_that_fails_ends_the_writing_of_all_jobs(void **state)
{
	struct family family;
	struct family_job *first = &family.jobs[0], *second = &family.jobs[1];

	family_open(&family, 2, 16);
	family_fork(first);
	family_settle(&family);
	family_rewrite(&family, first);
	family_rewrite(&family, second);
	family_settle(&family);
	sim_disk_fail_flush(family.disks[0], 1);
	family_commit(first);
	/* It waits for its turn. */
	family_commit(second);
	family_settle(&family);
	assert_int_equal(first->status, -EIO);
	assert_int_equal(second->status, -EROFS);
	refuse_all(first);
	refuse_all(second);
	/* One that has let go is not let in again before all have. */
	family_leave(second);
	assert_int_equal(store_attach(first->store, second->committed.name, &first->request, &second->opened),
			 -EROFS);
	family_reopen(&family);
	family_close(&family);
}

/* ---- Verifying ---- */

/* Returns how many extents only snapshots have. */
static unsigned verify(struct store_finder *finder, struct family_job *job)
{
	unsigned kept = 0;

	finder->count = 0;
	for (uint64_t group = 0; group <= FAMILY_EXTENTS / STORE_GROUP_EXTENTS; group++) {
		finder->verification.group = group;
		family_wait(job, store_verify(job->store, &finder->verification, &job->request));
		kept += (unsigned)finder->verification.count;
		finder->is_over = !store_verify_extents(&finder->verification);
		while (!finder->is_over)
			family_turn(job->family);
	}
	return kept;
}

/* Each with its own snapshots: what others have is theirs to verify. */
static void a_job_is_verified_beside_others(void **state)
{
	struct store_finder finder;
	struct family family;

	family_open(&family, 2, 7);
	store_finder_init(&finder);
	family_fork(&family.jobs[0]);
	family_settle(&family);
	family_take(&family.jobs[1]);
	family_settle(&family);
	for (unsigned i = 0; i < 2; i++)
		family_rewrite(&family, &family.jobs[i]);
	commit_all(&family);
	assert_int_equal(verify(&finder, &family.jobs[0]), 0);
	assert_int_equal(finder.count, 0);
	assert_int_equal(verify(&finder, &family.jobs[1]), FAMILY_EXTENTS - FAMILY_FIXED);
	assert_int_equal(finder.count, 0);
	/* Both copies of the root that the snapshot alone has. */
	family_flip_kept(&family.jobs[1]);
	verify(&finder, &family.jobs[0]);
	assert_int_equal(finder.count, 0);
	verify(&finder, &family.jobs[1]);
	assert_int_equal(finder.count, 2);
	assert_string_equal(finder.flaws[0].snapshots, family.jobs[1].kept[0].name);
	family_flip_kept(&family.jobs[1]);
	store_finder_destroy(&finder);
	family_close(&family);
}

/* It has made the devices grow, and nobody else makes use of that. */
static void a_fork_of_what_cannot_be_read_leaves_all_as_it_was(void **state)
{
	struct store_fork fork = { .name = "new", .snapshots = STORE_MAX_SNAPSHOTS };
	uint64_t before[FAMILY_DISKS + 1], after[FAMILY_DISKS + 1];
	struct family_job *job;
	struct family family;
	struct store *store;

	family_open(&family, 1, 10);
	job = &family.jobs[0];
	family_take(job);
	family_settle(&family);
	family_rewrite(&family, job);
	commit_all(&family);
	fork.snapshot = job->kept[0].name;
	family_flip_kept(job);
	assert_int_equal(store_fork(job->store, &fork, &job->request, &store), 0);
	job->is_asking = true;
	family_settle(&family);
	assert_int_equal(job->status, -EBADMSG);
	family_flip_kept(job);
	family.is_cut = false;
	commit_all(&family);
	family_count_free(&family, before);
	family_reopen(&family);
	family_count_free(&family, after);
	assert_memory_equal(before, after, sizeof(before));
	family_close(&family);
}

/* It would be a small number of places, if they were counted in 32 bits. */
static void a_fork_that_has_too_many_places_is_refused(void **state)
{
	struct store_fork fork = { .name = "new", .snapshots = STORE_MAX_SNAPSHOTS };
	struct family family;
	struct family_job *job = &family.jobs[0];
	struct lineage_head *head;
	struct store *store;

	family_open(&family, 1, 13);
	head = head_of(job);
	head->extents = (struct lineage_extents){ .changing = UINT32_C(1) << 28 };
	assert_true(store_space_for_fork(job->store, STORE_MAX_SNAPSHOTS).device_bytes >=
		    (UINT64_C(1) << 32) * STORE_EXTENT_BYTES);
	assert_int_equal(store_fork(job->store, &fork, &job->request, &store), -EOVERFLOW);
	head->extents = (struct lineage_extents){ FAMILY_FIXED, FAMILY_EXTENTS - FAMILY_FIXED };
	commit_all(&family);
	family_reopen(&family);
	family_close(&family);
}

/* With a snapshot beside them, in no more places than the rule has. */
static void what_is_fixed_is_written_for_no_job_again(void **state)
{
	const struct store_fork fork = { .name = "j9", .serial = 9 };
	unsigned changing = FAMILY_EXTENTS - FAMILY_FIXED;
	struct store_family figures;
	struct family family;
	struct family_job *job = &family.jobs[0];
	struct store *store;

	family_open_with(&family, 1, 11, 1);
	assert_int_equal(family_count_places(&family), FAMILY_FIXED + 3 * changing + 8);
	family_take(job);
	family_settle(&family);
	family_rewrite(&family, job);
	commit_all(&family);
	family_wait(job, store_fork(job->store, &fork, &job->request, &store));
	/* It was made of the last commit, not of the snapshot. */
	family.jobs[1].committed = job->committed;
	snprintf(family.jobs[1].committed.name, STORE_SNAPSHOT_NAME_BYTES, "%s", fork.name);
	store_free(store);
	family_come_back(&family.jobs[1]);
	store_get_family(family.jobs[1].store, &figures);
	assert_int_equal(figures.jobs, 2);
	assert_int_equal(figures.others, 1);
	assert_int_equal(figures.own_bytes, (2 * changing + 8) * family.place_bytes);
	assert_int_equal(family_count_places(&family), FAMILY_FIXED + 5 * changing + 16);
	for (unsigned round = 0; round < 4; round++) {
		for (unsigned i = 0; i < 2; i++)
			family_expect_settled(&family.jobs[i]);
		for (unsigned i = 0; i < 2; i++)
			family_rewrite(&family, &family.jobs[i]);
		for (unsigned i = 0; i < 2; i++)
			family_commit(&family.jobs[i]);
	}
	family_settle(&family);
	assert_false(family.is_cut);
	family_reopen(&family);
	family_expect_settled(job);
	family_close(&family);
}

/* Its own map: the others go on without it, once somebody has said that it does not come back. */
static void a_fork_that_is_lost_can_be_given_up(void **state)
{
	struct store_job found[STORE_MAX_SNAPSHOTS + 1];
	struct store_family figures;
	struct family family;
	struct family_job *job, *fork;
	struct store *store;

	family_open(&family, 2, 12);
	job = &family.jobs[0];
	fork = &family.jobs[1];
	family_fork(job);
	family_settle(&family);
	family_rewrite(&family, fork);
	family_commit(fork);
	family_settle(&family);
	family_take(fork);
	family_settle(&family);
	family_rewrite(&family, fork);
	family_commit(fork);
	family_settle(&family);
	family_flip(job, fork);
	family_open_first(&family);
	assert_int_equal(store_jobs(job->store, found), 2);
	assert_false(found[0].is_lost);
	assert_true(found[1].is_lost);
	store_get_family(job->store, &figures);
	assert_true(figures.has_lost);
	assert_false(figures.is_fenced);
	assert_int_equal(store_attach(job->store, found[1].name, &job->request, &store), -EBADMSG);
	assert_int_equal(store_commit(job->store, 2, &job->request), -EROFS);
	assert_int_equal(store_drop_lost(job->store, found[0].name, &job->request), -EINVAL);
	assert_int_equal(store_drop_lost(job->store, "none", &job->request), -ENOENT);
	family_wait(job, store_drop_lost(job->store, found[1].name, &job->request));
	store_get_family(job->store, &figures);
	assert_true(figures.is_fenced);
	fork->committed.name[0] = '\0';
	family_reopen(&family);
	family_fork(job);
	family_settle(&family);
	commit_all(&family);
	assert_false(family.is_cut);
	family_reopen(&family);
	family_close(&family);
}

/* Of two that differ in all that is not fixed. */
static void open_two(struct family *family, uint64_t seed)
{
	family_open(family, 2, seed);
	family_fork(&family->jobs[0]);
	family_settle(family);
	family_rewrite(family, &family->jobs[1]);
	commit_all(family);
}

/* Others are opened in its place, and wait for it as for any other. */
static void the_first_job_can_be_lost_and_given_up_too(void **state)
{
	struct store_job found[STORE_MAX_SNAPSHOTS + 1];
	struct family family;
	struct family_job *first = &family.jobs[0], *fork = &family.jobs[1];
	struct store *store;

	open_two(&family, 17);
	family_flip(first, first);
	family_open_first(&family);
	assert_int_equal(store_jobs(first->store, found), 2);
	assert_true(found[0].is_lost);
	assert_false(found[1].is_lost);
	assert_int_equal(store_step(first->store), fork->committed.step);
	assert_string_equal(head_of(first)->name, fork->committed.name);
	assert_int_equal(store_attach(first->store, found[0].name, &first->request, &store), -EBADMSG);
	assert_int_equal(store_commit(first->store, 9, &first->request), -EROFS);
	family_wait(first, store_drop_lost(first->store, found[0].name, &first->request));
	first->committed.name[0] = '\0';
	family_reopen(&family);
	assert_null(first->store);
	family_fork(fork);
	family_settle(&family);
	commit_all(&family);
	assert_false(family.is_cut);
	family_reopen(&family);
	family_close(&family);
}

static void the_first_job_is_whole_again_with_its_disk(void **state)
{
	struct family family;
	uint64_t before[FAMILY_DISKS + 1], after[FAMILY_DISKS + 1];

	open_two(&family, 18);
	family_count_free(&family, before);
	family_flip(&family.jobs[0], &family.jobs[0]);
	family_open_first(&family);
	assert_true(lineage_has_lost(head_of(&family.jobs[0])->lineage));
	family_flip(&family.jobs[0], &family.jobs[0]);
	family_reopen(&family);
	family_count_free(&family, after);
	assert_memory_equal(before, after, sizeof(before));
	commit_all(&family);
	family_reopen(&family);
	family_close(&family);
}

/* Who asks for one by its name gets the only one. */
static void a_table_has_each_name_once(void **state)
{
	struct head_table table = { .count = 2,
				    .records = { { .kind = HEAD_JOB, .job = 0, .name = "one" },
						 { .kind = HEAD_JOB, .job = 1, .name = "other" } } };
	struct head_table read;
	uint8_t bytes[NODE_BYTES];

	head_table_put(bytes, &table, 1, 1);
	assert_int_equal(head_table_get(bytes, &read), 0);
	memcpy(table.records[1].name, "one", sizeof("one"));
	head_table_put(bytes, &table, 1, 1);
	assert_int_equal(head_table_get(bytes, &read), -EBADMSG);
}

static void forks_that_cannot_be_are_refused(void **state)
{
	struct family_job *job;
	struct family family;
	struct store *store;
	char name[80];

	family_open(&family, 1, 8);
	job = &family.jobs[0];
	memset(name, 'x', sizeof(name));
	name[64] = '\0';
	struct store_fork fork = { .name = name };

	assert_int_equal(store_fork(job->store, &fork, &job->request, &store), -EINVAL);
	fork.name = job->committed.name;
	assert_int_equal(store_fork(job->store, &fork, &job->request, &store), -EEXIST);
	assert_string_equal(store_message(job->store), "there is a job j1 already");
	fork = (struct store_fork){ .name = "new", .snapshot = "none" };
	assert_int_equal(store_fork(job->store, &fork, &job->request, &store), -ENOENT);
	assert_string_equal(store_message(job->store), "there is no snapshot none");
	assert_int_equal(store_attach(job->store, "none", &job->request, &store), -ENOENT);
	assert_int_equal(store_attach(job->store, "j1", &job->request, &store), -EBUSY);
	assert_int_equal(store_jobs(job->store, (struct store_job[15]){ { "" } }), 1);
	family.is_cut = false;
	family_reopen(&family);
	family_close(&family);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_teardown(jobs_of_a_store_are_each_what_they_have_committed, seeds_tell),
		cmocka_unit_test(no_place_is_lost_and_none_is_given_twice),
		cmocka_unit_test(what_jobs_share_is_counted),
		cmocka_unit_test(a_job_that_was_dropped_is_in_nobodys_way),
		cmocka_unit_test(the_last_job_of_a_store_ends_with_it),
		cmocka_unit_test(a_commit_that_fails_ends_the_writing_of_all_jobs),
		cmocka_unit_test(a_job_is_verified_beside_others),
		cmocka_unit_test(a_fork_of_what_cannot_be_read_leaves_all_as_it_was),
		cmocka_unit_test(a_fork_that_has_too_many_places_is_refused),
		cmocka_unit_test(what_is_fixed_is_written_for_no_job_again),
		cmocka_unit_test(a_fork_that_is_lost_can_be_given_up),
		cmocka_unit_test(the_first_job_can_be_lost_and_given_up_too),
		cmocka_unit_test(the_first_job_is_whole_again_with_its_disk),
		cmocka_unit_test(a_table_has_each_name_once),
		cmocka_unit_test(forks_that_cannot_be_are_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
