#include "tests/unit/family.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/size.h"
#include "offload/store/extent_store.h"
#include "offload/store/lineage_backend.h"
#include "tests/unit/io_support.h"
#include "tests/unit/test.h"

unsigned family_choose(struct family *family, unsigned bound)
{
	family->random = family->random * 6364136223846793005 + 1442695040888963407;
	return (unsigned)((family->random >> 33) % bound);
}

static struct store_layout *make_layout(const struct family *family, unsigned snapshots)
{
	struct store_layout *layout;
	uint64_t offset;

	assert_int_equal(store_layout_new(&layout), 0);
	store_layout_set_durable(layout);
	store_layout_set_snapshots(layout, snapshots);
	assert_int_equal(store_layout_add_fixed_stream(layout, "fixed"), 0);
	assert_int_equal(store_layout_add_stream(layout, "other"), 1);
	assert_int_equal(store_layout_set_blocks(layout, 1, family->place_bytes / STORE_EXTENT_BLOCKS), 0);
	for (unsigned i = 0; i < FAMILY_EXTENTS; i++)
		assert_int_equal(store_layout_add_section(layout, i >= FAMILY_FIXED, FAMILY_PAGE, &offset),
				 0);
	return layout;
}

static void place_of(const struct family *family, unsigned extent, struct store_transfer *transfer)
{
	transfer->stream = extent >= FAMILY_FIXED;
	transfer->offset = transfer->stream ? (extent - FAMILY_FIXED) * family->place_bytes
					    : extent * STORE_EXTENT_BYTES;
}

/* ---- The loop ---- */

void family_turn(struct family *family)
{
	unsigned first = family_choose(family, family->disk_count);

	workers_reap(family->workers);
	for (unsigned i = 0; i < family->disk_count; i++)
		if (sim_disk_turn(family->disks[(first + i) % family->disk_count]))
			return;
}

static bool is_busy(const struct family *family)
{
	for (unsigned i = 0; i < FAMILY_JOBS; i++)
		if (family->jobs[i].is_asking || family->jobs[i].writes > 0)
			return true;
	return false;
}

void family_settle(struct family *family)
{
	while (is_busy(family))
		family_turn(family);
}

/* ---- What there is ---- */

static bool exists(const struct family_job *job)
{
	return job->committed.name[0] != '\0';
}

static bool is_idle(const struct family_job *job)
{
	return job->store && !job->is_asking && !job->has_ended;
}

static unsigned count_open(const struct family *family)
{
	unsigned count = 0;

	for (unsigned i = 0; i < FAMILY_JOBS; i++)
		count += family->jobs[i].store != NULL;
	return count;
}

static struct family_state *find_kept(struct family_job *job, const char *name)
{
	for (unsigned i = 0; i < FAMILY_SNAPSHOTS; i++)
		if (strcmp(job->kept[i].name, name) == 0)
			return &job->kept[i];
	return NULL;
}

static struct family_state *choose_kept(struct family_job *job)
{
	struct family_state *kept = &job->kept[family_choose(job->family, FAMILY_SNAPSHOTS)];

	return kept->name[0] ? kept : NULL;
}

static void set_name(struct family *family, struct family_state *state, char kind)
{
	snprintf(state->name, sizeof(state->name), "%c%u", kind, ++family->last_name);
}

/* Of a job. */
static uint64_t serial_of(const char *name)
{
	return strtoull(name + 1, NULL, 10);
}

static void adopt(struct family_job *job)
{
	assert_int_equal(store_adopt(job->store, make_layout(job->family, FAMILY_SNAPSHOTS)), 0);
	memcpy(job->content, job->committed.content, sizeof(job->content));
}

static void become(struct family_job *job, const struct family_state *state)
{
	char name[sizeof(state->name)];

	memcpy(name, job->committed.name, sizeof(name));
	job->committed = *state;
	memcpy(job->committed.name, name, sizeof(name));
}

/* ---- Requests ---- */

static void fulfil(struct family_job *job)
{
	if (job->wish == WISH_COMMIT || job->wish == WISH_ROLL_BACK)
		become(job, &job->wished);
	else if (job->wish == WISH_FORK)
		job->born->committed = job->wished;
	else if (job->wish == WISH_TAKE)
		*find_kept(job, "") = job->wished;
	else if (job->wish == WISH_DELETE)
		find_kept(job, job->wished.name)->name[0] = '\0';
	else if (job->wish == WISH_DROP)
		job->committed.name[0] = '\0';
}

