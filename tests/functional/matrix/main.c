/* matrix SET…: trains every configuration of the sets through the daemon at $TIERD_SOCKET, each rank a
 * process of its own, and compares all bits and accounts with the reference. matrix count SET…: how many
 * there are. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "configurations.h"
#include "gpu.h"
#include "owner.h"
#include "references.h"

/* ---- A rank ---- */

enum {
	RANK_NUMBER = 2,
	RANK_BUDGET,
	RANK_GPU_BUDGET,
	RANK_DESCRIPTOR,
	RANK_VALUES,
	RANK_ARGUMENTS = RANK_VALUES + 15
};

static unsigned number(const char *text)
{
	return (unsigned)strtoul(text, NULL, 10);
}

static struct configuration read_configuration(char **values)
{
	return (struct configuration){ .ranks = number(values[0]),
				       .micro_batches = number(values[1]),
				       .format = number(values[2]),
				       .has_wide = number(values[3]),
				       .has_skips = number(values[4]),
				       .rule = (enum rule)number(values[5]),
				       .has_dynamic_scale = number(values[6]),
				       .stage = number(values[7]),
				       .has_nvme_parameters = number(values[8]),
				       .has_nvme_optimizer = number(values[9]),
				       .gradient_buffers = number(values[10]),
				       .is_tight = number(values[11]),
				       .gradient_placement = number(values[12]),
				       .is_by_owner = number(values[13]),
				       .is_announced = number(values[14]) };
}

static void rank_init(struct rank *rank, const struct configuration *configuration, unsigned index)
{
	rank->configuration = *configuration;
	rank->rank = index;
	configuration_print(configuration, rank->label, sizeof(rank->label));
	model_make(&rank->model, configuration->format, configuration->has_wide);
}

static int run_rank(char **argv)
{
	static struct rank rank;
	struct configuration configuration = read_configuration(&argv[RANK_VALUES]);
	uint64_t budget = strtoull(argv[RANK_BUDGET], NULL, 10);
	struct tierd_job_state state;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	rank_init(&rank, &configuration, number(argv[RANK_NUMBER]));
	reference_map(&rank.reference, &rank.model, (int)number(argv[RANK_DESCRIPTOR]), false);
	rank.gpu_budget = strtoull(argv[RANK_GPU_BUDGET], NULL, 10);
	rank_join(&rank, budget);
	rank_write(&rank);
	rank_must(&rank, tierd_job_ready(rank.job, -1, &state), "tierd_job_ready");
	if (state.status != TIERD_NEW || state.step != 0)
		rank_fail(&rank, "a new job has status %u and stands at step %llu", state.status,
			  (unsigned long long)state.step);
	rank.gpu = gpu_reader_new(&rank);
	if ((state.gpu_bytes > 0) != (rank.gpu != NULL))
		rank_fail(&rank, "it has %llu bytes on a GPU", (unsigned long long)state.gpu_bytes);
	if (configuration.is_by_owner)
		rank.owner = owner_new(&rank);
	rank_train(&rank);
	rank_compare(&rank);
	if (rank.owner) {
		owner_compare(rank.owner, &rank);
		rank.owner = owner_free(rank.owner);
	}
	rank_check_account(&rank, budget);
	rank_must(&rank, tierd_job_close(rank.job), "tierd_job_close");
	tierd_disconnect(rank.node);
	return 0;
}

/* ---- All ranks ---- */

/* A fresh image, so that no rank inherits a mapping of another's. */
static void become_rank(const struct configuration *configuration, unsigned rank, uint64_t budget,
			uint64_t gpu_budget, int fd)
{
	const uint64_t values[RANK_ARGUMENTS - RANK_NUMBER] = {
		rank,
		budget,
		gpu_budget,
		(uint64_t)fd,
		configuration->ranks,
		configuration->micro_batches,
		configuration->format,
		configuration->has_wide,
		configuration->has_skips,
		configuration->rule,
		configuration->has_dynamic_scale,
		configuration->stage,
		configuration->has_nvme_parameters,
		configuration->has_nvme_optimizer,
		configuration->gradient_buffers,
		configuration->is_tight,
		configuration->gradient_placement,
		configuration->is_by_owner,
		configuration->is_announced,
	};
	static char texts[RANK_ARGUMENTS - RANK_NUMBER][24], name[] = "matrix", verb[] = "rank";
	char *argv[RANK_ARGUMENTS + 1] = { name, verb };

	for (int i = 0; i < RANK_ARGUMENTS - RANK_NUMBER; i++) {
		snprintf(texts[i], sizeof(texts[i]), "%llu", (unsigned long long)values[i]);
		argv[RANK_NUMBER + i] = texts[i];
	}
	execv("/proc/self/exe", argv);
	_exit(127);
}

