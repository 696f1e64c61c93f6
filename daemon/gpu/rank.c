/* A rank's part of a tier: its lease page, and the events that it releases behind. */
#include <errno.h>
#include <event2/event.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "daemon/gpu/own.h"

bool gpu_rank_has_lease(const struct gpu_rank *rank, uint32_t unit)
{
	return rank->leases && rank->member && lease_is_held(&gpu_lease_counters(rank->leases)[unit]);
}

bool gpu_has_leases(const struct member *member)
{
	const struct gpu_rank *rank = member->gpu;

	for (uint32_t unit = 0; rank && rank->leases && unit < member->job->catalog.unit_count; unit++)
		if (gpu_rank_has_lease(rank, unit))
			return true;
	return false;
}

uint32_t gpu_leases(const struct member *member, uint32_t unit, uint32_t *ret_gpu)
{
	const struct gpu_rank *rank = member->gpu;

	if (!rank || !gpu_rank_has_lease(rank, unit))
		return 0;
	*ret_gpu = rank->tier->gpu->number;
	return atomic_load(&gpu_lease_counters(rank->leases)[unit]);
}

/* ---- Leaving: what its process has queued goes on ---- */

bool gpu_ranks_may_die(const struct gpu_tier *tier)
{
	for (unsigned i = 0; i < GPU_RANKS; i++)
		if (tier->ranks[i] && tier->ranks[i]->draining == GPU_MAY_DIE)
			return true;
	return false;
}

static void end_draining(struct gpu_rank *rank)
{
	struct gpu_tier *tier = rank->tier;
	int process = event_get_fd(rank->death);

	rank->draining = GPU_HAS_DRAINED;
	event_free(TAKE_PTR(rank->death));
	close(process);
	rank->busy--;
	tier->outstanding--;
	gpu_rank_settle(rank);
	gpu_packs_resume(tier);
	job_settle(tier->job);
}

static void on_drained(struct gpu_request *request, int status)
{
	struct gpu_copy *copy = container_of(request, struct gpu_copy, request);

	end_draining(container_of(copy, struct gpu_rank, last));
}

/* Until its last event has passed. */
static void wait_for_last_event(struct gpu_rank *rank)
{
	uint64_t last = atomic_load_explicit(&rank->leases->recorded, memory_order_acquire);

	rank->last = (struct gpu_copy){
		.request.done = on_drained,
		.direction = GPU_FROM_HOST,
		.priority = TIER_WRITE_BACK,
		.after = last > 0 ? &rank->events[gpu_event_at(last)].event : NULL,
	};
	rank->draining = GPU_AWAITS_EVENT;
	gpu_copy_submit(rank->tier->gpu->engine, &rank->last);
}

/* Its process has died, and the driver has ended what it had queued: who waits for its events need not. Or it
 * has lost its connection alone. */
static void on_death(evutil_socket_t fd, short events, void *argument)
{
	struct gpu_rank *rank = argument;
	bool awaits_event = rank->draining == GPU_AWAITS_EVENT;

	if (events & EV_TIMEOUT) {
		event_add(rank->death, NULL);
		wait_for_last_event(rank);
		gpu_packs_resume(rank->tier);
		return;
	}
	rank->draining = GPU_HAS_DIED;
	for (uint32_t i = 0; i < rank->tier->job->catalog.pack_count; i++)
		gpu_pack_forget(&rank->tier->packs[i], rank);
	if (awaits_event)
		gpu_copy_cancel(rank->tier->gpu->engine, &rank->last);
	else
		end_draining(rank);
}

/* False: it has died already, or nobody would tell us. */
static bool begin_draining(struct gpu_rank *rank, const struct timeval *patience)
{
	int fd = rank->leases && rank->tier->state == GPU_TIER_OPEN
			 ? (int)syscall(SYS_pidfd_open, rank->member->pid, 0)
			 : -1;

	if (fd < 0)
		return false;
	rank->death = event_new(rank->tier->job->node->loop, fd, EV_READ, on_death, rank);
	if (!rank->death || event_add(rank->death, patience) < 0) {
		if (rank->death)
			event_free(TAKE_PTR(rank->death));
		close(fd);
		return false;
	}
	rank->draining = GPU_MAY_DIE;
	rank->busy++;
	rank->tier->outstanding++;
	return true;
}

void gpu_leave(struct member *member)
{
	if (member->gpu && begin_draining(member->gpu, NULL))
		wait_for_last_event(member->gpu);
}

/* ---- The end ---- */

