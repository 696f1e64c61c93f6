#include "daemon/model/member.h"

#include <errno.h>
#include <event2/event.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "common/clock.h"
#include "daemon/durability/durable.h"
#include "daemon/gradients/gradients.h"
#include "daemon/model/gradient_buffers.h"
#include "daemon/model/job.h"
#include "daemon/observe/statistics.h"
#include "daemon/request/request.h"
#include "daemon/residency/residency.h"
#include "daemon/resources/budget.h"
#include "daemon/resources/disposal.h"

/* Of next_rates and of two announcements. */
#define MEMBER_ROOMS 3

static int make_rooms(struct member *member)
{
	uint32_t count = member->job->options.group_count;

	member->rooms = options_new_groups(&member->job->options, MEMBER_ROOMS);
	if (!member->rooms)
		return -ENOMEM;
	member->next_rates.groups = member->rooms;
	member->announced.rates.groups = member->rooms + count;
	member->announced_next.rates.groups = member->rooms + 2 * count;
	return 0;
}

uint64_t member_rates_bytes(const struct job *job)
{
	return (uint64_t)MEMBER_ROOMS * job->options.group_count * sizeof(struct optimizer_group);
}

int member_new(struct job *job, struct memberships *client, struct port *port, uint32_t rank,
	       struct member **ret_member)
{
	struct member *member = calloc(1, sizeof(*member));
	int r;

	if (!member)
		return -ENOMEM;
	*member = (struct member){ .job = job,
				   .client = client,
				   .port = port,
				   .rank = rank,
				   .pid = port->pid,
				   .window = MEMORY_INIT,
				   .page = MEMORY_INIT,
				   .gradients = MEMORY_INIT,
				   .doorbell_fd = -1 };
	queue_init(&member->link);
	queue_init(&member->client_link);
	queue_init(&member->pendings);
	queue_init(&member->buffer_waiters);
	queue_init(&member->orders);
	r = make_rooms(member);
	if (r == 0)
		r = memory_new_shared("tierd-window", WINDOW_BYTES, &member->window);
	if (r == 0)
		r = memory_seal(&member->window);
	if (r < 0) {
		memory_free(&member->window);
		free(member->rooms);
		free(member);
		return r;
	}
	*ret_member = member;
	return 0;
}

static void on_doorbell(evutil_socket_t fd, short events, void *argument)
{
	struct member *member = argument;

	if (member->has_left)
		return;
	/* First the wish, then the look: a release between the two rings again. */
	if (!queue_is_empty(&member->job->residency.slot_wishes))
		job_watch_slots(member->job);
	residency_serve(member->job);
	cache_go_on(member->job);
	prefetch_run(member->job);
}

static int make_doorbell(struct member *member)
{
	member->doorbell_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (member->doorbell_fd < 0)
		return -errno;
	/* Each ring is an edge. Reading would put us at the mercy of the client: whether a read blocks is a
	 * property of the open file, which it shares. */
	event_assign(&member->doorbell, member->job->node->loop, member->doorbell_fd,
		     EV_READ | EV_PERSIST | EV_ET, on_doorbell, member);
	if (event_add(&member->doorbell, NULL) == 0)
		return 0;
	member->doorbell_fd = fd_close(member->doorbell_fd);
	return -ENOMEM;
}

static int make_lease_page(struct member *member)
{
	uint32_t units = member->job->catalog.unit_count;
	int r = memory_new_shared("tierd-leases", lease_bytes(units, member->buffer_count), &member->page);

	if (r < 0)
		return r;
	member->leases = (struct lease_header *)member->page.base;
	member->leases->magic = PAGES_MAGIC;
	member->leases->version = PAGES_VERSION;
	member->leases->unit_count = units;
	member->leases->buffer_count = member->buffer_count;
	atomic_store(&member->leases->doorbell_at, UINT64_MAX);
	return memory_seal(&member->page);
}

static int make_gradients(struct member *member)
{
	uint64_t bytes = gradient_buffers_bytes(&member->job->gradient_buffers);
	int r = memory_new_shared("tierd-gradients", bytes ? bytes : 4096, &member->gradients);

	if (r < 0)
		return r;
	memory_make_huge(&member->gradients, false);
	return memory_seal(&member->gradients);
}

