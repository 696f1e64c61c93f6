#include "crash_support.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "on_gpu.h"

void support_fail(const char *file, int line, const char *what)
{
	fprintf(stderr, "%s:%d: %s (pid %d)\n", file, line, what, (int)getpid());
	exit(1);
}

void support_expect(const char *file, int line, const char *what, int r, int expected, const char *text)
{
	const char *message = tierd_message();

	if (r == expected && (!text || strstr(message, text)))
		return;
	fprintf(stderr, "%s:%d: %s: %s instead of %s", file, line, what,
		r < 0 ? strerrorname_np(-r) : "success",
		expected < 0 ? strerrorname_np(-expected) : "success");
	fprintf(stderr, text ? ", \"%s\", which should say \"%s\"\n" : ", \"%s\"\n", message, text);
	exit(1);
}

struct tierd_node *support_connect(void)
{
	struct tierd_node *node;

	OK(tierd_connect(NULL, &node));
	OK(tierd_set_timeout(node, PATIENCE_MS));
	return node;
}

void support_await_stopping(void)
{
	struct tierd_node *node;
	int r;

	while ((r = tierd_connect(NULL, &node)) != -ENOENT) {
		REQUIRE(r == 0 || r == -ECONNRESET);
		if (r == 0)
			tierd_disconnect(node);
	}
}

/* On which ranks gather, too; -1: none. */
static int32_t support_gpu(void)
{
	return getenv("TIERD_TEST_GPU") ? 0 : -1;
}

struct tierd_job_options support_options(const char *name, uint32_t rank, uint32_t world_size)
{
	struct tierd_job_options options = TIERD_JOB_OPTIONS_INIT;

	options.name = name;
	options.rank = rank;
	options.world_size = world_size;
	options.gpu = support_gpu();
	return options;
}

uint32_t support_define(struct tierd_job *job, const char *name, uint32_t format, uint64_t elements,
			double value)
{
	struct tierd_tensor tensor = TIERD_TENSOR_INIT;
	uint32_t unit;

	tensor.name = name;
	tensor.format = format;
	tensor.dimensions = 1;
	tensor.shape[0] = elements;
	tensor.initializer = TIERD_INITIALIZE_NORMAL;
	tensor.a = value;
	OK(tierd_unit_define(job, name, &tensor, 1, &unit));
	return unit;
}

struct tierd_job *support_join(struct tierd_node *node, const struct tierd_job_options *options,
			       unsigned units)
{
	struct tierd_job *job;

	OK(tierd_job_open(node, options, &job));
	support_define_all(job, units, TIERD_FP32, 1000, 1.0, 0.0);
	return job;
}

struct tierd_job *support_begin(struct tierd_node *node, const struct tierd_job_options *options,
				unsigned units)
{
	struct tierd_job *job = support_join(node, options, units);

	OK(tierd_job_ready(job, -1, NULL));
	return job;
}

void support_define_all(struct tierd_job *job, unsigned units, uint32_t format, uint64_t elements,
			double value, double more)
{
	char name[16];

	for (unsigned i = 0; i < units; i++) {
		snprintf(name, sizeof(name), "u%u", i);
		REQUIRE(support_define(job, name, format, elements, value + i * more) == i);
	}
}

void support_ready(struct tierd_job **ranks, unsigned count, int expected, const char *text)
{
	struct tierd_ticket *tickets[CROWD_MAX];

	REQUIRE(count <= CROWD_MAX);
	for (unsigned rank = 0; rank < count; rank++)
		OK(tierd_job_ready_begin(ranks[rank], -1, &tickets[rank]));
	for (unsigned rank = 0; rank < count; rank++) {
		support_expect(__FILE__, __LINE__, "tierd_job_ready",
			       tierd_ticket_wait(tickets[rank], TIERD_DONE, -1), expected, text);
		tierd_ticket_free(tickets[rank]);
	}
}

void support_drop(const char *name)
{
	char command[256];

	REQUIRE(getenv("TIERCTL"));
	snprintf(command, sizeof(command), "\"$TIERCTL\" drop %s --yes", name);
	REQUIRE(system(command) == 0);
}

#define READ_BYTES 4096

