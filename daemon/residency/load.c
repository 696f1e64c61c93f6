/* Packs that are wanted are read into slots, and frozen values are written back.
 *
 * Whoever wants a pack waits on its residence. A pack that needs a slot and finds none is queued for one. The
 * queue is served when a transfer ends, when a client rings at a release, and, should one release without
 * that, when a timer fires. */
#include <errno.h>
#include <string.h>

#include "common/size.h"
#include "daemon/residency/damage.h"
#include "daemon/residency/own.h"
#include "daemon/telemetry/telemetry.h"

/* ---- Waiters ---- */

void residency_wake(struct residence *residence, int status)
{
	struct queue ready;

	queue_init(&ready);
	QUEUE_FOREACH (link, &residence->waiters) {
		struct waiter *waiter = queue_entry(link, struct waiter, link);

		if (status < 0 || waiter->version <= residence->version) {
			queue_remove(link);
			queue_push(&ready, link);
		}
	}
	/* One of them must not have it evicted before the next has its lease. */
	residence->pins++;
	for (struct queue *link = queue_pop(&ready); link; link = queue_pop(&ready)) {
		struct waiter *waiter = queue_entry(link, struct waiter, link);

		waiter->done(waiter, status);
	}
	residence->pins--;
}

void residency_fail_awaited(struct job *job)
{
	for (uint32_t pack = 0; pack < job->catalog.pack_count; pack++)
		QUEUE_FOREACH (link, &residence_of(job, pack)->waiters) {
			struct waiter *waiter = queue_entry(link, struct waiter, link);

			if (waiter->version <= job->decided)
				continue;
			queue_remove(link);
			waiter->done(waiter, -EAGAIN);
		}
}

/* ---- Stalls ---- */

static enum statistics_cause cause_of(const struct residence *residence, const struct waiter *waiter)
{
	/* Unpublished, claimed or updated. */
	if (waiter->version > residence->version || residence->state >= RESIDENCE_UNPUBLISHED)
		return STATISTICS_STEP;
	return residence->state == RESIDENCE_QUEUED ? STATISTICS_SLOT : STATISTICS_NVME_READ;
}

enum statistics_cause residency_cause(const struct job *job, uint32_t pack, const struct waiter *waiter)
{
	return cause_of(residence_of(job, pack), waiter);
}

void residency_note_stall(const struct job *job, uint32_t pack, struct waiter *waiter)
{
	if (waiter->is_gather && waiter->blocked && !queue_is_empty(&waiter->link))
		stall_begin(container_of(waiter, struct pending, waiter),
			    cause_of(residence_of(job, pack), waiter));
}

static void move_stalls(struct residence *residence)
{
	QUEUE_FOREACH (link, &residence->waiters) {
		struct waiter *waiter = queue_entry(link, struct waiter, link);

		if (waiter->is_gather)
			stall_move(container_of(waiter, struct pending, waiter), cause_of(residence, waiter));
		else if (waiter->moved)
			waiter->moved(waiter);
	}
}

/* ---- Loading ---- */

static void finish_load(struct job *job, struct residence *residence)
{
	uint32_t pack = residence_pack(residence);

	job->residency->loading_bytes -= job->catalog.packs[pack].slot_bytes;
	if (residence->status < 0) {
		residence_step(job, pack, RESIDENCE_LOAD_FAILED);
		residency_wake(residence, residence->status);
	} else {
		residence_step(job, pack, RESIDENCE_PUBLISH);
	}
	job_settle(job);
}

static void on_section_loaded(struct store_transfer *transfer, int status)
{
	struct pack_transfer *section = container_of(transfer, struct pack_transfer, transfer);
	struct residence *residence = section->residence;
	struct job *job = residence->job;

	section->is_loading = false;
	trace_transferred(job, residence_pack(residence), job->location.parameter_store, transfer);
	if (status < 0 && residence->status == 0) {
		residence->status = status;
		damage_tell_read(job, transfer, status,
				 "who waits for it is told, and the next gather tries again");
	}
	if (--residence->transfers_left == 0)
		finish_load(job, residence);
}

const struct store_transfer *residency_fault(const struct job *job, uint32_t pack)
{
	const struct residence *residence = residence_of(job, pack);

	for (int section = 0; residence->status < 0 && section < UNIT_SECTIONS; section++)
		if (job->catalog.packs[pack].elements[section] > 0 &&
		    residence->sections[section].transfer.status < 0)
			return &residence->sections[section].transfer;
	return NULL;
}