static void free_rank(struct gpu_rank *rank)
{
	struct gpu_tier *tier = rank->tier;

	tier->ranks[rank->place] = NULL;
	/* Another rank may get its place, whose events have nothing to do with them. */
	for (uint32_t i = 0; tier->places && i < tier->slots.count; i++)
		tier->places[i].behind[rank->place] = 0;
	disposal_start_shared(tier->job->node, tier->job->uid, true, &rank->page);
	free(rank);
	job_settle(tier->job);
}

static void on_closed(struct gpu_request *request, int status)
{
	struct gpu_event *event = container_of(request, struct gpu_event, request);
	struct gpu_rank *rank = container_of(event, struct gpu_rank_event, event)->rank;

	rank->tier->outstanding--;
	if (--rank->busy == 0)
		free_rank(rank);
}

static void close_events(struct gpu_rank *rank)
{
	struct gpu_tier *tier = rank->tier;

	rank->busy = 1;
	for (unsigned i = 0; i < GPU_EVENTS; i++) {
		struct gpu_event *event = &rank->events[i].event;

		if (!event->event)
			continue;
		rank->busy++;
		tier->outstanding++;
		event->request.done = on_closed;
		gpu_event_close(tier->gpu->engine, event);
	}
	if (--rank->busy == 0)
		free_rank(rank);
}

void gpu_rank_settle(struct gpu_rank *rank)
{
	if (!rank->member && rank->busy == 0 && gpu_gradients_are_gone(rank))
		close_events(rank);
}

void gpu_forget(struct member *member)
{
	struct gpu_rank *rank = TAKE_PTR(member->gpu);

	if (!rank)
		return;
	/* A process that dies closes its connection before it closes its GPU, and no event covers what it has
	 * not released. If it has died meanwhile, the end of its draining is on its way. */
	if (rank->draining == GPU_STAYS)
		begin_draining(rank, &(struct timeval){ .tv_sec = 1 });
	rank->member = NULL;
	if (gpu_rank_is_draining(rank))
		return;
	for (uint32_t i = 0; rank->tier->packs && i < rank->tier->job->catalog.pack_count; i++)
		gpu_pack_forget(&rank->tier->packs[i], rank);
	gpu_rank_settle(rank);
}

/* ---- Attaching ---- */

static int make_page(struct gpu_rank *rank)
{
	uint32_t units = rank->tier->job->catalog.unit_count;
	int r = memory_new_shared("tierd-gpu-leases", gpu_lease_bytes(units), &rank->page);

	if (r == 0)
		r = memory_seal(&rank->page);
	if (r < 0)
		return r;
	rank->leases = (struct gpu_lease_header *)rank->page.base;
	rank->leases->magic = GPU_PAGES_MAGIC;
	rank->leases->version = GPU_PAGES_VERSION;
	rank->leases->unit_count = units;
	return 0;
}

static void reply(struct gpu_rank *rank, struct pending *pending)
{
	struct gpu_tier *tier = rank->tier;
	Tierd__Wire__GpuAttachReply body = TIERD__WIRE__GPU_ATTACH_REPLY__INIT;
	ProtobufCBinaryData *events = calloc(tier->slots.count, sizeof(*events));
	int fds[] = { memory_client_fd(&tier->directory_memory, MEMORY_READ_ONLY),
		      memory_client_fd(&rank->page, MEMORY_WRITABLE),
		      fcntl(tier->memory.fd, F_DUPFD_CLOEXEC, 0) };

	body.directory_bytes = tier->directory_memory.length;
	body.lease_bytes = rank->page.length;
	body.memory_bytes = tier->memory.bytes;
	body.is_whole = gpu_tier_is_whole(tier);
	body.n_events = tier->slots.count;
	body.events = events;
	for (uint32_t i = 0; events && i < tier->slots.count; i++)
		events[i] = (ProtobufCBinaryData){ sizeof(tier->places[i].event.handle),
						   (uint8_t *)&tier->places[i].event.handle };
	if (!events || fds[0] < 0 || fds[1] < 0 || fds[2] < 0)
		pending_error(pending, -ENOMEM, "job %s: no descriptors or memory left for its GPU",
			      tier->job->name);
	else
		pending_reply_fds(pending, WIRE_REPLY(GPU_ATTACH, gpu_attach, &body), fds, 3);
	for (unsigned i = 0; i < ARRAY_LENGTH(fds); i++)
		fd_close(fds[i]);
	free(events);
}

static void finish(struct gpu_rank *rank, int status, const char *problem)
{
	struct queue *link = queue_first(&rank->attaching);
	struct pending *pending =
		link ? container_of(queue_entry(link, struct waiter, link), struct pending, waiter) : NULL;

	if (status == 0 && !rank->leases)
		status = make_page(rank);
	if (!pending)
		return;
	if (status == 0) {
		reply(rank, pending);
		return;
	}
	pending_error(pending, status, "job %s: rank %u has no memory on its GPU: %s", rank->tier->job->name,
		      rank->member->rank, problem);
	gpu_forget(rank->member);
}