/* What a stream of the rank's GPU finds there is what host memory has. */
static int compare_on_gpu(struct tierd_job *job, uint32_t unit, size_t bytes, const struct tierd_view *host)
{
	static _Thread_local struct on_gpu *gpu;
	struct tierd_view view;
	int r;

	if (!gpu)
		gpu = on_gpu_new(support_gpu(), READ_BYTES);
	bytes = bytes < READ_BYTES ? bytes : READ_BYTES;
	r = tierd_gather_on(job, unit, on_gpu_stream(gpu), &view);
	if (r < 0)
		return r;
	on_gpu_read(gpu, 0, tierd_at(&view, 0), bytes);
	OK(tierd_release_on(job, unit, on_gpu_stream(gpu)));
	on_gpu_wait(gpu);
	REQUIRE(memcmp(on_gpu_memory(gpu), tierd_at(host, 0), bytes) == 0);
	return 0;
}

int support_push(struct tierd_job *job, uint32_t unit, uint64_t elements, float gradient)
{
	struct tierd_view parameters, gradients;
	int r = tierd_gather(job, unit, &parameters);

	if (r < 0)
		return r;
	if (support_gpu() >= 0)
		r = compare_on_gpu(job, unit, elements * sizeof(float), &parameters);
	if (r == 0)
		r = tierd_gradients(job, unit, &gradients);
	for (uint64_t i = 0; r == 0 && i < elements; i++)
		((float *)tierd_at(&gradients, 0))[i] = gradient;
	if (r == 0)
		r = tierd_push(job, unit);
	OK(tierd_release(job, unit));
	return r;
}

struct tierd_rates support_rates(float learning_rate)
{
	struct tierd_rates rates = TIERD_RATES_INIT;

	rates.learning_rate = learning_rate;
	return rates;
}

struct tierd_step_result support_take(struct tierd_ticket *ticket, enum tierd_event event)
{
	struct tierd_step_result result;

	OK(tierd_ticket_wait(ticket, event, -1));
	OK(tierd_ticket_step_result(ticket, &result));
	tierd_ticket_free(ticket);
	return result;
}

struct tierd_step_result support_step(struct tierd_job **ranks, unsigned count,
				      const struct tierd_rates *rates, enum tierd_event event)
{
	struct tierd_ticket *tickets[CROWD_MAX];
	struct tierd_step_result result = { 0 };

	REQUIRE(count <= CROWD_MAX);
	for (unsigned rank = 0; rank < count; rank++)
		OK(tierd_step(ranks[rank], rates, &tickets[rank]));
	for (unsigned rank = 0; rank < count; rank++)
		result = support_take(tickets[rank], event);
	return result;
}

void ranks_close(struct ranks *ranks)
{
	for (unsigned rank = 0; rank < ranks->count; rank++) {
		OK(tierd_job_close(ranks->jobs[rank]));
		tierd_disconnect(ranks->nodes[rank]);
	}
}

void support_put(void *values, uint32_t format, uint64_t at, float value)
{
	uint32_t bits;

	memcpy(&bits, &value, sizeof(bits));
	if (format == TIERD_FP32)
		((float *)values)[at] = value;
	else
		((uint16_t *)values)[at] = (uint16_t)(bits >> 16);
}

void support_fill(void *values, uint64_t count, bool is_bf16, uint64_t seed)
{
	for (uint64_t i = 0; i < count; i += 4) {
		uint64_t word = support_random(&seed);

		for (uint64_t j = i; j < count && j < i + 4; j++, word >>= 16) {
			float value = (float)(int16_t)word / 32768.0f;

			support_put(values, is_bf16 ? TIERD_BF16 : TIERD_FP32, j, value);
		}
	}
}

/* ---- Crowd ---- */

