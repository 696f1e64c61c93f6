#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/vfs.h>

#include "client/debug.h"
#include "client/job.h"
#include "client/ticket.h"
#include "proto/vocabulary.h"

/* Beyond the time that the daemon was given to collect the ranks: planning and initializing. */
#define READY_MARGIN_MS 10000

/* The descriptors of the first ready, in their order. */
enum { FD_DIRECTORY, FD_ARENA, FD_LEASES, FD_GRADIENTS, FD_DOORBELL, FDS };
static_assert(FDS == TICKET_MAX_FDS, "an answer holds them all");

/* ---- Pages ---- */

static int map_all(struct tierd_job *job, const Tierd__Wire__JobReadyReply *reply, const int *fds)
{
	uint64_t gradient_bytes;
	int r = -EPROTO;

	if (reply->gradient_buffers <= WIRE_MAX_GRADIENT_BUFFERS)
		r = mapping_new(fds[FD_DIRECTORY], reply->directory_bytes, PROT_READ,
				&job->directory_mapping);

	if (r == 0)
		r = mapping_new(fds[FD_ARENA], reply->arena_bytes, PROT_READ, &job->arena_mapping);
	if (r == 0)
		r = mapping_new(fds[FD_LEASES], reply->lease_bytes, PROT_READ | PROT_WRITE,
				&job->lease_mapping);
	if (r == 0 &&
	    __builtin_mul_overflow(reply->gradient_buffers, reply->gradient_buffer_bytes, &gradient_bytes))
		r = -EPROTO;
	if (r == 0 && gradient_bytes > 0)
		r = mapping_new(fds[FD_GRADIENTS], gradient_bytes, PROT_READ | PROT_WRITE,
				&job->gradient_mapping);
	return r;
}

static int check_pages(const struct tierd_job *job, const Tierd__Wire__JobReadyReply *reply)
{
	const struct directory_header *directory = job->directory_mapping.address;
	const struct lease_header *leases = job->lease_mapping.address;

	if (reply->directory_bytes < sizeof(*directory) || reply->lease_bytes < sizeof(*leases) ||
	    directory->magic != PAGES_MAGIC || leases->magic != PAGES_MAGIC)
		return -EPROTO;
	/* A daemon that negotiates would have said so before. */
	if (!versions_have(job->node->pages, directory->version) || leases->version != directory->version)
		return -EPROTONOSUPPORT;
	if (reply->unit_count != job->unit_count || directory->unit_count != reply->unit_count ||
	    reply->directory_bytes < directory_bytes(reply->unit_count) ||
	    leases->unit_count != reply->unit_count || leases->buffer_count != reply->gradient_buffers ||
	    reply->lease_bytes < lease_bytes(reply->unit_count, reply->gradient_buffers))
		return -EPROTO;
	return 0;
}

static uint64_t unit_elements(const struct unit *unit)
{
	uint64_t elements = 0;

	for (int section = 0; section < UNIT_SECTIONS; section++)
		elements += unit->layout.elements[section];
	return elements;
}

static void place_unit(struct unit *unit, const struct directory_unit *place, struct hot_unit *ret_hot)
{
	memcpy(unit->spans, place->section_offsets, sizeof(unit->spans));
	unit->end = 0;
	for (int section = 0; section < UNIT_SECTIONS; section++) {
		uint64_t bytes =
			unit->layout.elements[section] * section_element_bytes((enum unit_section)section);

		if (bytes > 0 && unit->spans[section] + bytes > unit->end)
			unit->end = unit->spans[section] + bytes;
	}
	for (uint32_t i = 0; i < unit->tensor_count; i++) {
		const struct tensor_layout *tensor = &unit->tensors[i];

		unit->offsets[i] =
			unit->spans[tensor->section] + tensor->first * section_element_bytes(tensor->section);
	}
	ret_hot->offsets = unit->offsets;
	ret_hot->awaited_mask = unit_is_trainable(unit) ? UINT64_MAX : 0;
	ret_hot->elements = unit_elements(unit);
}

