#include "team.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct member {
	struct team *team;
	pthread_t thread;
	void *scratch;
};

struct team {
	pthread_mutex_t lock;
	pthread_cond_t has_work;
	pthread_cond_t is_finished;
	uint64_t generation; /* of the work: a member takes part in each once */
	unsigned busy;
	bool is_stopping;

	team_task *task;
	void *argument;
	size_t count;
	atomic_size_t next;

	unsigned member_count; /* member 0 is the caller */
	struct member members[];
};

static void run_tasks(struct team *team, void *scratch)
{
	size_t index;

	while ((index = atomic_fetch_add_explicit(&team->next, 1, memory_order_relaxed)) < team->count)
		team->task(team->argument, index, scratch);
}

static void *member_main(void *argument)
{
	struct member *member = argument;
	struct team *team = member->team;
	uint64_t seen = 0;

	pthread_mutex_lock(&team->lock);
	for (;;) {
		while (team->generation == seen && !team->is_stopping)
			pthread_cond_wait(&team->has_work, &team->lock);
		if (team->is_stopping)
			break;
		seen = team->generation;
		pthread_mutex_unlock(&team->lock);
		run_tasks(team, member->scratch);
		pthread_mutex_lock(&team->lock);
		if (--team->busy == 0)
			pthread_cond_signal(&team->is_finished);
	}
	pthread_mutex_unlock(&team->lock);
	return NULL;
}

static int add_member(struct team *team, size_t scratch_bytes)
{
	struct member *member = &team->members[team->member_count];
	int r;

	member->team = team;
	member->scratch = aligned_alloc(64, (scratch_bytes + 63) / 64 * 64);
	if (!member->scratch)
		return -ENOMEM;
	if (team->member_count > 0) {
		r = pthread_create(&member->thread, NULL, member_main, member);
		if (r != 0) {
			free(member->scratch);
			return -r;
		}
	}
	team->member_count++;
	return 0;
}

int team_new(unsigned threads, size_t scratch_bytes, struct team **ret_team)
{
	_cleanup_(team_freep) struct team *team = NULL;

	if (threads == 0)
		return -EINVAL;
	team = calloc(1, sizeof(*team) + threads * sizeof(team->members[0]));
	if (!team)
		return -ENOMEM;
	pthread_mutex_init(&team->lock, NULL);
	pthread_cond_init(&team->has_work, NULL);
	pthread_cond_init(&team->is_finished, NULL);
	for (unsigned i = 0; i < threads; i++) {
		int r = add_member(team, scratch_bytes);

		if (r < 0)
			return r;
	}
	*ret_team = TAKE_PTR(team);
	return 0;
}

struct team *team_free(struct team *team)
{
	if (!team)
		return NULL;
	pthread_mutex_lock(&team->lock);
	team->is_stopping = true;
	pthread_cond_broadcast(&team->has_work);
	pthread_mutex_unlock(&team->lock);
	for (unsigned i = 0; i < team->member_count; i++) {
		if (i > 0)
			pthread_join(team->members[i].thread, NULL);
		free(team->members[i].scratch);
	}
	pthread_cond_destroy(&team->is_finished);
	pthread_cond_destroy(&team->has_work);
	pthread_mutex_destroy(&team->lock);
	free(team);
	return NULL;
}

/* A single task is not worth waking anybody. */
static void run_alone(struct team *team, size_t count, team_task *task, void *argument)
{
	for (size_t i = 0; i < count; i++)
		task(argument, i, team->members[0].scratch);
}

void team_run(struct team *team, size_t count, team_task *task, void *argument)
{
	if (team->member_count == 1 || count <= 1) {
		run_alone(team, count, task, argument);
		return;
	}
	pthread_mutex_lock(&team->lock);
	team->task = task;
	team->argument = argument;
	team->count = count;
	atomic_store_explicit(&team->next, 0, memory_order_relaxed);
	team->busy = team->member_count - 1;
	team->generation++;
	pthread_cond_broadcast(&team->has_work);
	pthread_mutex_unlock(&team->lock);

	run_tasks(team, team->members[0].scratch);

	pthread_mutex_lock(&team->lock);
	while (team->busy > 0)
		pthread_cond_wait(&team->is_finished, &team->lock);
	pthread_mutex_unlock(&team->lock);
}
