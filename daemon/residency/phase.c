#include "daemon/residency/phase.h"

#include <errno.h>
#include <string.h>

#include "common/clock.h"
#include "daemon/model/model.h"
#include "daemon/request/request.h"
#include "daemon/residency/order.h"
#include "daemon/residency/residency.h"
#include "daemon/resources/resources.h"
#include "daemon/telemetry/telemetry.h"

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

void member_free_phases(struct member *member)
{
	for (struct queue *link = queue_pop(&member->orders); link; link = queue_pop(&member->orders))
		order_free(queue_entry(link, struct order, link));
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
	prefetch_expect_anew(member->job);
	return 0;
}

void member_finish_pass(struct member *member)
{
	member_read_trace(member);
	member->order->has_steps = true;
	order_finish_pass(member->order);
	prefetch_expect_anew(member->job);
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
		prefetch_expect_anew(member->job);
	return has_news;
}

/* A client can write what it likes into its page: no more counts than one gather in each nanosecond, so that
 * it spoils nobody's sums but its own job's. */
void member_count_gathers(struct member *member)
{
	uint64_t now = clock_now_ns();

	if (!member->has_pages)
		return;
	uint64_t head = atomic_load_explicit(&member->leases->trace_head, memory_order_relaxed);
	uint64_t more = head - member->counted_gathers;

	if (more <= now - member->counted_ns)
		figures_of(member->job)->gathers += more;
	member->counted_gathers = head;
	member->counted_ns = now;
}