static int make_counters(struct member *member)
{
	const struct catalog *catalog = &member->job->catalog;
	uint32_t units = catalog->unit_count;

	member->groups = calloc(catalog->tensor_count + 1, sizeof(*member->groups));
	member->pushed = calloc(units + 1, sizeof(*member->pushed));
	member->closed_pushed = calloc(units + 1, sizeof(*member->closed_pushed));
	member->contributions = calloc(member->buffer_count, sizeof(*member->contributions));
	member->absent = calloc(member->buffer_count, gradient_absent_bytes(member->job));
	if (!member->groups || !member->pushed || !member->closed_pushed || !member->contributions ||
	    !member->absent)
		return -ENOMEM;
	for (uint32_t i = 0; i < member->buffer_count; i++)
		queue_init(&member->contributions[i].link);
	return 0;
}

/* A process that has left may have them still, and whatever it writes there nobody reads. */
static void give_buffers_back(struct member *member)
{
	disposal_start_shared(member->job->node, member->job->uid, false, &member->window);
	disposal_start_shared(member->job->node, member->job->uid, false, &member->gradients);
}

static void clear_pages(struct member *member)
{
	if (member->doorbell_fd >= 0) {
		event_del(&member->doorbell);
		member->doorbell_fd = fd_close(member->doorbell_fd);
	}
	statistics_count_gathers(member);
	member->has_pages = false;
	/* A process that lives counts there until it has unmapped it, also one that has just left: it finds
	 * there what it holds. */
	disposal_start_shared(member->job->node, member->job->uid, true, &member->page);
	give_buffers_back(member);
	free(member->pushed);
	free(member->closed_pushed);
	free(member->contributions);
	free(TAKE_PTR(member->absent));
	free(TAKE_PTR(member->groups));
	member->pushed = member->closed_pushed = NULL;
	member->contributions = NULL;
	member->buffer_count = 0;
}

int member_make_pages(struct member *member)
{
	char message[128];
	int r;

	if (member->has_pages)
		return 0;
	member->buffer_count = member->job->gradient_buffers.count;
	r = make_counters(member);
	if (r == 0)
		r = make_lease_page(member);
	if (r == 0)
		r = make_gradients(member);
	if (r == 0)
		r = member_set_phase(member, "train", message, sizeof(message));
	if (r == 0)
		r = make_doorbell(member);
	if (r < 0) {
		clear_pages(member);
		return r;
	}
	member->counted_ns = clock_now_ns();
	member->has_pages = true;
	return 0;
}

void member_free(struct member *member)
{
	queue_remove(&member->link);
	queue_remove(&member->client_link);
	for (struct queue *link = queue_pop(&member->orders); link; link = queue_pop(&member->orders))
		order_free(queue_entry(link, struct order, link));
	budget_uncharge(member->job, member->charged_bytes);
	clear_pages(member);
	free(member->rooms);
	free(member);
}

bool member_buffer_takes(const struct member *member, uint32_t buffer, uint32_t unit)
{
	const struct job *job = member->job;

	return gradient_buffer_takes(&job->gradient_buffers, buffer,
				     unit_gradient_bytes(&job->catalog.units[unit]));
}

bool member_has_leases(const struct member *member)
{
	for (uint32_t unit = 0; member->has_pages && unit < member->job->catalog.unit_count; unit++)
		if (member_has_lease(member, unit))
			return true;
	return false;
}

void members_describe(const struct job *job, char *text, size_t size)
{
	size_t used = 0;

	text[0] = '\0';
	for (uint32_t rank = 0; rank < job->options.world_size && used + 32 < size; rank++)
		if (job->ranks[rank])
			used += (size_t)snprintf(text + used, size - used, "%srank %u (pid %d)",
						 used ? ", " : "", rank, (int)job->ranks[rank]->pid);
}

void member_release(struct member *member)
{
	if (!member->has_left || member->busy > 0)
		return;
	give_buffers_back(member);
	/* A process that lives may read what it has leased, connected or not. */
	if (member->client && member_has_leases(member))
		return;
	struct job *job = member->job;

	member_free(member);
	job_settle(job);
}

