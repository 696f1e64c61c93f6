/* The memory on its GPU that a rank pushes gradients from. It is the rank's alone, since its process writes
 * there, and as large as its gradient buffers in host memory, which are registered with the GPU meanwhile. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/size.h"
#include "daemon/gpu/own.h"

static struct gpu_rank *rank_of(struct gpu_gradients *gradients)
{
	return container_of(gradients, struct gpu_rank, gradients);
}

/* ---- Who asks ---- */

static void reply(struct gpu_rank *rank, struct pending *pending)
{
	Tierd__Wire__GpuGradientsReply body = TIERD__WIRE__GPU_GRADIENTS_REPLY__INIT;
	int fd = fcntl(rank->gradients.memory.fd, F_DUPFD_CLOEXEC, 0);

	body.bytes = rank->gradients.memory.bytes;
	if (fd < 0)
		pending_error(pending, -ENOMEM, "job %s: no descriptors left for its GPU",
			      rank->tier->job->name);
	else
		pending_reply_fds(pending, WIRE_REPLY(GPU_GRADIENTS, gpu_gradients, &body), &fd, 1);
	fd_close(fd);
}

static struct pending *next_asking(struct gpu_rank *rank)
{
	struct queue *link = queue_first(&rank->gradients.asking);

	return link ? container_of(queue_entry(link, struct waiter, link), struct pending, waiter) : NULL;
}

static void fail(struct gpu_rank *rank, int status, const char *problem)
{
	for (struct pending *pending = next_asking(rank); pending; pending = next_asking(rank))
		pending_error(pending, status,
			      "job %s: rank %u has no gradient buffers on its GPU: %s; push from host memory",
			      rank->tier->job->name, rank->member->rank, problem);
}

void gpu_fail_asking(struct gpu_tier *tier)
{
	for (unsigned i = 0; i < GPU_RANKS; i++)
		if (tier->ranks[i] && tier->ranks[i]->member)
			fail(tier->ranks[i], tier->status, tier->problem);
}

/* ---- Budget ---- */

uint64_t gpu_gradients_bytes(const struct gpu_tier *tier)
{
	uint64_t bytes = 0;

	for (unsigned i = 0; i < GPU_RANKS; i++)
		if (tier->ranks[i] && tier->ranks[i]->gradients.state != GRADIENTS_ABSENT)
			bytes += tier->ranks[i]->gradients.bytes;
	return bytes;
}

static bool fits(const struct gpu_rank *rank)
{
	const struct gpu_tier *tier = rank->tier;

	return tier->budget == 0 ||
	       rank->member->gradients.length <=
		       size_rest(tier->budget, gpu_tier_bytes(tier) + gpu_gradients_bytes(tier));
}

static void refuse_budget(struct gpu_rank *rank)
{
	const struct gpu_tier *tier = rank->tier;
	char problem[GPU_PROBLEM_TEXT], needed[16], given[16], taken[16];

	snprintf(problem, sizeof(problem),
		 "they take %s, and of gpu_budget, which is %s, parameters and other ranks have %s; raise it",
		 budget_print_needed(rank->member->gradients.length, needed),
		 budget_print(tier->budget, given),
		 budget_print(gpu_tier_bytes(tier) + gpu_gradients_bytes(tier), taken));
	fail(rank, -ENOMEM, problem);
}

/* Memory of a rank that has left comes back when its process has let go of the GPU. */
static bool awaits_memory(const struct gpu_tier *tier)
{
	for (unsigned i = 0; i < GPU_RANKS; i++) {
		const struct gpu_rank *rank = tier->ranks[i];

		if (rank && rank->gradients.state != GRADIENTS_ABSENT &&
		    (!rank->member || rank->member->has_left))
			return true;
	}
	return false;
}

static int make_pushes(struct gpu_rank *rank)
{
	rank->gradients.pushes = calloc(rank->member->buffer_count, sizeof(*rank->gradients.pushes));
	return rank->gradients.pushes ? 0 : -ENOMEM;
}

static void try_to_make(struct gpu_rank *rank)
{
	if (rank->gradients.state != GRADIENTS_ABSENT || queue_is_empty(&rank->gradients.asking))
		return;
	if (rank->gradients.is_refused && awaits_memory(rank->tier))
		return;
	rank->gradients.is_refused = false;
	if (rank->tier->state != GPU_TIER_OPEN)
		fail(rank, rank->tier->status, rank->tier->problem);
	else if (!fits(rank) && !awaits_memory(rank->tier))
		refuse_budget(rank);
	else if (fits(rank) && make_pushes(rank) < 0)
		fail(rank, -ENOMEM, "tierd is out of memory");
	else if (fits(rank))
		gpu_gradients_step(rank, GRADIENTS_WANT);
}

static void try_all(struct gpu_tier *tier)
{
	for (unsigned i = 0; i < GPU_RANKS; i++)
		if (tier->ranks[i] && tier->ranks[i]->member)
			try_to_make(tier->ranks[i]);
}

void gpu_gradients(struct pending *pending, const Tierd__Wire__GpuGradients *gradients)
{
	struct member *member = pending->member;
	struct gpu_rank *rank = member->gpu;

	if (!job_check_live(pending, gradients->epoch))
		return;
	if (!rank || !rank->leases) {
		pending_error(pending, -EINVAL, "job %s: rank %u has asked for no GPU", member->job->name,
			      member->rank);
		return;
	}
	if (gradient_buffers_bytes(&member->job->gradient_buffers) == 0) {
		pending_error(pending, -EINVAL, "job %s: all its units are frozen: it has no gradients",
			      member->job->name);
		return;
	}
	if (rank->gradients.state == GRADIENTS_OPEN) {
		reply(rank, pending);
		return;
	}
	queue_push(&rank->gradients.asking, &pending->waiter.link);
	try_to_make(rank);
}

