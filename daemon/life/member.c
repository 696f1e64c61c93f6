#include "daemon/life/member.h"

#include <errno.h>
#include <event2/event.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "common/clock.h"
#include "daemon/gpu/gpu.h"
#include "daemon/gradients/gradients.h"
#include "daemon/life/refusal.h"
#include "daemon/residency/residency.h"
#include "daemon/resources/resources.h"

/* next_rates, and those of two announcements. */
#define MEMBER_RATES 3

static int make_rates(struct member *member)
{
	uint32_t count = member->job->options.group_count;

	member->rate_groups = options_new_groups(&member->job->options, MEMBER_RATES);
	if (!member->rate_groups)
		return -ENOMEM;
	member->next_rates.groups = member->rate_groups;
	member->announced.rates.groups = member->rate_groups + count;
	member->announced_next.rates.groups = member->rate_groups + 2 * count;
	return 0;
}

uint64_t member_bytes(const struct job *job)
{
	return (uint64_t)MEMBER_RATES * job->options.group_count * sizeof(struct optimizer_group) +
	       sizeof(struct member) + refusal_bytes();
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
	queue_init(&member->orders);
	r = make_rates(member);
	if (r == 0)
		r = refusal_new(&member->untold);
	if (r == 0)
		r = memory_new_shared("tierd-window", WINDOW_BYTES, &member->window);
	if (r == 0)
		r = memory_seal(&member->window);
	if (r < 0) {
		memory_free(&member->window);
		refusal_free(member->untold);
		free(member->rate_groups);
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
	residency_ring(member->job);
	gpu_serve(member->job);
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
	member->groups = calloc(member->job->catalog.tensor_count + 1, sizeof(*member->groups));
	return member->groups ? pusher_new(member) : -ENOMEM;
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
	member_count_gathers(member);
	member->has_pages = false;
	/* A process that lives counts there until it has unmapped it, also one that has just left: it finds
	 * there what it holds. */
	disposal_start_shared(member->job->node, member->job->uid, true, &member->page);
	give_buffers_back(member);
	pusher_free(member);
	free(TAKE_PTR(member->groups));
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
	member_free_phases(member);
	budget_uncharge(member->job, member->charged_bytes);
	clear_pages(member);
	refusal_free(member->untold);
	free(member->rate_groups);
	gpu_forget(member);
	free(member);
}

void member_let_go(struct member *member)
{
	struct job *job = member->job;

	give_buffers_back(member);
	/* A process that lives may read what it has leased, connected or not. */
	if (member->client && (member_has_leases(member) || gpu_has_leases(member)))
		return;
	member_free(member);
	job_settle(job);
}