static void on_opened(struct gpu_request *request, int status)
{
	struct gpu_event *event = container_of(request, struct gpu_event, request);
	struct gpu_rank *rank = container_of(event, struct gpu_rank_event, event)->rank;

	rank->tier->outstanding--;
	rank->busy--;
	if (status < 0 && rank->status == 0) {
		rank->status = status;
		snprintf(rank->problem, sizeof(rank->problem), "an event of the rank cannot be opened: %s",
			 request->problem.text);
	}
	if (rank->busy > 0)
		return;
	if (!rank->member)
		gpu_rank_settle(rank);
	else
		finish(rank, rank->status, rank->problem);
}

static void open_events(struct gpu_rank *rank)
{
	rank->is_open = true;
	rank->busy = GPU_EVENTS;
	rank->tier->outstanding += GPU_EVENTS;
	for (unsigned i = 0; i < GPU_EVENTS; i++) {
		rank->events[i].event.request.done = on_opened;
		gpu_event_open(rank->tier->gpu->engine, &rank->events[i].event);
	}
}

static void go_on(struct gpu_rank *rank)
{
	struct gpu_tier *tier = rank->tier;

	if (!rank->member || rank->busy > 0)
		return;
	if (tier->state == GPU_TIER_OPEN && !rank->is_open)
		open_events(rank);
	else if (tier->state == GPU_TIER_FAILED && !rank->leases)
		finish(rank, tier->status, tier->problem);
}

void gpu_ranks_go_on(struct gpu_tier *tier)
{
	for (unsigned i = 0; i < GPU_RANKS; i++)
		if (tier->ranks[i])
			go_on(tier->ranks[i]);
}

static int check(const Tierd__Wire__GpuAttach *attach)
{
	if (attach->uuid.len != GPU_UUID_BYTES || attach->n_events != GPU_EVENTS)
		return -EINVAL;
	for (size_t i = 0; i < attach->n_events; i++)
		if (attach->events[i].len != GPU_HANDLE_BYTES)
			return -EINVAL;
	return 0;
}

static struct gpu_rank *rank_new(struct gpu_tier *tier, struct member *member,
				 const Tierd__Wire__GpuAttach *attach)
{
	struct gpu_rank *rank = NULL;
	unsigned place = 0;

	while (place < GPU_RANKS && tier->ranks[place])
		place++;
	if (place < GPU_RANKS)
		rank = calloc(1, sizeof(*rank));
	if (!rank)
		return NULL;
	*rank = (struct gpu_rank){ .tier = tier, .member = member, .place = place, .page = MEMORY_INIT };
	queue_init(&rank->attaching);
	queue_init(&rank->gradients.asking);
	for (unsigned i = 0; i < GPU_EVENTS; i++) {
		rank->events[i].rank = rank;
		memcpy(&rank->events[i].event.handle, attach->events[i].data, GPU_HANDLE_BYTES);
	}
	tier->ranks[place] = rank;
	member->gpu = rank;
	return rank;
}

void gpu_attach(struct pending *pending, const Tierd__Wire__GpuAttach *attach)
{
	struct member *member = pending->member;
	struct job *job = member->job;
	struct gpu_tier *tier;

	if (!job_check_live(pending, attach->epoch))
		return;
	if (check(attach) < 0) {
		pending_error(pending, -EINVAL,
			      "a GPU has a UUID of %d bytes, and a rank %d events of %d there",
			      GPU_UUID_BYTES, GPU_EVENTS, GPU_HANDLE_BYTES);
		return;
	}
	if (!gpu_updates_is_fraction(attach->update_fraction)) {
		pending_error(
			pending, -EINVAL,
			"GPUs take a fraction of the updates from 0 to 1, or -1 for as much as is fast");
		return;
	}
	if (member->gpu) {
		pending_error(pending, -EEXIST, "job %s: rank %u has asked for a GPU already", job->name,
			      member->rank);
		return;
	}
	tier = gpu_tier_find(job, attach);
	if (!tier || !rank_new(tier, member, attach)) {
		pending_error(pending, tier ? -EBUSY : -ENOMEM, "job %s: %s", job->name,
			      tier ? "too many of its ranks are on one GPU" : "tierd is out of memory");
		return;
	}
	queue_push(&member->gpu->attaching, &pending->waiter.link);
	go_on(member->gpu);
}
