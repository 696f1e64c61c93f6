/* What a commit writes beside the state: nodes of the map, superblocks and the record, over the bytes of a
 * step that rewrites everything. What devices were asked to write says the daemon, of the state and in all.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <cjson/cJSON.h>

#include "common/size.h"
#include "tests/bench/store.h"

#define STEPS 3 /* odd: one is the median */
#define LIMIT 0.0002
#define MAX_TEXT 65536

static double sum_of_paths(const cJSON *tiers)
{
	const cJSON *path;
	double bytes = 0;

	cJSON_ArrayForEach(path, cJSON_GetObjectItem(tiers, "nvme"))
	{
		const cJSON *written = cJSON_GetObjectItem(path, "written_bytes");

		bytes += written ? written->valuedouble : 0;
	}
	return bytes;
}

/* Of everything that tierd has written to its paths. */
static int written_bytes(const struct bench_node *tierd, double *ret_bytes)
{
	char command[512], text[MAX_TEXT];
	size_t length;
	cJSON *tiers;
	FILE *pipe;

	snprintf(command, sizeof(command), "'%s' --socket '%s' --json tiers", TIERCTL_PROGRAM, tierd->socket);
	pipe = popen(command, "re");
	if (!pipe)
		return -errno;
	length = fread(text, 1, sizeof(text) - 1, pipe);
	text[length] = '\0';
	if (pclose(pipe) != 0)
		return -EIO;
	tiers = cJSON_Parse(text);
	if (!tiers)
		return -EPROTO;
	*ret_bytes = sum_of_paths(tiers);
	cJSON_Delete(tiers);
	return 0;
}

static int state_bytes(const struct store_scene *scene, double *ret_bytes)
{
	struct tierd_statistics statistics = TIERD_STATISTICS_INIT;
	int r = tierd_statistics(scene->job, &statistics);

	if (r == 0)
		*ret_bytes =
			(double)(statistics.job_update_written_bytes + statistics.job_gradient_written_bytes);
	return r;
}

static int train_until_durable(struct store_scene *scene)
{
	struct tierd_ticket *ticket = NULL;
	int r = store_scene_train(scene, &ticket);

	if (r == 0)
		r = tierd_ticket_wait(ticket, TIERD_DURABLE, -1);
	tierd_ticket_free(ticket);
	return r;
}

/* Between two commits nothing else is written: the job has one trainer, who waits for them. */
static int measure(struct store_scene *scene, double *ret_state, double *ret_beside)
{
	double state[2] = { 0 }, all[2] = { 0 };
	int r = state_bytes(scene, &state[0]);

	if (r == 0)
		r = written_bytes(&scene->tierd, &all[0]);
	if (r == 0)
		r = train_until_durable(scene);
	if (r == 0)
		r = state_bytes(scene, &state[1]);
	if (r == 0)
		r = written_bytes(&scene->tierd, &all[1]);
	if (r < 0)
		return r;
	*ret_state = state[1] - state[0];
	*ret_beside = all[1] - all[0] - *ret_state;
	return *ret_state > 0 ? 0 : -ENODATA;
}

int bench_map_bytes(struct bench *bench, struct store_scene *scene)
{
	double ratios[STEPS], state = 1, beside = 0;
	/* The first commit has all that was initialized, and what the job is. */
	int r = train_until_durable(scene);

	for (unsigned i = 0; i < STEPS && r == 0; i++) {
		r = measure(scene, &state, &beside);
		ratios[i] = beside / state;
	}
	if (r < 0)
		return r;
	printf("map_bytes_ratio: a step writes %.1f MiB of state, and a commit %.1f KiB beside it\n",
	       state / (double)MIB, beside / (double)KIB);
	return bench_record(bench, &(struct bench_result){ .name = "map_bytes_ratio",
							   .value = bench_quantile(ratios, STEPS, 0.5),
							   .unit = "times",
							   .limit = LIMIT });
}
