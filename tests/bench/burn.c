#include "tests/bench/burn.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#define MAX_THREADS 256
#define PIECE_ROUNDS 20000 /* a tenth of a millisecond or less */
#define PIECE_LANES 16
#define CALIBRATION_PIECES 500

struct burner {
	pthread_t threads[MAX_THREADS];
	unsigned thread_count; /* beside the caller's */
	pthread_mutex_t lock;
	pthread_cond_t has_work, is_done;
	unsigned turn, working;
	bool is_ending;
	atomic_int left;
	double piece_seconds;
};

static volatile float sink;

/* In registers alone: what it takes does not hang on what memory others move. */
static void burn_piece(void)
{
	float values[PIECE_LANES], sum = 0;

	for (unsigned i = 0; i < PIECE_LANES; i++)
		values[i] = (float)i;
	for (unsigned round = 0; round < PIECE_ROUNDS; round++)
		for (unsigned i = 0; i < PIECE_LANES; i++)
			values[i] = values[i] * 0.999f + 1.0f;
	for (unsigned i = 0; i < PIECE_LANES; i++)
		sum += values[i];
	sink = sum;
}

static void burn_all(struct burner *burner)
{
	while (atomic_fetch_sub(&burner->left, 1) > 0)
		burn_piece();
}

static void *run_thread(void *argument)
{
	struct burner *burner = argument;
	unsigned turn = 0;

	pthread_mutex_lock(&burner->lock);
	while (!burner->is_ending) {
		if (burner->turn == turn) {
			pthread_cond_wait(&burner->has_work, &burner->lock);
			continue;
		}
		turn = burner->turn;
		pthread_mutex_unlock(&burner->lock);
		burn_all(burner);
		pthread_mutex_lock(&burner->lock);
		if (--burner->working == 0)
			pthread_cond_signal(&burner->is_done);
	}
	pthread_mutex_unlock(&burner->lock);
	return NULL;
}

void burner_work(struct burner *burner, unsigned pieces)
{
	pthread_mutex_lock(&burner->lock);
	atomic_store(&burner->left, (int)pieces);
	burner->working = burner->thread_count;
	burner->turn++;
	pthread_cond_broadcast(&burner->has_work);
	pthread_mutex_unlock(&burner->lock);
	burn_all(burner);
	pthread_mutex_lock(&burner->lock);
	while (burner->working > 0)
		pthread_cond_wait(&burner->is_done, &burner->lock);
	pthread_mutex_unlock(&burner->lock);
}

double burner_piece_seconds(const struct burner *burner)
{
	return burner->piece_seconds;
}

static uint64_t thread_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
	return (uint64_t)now.tv_sec * UINT64_C(1000000000) + (uint64_t)now.tv_nsec;
}

static void calibrate(struct burner *burner)
{
	uint64_t start = thread_ns();

	for (unsigned i = 0; i < CALIBRATION_PIECES; i++)
		burn_piece();
	burner->piece_seconds = (double)(thread_ns() - start) / 1e9 / CALIBRATION_PIECES;
}

int burner_new(struct burner **ret_burner)
{
	struct burner *burner = calloc(1, sizeof(*burner));
	long processors = sysconf(_SC_NPROCESSORS_ONLN);
	int r = 0;

	if (!burner)
		return -ENOMEM;
	pthread_mutex_init(&burner->lock, NULL);
	pthread_cond_init(&burner->has_work, NULL);
	pthread_cond_init(&burner->is_done, NULL);
	while (burner->thread_count + 1 < processors && burner->thread_count < MAX_THREADS && r == 0) {
		r = -pthread_create(&burner->threads[burner->thread_count], NULL, run_thread, burner);
		burner->thread_count += r == 0;
	}
	calibrate(burner);
	if (r < 0)
		burner_free(burner);
	else
		*ret_burner = burner;
	return r;
}

struct burner *burner_free(struct burner *burner)
{
	if (!burner)
		return NULL;
	pthread_mutex_lock(&burner->lock);
	burner->is_ending = true;
	pthread_cond_broadcast(&burner->has_work);
	pthread_mutex_unlock(&burner->lock);
	for (unsigned i = 0; i < burner->thread_count; i++)
		pthread_join(burner->threads[i], NULL);
	pthread_cond_destroy(&burner->has_work);
	pthread_cond_destroy(&burner->is_done);
	pthread_mutex_destroy(&burner->lock);
	free(burner);
	return NULL;
}
