/* A client that writes noise over all memory that it may write, while the daemon works with that memory: a
 * thread of it mutates, the other sends requests, right and wrong ones. Its session may end, and it comes
 * back.
 *
 *   mutator SEED ROUNDS   the same seed sends the same requests */
#include <errno.h>
#include <pthread.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "crash_support.h"
#include "raw_client.h"

#define UNITS 4
#define ELEMENTS 5000
#define REQUESTS 400
#define BUFFERS 2

#define BODY(kind) TIERD__WIRE__REQUEST__BODY_##kind

struct region {
	unsigned char *base;
	size_t bytes;
};

/* The window; then of the five descriptors of a ready, leases and gradients. */
#define REGIONS 3
#define LEASES 1
static const unsigned region_fds[REGIONS] = { 0, 3, 4 };

struct mutator {
	struct raw_client client;
	struct region regions[REGIONS];
	uint32_t epoch;
	uint64_t seed, noise_seed;
	pthread_t thread;
	_Atomic bool is_over;
};

/* ---- Noise ---- */

static void write_noise(const struct region *region, uint64_t *seed)
{
	static const size_t lengths[] = { 1, 4, 8, 64, 512 };
	size_t length = lengths[support_random(seed) % 5];
	size_t place = support_random(seed) % (region->bytes - length);
	uint64_t kind = support_random(seed) % 4;

	/* Counters and states are small numbers in whole words. */
	if (kind == 0)
		*(volatile uint32_t *)(region->base + place / 4 * 4) = (uint32_t)(support_random(seed) % 3);
	else if (kind == 1)
		memset(region->base + place, 0, length);
	else if (kind == 2)
		memset(region->base + place, 0xff, length);
	else
		for (size_t i = 0; i < length; i++)
			region->base[place + i] = (unsigned char)support_random(seed);
}

static void *mutate(void *argument)
{
	struct mutator *mutator = argument;

	while (!mutator->is_over)
		write_noise(&mutator->regions[support_random(&mutator->noise_seed) % REGIONS],
			    &mutator->noise_seed);
	return NULL;
}

/* ---- Joining ---- */

static bool call(struct mutator *mutator, Tierd__Wire__Request *request)
{
	const Tierd__Wire__Reply *reply = raw_call(&mutator->client, request);

	return reply && reply->status->code == 0;
}

static bool open_job(struct mutator *mutator)
{
	Tierd__Wire__Request request = TIERD__WIRE__REQUEST__INIT;
	Tierd__Wire__JobOpen open = TIERD__WIRE__JOB_OPEN__INIT;

	open.name = (char *)"mutator";
	open.world_size = 1;
	open.stage = 3;
	open.gradient_buffers = BUFFERS;
	open.takeover = true;
	request.body_case = BODY(JOB_OPEN);
	request.job_open = &open;
	return call(mutator, &request);
}

static bool define_unit(struct mutator *mutator, unsigned index)
{
	Tierd__Wire__Request request = TIERD__WIRE__REQUEST__INIT;
	Tierd__Wire__UnitDefine define = TIERD__WIRE__UNIT_DEFINE__INIT;
	Tierd__Wire__Tensor tensor = TIERD__WIRE__TENSOR__INIT, *tensors = &tensor;
	uint64_t shape = ELEMENTS;
	char name[16];

	snprintf(name, sizeof(name), "u%u", index);
	tensor.name = name;
	tensor.format = TIERD_FP32;
	tensor.n_shape = 1;
	tensor.shape = &shape;
	tensor.initializer = TIERD_INITIALIZE_ONES;
	define.job = 1;
	define.name = name;
	define.n_tensors = 1;
	define.tensors = &tensors;
	request.body_case = BODY(UNIT_DEFINE);
	request.unit_define = &define;
	return call(mutator, &request);
}

static bool make_ready(struct mutator *mutator)
{
	Tierd__Wire__Request request = TIERD__WIRE__REQUEST__INIT;
	Tierd__Wire__JobReady ready = TIERD__WIRE__JOB_READY__INIT;
	const Tierd__Wire__Reply *reply;

	ready.job = 1;
	ready.timeout_ms = PATIENCE_MS;
	request.body_case = BODY(JOB_READY);
	request.job_ready = &ready;
	reply = raw_call(&mutator->client, &request);
	if (!reply || reply->status->code != 0)
		return false;
	mutator->epoch = reply->job_ready->epoch;
	return true;
}