static struct order *find_order(struct member *member, const char *phase)
{
	QUEUE_FOREACH (link, &member->orders) {
		struct order *order = queue_entry(link, struct order, link);

		if (strcmp(order->phase, phase) == 0)
			return order;
	}
	return NULL;
}

/* A pass gathers each unit a few times: forward, backward, tied weights. */
static uint32_t order_capacity(const struct job *job)
{
	return 8 * job->catalog.unit_count + 64;
}

uint64_t member_phase_bytes(const struct job *job)
{
	return order_bytes(order_capacity(job));
}

static int add_order(struct member *member, const char *phase, struct order **ret_order, char *message,
		     size_t size)
{
	uint64_t bytes = member->phases > 0 ? member_phase_bytes(member->job) : 0;
	int r;

	if (member->phases == MEMBER_MAX_PHASES)
		return refuse(message, size, -E2BIG, "it is one too many: a rank has at most %d",
			      MEMBER_MAX_PHASES);
	r = budget_charge(member->job, bytes, message, size);
	if (r < 0)
		return r;
	r = order_new(phase, order_capacity(member->job), ret_order);
	if (r < 0) {
		budget_uncharge(member->job, bytes);
		return refuse(message, size, r, "out of memory");
	}
	member->charged_bytes += bytes;
	member->phases++;
	queue_push(&member->orders, &(*ret_order)->link);
	return 0;
}

/* Its passes end with steps: evaluating in the middle of one leaves it as it is. */
static bool is_training(const struct order *order)
{
	return order->has_steps || strcmp(order->phase, "train") == 0;
}

int member_set_phase(struct member *member, const char *phase, char *message, size_t size)
{
	struct order *order = find_order(member, phase);
	int r;

	member_read_trace(member);
	if (!order) {
		r = add_order(member, phase, &order, message, size);
		if (r < 0)
			return r;
	}
	if (member->order && member->order != order && !is_training(member->order))
		order_finish_pass(member->order);
	member->order = order;
	member->job->residency.has_next_uses = false;
	return 0;
}

bool member_has_steps(const struct member *member)
{
	return member->step || member->next_step || member->awaited.count > 0;
}

void member_step_over(struct member *member)
{
	if (member->leaving && !member_has_steps(member) && !durable_is_owed(member->job))
		event_active(member->leaving->timer, EV_TIMEOUT, 0);
}

uint64_t member_last_version(const struct member *member)
{
	return member->job->decided + member->is_closed + (member->next_step != NULL);
}

bool member_owes_step(const struct member *member)
{
	return member->is_closed && !member->is_finished;
}

const char *member_owed_call(const struct member *member)
{
	return member->job->update.writing == WRITING_NOTHING ? "tierd_step_finish" : "tierd_write_end";
}

void member_finish_pass(struct member *member)
{
	member_read_trace(member);
	member->order->has_steps = true;
	order_finish_pass(member->order);
	member->job->residency.has_next_uses = false;
}

/* The page is the client's to scribble on: a head that runs away, or an entry of another number, only
 * confuses its own prefetch. */
bool member_read_trace(struct member *member)
{
	if (!member->has_pages)
		return false;
	uint64_t head = atomic_load_explicit(&member->leases->trace_head, memory_order_seq_cst);
	uint64_t tail = member->trace_tail;

	if (head - tail > TRACE_ENTRIES)
		tail = head - TRACE_ENTRIES;
	for (; tail != head; tail++) {
		uint64_t entry = atomic_load_explicit(&lease_trace(member->leases)[tail % TRACE_ENTRIES],
						      memory_order_acquire);

		/* Counted but not yet written: the next look finds it. */
		if (entry >> 32 != (tail & UINT32_MAX))
			break;
		if ((uint32_t)entry < member->job->catalog.unit_count)
			order_note(member->order, (uint32_t)entry);
	}
	bool has_news = tail != member->trace_tail;

	member->trace_tail = tail;
	if (has_news)
		member->job->residency.has_next_uses = false;
	return has_news;
}