/* It is what tierd says that it needs, which it rounds to a tenth of a MiB. */
static uint64_t read_least_budget(const struct rank *rank)
{
	const char *text = strstr(tierd_message(), "at least ");
	double mib;

	if (!text || sscanf(text, "at least %lf MiB", &mib) != 1)
		rank_fail(rank, "the message names no least budget: %s", tierd_message());
	return (uint64_t)((mib + 0.1) * 1048576.0);
}

static uint64_t ask_least_budget(const struct configuration *configuration)
{
	static struct rank rank;
	uint64_t budget;
	float value = 0;

	rank_init(&rank, configuration, 0);
	rank_join(&rank, 1);
	if (tierd_tensor_write(rank.job, 0, 0, 0, 1, &value, true) != -ENOMEM)
		rank_fail(&rank, "a budget of 1 byte is enough: %s", tierd_message());
	budget = read_least_budget(&rank);
	tierd_job_detach(rank.job);
	tierd_disconnect(rank.node);
	return budget;
}

/* Of a GPU the first rank that is ready there is told, and the units are the same for any number of ranks. */
static uint64_t ask_least_gpu_budget(const struct configuration *configuration)
{
	static struct rank rank;
	struct configuration alone = *configuration;
	struct tierd_view view;
	uint64_t budget;

	alone.ranks = alone.gradient_buffers = 1;
	rank_init(&rank, &alone, 0);
	rank.gpu_budget = 1;
	rank_join(&rank, UINT64_C(200) << 20);
	rank_write(&rank);
	rank_must(&rank, tierd_job_ready(rank.job, -1, NULL), "tierd_job_ready");
	if (tierd_gather_on(rank.job, 0, NULL, &view) != -EOPNOTSUPP)
		rank_fail(&rank, "a budget of 1 byte is enough on a GPU");
	budget = read_least_budget(&rank);
	rank_must(&rank, tierd_job_close(rank.job), "tierd_job_close");
	tierd_disconnect(rank.node);
	return budget;
}

static bool run_configuration(const struct configuration *configuration)
{
	int fd = references_get(configuration), status;
	uint64_t budget = configuration->is_tight ? ask_least_budget(configuration) : 200 << 20;
	uint64_t gpu_budget = gpu_is_least() ? ask_least_gpu_budget(configuration) : 0;
	bool has_failed = false;

	for (unsigned rank = 0; rank < configuration->ranks; rank++) {
		pid_t pid = fork();

		if (pid == 0)
			become_rank(configuration, rank, budget, gpu_budget, fd);
		has_failed |= pid < 0;
	}
	while (wait(&status) > 0)
		has_failed |= status != 0;
	return !has_failed;
}

int main(int argc, char **argv)
{
	static struct configuration all[CONFIGURATIONS_MAXIMUM];
	unsigned failed = 0, run = 0;
	bool is_counting = argc > 1 && strcmp(argv[1], "count") == 0;

	if (argc == RANK_ARGUMENTS && strcmp(argv[1], "rank") == 0)
		return run_rank(argv);
	for (int i = is_counting ? 2 : 1; i < argc; i++) {
		unsigned count = configurations_of(argv[i], all);

		if (count == 0) {
			fprintf(stderr, "matrix: there is no set %s\n", argv[i]);
			return 2;
		}
		for (unsigned c = 0; c < count; c++, run++)
			failed += !is_counting && !run_configuration(&all[c]);
	}
	if (is_counting) {
		printf("%u\n", run);
		return run == 0;
	}
	printf("%u configurations, %u failed\n", run, failed);
	return failed > 0 || run == 0;
}