static void end_store(struct family_job *job)
{
	job->store = store_free(job->store);
	job->has_ended = false;
}

static void on_ended(struct store_request *request, int status)
{
	struct family_job *job = container_of(request, struct family_job, request);

	job->is_asking = false;
	job->status = status;
	if (!job->is_wishing) {
		job->family->is_cut |= status < 0;
		return;
	}
	job->is_wishing = false;
	if (status == -ENOSPC || status == -EMFILE) {
		job->wish = WISH_NONE;
		return;
	}
	if (status < 0) {
		job->family->is_cut = true;
		return;
	}
	fulfil(job);
	job->has_ended = job->wish == WISH_ROLL_BACK || job->wish == WISH_DROP;
	if (job->wish == WISH_FORK) {
		job->born->store = job->opened;
		adopt(job->born);
	}
	job->wish = WISH_NONE;
}

static void begin(struct family_job *job, enum family_wish wish, int r)
{
	if (r < 0) {
		if (r != -ENOSPC && r != -EMFILE && r != -EINVAL)
			job->family->is_cut = true;
		return;
	}
	job->wish = wish;
	job->is_asking = job->is_wishing = true;
}

static void drain(struct family_job *job)
{
	while (job->writes > 0)
		family_turn(job->family);
}

void family_commit(struct family_job *job)
{
	if (!is_idle(job))
		return;
	drain(job);
	if (!is_idle(job))
		return;
	job->wished = job->committed;
	job->wished.step++;
	memcpy(job->wished.content, job->content, sizeof(job->content));
	begin(job, WISH_COMMIT, store_commit(job->store, job->wished.step, &job->request));
}

static struct family_job *find_unborn(struct family *family)
{
	for (unsigned i = 0; i < FAMILY_JOBS; i++) {
		bool is_taken = exists(&family->jobs[i]) || family->jobs[i].store;

		for (unsigned j = 0; j < FAMILY_JOBS; j++)
			is_taken |=
				family->jobs[j].wish == WISH_FORK && family->jobs[j].born == &family->jobs[i];
		if (!is_taken)
			return &family->jobs[i];
	}
	return NULL;
}

void family_fork(struct family_job *job)
{
	struct family_job *born = find_unborn(job->family);
	const struct family_state *kept = choose_kept(job);
	struct store_fork fork = { .snapshots = job->family->snapshots };

	if (!born || !is_idle(job))
		return;
	job->born = born;
	job->wished = kept ? *kept : job->committed;
	set_name(job->family, &job->wished, 'j');
	fork.snapshot = kept ? kept->name : NULL;
	fork.name = job->wished.name;
	fork.serial = serial_of(fork.name);
	begin(job, WISH_FORK, store_fork(job->store, &fork, &job->request, &job->opened));
}

void family_take(struct family_job *job)
{
	unsigned count = 0;

	for (unsigned i = 0; i < FAMILY_JOBS; i++)
		for (unsigned k = 0; k < FAMILY_SNAPSHOTS; k++)
			count += job->family->jobs[i].kept[k].name[0] != '\0';
	if (!is_idle(job) || count >= FAMILY_SNAPSHOTS - 1)
		return;
	job->wished = job->committed;
	set_name(job->family, &job->wished, 's');
	begin(job, WISH_TAKE, store_snapshot(job->store, job->wished.name, &job->request));
}

void family_delete(struct family_job *job)
{
	const struct family_state *kept = choose_kept(job);

	if (!kept || !is_idle(job))
		return;
	job->wished = *kept;
	begin(job, WISH_DELETE, store_delete_snapshot(job->store, kept->name, &job->request));
}

void family_roll_back(struct family_job *job)
{
	const struct family_state *kept;

	drain(job);
	kept = choose_kept(job);
	if (!kept || !is_idle(job))
		return;
	job->wished = *kept;
	begin(job, WISH_ROLL_BACK, store_roll_back(job->store, kept->name, &job->request));
}

/* The last one would end with the disks. */
static bool has_others(const struct family_job *job)
{
	unsigned count = 0;

	for (unsigned i = 0; i < FAMILY_JOBS; i++)
		count += exists(&job->family->jobs[i]) && job->family->jobs[i].wish != WISH_DROP;
	return count > 1;
}

void family_drop(struct family_job *job)
{
	drain(job);
	if (is_idle(job) && has_others(job))
		begin(job, WISH_DROP, store_drop(job->store, &job->request));
}

/* ---- Going and coming back ---- */

