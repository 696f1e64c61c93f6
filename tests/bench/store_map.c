/* What a commit writes beside the state: nodes of the map, superblocks and the record, over the bytes of a
 * step that rewrites everything. The daemon says how many bytes it asked devices to write, of the state and
 * in all.
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
	cJSON *tiers;
	int r;

	snprintf(command, sizeof(command), "'%s' --socket '%s' --json tiers", TIERCTL_PROGRAM, tierd->socket);
	r = bench_read_output(command, text, sizeof(text));
	if (r < 0)
		return r;
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

/* Between two commits nothing else is written: the job has one trainer, who waits for them. */
static int measure(struct store_scene *scene, double *ret_state, double *ret_beside)
{
	double state[2] = { 0 }, all[2] = { 0 }, lag;
	int r = state_bytes(scene, &state[0]);

	if (r == 0)
		r = written_bytes(&scene->tierd, &all[0]);
	if (r == 0)
		r = store_scene_train_durably(scene, &lag);
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
	double ratios[STEPS], state = 1, beside = 0, lag;
	/* The first commit has all that was initialized, and what the job is. */
	int r = store_scene_train_durably(scene, &lag);

	for (unsigned i = 0; i < STEPS && r == 0; i++) {
		r = measure(scene, &state, &beside);
		ratios[i] = beside / state;
	}
	if (r < 0)
		return r;
	printf("map_bytes_ratio: a step writes %.1f MiB of state, and a commit %.1f KiB beside it\n",
	       state / (double)MIB, beside / (double)KIB);
	return bench_record(bench, "map_bytes_ratio", bench_median(ratios, STEPS), "times", LIMIT);
}