const char *pack_name(const struct job *job, uint32_t pack)
{
	return job->catalog.units[job->catalog.packs[pack].first_unit].name;
}

const char *store_error(int status)
{
	return status == -EBADMSG ? "its checksum does not match" : strerror(-status);
}

struct log_fields store_fault(const struct job *job, uint32_t pack, const struct store_transfer *transfer)
{
	return (struct log_fields){
		.unit = pack_name(job, pack),
		.tier = transfer->fault.device ? "nvme" : NULL,
		.device = transfer->fault.device,
	};
}

void job_break_write(struct job *job, uint32_t pack, const struct store_transfer *transfer, int status)
{
	struct log_fields fault = store_fault(job, pack, transfer);

	job_break(job, &fault, "unit \"%s\" cannot be written to %s: %s", fault.unit,
		  fault.device ? fault.device : "its store", store_error(status));
}

static void prepare(struct job *job, uint32_t pack, int section, enum tier_direction direction,
		    void (*done)(struct store_transfer *, int))
{
	struct residence *residence = residence_of(job, pack);
	uint64_t length = job->catalog.packs[pack].elements[section] *
			  section_element_bytes((enum unit_section)section);

	residence->sections[section] = (struct pack_transfer){
		.residence = residence,
		.transfer = { .direction = direction,
			      .priority = residence->priority,
			      .stream = job->location.streams.parameter[section],
			      .offset = job->location.places[pack].parameter[section],
			      .length = size_align(length, STORE_PAGE_BYTES),
			      .buffer = residency_element(job, pack, (enum unit_section)section, 0),
			      .done = done },
	};
}

/* The pack has a slot. A refused submission counts as a failed transfer. */
void start_load(struct job *job, uint32_t pack)
{
	const struct pack *units = &job->catalog.packs[pack];
	struct residence *residence = residence_of(job, pack);

	residency_show(job, pack, DIRECTORY_LOADING);
	move_stalls(residence);
	residence->status = 0;
	residence->transfers_left = 1;
	job->residency->loading_bytes += units->slot_bytes;
	if (residence->is_blank)
		catalog_clear_padding(&job->catalog, pack, residency_address(job, pack));
	for (int section = 0; section < UNIT_SECTIONS; section++) {
		if (units->elements[section] == 0 || residence->is_blank)
			continue;
		prepare(job, pack, section, TIER_READ, on_section_loaded);
		int r = store_submit(job->location.parameter_store, &residence->sections[section].transfer);

		if (r < 0) {
			residence->status = r;
			continue;
		}
		residence->sections[section].is_loading = true;
		residence->transfers_left++;
		account_transfer(job,
				 residence->priority == TIER_DEMAND ? STATISTICS_DEMAND : STATISTICS_PREFETCH,
				 &residence->sections[section].transfer);
	}
	if (--residence->transfers_left == 0)
		finish_load(job, residence);
}

/* ---- The queue for slots ---- */

static void load(struct job *job, uint32_t pack, enum tier_priority priority)
{
	residence_of(job, pack)->priority = priority;
	residence_step(job, pack, RESIDENCE_LOAD);
}

void enter_queue(struct job *job, uint32_t pack)
{
	struct residence *residence = residence_of(job, pack);

	move_stalls(residence);
	queue_push(&job->residency->slot_queue, &residence->link);
	job_watch_slots(job);
	/* A release between looking and asking has not rung. */
	job_settle(job);
}

void leave_queue(struct job *job, uint32_t pack)
{
	queue_remove(&residence_of(job, pack)->link);
}

void leave_queue_and_load(struct job *job, uint32_t pack)
{
	leave_queue(job, pack);
	start_load(job, pack);
}

/* What a sweep has claimed it brings up to date first; it looks for those who wait. */
void residency_request_load(struct job *job, uint32_t pack, enum tier_priority priority)
{
	if (residence_of(job, pack)->state != RESIDENCE_ABSENT)
		return;
	prefetch_find_next_uses(job);
	if (residency_take_slot(job, pack, 0))
		load(job, pack, priority);
	else
		residence_step(job, pack, RESIDENCE_QUEUE);
}

/* What was being loaded ahead, or updated, is waited for now. */
static void raise_transfers(struct job *job, uint32_t pack, enum tier_priority priority)
{
	struct residence *residence = residence_of(job, pack);

	if (residency_is_updated(job, pack))
		job->residency->listener->raised(job, pack);
	if (residency_state(job, pack) != DIRECTORY_LOADING || residence->priority <= priority)
		return;
	residence->priority = priority;
	for (int section = 0; section < UNIT_SECTIONS; section++)
		if (residence->sections[section].is_loading)
			store_raise(job->location.parameter_store, &residence->sections[section].transfer,
				    priority);
}