/* ---- They are made ---- */

static void begin(struct gpu_rank *rank)
{
	rank->busy++;
	rank->tier->outstanding++;
}

static void end(struct gpu_rank *rank)
{
	rank->busy--;
	rank->tier->outstanding--;
}

static void on_memory(struct gpu_request *request, int status)
{
	struct gpu_memory *memory = container_of(request, struct gpu_memory, request);
	struct gpu_rank *rank = rank_of(container_of(memory, struct gpu_gradients, memory));

	end(rank);
	gpu_gradients_step(rank, status < 0 ? GRADIENTS_REFUSE : GRADIENTS_MAKE);
	job_settle(rank->tier->job);
}

/* The member is not freed before its buffers are its own again. */
void gpu_make_gradients(struct gpu_rank *rank)
{
	struct member *member = rank->member;

	member->busy++;
	rank->gradients.bytes = member->gradients.length;
	rank->gradients.memory =
		(struct gpu_memory){ .request.done = on_memory, .bytes = member->gradients.length, .fd = -1 };
	begin(rank);
	gpu_memory_create(rank->tier->gpu->engine, &rank->gradients.memory);
}

/* It may be freed then, and the rank with it. */
static void let_member_go(struct gpu_rank *rank)
{
	struct member *member = rank->member;

	free(TAKE_PTR(rank->gradients.pushes));
	member->busy--;
	member_release(member);
}

/* Others may have waited for its part of the budget. */
void gpu_refuse_gradients(struct gpu_rank *rank)
{
	struct gpu_tier *tier = rank->tier;

	rank->gradients.is_refused = awaits_memory(tier) && tier->state == GPU_TIER_OPEN;
	if (!rank->gradients.is_refused)
		fail(rank, -ENOMEM, rank->gradients.memory.request.problem.text);
	let_member_go(rank);
	try_all(tier);
}

/* Copies to memory that is not registered are slow, and right. */
static void on_pinned(struct gpu_request *request, int status)
{
	struct gpu_pin *pin = container_of(request, struct gpu_pin, request);
	struct gpu_rank *rank = rank_of(container_of(pin, struct gpu_gradients, pin));

	if (status < 0)
		log_warning("gradient buffers of rank %u of job %s are not registered with its GPU, which "
			    "makes copies slow: %s",
			    rank->member->rank, rank->tier->job->name, request->problem.text);
	if (status < 0)
		pin->bytes = 0;
	end(rank);
	gpu_gradients_step(rank, GRADIENTS_PIN);
	gpu_gradients_go_on(rank);
	job_settle(rank->tier->job);
}

void gpu_pin_gradients(struct gpu_rank *rank)
{
	const struct memory *buffers = &rank->member->gradients;

	rank->gradients.pin = (struct gpu_pin){ .request.done = on_pinned,
						.base = buffers->base,
						.bytes = buffers->length };
	begin(rank);
	gpu_pin_add(rank->tier->gpu->engine, &rank->gradients.pin);
}

void gpu_show_gradients(struct gpu_rank *rank)
{
	for (struct pending *pending = next_asking(rank); pending; pending = next_asking(rank))
		reply(rank, pending);
}

/* ---- The rank leaves ---- */

void gpu_gradients_go_on(struct gpu_rank *rank)
{
	if (rank->gradients.state == GRADIENTS_OPEN && rank->member->has_left && rank->gradients.moving == 0)
		gpu_gradients_step(rank, GRADIENTS_LEAVE);
}

void gpu_leave_gradients(struct member *member)
{
	if (member->gpu)
		gpu_gradients_go_on(member->gpu);
}

static void on_unpinned(struct gpu_request *request, int status)
{
	struct gpu_pin *pin = container_of(request, struct gpu_pin, request);
	struct gpu_rank *rank = rank_of(container_of(pin, struct gpu_gradients, pin));
	struct job *job = rank->tier->job;

	end(rank);
	gpu_gradients_step(rank, GRADIENTS_UNPIN);
	job_settle(job);
}

void gpu_unpin_gradients(struct gpu_rank *rank)
{
	begin(rank);
	rank->gradients.pin.request.done = on_unpinned;
	gpu_pin_remove(rank->tier->gpu->engine, &rank->gradients.pin);
}

void gpu_give_gradients_back(struct gpu_rank *rank)
{
	let_member_go(rank);
}

/* ---- And its process has gone ---- */

static void on_memory_gone(struct gpu_request *request, int status)
{
	struct gpu_memory *memory = container_of(request, struct gpu_memory, request);
	struct gpu_rank *rank = rank_of(container_of(memory, struct gpu_gradients, memory));

	end(rank);
	gpu_gradients_step(rank, GRADIENTS_GO);
}

void gpu_destroy_gradients(struct gpu_rank *rank)
{
	begin(rank);
	rank->gradients.memory.request.done = on_memory_gone;
	gpu_memory_destroy(rank->tier->gpu->engine, &rank->gradients.memory);
}

/* Others may have waited for the memory. */
void gpu_end_gradients(struct gpu_rank *rank)
{
	struct gpu_tier *tier = rank->tier;

	gpu_rank_settle(rank);
	for (unsigned i = 0; i < GPU_RANKS; i++)
		if (tier->ranks[i])
			tier->ranks[i]->gradients.is_refused = false;
	try_all(tier);
	job_settle(tier->job);
}

bool gpu_gradients_are_gone(struct gpu_rank *rank)
{
	if (rank->gradients.state == GRADIENTS_CLOSED)
		gpu_gradients_step(rank, GRADIENTS_END);
	return rank->gradients.state == GRADIENTS_ABSENT;
}
