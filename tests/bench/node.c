#include "tests/bench/node.h"

#include <errno.h>
#include <ftw.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "common/size.h"
#include "tests/bench/bench.h"

#define START_TRIES 10000 /* of a millisecond */

static int make_folders(struct bench_node *node)
{
	snprintf(node->folder, sizeof(node->folder), "/tmp/tierd-bench-XXXXXX");
	if (!mkdtemp(node->folder)) {
		node->folder[0] = '\0';
		return -errno;
	}
	snprintf(node->socket, sizeof(node->socket), "%s/socket", node->folder);
	return bench_make_folder(node->disk, sizeof(node->disk));
}

static void run_daemon(const struct bench_node *node)
{
	char state[sizeof(node->folder) + 8], nvme[sizeof(node->disk) + 32], more[sizeof(nvme)];
	/* It may have been carried to another machine. */
	const char *program = getenv("TIERD") ? getenv("TIERD") : TIERD_PROGRAM;

	snprintf(state, sizeof(state), "%s/state", node->folder);
	snprintf(nvme, sizeof(nvme), "%s:%s", node->disk, node->nvme_capacity);
	snprintf(more, sizeof(more), "%s:%s", node->more_disk ? node->more_disk : "", node->nvme_capacity);
	prctl(PR_SET_PDEATHSIG, SIGTERM);
	execl(program, program, "--config", "/dev/null", "--log-level", "warning", "--socket", node->socket,
	      "--state-dir", state, "--host-budget", node->host_budget, "--nvme", nvme, "--file-system",
	      "memory", node->more_disk ? "--nvme" : (char *)NULL, more, (char *)NULL);
	fprintf(stderr, "%s: %s\n", program, strerror(errno));
	_exit(EXIT_FAILURE);
}

int bench_node_await(struct bench_node *node)
{
	struct tierd_node *connection;
	int r = -ETIMEDOUT;

	for (int i = 0; i < START_TRIES; i++) {
		r = tierd_connect(node->socket, &connection);
		if (r == 0) {
			tierd_disconnect(connection);
			return 0;
		}
		if (waitpid(node->pid, NULL, WNOHANG) == node->pid) {
			node->pid = -1;
			return -ECHILD;
		}
		clock_sleep_ns(1000000);
	}
	return r;
}

int bench_node_run(struct bench_node *node)
{
	fflush(NULL);
	node->pid = fork();
	if (node->pid < 0)
		return -errno;
	if (node->pid == 0)
		run_daemon(node);
	return 0;
}

int bench_node_start(struct bench_node *node, const char *host_budget, const char *nvme_capacity)
{
	int r = make_folders(node);

	node->host_budget = host_budget;
	node->nvme_capacity = nvme_capacity;
	if (r == 0)
		r = bench_node_run(node);
	return r < 0 ? r : bench_node_await(node);
}

int bench_define_units(struct tierd_job *job, const struct bench_units *units)
{
	struct tierd_tensor tensor = TIERD_TENSOR_INIT;
	char name[32];
	uint32_t unit;
	int r = 0;

	tensor.name = name;
	tensor.format = units->format ? units->format : TIERD_BF16;
	tensor.dimensions = 1;
	tensor.shape[0] = units->elements;
	tensor.is_frozen = units->is_frozen;
	tensor.initializer = TIERD_INITIALIZE_UNIFORM;
	tensor.a = -1;
	tensor.b = 1;
	for (unsigned i = 0; i < units->count && r == 0; i++) {
		snprintf(name, sizeof(name), "layer.%u", units->first + i);
		r = tierd_unit_define(job, name, &tensor, 1, &unit);
	}
	return r;
}

int bench_job_open(struct tierd_node *node, const struct tierd_job_options *options,
		   const struct bench_units *units, struct tierd_job **ret_job)
{
	int r = tierd_job_open(node, options, ret_job);

	if (r == 0)
		r = bench_define_units(*ret_job, units);
	if (r == 0)
		r = tierd_job_ready(*ret_job, -1, NULL);
	if (r < 0)
		fprintf(stderr, "%s: %s\n", options->name, tierd_message());
	return r;
}