bool residency_has_waiters(const struct job *job, uint32_t pack)
{
	return !queue_is_empty(&residence_of(job, pack)->waiters);
}

bool residency_is_awaited(const struct job *job, uint32_t pack)
{
	QUEUE_FOREACH (link, &residence_of(job, pack)->waiters)
		if (queue_entry(link, struct waiter, link)->version <= job->decided)
			return true;
	return false;
}

bool residency_want(struct job *job, uint32_t pack, struct waiter *waiter, enum tier_priority priority)
{
	struct residence *residence = residence_of(job, pack);

	if (residency_state(job, pack) == DIRECTORY_RESIDENT && residence->version >= waiter->version) {
		residence->used = ++job->residency->clock;
		return true;
	}
	if (queue_is_empty(&residence->waiters))
		job->residency->listener->awaited(job, pack);
	queue_push(&residence->waiters, &waiter->link);
	residency_note_stall(job, pack, waiter);
	/* A version that is not decided yet comes with its step: loading the present one helps nobody. */
	if (waiter->version > job->decided)
		return false;
	raise_transfers(job, pack, priority);
	residency_request_load(job, pack, priority);
	return false;
}

void residency_forget(struct waiter *waiter)
{
	queue_remove(&waiter->link);
}

bool residency_prefetch(struct job *job, uint32_t pack)
{
	if (residence_of(job, pack)->state != RESIDENCE_ABSENT)
		return true;
	if (!residency_take_slot(job, pack, job->residency->next_use[pack]))
		return false;
	load(job, pack, TIER_PREFETCH);
	return true;
}

bool residency_awaits_slot(const struct job *job)
{
	return !queue_is_empty(&job->residency->slot_queue);
}

bool residency_is_loading(const struct job *job)
{
	return job->residency->loading_bytes > 0;
}

void residency_ring(struct job *job)
{
	/* First it asks for bells, then it looks: a release between the two rings again. */
	if (residency_awaits_slot(job))
		job_watch_slots(job);
	residency_serve(job);
	cache_go_on(job);
	prefetch_run(job);
}

void residency_serve(struct job *job)
{
	if (queue_is_empty(&job->residency->slot_queue))
		return;
	prefetch_find_next_uses(job);
	/* Nothing called from here serves the queue or takes another pack out of it, a load that fails at
	 * once included. */
	QUEUE_FOREACH (link, &job->residency->slot_queue) {
		struct residence *residence = queue_entry(link, struct residence, link);
		uint32_t pack = residence_pack(residence);

		if (queue_is_empty(&residence->waiters))
			residence_step(job, pack, RESIDENCE_LEAVE_QUEUE);
		else if (residency_take_slot(job, pack, 0))
			load(job, pack, TIER_DEMAND);
	}
}

/* ---- Writing back ---- */

static void on_section_flushed(struct store_transfer *transfer, int status)
{
	struct pack_transfer *section = container_of(transfer, struct pack_transfer, transfer);
	struct residence *residence = section->residence;
	struct job *job = residence->job;

	trace_transferred(job, residence_pack(residence), job->location.parameter_store, transfer);
	residence->writes--;
	if (status < 0)
		job_break_write(job, residence_pack(residence), transfer, status);
	job_settle(job);
}

bool residency_flush(struct job *job, uint32_t pack)
{
	const struct pack *units = &job->catalog.packs[pack];
	struct residence *residence = residence_of(job, pack);

	if (!residence->is_dirty)
		return false;
	/* Written to again while it was being flushed: that comes first, and its end leads here. */
	if (residence->writes > 0)
		return true;
	residence->is_dirty = residence->is_blank = false;
	residence->priority = TIER_WRITE_BACK;
	for (int section = UNIT_TRAINABLE_SECTIONS; section < UNIT_SECTIONS; section++) {
		if (units->elements[section] == 0)
			continue;
		prepare(job, pack, section, TIER_WRITE, on_section_flushed);
		int r = store_submit(job->location.parameter_store, &residence->sections[section].transfer);

		if (r < 0) {
			job_break_write(job, pack, &residence->sections[section].transfer, r);
			continue;
		}
		residence->writes++;
		account_transfer(job, STATISTICS_WRITE_BACK, &residence->sections[section].transfer);
	}
	return true;
}