uint64_t support_random(uint64_t *seed)
{
	/* splitmix64 */
	uint64_t value = *seed += UINT64_C(0x9e3779b97f4a7c15);

	value = (value ^ value >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
	value = (value ^ value >> 27) * UINT64_C(0x94d049bb133111eb);
	return value ^ value >> 31;
}

void crowd_pass_time(uint64_t *seed, unsigned microseconds)
{
	struct timespec moment = { .tv_nsec = (long)(support_random(seed) % microseconds) * 1000 };

	nanosleep(&moment, NULL);
}

static void start(struct crowd *crowd, unsigned rank)
{
	pid_t parent = getpid(), pid = fork();

	REQUIRE(pid >= 0);
	if (pid > 0) {
		crowd->pids[rank] = pid;
		return;
	}
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != parent)
		_exit(1);
	crowd->run(crowd->board, rank, crowd->argument);
	exit(0);
}

void crowd_start(struct crowd *crowd, unsigned count, size_t space_bytes,
		 void (*run)(struct crowd_board *board, unsigned rank, void *argument), void *argument)
{
	REQUIRE(count <= CROWD_MAX);
	*crowd = (struct crowd){ .count = count, .run = run, .argument = argument };
	crowd->board_bytes = sizeof(*crowd->board) + space_bytes;
	crowd->board =
		mmap(NULL, crowd->board_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	REQUIRE(crowd->board != MAP_FAILED);
	for (unsigned rank = 0; rank < count; rank++)
		start(crowd, rank);
}

void crowd_replace(struct crowd *crowd, unsigned rank)
{
	int status;

	crowd_check(crowd);
	REQUIRE(kill(crowd->pids[rank], SIGKILL) == 0);
	REQUIRE(waitpid(crowd->pids[rank], &status, 0) == crowd->pids[rank]);
	REQUIRE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
	crowd->board->has_arrived[rank] = false;
	start(crowd, rank);
}

static void end_all(struct crowd *crowd)
{
	for (unsigned rank = 0; rank < crowd->count; rank++)
		if (crowd->pids[rank] > 0)
			kill(crowd->pids[rank], SIGKILL);
}

void crowd_check(struct crowd *crowd)
{
	for (unsigned rank = 0; rank < crowd->count; rank++) {
		int status;

		if (crowd->pids[rank] == 0 || waitpid(crowd->pids[rank], &status, WNOHANG) == 0)
			continue;
		crowd->pids[rank] = 0;
		if (WIFEXITED(status) && WEXITSTATUS(status) == 0 && crowd->board->may_finish)
			continue;
		fprintf(stderr, "rank %u has ended with status %#x\n", rank, (unsigned)status);
		end_all(crowd);
		exit(1);
	}
}

static bool all_have_arrived(const struct crowd *crowd)
{
	for (unsigned rank = 0; rank < crowd->count; rank++)
		if (!crowd->board->has_arrived[rank])
			return false;
	return true;
}

void crowd_finish(struct crowd *crowd)
{
	uint64_t seed = 1;

	while (!all_have_arrived(crowd)) {
		crowd_check(crowd);
		crowd_pass_time(&seed, 1000);
	}
	crowd->board->may_finish = true;
	for (unsigned running = 1; running > 0;) {
		crowd_check(crowd);
		crowd_pass_time(&seed, 1000);
		running = 0;
		for (unsigned rank = 0; rank < crowd->count; rank++)
			running += crowd->pids[rank] > 0;
	}
}

void crowd_free(struct crowd *crowd)
{
	munmap(crowd->board, crowd->board_bytes);
}

bool crowd_arrive(struct crowd_board *board, unsigned rank, struct tierd_job *job)
{
	uint64_t seed = rank;
	struct tierd_job_state state;

	board->has_arrived[rank] = true;
	while (!board->may_finish) {
		int r = tierd_job_state(job, &state);

		if (r == -ESTALE) {
			board->has_arrived[rank] = false;
			return false;
		}
		OK(r);
		crowd_pass_time(&seed, 1000);
	}
	return true;
}

const char *support_value(int count, char *arguments[], const char *key, const char *otherwise)
{
	size_t length = strlen(key);

	for (int i = 1; i < count; i++)
		if (strncmp(arguments[i], key, length) == 0 && arguments[i][length] == '=')
			return arguments[i] + length + 1;
	return otherwise;
}

uint64_t support_number(int count, char *arguments[], const char *key, uint64_t otherwise)
{
	const char *text = support_value(count, arguments, key, NULL);

	return text ? strtoull(text, NULL, 0) : otherwise;
}
