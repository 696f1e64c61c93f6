#include "daemon/gpu/exchange_thread.h"

#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>

#include "collectives/cuda/sum.h"
#include "common/clock.h"
#include "common/log.h"
#include "offload/cuda/gpu_stream.h"

struct exchange_thread {
	pthread_t thread;
	int fd;
	pthread_mutex_t lock;
	pthread_cond_t is_wanted;
	struct queue given, told; /* messages */
	bool is_closing;
	_Atomic uint64_t at_work_since_ns;

	/* Of the thread. */
	struct queue groups;
	struct nccl nccl;
	struct dynamic_library library;
};

/* ---- Messages ---- */

static void give(struct exchange_thread *thread, struct exchange_message *message,
		 void (*run)(struct exchange_message *message))
{
	message->run = run;
	pthread_mutex_lock(&thread->lock);
	queue_push(&thread->given, &message->link);
	pthread_cond_signal(&thread->is_wanted);
	pthread_mutex_unlock(&thread->lock);
}

static void tell(struct exchange_thread *thread, struct exchange_message *message,
		 void (*run)(struct exchange_message *message))
{
	message->run = run;
	pthread_mutex_lock(&thread->lock);
	queue_push(&thread->told, &message->link);
	(void)!write(thread->fd, &(uint64_t){ 1 }, sizeof(uint64_t));
	pthread_mutex_unlock(&thread->lock);
}

static void move_all(struct queue *from, struct queue *to)
{
	struct queue *link;

	queue_init(to);
	while ((link = queue_pop(from)))
		queue_push(to, link);
}

static void run_all(struct queue *messages)
{
	struct queue *link;

	while ((link = queue_pop(messages))) {
		struct exchange_message *message = queue_entry(link, struct exchange_message, link);

		message->run(message);
	}
}

void exchange_thread_reap(struct exchange_thread *thread)
{
	struct queue told;
	uint64_t ignored;

	pthread_mutex_lock(&thread->lock);
	(void)!read(thread->fd, &ignored, sizeof(ignored));
	move_all(&thread->told, &told);
	pthread_mutex_unlock(&thread->lock);
	run_all(&told);
}

/* ---- What a communicator asks of its GPUs ---- */

static unsigned local_of(const struct exchange_group *group, int gpu)
{
	unsigned local = 0;

	while (group->members[local].gpu != (unsigned)gpu)
		local++;
	return local;
}

static struct gpu_stream *stream_of(void *owner, int gpu)
{
	const struct exchange_group *group = owner;

	return group->streams[local_of(group, gpu)];
}

static int use(void *owner, int gpu)
{
	return gpu_stream_use(stream_of(owner, gpu));
}

static int copy(void *owner, int gpu, void *stream, void *to, const void *from, size_t bytes)
{
	return gpu_stream_copy(stream_of(owner, gpu), (uintptr_t)to, (uintptr_t)from, bytes);
}

static int sum(void *owner, int gpu, void *stream, const struct communicator_sum *all)
{
	const struct exchange_group *group = owner;
	struct sum_arguments arguments = {
		.sum = all->sum, .count = all->count, .rank_count = all->rank_count, .is_added = all->is_added
	};

	memcpy(arguments.contributions, all->contributions, all->rank_count * sizeof(*all->contributions));
	return gpu_stream_launch(stream_of(owner, gpu),
				 group->members[local_of(group, gpu)].sums[all->format],
				 sum_blocks(all->count), SUM_THREADS, &arguments);
}

static int mark(void *owner, int gpu, void *stream, uint64_t *ret_mark)
{
	return gpu_stream_mark(stream_of(owner, gpu), ret_mark);
}

static int is_past(void *owner, int gpu, uint64_t number)
{
	return gpu_stream_is_past(stream_of(owner, gpu), number);
}

static const struct communicator_gpu_ops gpu_ops = {
	.use = use, .copy = copy, .sum = sum, .mark = mark, .is_past = is_past
};

/* ---- A group begins ---- */