int bench_job_join(const char *socket, const struct tierd_job_options *options,
		   const struct bench_units *units, struct tierd_node **ret_node, struct tierd_job **ret_job)
{
	int r = tierd_connect(socket, ret_node);

	if (r < 0)
		fprintf(stderr, "%s: %s\n", options->name, tierd_message());
	return r < 0 ? r : bench_job_open(*ret_node, options, units, ret_job);
}

int bench_push(struct tierd_job *job, uint32_t unit, const struct tierd_view *gradients, uint64_t elements)
{
	uint16_t *values = tierd_at(gradients, 0);

	for (uint64_t i = 0; i < elements; i++)
		values[i] = BENCH_GRADIENT;
	return tierd_push(job, unit);
}

int bench_train_unit(struct tierd_job *job, uint32_t unit, uint64_t elements)
{
	struct tierd_view parameters, gradients;
	int r = tierd_gather(job, unit, &parameters);

	if (r == 0)
		r = tierd_gradients(job, unit, &gradients);
	if (r == 0)
		r = bench_push(job, unit, &gradients, elements);
	return r == 0 ? tierd_release(job, unit) : r;
}

int bench_gather_unit(struct tierd_job *job, uint32_t unit)
{
	struct tierd_view view;
	int r = tierd_gather(job, unit, &view);

	return r == 0 ? tierd_release(job, unit) : r;
}

int bench_step(struct tierd_job *job, enum tierd_event event)
{
	struct tierd_rates rates = { sizeof(rates), .gradient_scale = 1 };
	struct tierd_ticket *ticket = NULL;
	int r = tierd_step(job, &rates, event == TIERD_DURABLE ? &ticket : NULL);

	if (r == 0 && ticket)
		r = tierd_ticket_wait(ticket, event, -1);
	tierd_ticket_free(ticket);
	return r;
}

int bench_node_processor_ns(const struct bench_node *node, uint64_t *ret_ns)
{
	struct timespec time;
	clockid_t clock;
	int r = -clock_getcpuclockid(node->pid, &clock);

	if (r < 0 || clock_gettime(clock, &time) < 0)
		return r < 0 ? r : -errno;
	*ret_ns = (uint64_t)time.tv_sec * UINT64_C(1000000000) + (uint64_t)time.tv_nsec;
	return 0;
}

int bench_node_moved_bytes(const struct bench_node *node, double *ret_bytes)
{
	unsigned long long value;
	char path[64], line[128];
	double sum = 0;
	FILE *file;

	snprintf(path, sizeof(path), "/proc/%d/io", (int)node->pid);
	file = fopen(path, "re");
	if (!file)
		return -errno;
	while (fgets(line, sizeof(line), file))
		if (sscanf(line, "read_bytes: %llu", &value) == 1 ||
		    sscanf(line, "write_bytes: %llu", &value) == 1)
			sum += (double)value;
	fclose(file);
	*ret_bytes = sum;
	return 0;
}

uint64_t bench_node_memory(const struct bench_node *node, const char *what)
{
	char path[64];

	snprintf(path, sizeof(path), "/proc/%d/smaps_rollup", (int)node->pid);
	return bench_proc_bytes(path, what);
}

static int remove_entry(const char *path, const struct stat *status, int kind, struct FTW *walk)
{
	return remove(path);
}

static void end(struct bench_node *node, int signal_number)
{
	if (node->pid > 0) {
		kill(node->pid, signal_number);
		waitpid(node->pid, NULL, 0);
	}
	node->pid = -1;
}

void bench_node_kill(struct bench_node *node)
{
	end(node, SIGKILL);
}

void bench_node_stop(struct bench_node *node)
{
	end(node, SIGTERM);
	if (node->folder[0])
		nftw(node->folder, remove_entry, 8, FTW_DEPTH | FTW_PHYS);
	if (node->disk[0])
		nftw(node->disk, remove_entry, 8, FTW_DEPTH | FTW_PHYS);
}

int bench_node_let_others_in(const struct bench_node *node)
{
	return chmod(node->folder, 0711) < 0 || chmod(node->socket, 0666) < 0 ? -errno : 0;
}