static void map_regions(struct mutator *mutator)
{
	for (unsigned i = 0; i < REGIONS; i++) {
		struct region *region = &mutator->regions[i];
		int fd = mutator->client.fds[region_fds[i]];
		struct stat status;

		REQUIRE(fstat(fd, &status) == 0);
		region->bytes = (size_t)status.st_size;
		region->base = mmap(NULL, region->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
		REQUIRE(region->base != MAP_FAILED);
	}
}

static void join(struct mutator *mutator)
{
	bool is_done;

	raw_open(&mutator->client);
	is_done = open_job(mutator);
	for (unsigned i = 0; is_done && i < UNITS; i++)
		is_done = define_unit(mutator, i);
	REQUIRE(is_done && make_ready(mutator));
	map_regions(mutator);
}

/* The noise has left leases, which a process that lives holds its places with. */
static void leave(struct mutator *mutator)
{
	memset(mutator->regions[LEASES].base, 0, mutator->regions[LEASES].bytes);
	raw_close(&mutator->client);
	for (unsigned i = 0; i < REGIONS; i++)
		munmap(mutator->regions[i].base, mutator->regions[i].bytes);
}

/* ---- Requests ---- */

/* Mostly one that is there. */
static uint32_t choose(struct mutator *mutator, uint32_t count)
{
	uint64_t word = support_random(&mutator->seed);

	return word % 16 == 0 ? (uint32_t)(word >> 32) : (uint32_t)(word >> 8) % count;
}

static bool send_gather(struct mutator *mutator)
{
	Tierd__Wire__Request request = TIERD__WIRE__REQUEST__INIT;
	Tierd__Wire__Gather gather = TIERD__WIRE__GATHER__INIT;

	gather.job = 1;
	gather.epoch = mutator->epoch;
	gather.unit = choose(mutator, UNITS);
	gather.version = choose(mutator, 2);
	gather.is_blocking = choose(mutator, 2) != 0;
	request.body_case = BODY(GATHER);
	request.gather = &gather;
	return raw_send(&mutator->client, &request);
}

static bool send_push(struct mutator *mutator)
{
	Tierd__Wire__Request request = TIERD__WIRE__REQUEST__INIT;
	Tierd__Wire__Push push = TIERD__WIRE__PUSH__INIT;

	push.job = 1;
	push.epoch = mutator->epoch;
	push.unit = choose(mutator, UNITS);
	push.buffer = choose(mutator, BUFFERS);
	/* The step would have to say how many of these were refused. */
	push.is_silent = choose(mutator, 64) == 1;
	request.body_case = BODY(PUSH);
	request.push = &push;
	return raw_send(&mutator->client, &request);
}

static bool send_step(struct mutator *mutator)
{
	Tierd__Wire__Request request = TIERD__WIRE__REQUEST__INIT;
	Tierd__Wire__Step step = TIERD__WIRE__STEP__INIT;
	Tierd__Wire__Rates rates = TIERD__WIRE__RATES__INIT;

	rates.learning_rate = 0.1f;
	rates.gradient_scale = 1;
	step.job = 1;
	step.epoch = mutator->epoch;
	step.rates = &rates;
	step.refused_pushes = choose(mutator, 1);
	request.body_case = BODY(STEP);
	request.step = &step;
	return raw_send(&mutator->client, &request);
}

static bool send_prefetch(struct mutator *mutator)
{
	Tierd__Wire__Request request = TIERD__WIRE__REQUEST__INIT;
	Tierd__Wire__Prefetch prefetch = TIERD__WIRE__PREFETCH__INIT;
	uint32_t units[3] = { choose(mutator, UNITS), choose(mutator, UNITS), choose(mutator, UNITS) };

	prefetch.job = 1;
	prefetch.n_units = 3;
	prefetch.units = units;
	request.body_case = BODY(PREFETCH);
	request.prefetch = &prefetch;
	return raw_send(&mutator->client, &request);
}

static bool send_read(struct mutator *mutator)
{
	static const char *const states[] = { "parameter", "master", "m", "v", "no such state" };
	Tierd__Wire__Request request = TIERD__WIRE__REQUEST__INIT;
	Tierd__Wire__TensorRead read = TIERD__WIRE__TENSOR_READ__INIT;

	read.job = 1;
	read.unit = choose(mutator, UNITS);
	read.state = (char *)states[support_random(&mutator->seed) % 5];
	read.first = choose(mutator, ELEMENTS);
	read.count = choose(mutator, 1000);
	request.body_case = BODY(TENSOR_READ);
	request.tensor_read = &read;
	return raw_send(&mutator->client, &request);
}

static bool send_wait(struct mutator *mutator)
{
	Tierd__Wire__Request request = TIERD__WIRE__REQUEST__INIT;
	Tierd__Wire__BufferWait wait = TIERD__WIRE__BUFFER_WAIT__INIT;

	wait.job = 1;
	wait.epoch = mutator->epoch;
	wait.unit = choose(mutator, UNITS);
	wait.pushed = choose(mutator, BUFFERS + 1);
	request.body_case = BODY(BUFFER_WAIT);
	request.buffer_wait = &wait;
	return raw_send(&mutator->client, &request);
}

static bool send_any(struct mutator *mutator)
{
	static bool (*const senders[])(struct mutator * mutator) = { send_gather, send_push,	 send_push,
								     send_step,	  send_prefetch, send_read,
								     send_wait };

	return senders[support_random(&mutator->seed) % 7](mutator);
}

/* One session. An answer takes the daemon through what was asked before it: so this is never far ahead. */
static void play(struct mutator *mutator)
{
	Tierd__Wire__Request ping = TIERD__WIRE__REQUEST__INIT;
	Tierd__Wire__Ping nothing = TIERD__WIRE__PING__INIT;
	bool goes_on = true;

	ping.body_case = BODY(PING);
	ping.ping = &nothing;
	join(mutator);
	mutator->is_over = false;
	REQUIRE(pthread_create(&mutator->thread, NULL, mutate, mutator) == 0);
	for (unsigned i = 0; goes_on && i < REQUESTS; i++) {
		goes_on = send_any(mutator) && raw_drain(&mutator->client);
		if (goes_on && i % 16 == 0)
			goes_on = raw_call(&mutator->client, &ping) != NULL;
	}
	mutator->is_over = true;
	pthread_join(mutator->thread, NULL);
	leave(mutator);
}

int main(int argc, char *argv[])
{
	struct mutator mutator = { 0 };

	REQUIRE(argc == 3);
	mutator.seed = strtoull(argv[1], NULL, 10);
	mutator.noise_seed = ~mutator.seed;
	for (unsigned long i = strtoul(argv[2], NULL, 10); i > 0; i--)
		play(&mutator);
	return 0;
}