static void on_ready(struct exchange_message *message)
{
	struct exchange_group *group = container_of(message, struct exchange_group, told_ready);

	group->ready(group);
}

static void on_failed(struct exchange_message *message)
{
	struct exchange_group *group = container_of(message, struct exchange_group, told_failure);

	group->failed(group, group->problem);
}

static void on_ended(struct exchange_message *message)
{
	struct exchange_group *group = container_of(message, struct exchange_group, told_end);

	group->ended(group);
}

static int find_nccl(struct exchange_thread *thread, struct exchange_group *group)
{
	if (thread->library.is_found || nccl_open(&thread->nccl, &thread->library))
		return 0;
	snprintf(group->problem, sizeof(group->problem), "NCCL cannot be used: %s", thread->library.problem);
	return -ENOENT;
}

static int open_streams(struct exchange_group *group)
{
	int r = 0;

	for (unsigned i = 0; r == 0 && i < group->member_count; i++) {
		r = gpu_stream_new(group->members[i].engine, &group->streams[i]);
		if (r < 0)
			snprintf(group->problem, sizeof(group->problem), "%s has no stream for that: %s",
				 gpu_engine_name(group->members[i].engine), strerror(-r));
	}
	return r;
}

static int make_communicator(struct exchange_thread *thread, struct exchange_group *group)
{
	struct communicator_member members[GPUS_MAX];
	struct communicator_options options = { .job = group->job,
						.epoch = group->epoch,
						.nccl = &thread->nccl,
						.rank_count = group->rank_count,
						.member_count = group->member_count,
						.member_of_rank = group->member_of_rank,
						.local_count = group->member_count,
						.members = members,
						.staging_bytes = group->staging_bytes,
						.creation_timeout_ns = group->timeout_ns,
						.operation_timeout_ns = group->timeout_ns,
						.ops = &gpu_ops,
						.owner = group };
	int r = communicator_make_id(&thread->nccl, &options.id, group->problem, sizeof(group->problem));

	for (unsigned i = 0; i < group->member_count; i++)
		members[i] = (struct communicator_member){
			.gpu = (int)group->members[i].gpu,
			.stream = gpu_stream_handle(group->streams[i]),
			.staging = (void *)(uintptr_t)group->members[i].staging,
		};
	if (r < 0)
		return r;
	r = communicator_new(&options, clock_now_ns(), &group->communicator);
	if (r < 0)
		snprintf(group->problem, sizeof(group->problem), "a communicator: %s", strerror(-r));
	return r;
}

static void close_streams(struct exchange_group *group)
{
	for (unsigned i = 0; i < group->member_count; i++)
		group->streams[i] = gpu_stream_free(group->streams[i]);
}

static void begin(struct exchange_message *message)
{
	struct exchange_group *group = container_of(message, struct exchange_group, begin);
	struct exchange_thread *thread = group->thread;
	int r = find_nccl(thread, group);

	if (r == 0)
		r = open_streams(group);
	if (r == 0)
		r = make_communicator(thread, group);
	queue_push(&thread->groups, &group->link);
	if (r == 0)
		return;
	close_streams(group);
	tell(thread, &group->told_failure, on_failed);
}

/* ---- Memory that NCCL knows: it works without that, too ---- */

static void register_memory(struct exchange_group *group, unsigned member, driver_address memory,
			    size_t bytes)
{
	if (communicator_register(group->communicator, member, (void *)(uintptr_t)memory, bytes) < 0)
		log_debug("%s", communicator_problem(group->communicator));
}

static void register_members(struct exchange_group *group)
{
	for (unsigned i = 0; i < group->member_count; i++)
		if (group->members[i].bytes > 0)
			register_memory(group, i, group->members[i].memory, group->members[i].bytes);
}

/* The communicator may have failed meanwhile. */
static void register_range(struct exchange_message *message)
{
	const struct exchange_range *range = container_of(message, struct exchange_range, message);
	struct exchange_group *group = range->group;

	if (group->communicator && communicator_state(group->communicator) == COMMUNICATOR_READY)
		register_memory(group, range->member, range->memory, range->bytes);
}