static int prepare(struct tierd_job *job, const Tierd__Wire__JobReadyReply *reply)
{
	struct directory_header *directory = job->directory_mapping.address;

	job->hot = aligned_alloc(64, (job->unit_count * sizeof(*job->hot) + 63) / 64 * 64 + 64);
	job->buffers = calloc(reply->gradient_buffers + 1, sizeof(*job->buffers));
	if (!job->hot || !job->buffers)
		return -ENOMEM;
	memset(job->hot, 0, job->unit_count * sizeof(*job->hot));
	job->directory = directory;
	job->entries = directory_entries(directory);
	job->leases = job->lease_mapping.address;
	job->arena = job->arena_mapping.address;
	job->buffer_count = reply->gradient_buffers;
	job->buffer_bytes = reply->gradient_buffer_bytes;
	job->buffer_states = lease_buffers(job->leases);
	job->counters = lease_counters(job->leases, job->buffer_count);
	for (uint32_t i = 0; i < job->unit_count; i++) {
		if (unit_layout_gradient_bytes(&job->units[i]->layout) > job->buffer_bytes)
			return -EPROTO;
		place_unit(job->units[i], &directory_units(directory)[i], &job->hot[i]);
	}
	return 0;
}

int job_map_pages(struct tierd_job *job, const Tierd__Wire__JobReadyReply *reply, const int *fds)
{
	struct statfs status;
	int r = map_all(job, reply, fds);

	if (r == 0)
		r = check_pages(job, reply);
	if (r == -EPROTONOSUPPORT) {
		const struct directory_header *directory = job->directory_mapping.address;

		connection_fail(job->node, r,
				"tierd laid the pages of job \"%s\" out in version %u, and this library "
				"(" TIERD_VERSION ") uses %u to %u; update the older of the two",
				job->name, directory->version, job->node->pages.minimum,
				job->node->pages.maximum);
	}
	if (r == 0)
		r = prepare(job, reply);
	if (r == 0 && fstatfs(fds[FD_ARENA], &status) < 0)
		r = -errno;
	if (r == 0) {
		/* Of reserved huge pages, parts cannot be protected. */
		job->arena_page_bytes = status.f_type == HUGETLBFS_MAGIC ? (uint64_t)status.f_bsize : 4096;
		job->doorbell_fd = fcntl(fds[FD_DOORBELL], F_DUPFD_CLOEXEC, 0);
		if (job->doorbell_fd < 0)
			r = -errno;
	}
	if (r == 0 && debug_is_wanted())
		r = debug_new(job, &job->debug);
	if (r < 0)
		job_unmap_pages(job);
	return r;
}

void job_unmap_pages(struct tierd_job *job)
{
	/* A child has no mappings there, but may have put something else. */
	if (job->generation == connection_generation) {
		mapping_free(&job->directory_mapping);
		mapping_free(&job->arena_mapping);
		mapping_free(&job->lease_mapping);
		mapping_free(&job->gradient_mapping);
		job->debug = debug_free(job->debug);
	}
	job->doorbell_fd = fd_close(job->doorbell_fd);
	free(job->hot);
	free(job->buffers);
	job->hot = NULL;
	job->buffers = NULL;
	job->directory = NULL;
	job->buffer_count = 0;
}

/* ---- Ready ---- */

static void begin_epoch(struct tierd_job *job, const Tierd__Wire__JobReadyReply *reply)
{
	push_forget(job, job->node->last_request);
	gradients_recover(job);
	job->refused_pushes = 0;
	job->push_error = 0;
	job->state = (struct tierd_job_state){ reply->status, reply->epoch, reply->step, reply->loss_scale };
	job->epoch = reply->epoch;
	job->awaited = reply->step;
	job->is_stale = false;
	job->live_epoch = reply->epoch;
	job->ready_units = job->unit_count;
}

static void ready_answer(struct tierd_ticket *ticket, const struct answer *answer)
{
	struct tierd_job *job = ticket->job;
	const Tierd__Wire__JobReadyReply *reply = answer->reply->job_ready;
	int r = 0;

	job->is_getting_ready = false;
	if (answer->status < 0) {
		ticket_complete(ticket, TIERD_DONE, answer->status, answer->text);
		return;
	}
	if (answer->reply->body_case != TIERD__WIRE__REPLY__BODY_JOB_READY ||
	    reply->unit_count != job->unit_count) {
		ticket_violation(ticket, "other units");
		return;
	}
	if (ticket->fd_count > 0)
		r = job_map_pages(job, reply, answer->fds);
	if (r == -EPROTO)
		ticket_violation(ticket, "pages of another layout");
	if (r == -EPROTO || r == -EPROTONOSUPPORT)
		return;
	if (r == 0) {
		begin_epoch(job, reply);
		job->has_unclaimed_ready = ticket->is_orphan;
		ticket->state = job->state;
	}
	ticket_complete(ticket, TIERD_DONE, r, "mapping the job's memory failed");
}