void family_leave(struct family_job *job)
{
	drain(job);
	if (!job->store || job->is_asking || count_open(job->family) < 2)
		return;
	end_store(job);
	memset(job->kept, 0, exists(job) ? 0 : sizeof(job->kept));
}

static struct family_job *find_idle(struct family *family)
{
	for (unsigned i = 0; i < FAMILY_JOBS; i++)
		if (is_idle(&family->jobs[i]))
			return &family->jobs[i];
	return NULL;
}

void family_come_back(struct family_job *job)
{
	struct family_job *other = find_idle(job->family);
	struct store *store;
	int r;

	if (!other || job->store || !exists(job))
		return;
	r = store_attach(other->store, job->committed.name, &other->request, &store);
	assert_int_equal(r, 0);
	other->is_asking = true;
	while (other->is_asking)
		family_turn(job->family);
	if (other->status < 0)
		return;
	job->store = store;
	assert_int_equal(store_step(store), job->committed.step);
	adopt(job);
}

/* ---- Writing ---- */

static void on_written(struct store_transfer *transfer, int status)
{
	struct family_write *write = container_of(transfer, struct family_write, transfer);
	struct family_job *job = write->job;

	job->is_written[write->extent] = false;
	job->writes--;
	if (status == 0)
		job->content[write->extent] = write->content;
	else
		job->family->is_cut = true;
	write->job = NULL;
}

static bool write_extent(struct family *family, struct family_job *job, unsigned extent)
{
	struct family_write *write = family->writes;

	while (write < family->writes + FAMILY_WRITES && write->job)
		write++;
	if (write == family->writes + FAMILY_WRITES || job->is_written[extent])
		return false;
	write->job = job;
	write->extent = extent;
	write->content = ++family->last_content;
	job->is_written[extent] = true;
	job->writes++;
	pages_fill(write->page, FAMILY_PAGE, write->content);
	write->transfer = (struct store_transfer){ .direction = TIER_WRITE,
						   .priority = TIER_WRITE_BACK,
						   .length = FAMILY_PAGE,
						   .buffer = write->page,
						   .done = on_written };
	place_of(family, extent, &write->transfer);
	assert_int_equal(store_submit(job->store, &write->transfer), 0);
	return true;
}

void family_rewrite(struct family *family, struct family_job *job)
{
	for (unsigned extent = FAMILY_FIXED; extent < FAMILY_EXTENTS; extent++)
		while (!write_extent(family, job, extent))
			family_turn(family);
}

void family_expect_settled(struct family_job *job)
{
	struct family_write *write = job->family->writes;

	for (unsigned extent = 0; extent < FAMILY_FIXED; extent++) {
		struct store_transfer transfer = { .direction = TIER_WRITE,
						   .length = FAMILY_PAGE,
						   .buffer = write->page,
						   .done = on_written };

		place_of(job->family, extent, &transfer);
		assert_int_equal(store_submit(job->store, &transfer), -EROFS);
	}
}

void family_write(struct family *family, struct family_job *job)
{
	if (job->store && !job->has_ended && job->wish != WISH_ROLL_BACK && job->wish != WISH_DROP)
		write_extent(family, job,
			     FAMILY_FIXED + family_choose(family, FAMILY_EXTENTS - FAMILY_FIXED));
}

/* ---- Sessions ---- */

static void on_read(struct store_transfer *transfer, int status)
{
	struct family_write *read = container_of(transfer, struct family_write, transfer);

	assert_int_equal(status, 0);
	read->job->writes--;
	read->job = NULL;
}

static void expect_extent(struct family_job *job, struct store *store, unsigned extent, uint64_t content)
{
	struct family_write *read = &job->family->writes[0];
	unsigned char *expected = job->family->writes[1].page;

	assert_null(read->job);
	read->job = job;
	job->writes++;
	read->transfer = (struct store_transfer){
		.direction = TIER_READ, .length = FAMILY_PAGE, .buffer = read->page, .done = on_read
	};
	place_of(job->family, extent, &read->transfer);
	assert_int_equal(store_submit(store, &read->transfer), 0);
	drain(job);
	if (content)
		pages_fill(expected, FAMILY_PAGE, content);
	else
		memset(expected, 0, FAMILY_PAGE);
	assert_memory_equal(read->page, expected, FAMILY_PAGE);
}

static void expect_content(struct family_job *job, struct store *store, const uint64_t *content)
{
	for (unsigned extent = 0; extent < FAMILY_EXTENTS; extent++)
		expect_extent(job, store, extent, content[extent]);
}