/* ---- Operations ---- */

static void on_done(struct exchange_message *message)
{
	struct exchange_operation *operation = container_of(message, struct exchange_operation, message);

	operation->done(operation, operation->status);
}

static void end_part(struct exchange_operation *operation, int status)
{
	if (status < 0)
		operation->status = status;
	if (--operation->left == 0)
		tell(operation->group->thread, &operation->message, on_done);
}

static void on_rank_done(struct communicator_request *request, int status)
{
	end_part(request->owner, status);
}

static int announce(struct exchange_operation *operation)
{
	struct exchange_group *group = operation->group;
	int r;

	operation->what.sequence = group->operations;
	r = group->communicator ? communicator_announce(group->communicator, &operation->what) : -ECANCELED;
	if (r < 0)
		return r;
	group->operations++;
	for (unsigned rank = 0; rank < group->rank_count; rank++) {
		struct communicator_request *request = &operation->requests[rank];

		request->sequence = operation->what.sequence;
		request->kind = operation->what.kind;
		request->rank = rank;
		request->count = operation->what.bounds[group->rank_count];
		request->done = on_rank_done;
		request->owner = operation;
		/* What was announced is asked for once. */
		r = communicator_ask(group->communicator, request);
		assert(r == 0);
	}
	return 0;
}

static void start(struct exchange_message *message)
{
	struct exchange_operation *operation = container_of(message, struct exchange_operation, message);
	int r;

	operation->status = 0;
	operation->left = operation->group->rank_count;
	r = announce(operation);
	if (r == 0)
		return;
	operation->left = 1;
	end_part(operation, r);
}

/* ---- A group ends ---- */

static void let_go(struct exchange_group *group)
{
	if (!group->is_ending)
		snprintf(group->problem, sizeof(group->problem), "%s",
			 communicator_problem(group->communicator));
	group->communicator = communicator_free(group->communicator);
	close_streams(group);
	if (!group->is_ending)
		tell(group->thread, &group->told_failure, on_failed);
}

static void end(struct exchange_message *message)
{
	struct exchange_group *group = container_of(message, struct exchange_group, end);

	group->is_ending = true;
	if (group->communicator)
		communicator_abort(group->communicator, "the epoch is over");
}

/* ---- The thread ---- */

static bool is_over(enum communicator_state state)
{
	return state == COMMUNICATOR_CLOSED || state == COMMUNICATOR_ABORTED;
}

/* Returns in how many nanoseconds it is to be looked at again. */
static uint64_t attend(struct exchange_group *group)
{
	uint64_t pause_ns = UINT64_MAX;

	if (group->communicator) {
		pause_ns = communicator_poll(group->communicator, clock_now_ns());
		if (!group->is_ready && communicator_state(group->communicator) == COMMUNICATOR_READY) {
			group->is_ready = true;
			register_members(group);
			tell(group->thread, &group->told_ready, on_ready);
		}
		if (is_over(communicator_state(group->communicator)))
			let_go(group);
	}
	if (group->is_ending && !group->communicator) {
		queue_remove(&group->link);
		tell(group->thread, &group->told_end, on_ended);
	}
	return pause_ns;
}

static uint64_t attend_all(struct exchange_thread *thread)
{
	uint64_t pause_ns = UINT64_MAX;

	QUEUE_FOREACH (link, &thread->groups) {
		uint64_t own_ns = attend(queue_entry(link, struct exchange_group, link));

		pause_ns = own_ns < pause_ns ? own_ns : pause_ns;
	}
	return pause_ns;
}

/* With the lock held. Whoever gives something wakes it up. */
static void pause_for(struct exchange_thread *thread, uint64_t pause_ns)
{
	uint64_t until_ns = clock_now_ns() + pause_ns;
	struct timespec until = { .tv_sec = (time_t)(until_ns / 1000000000),
				  .tv_nsec = (long)(until_ns % 1000000000) };

	if (!queue_is_empty(&thread->given) || thread->is_closing)
		return;
	if (pause_ns == UINT64_MAX)
		pthread_cond_wait(&thread->is_wanted, &thread->lock);
	else
		pthread_cond_timedwait(&thread->is_wanted, &thread->lock, &until);
}