static int ready_begin(struct tierd_job *job, int timeout_ms, struct tierd_ticket **ret_ticket)
{
	struct tierd_node *node = job->node;
	Tierd__Wire__Request request = TIERD__WIRE__REQUEST__INIT;
	Tierd__Wire__JobReady ready = TIERD__WIRE__JOB_READY__INIT;
	struct tierd_ticket *ticket = NULL;
	int r;

	if (job->is_getting_ready)
		return message_fail(-EALREADY,
				    "job \"%s\": an earlier tierd_job_ready still waits for the other ranks",
				    job->name);
	if (job->unit_count == 0)
		return message_fail(-EINVAL, "job \"%s\" has no units; call tierd_unit_define first",
				    job->name);
	gradients_drop(job);
	ready.job = job->number;
	ready.timeout_ms = timeout_ms >= 0 ? timeout_ms : node->timeout_ms;
	request.body_case = TIERD__WIRE__REQUEST__BODY_JOB_READY;
	request.job_ready = &ready;
	r = ticket_new(node, job, &ready_kind, &ticket);
	if (r < 0)
		return r;
	ticket->fd_count = job->directory ? 0 : FDS;
	job->is_getting_ready = true;
	r = ticket_send(ticket, &request);
	if (r < 0)
		job->is_getting_ready = false;
	else
		*ret_ticket = ticket;
	return r;
}

/* The daemon itself says who is missing when the time is over; only where it does not, the library gives up.
 */
static uint64_t ready_deadline(const struct tierd_node *node, int timeout_ms)
{
	if (timeout_ms < 0)
		timeout_ms = node->timeout_ms;
	if (timeout_ms < 0 || timeout_ms > INT32_MAX - READY_MARGIN_MS)
		return CONNECTION_NEVER;
	return connection_deadline(node, timeout_ms + READY_MARGIN_MS);
}

static bool is_answered(const void *argument)
{
	const struct tierd_job *job = argument;

	return !job->is_getting_ready;
}

/* The answer to an earlier call that has given up is this one's: 1; 0 if there is none. */
static int claim(struct tierd_job *job, uint64_t deadline)
{
	int r = 0;

	if (job->is_getting_ready && ticket_is_given_up(job, &ready_kind))
		r = connection_wait(job->node, is_answered, job, deadline);
	if (r < 0 && r != -ETIMEDOUT)
		return r;
	if (!job->has_unclaimed_ready || job->is_stale)
		return 0;
	job->has_unclaimed_ready = false;
	return 1;
}

static int ready_locked(struct tierd_job *job, int timeout_ms, struct tierd_job_state *ret_state)
{
	struct tierd_ticket *ticket = NULL;
	int r = claim(job, connection_deadline(job->node, timeout_ms));

	if (r == 1) {
		*ret_state = job->state;
		return 0;
	}
	if (r == 0)
		r = ready_begin(job, timeout_ms, &ticket);
	if (r < 0)
		return r;
	r = ticket_await(ticket, TIERD_DONE, ready_deadline(job->node, timeout_ms));
	if (r == 0)
		*ret_state = ticket->state;
	ticket_abandon(ticket);
	return r;
}

int tierd_job_ready(struct tierd_job *job, int timeout_ms, struct tierd_job_state *ret_state)
{
	struct tierd_job_state state;
	int r = job_enter(job, JOB_OPEN);

	if (r < 0)
		return r;
	r = ready_locked(job, timeout_ms, &state);
	job_exit(job);
	if (r == 0 && ret_state)
		*ret_state = state;
	return r;
}

static int begin_claimed(struct tierd_job *job, struct tierd_ticket **ret_ticket)
{
	struct tierd_ticket *ticket = NULL;
	int r = ticket_new(job->node, job, &ready_kind, &ticket);

	if (r < 0) {
		job->has_unclaimed_ready = true;
		return r;
	}
	ticket->state = job->state;
	ticket_complete(ticket, TIERD_DONE, 0, NULL);
	*ret_ticket = ticket;
	return 0;
}

int tierd_job_ready_begin(struct tierd_job *job, int timeout_ms, struct tierd_ticket **ret_ticket)
{
	int r = job_enter(job, JOB_OPEN);

	if (r < 0)
		return r;
	r = claim(job, 0);
	if (r == 0)
		r = ready_begin(job, timeout_ms, ret_ticket);
	else if (r == 1)
		r = begin_claimed(job, ret_ticket);
	job_exit(job);
	return r;
}

const struct ticket_kind ready_kind = { .name = "tierd_job_ready", .replies = 1, .answer = ready_answer };