void family_wait(struct family_job *job, int r)
{
	assert_int_equal(r, 0);
	job->is_asking = true;
	while (job->is_asking)
		family_turn(job->family);
	assert_int_equal(job->status, 0);
}

static void begin_session(struct family *family, struct family_job *job, bool is_new)
{
	struct store_config config = { .workers = family->workers,
				       .name = job->committed.name,
				       .serial = serial_of(job->committed.name) };
	struct tier *tiers[FAMILY_DISKS];

	for (unsigned i = 0; i < family->disk_count; i++)
		tiers[i] = sim_disk_tier(family->disks[i]);
	if (family->watch)
		sim_watch_begin(family->watch);
	family->is_cut = false;
	if (is_new)
		assert_int_equal(store_new_nvme(&config, make_layout(family, family->snapshots), tiers,
						family->disk_count, &job->store),
				 0);
	else
		assert_int_equal(store_new_found(&config, tiers, family->disk_count, &job->store), 0);
}

/* What was on its way is there, or it is not. */
static void settle_wish(struct family_job *job, const struct store_job *found, unsigned count)
{
	const char *name = job->wish == WISH_FORK ? job->wished.name : job->committed.name;
	const struct store_job *there = NULL;

	for (unsigned i = 0; i < count; i++)
		if (strcmp(found[i].name, name) == 0)
			there = &found[i];
	if (job->wish == WISH_FORK && there)
		fulfil(job);
	else if (job->wish == WISH_DROP && !there)
		fulfil(job);
	else if (job->wish == WISH_COMMIT && there->step == job->wished.step)
		fulfil(job);
	else if (job->wish == WISH_ROLL_BACK && there->step == job->wished.step)
		fulfil(job);
	if (job->wish != WISH_TAKE && job->wish != WISH_DELETE)
		job->wish = WISH_NONE;
}

static void settle_snapshots(struct family_job *job)
{
	struct store_snapshot snapshots[STORE_MAX_SNAPSHOTS];
	unsigned count = store_snapshots(job->store, snapshots), expected = 0;
	bool is_there = false;

	for (unsigned i = 0; i < count; i++)
		is_there |= strcmp(snapshots[i].name, job->wished.name) == 0;
	if ((job->wish == WISH_TAKE && is_there) || (job->wish == WISH_DELETE && !is_there))
		fulfil(job);
	job->wish = WISH_NONE;
	for (unsigned i = 0; i < FAMILY_SNAPSHOTS; i++)
		expected += job->kept[i].name[0] != '\0';
	assert_int_equal(count, expected);
	for (unsigned i = 0; i < count; i++)
		assert_int_equal(snapshots[i].step, find_kept(job, snapshots[i].name)->step);
}

static void expect_kept(struct family_job *job)
{
	for (unsigned i = 0; i < FAMILY_SNAPSHOTS; i++) {
		if (!job->kept[i].name[0])
			continue;
		family_wait(job,
			    store_open_snapshot(job->store, job->kept[i].name, &job->request, &job->opened));
		expect_content(job, job->opened, job->kept[i].content);
		store_free(job->opened);
	}
}

static struct family_job *scene_job(struct family *family, const char *name)
{
	for (unsigned i = 0; i < FAMILY_JOBS; i++)
		if (strcmp(family->jobs[i].committed.name, name) == 0)
			return &family->jobs[i];
	fail_msg("job %s is there, and should not be", name);
	return NULL;
}

/* The store that opens is that of the first job. */
static void give_to_first(struct family *family, const struct store_job *found)
{
	struct family_job *first = scene_job(family, found[0].name), *opener = &family->jobs[0];
	struct store *store = opener->store;

	opener->store = NULL;
	first->store = store;
	adopt(first);
}

static void expect_all(struct family *family)
{
	for (unsigned i = 0; i < FAMILY_JOBS; i++) {
		struct family_job *job = &family->jobs[i];

		if (!exists(job)) {
			memset(job->kept, 0, sizeof(job->kept));
			continue;
		}
		family_come_back(job);
		assert_int_equal(store_step(job->store), job->committed.step);
		settle_snapshots(job);
		expect_content(job, job->store, job->committed.content);
		expect_kept(job);
	}
}

static void end_session(struct family *family)
{
	family_settle(family);
	for (unsigned i = 0; i < FAMILY_JOBS; i++)
		if (family->jobs[i].store)
			end_store(&family->jobs[i]);
}