static void *work(void *argument)
{
	struct exchange_thread *thread = argument;
	struct queue given;

	/* Else a look in 20 us would be 50 us late. */
	prctl(PR_SET_TIMERSLACK, 1000UL);
	pthread_mutex_lock(&thread->lock);
	while (!thread->is_closing) {
		uint64_t pause_ns;

		move_all(&thread->given, &given);
		pthread_mutex_unlock(&thread->lock);
		atomic_store(&thread->at_work_since_ns, clock_now_ns());
		run_all(&given);
		pause_ns = attend_all(thread);
		atomic_store(&thread->at_work_since_ns, 0);
		pthread_mutex_lock(&thread->lock);
		pause_for(thread, pause_ns);
	}
	pthread_mutex_unlock(&thread->lock);
	return NULL;
}

static void init(struct exchange_thread *thread)
{
	pthread_condattr_t attributes;

	pthread_mutex_init(&thread->lock, NULL);
	pthread_condattr_init(&attributes);
	pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
	pthread_cond_init(&thread->is_wanted, &attributes);
	pthread_condattr_destroy(&attributes);
	queue_init(&thread->given);
	queue_init(&thread->told);
	queue_init(&thread->groups);
}

static void destroy(struct exchange_thread *thread)
{
	fd_close(thread->fd);
	pthread_cond_destroy(&thread->is_wanted);
	pthread_mutex_destroy(&thread->lock);
	free(thread);
}

/* Signals stay blocked in the thread: they are the loop's. */
static int start_thread(struct exchange_thread *thread)
{
	sigset_t all, previous;
	int r;

	sigfillset(&all);
	pthread_sigmask(SIG_BLOCK, &all, &previous);
	r = pthread_create(&thread->thread, NULL, work, thread);
	pthread_sigmask(SIG_SETMASK, &previous, NULL);
	if (r == 0)
		pthread_setname_np(thread->thread, "exchange");
	return -r;
}

int exchange_thread_new(struct exchange_thread **ret_thread)
{
	struct exchange_thread *thread = calloc(1, sizeof(*thread));
	int r;

	if (!thread)
		return -ENOMEM;
	init(thread);
	thread->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	r = thread->fd < 0 ? -errno : start_thread(thread);
	if (r < 0) {
		destroy(thread);
		return r;
	}
	*ret_thread = thread;
	return 0;
}

struct exchange_thread *exchange_thread_free(struct exchange_thread *thread)
{
	if (!thread)
		return NULL;
	pthread_mutex_lock(&thread->lock);
	assert(queue_is_empty(&thread->given) && queue_is_empty(&thread->told));
	thread->is_closing = true;
	pthread_cond_signal(&thread->is_wanted);
	pthread_mutex_unlock(&thread->lock);
	pthread_join(thread->thread, NULL);
	destroy(thread);
	return NULL;
}

int exchange_thread_fd(const struct exchange_thread *thread)
{
	return thread->fd;
}

uint64_t exchange_thread_at_work_since(const struct exchange_thread *thread)
{
	return atomic_load(&thread->at_work_since_ns);
}

/* ---- The caller's side ---- */

void exchange_begin(struct exchange_thread *thread, struct exchange_group *group)
{
	group->thread = thread;
	group->communicator = NULL;
	group->operations = 0;
	group->is_ready = group->is_ending = false;
	memset(group->streams, 0, sizeof(group->streams));
	give(thread, &group->begin, begin);
}

void exchange_end(struct exchange_group *group)
{
	give(group->thread, &group->end, end);
}

void exchange_register(struct exchange_range *range)
{
	give(range->group->thread, &range->message, register_range);
}

void exchange_submit(struct exchange_operation *operation)
{
	give(operation->group->thread, &operation->message, start);
}