void family_open_first(struct family *family)
{
	struct family_job *opener = &family->jobs[0];

	end_session(family);
	begin_session(family, opener, false);
	family_wait(opener, store_open(opener->store, &opener->request));
}

void family_reopen(struct family *family)
{
	struct store_job found[STORE_MAX_SNAPSHOTS + 1];
	struct family_job *opener = &family->jobs[0];
	unsigned count, expected = 0;

	family_open_first(family);
	count = store_jobs(opener->store, found);
	for (unsigned i = 0; i < FAMILY_JOBS; i++)
		settle_wish(&family->jobs[i], found, count);
	for (unsigned i = 0; i < FAMILY_JOBS; i++)
		expected += exists(&family->jobs[i]);
	assert_int_equal(count, expected);
	for (unsigned i = 0; i < count; i++) {
		assert_int_equal(found[i].serial, serial_of(found[i].name));
		assert_int_equal(found[i].origin, 1);
	}
	give_to_first(family, found);
	expect_all(family);
}

void family_count_free(struct family *family, uint64_t ret_free[FAMILY_DISKS + 1])
{
	const struct extent_store *store =
		container_of(find_idle(family)->store, const struct extent_store, store);

	memset(ret_free, 0, (FAMILY_DISKS + 1) * sizeof(ret_free[0]));
	for (unsigned i = 0; i < family->disk_count; i++)
		ret_free[i] = lineage_places(store->lineage, i)->free_count;
	ret_free[FAMILY_DISKS] = node_area_free_places(store->lineage->nodes);
}

unsigned family_count_places(struct family *family)
{
	const struct extent_store *store =
		container_of(find_idle(family)->store, const struct extent_store, store);

	return lineage_places(store->lineage, 0)->count;
}

static void flip_root(struct family_job *job, const struct head_record *record)
{
	const struct extent_store *store = container_of(job->store, const struct extent_store, store);

	for (unsigned copy = 0; copy < 2; copy++) {
		uint64_t offset;
		unsigned device;

		node_area_locate(store->lineage->nodes, record->root.places[copy], &device, &offset);
		sim_disk_flip(job->family->disks[device], offset + 100, 1);
	}
}

void family_flip_kept(struct family_job *job)
{
	const struct extent_store *store = container_of(job->store, const struct extent_store, store);

	flip_root(job, head_table_snapshot(&store->lineage->heads, store->head.job, job->kept[0].name));
}

void family_flip(struct family_job *opener, const struct family_job *job)
{
	const struct extent_store *store = container_of(opener->store, const struct extent_store, store);

	flip_root(opener, head_table_job(&store->lineage->heads, job->committed.name));
}

void family_open(struct family *family, unsigned disks, uint64_t seed)
{
	family_open_with(family, disks, seed, FAMILY_SNAPSHOTS);
}

void family_open_with(struct family *family, unsigned disks, uint64_t seed, unsigned snapshots)
{
	struct family_job *first = &family->jobs[0];

	*family = (struct family){ .disk_count = disks,
				   .snapshots = snapshots,
				   .place_bytes = STORE_EXTENT_BYTES + (seed % 2 ? 0 : 16 * KIB),
				   .random = seed * 2 + 1 };
	for (unsigned i = 0; i < disks; i++)
		family->disks[i] = sim_disk_new(20 * FAMILY_EXTENTS * family->place_bytes, seed * 5 + i);
	for (unsigned i = 0; i < FAMILY_WRITES; i++)
		family->writes[i].page = pages_new(FAMILY_PAGE);
	for (unsigned i = 0; i < FAMILY_JOBS; i++) {
		family->jobs[i].family = family;
		family->jobs[i].request.done = on_ended;
	}
	assert_int_equal(workers_new(1, "test", &family->workers), 0);
	set_name(family, &first->committed, 'j');
	begin_session(family, first, true);
	family_wait(first, store_create(first->store, &first->request));
	family->watch = sim_watch_new(family->disks, disks);
	for (unsigned extent = 0; extent < FAMILY_EXTENTS; extent++) {
		write_extent(family, first, extent);
		drain(first);
	}
	family_commit(first);
	family_settle(family);
	assert_int_equal(first->committed.step, 1);
}

void family_close(struct family *family)
{
	end_session(family);
	workers_free(family->workers);
	sim_watch_free(family->watch);
	for (unsigned i = 0; i < family->disk_count; i++)
		sim_disk_free(family->disks[i]);
	for (unsigned i = 0; i < FAMILY_WRITES; i++)
		free(family->writes[i].page);
}
