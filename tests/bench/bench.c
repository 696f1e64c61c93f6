#include "tests/bench/bench.h"

#include <errno.h>
#include <getopt.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <cjson/cJSON.h>

#include "common/cleanup.h"
#include "common/size.h"

#define PAIRS 9 /* odd: one is the median */
#define QUICK_PAIRS 3
#define QUICK_SECONDS 0.05
#define MAX_RESULTS 64
#define EXIT_SKIPPED 77 /* as meson has it */

struct skip {
	const char *name;
	char why[512];
};

struct bench {
	bool is_quick;
	const char *json_path;
	char **names;
	int name_count;
	uint64_t random;
	struct bench_result results[MAX_RESULTS];
	unsigned count;
	struct skip skips[MAX_RESULTS];
	unsigned skip_count;
};

int bench_make_folder(char *path, size_t size)
{
	const char *parent = getenv("TMPDIR");

	snprintf(path, size, "%s/tierd-bench-XXXXXX", parent ? parent : "/var/tmp");
	if (mkdtemp(path))
		return 0;
	*path = '\0';
	return -errno;
}

/* -EINVAL with the usage on stderr. */
static int bench_new(int argc, char **argv, struct bench **ret_bench)
{
	static const struct option options[] = {
		{ "quick", no_argument, NULL, 'q' },
		{ "json", required_argument, NULL, 'j' },
		{ 0 },
	};
	_cleanup_free_ struct bench *bench = calloc(1, sizeof(*bench));
	int option;

	if (!bench)
		return -ENOMEM;
	while ((option = getopt_long(argc, argv, "", options, NULL)) != -1) {
		if (option == 'q')
			bench->is_quick = true;
		else if (option == 'j')
			bench->json_path = optarg;
		else {
			fprintf(stderr, "usage: %s [--quick] [--json FILE] [NAME...]\n", argv[0]);
			return -EINVAL;
		}
	}
	bench->names = argv + optind;
	bench->name_count = argc - optind;
	if (getrandom(&bench->random, sizeof(bench->random), 0) != sizeof(bench->random))
		return -errno;

	*ret_bench = TAKE_PTR(bench);
	return 0;
}

bool bench_wants(const struct bench *bench, const char *name)
{
	for (int i = 0; i < bench->name_count; i++)
		if (strcmp(bench->names[i], name) == 0)
			return true;
	return bench->name_count == 0;
}

bool bench_wants_one_of(const struct bench *bench, const char *const *names)
{
	for (; *names; names++)
		if (bench_wants(bench, *names))
			return true;
	return false;
}

bool bench_is_quick(const struct bench *bench)
{
	return bench->is_quick;
}

bool bench_toss(struct bench *bench)
{
	bench->random = bench->random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
	return bench->random >> 63;
}

struct pair {
	double rates[2]; /* of the first and the second side */
};

/* A side that is first and last suffers a drift as much as the one in the middle. */
static int run_pair(struct bench *bench, const struct bench_side *first, const struct bench_side *second,
		    double seconds, struct pair *ret_pair)
{
	const struct bench_side *sides[2] = { first, second };
	bool is_reversed = bench_toss(bench);
	struct pair pair = { { 0 } };

	for (int i = 0; i < 4; i++) {
		int side = (i == 1 || i == 2) != is_reversed;
		double rate = sides[side]->run(sides[side]->context, seconds);

		if (rate < 0)
			return (int)rate;
		pair.rates[side] += rate / 2;
	}
	*ret_pair = pair;
	return 0;
}

static int compare_doubles(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

double bench_quantile(double *values, unsigned count, double part)
{
	qsort(values, count, sizeof(*values), compare_doubles);
	return values[(unsigned)(part * (count - 1))];
}

double bench_median(double *values, unsigned count)
{
	return bench_quantile(values, count, 0.5);
}

static double ratio_of(const struct pair *pair, enum bench_bound bound)
{
	return bound == BENCH_AT_LEAST ? pair->rates[0] / pair->rates[1] : pair->rates[1] / pair->rates[0];
}

int bench_measure(struct bench *bench, const struct bench_comparison *comparison,
		  struct bench_result *ret_result)
{
	double ratios[PAIRS], selves[PAIRS], ours[PAIRS], theirs[PAIRS];
	unsigned pairs = bench->is_quick ? QUICK_PAIRS : PAIRS;
	double seconds = bench->is_quick ? QUICK_SECONDS : comparison->seconds > 0 ? comparison->seconds : 1;
	struct pair pair = { { 0 } };
	int r;

	for (unsigned i = 0; i < pairs; i++) {
		r = run_pair(bench, &comparison->ours, &comparison->theirs, seconds, &pair);
		if (r < 0)
			return r;
		ours[i] = pair.rates[0];
		theirs[i] = pair.rates[1];
		ratios[i] = ratio_of(&pair, comparison->bound);

		r = run_pair(bench, &comparison->theirs, &comparison->theirs, seconds, &pair);
		if (r < 0)
			return r;
		selves[i] = ratio_of(&pair, comparison->bound);
		if (selves[i] < 1)
			selves[i] = 1 / selves[i];
	}
	printf("%-24s ours %.2f, theirs %.2f %s\n", comparison->name,
	       bench_median(ours, pairs) / comparison->scale, bench_median(theirs, pairs) / comparison->scale,
	       comparison->unit);
	*ret_result = (struct bench_result){ .name = comparison->name,
					     .value = bench_median(ratios, pairs),
					     .unit = "ratio",
					     .bound = comparison->bound,
					     .limit = comparison->limit,
					     .spread = bench_median(selves, pairs) };
	return 0;
}

int bench_compare(struct bench *bench, const struct bench_comparison *comparison)
{
	struct bench_result result;
	int r = bench_measure(bench, comparison, &result);

	return r < 0 ? r : bench_record_result(bench, &result);
}

int bench_record(struct bench *bench, const char *name, double value, const char *unit, double limit)
{
	return bench_record_result(
		bench, &(struct bench_result){ .name = name, .value = value, .unit = unit, .limit = limit });
}

int bench_record_result(struct bench *bench, const struct bench_result *result)
{
	if (bench->count == MAX_RESULTS)
		return -ENOBUFS;
	bench->results[bench->count++] = *result;
	printf("%-24s %12.4g %-8s", result->name, result->value, result->unit);
	if (result->limit > 0)
		printf("  bar %s %.4g", result->bound == BENCH_AT_LEAST ? ">=" : "<=", result->limit);
	if (result->spread > 0)
		printf("  spread %.3f", result->spread);
	printf("\n");
	fflush(stdout);
	return 0;
}

void bench_skip(struct bench *bench, const char *name, const char *why)
{
	if (!bench_wants(bench, name))
		return;
	printf("%-24s skipped: %s\n", name, why);
	fflush(stdout);
	if (bench->skip_count < MAX_RESULTS) {
		struct skip *skip = &bench->skips[bench->skip_count++];

		skip->name = name;
		snprintf(skip->why, sizeof(skip->why), "%s", why);
	}
}

uint64_t bench_proc_bytes(const char *path, const char *name)
{
	size_t length = strlen(name);
	char line[256];
	FILE *file = fopen(path, "re");
	uint64_t kib = 0;

	while (file && fgets(line, sizeof(line), file))
		if (strncmp(line, name, length) == 0 && line[length] == ':')
			kib = strtoull(line + length + 1, NULL, 10);
	if (file)
		fclose(file);
	return kib * KIB;
}

int bench_read_output(const char *command, char *text, size_t size)
{
	FILE *pipe = popen(command, "re");

	if (!pipe)
		return -errno;
	text[fread(text, 1, size - 1, pipe)] = '\0';
	return pclose(pipe) == 0 ? 0 : -EIO;
}

static cJSON *number_or_null(double number)
{
	return number > 0 ? cJSON_CreateNumber(number) : cJSON_CreateNull();
}

static cJSON *json_of(const struct bench_result *result)
{
	cJSON *object = cJSON_CreateObject();

	cJSON_AddStringToObject(object, "name", result->name);
	cJSON_AddNumberToObject(object, "value", result->value);
	cJSON_AddStringToObject(object, "unit", result->unit);
	cJSON_AddStringToObject(object, "bound", result->bound == BENCH_AT_LEAST ? "least" : "most");
	cJSON_AddItemToObject(object, "limit", number_or_null(result->limit));
	cJSON_AddItemToObject(object, "spread", number_or_null(result->spread));
	return object;
}

static cJSON *json_of_skip(const struct skip *skip)
{
	cJSON *object = cJSON_CreateObject();

	cJSON_AddStringToObject(object, "name", skip->name);
	cJSON_AddStringToObject(object, "skipped", skip->why);
	return object;
}

static int write_json(const struct bench *bench)
{
	cJSON *list = cJSON_CreateArray();
	char *text;
	FILE *file;
	int r = -EIO;

	for (unsigned i = 0; i < bench->count; i++)
		cJSON_AddItemToArray(list, json_of(&bench->results[i]));
	for (unsigned i = 0; i < bench->skip_count; i++)
		cJSON_AddItemToArray(list, json_of_skip(&bench->skips[i]));
	text = cJSON_Print(list);
	cJSON_Delete(list);
	file = fopen(bench->json_path, "we");
	if (file) {
		bool is_written = text && fprintf(file, "%s\n", text) > 0;

		r = fclose(file) == 0 && is_written ? 0 : -EIO;
	}
	cJSON_free(text);
	return r;
}

static int bench_end(struct bench *bench, int result)
{
	int success = bench->count == 0 && bench->skip_count > 0 ? EXIT_SKIPPED : EXIT_SUCCESS;
	int r = bench->json_path ? write_json(bench) : 0;

	if (result < 0)
		fprintf(stderr, "benchmark failed: %s\n", strerror(-result));
	if (r < 0)
		fprintf(stderr, "cannot write %s\n", bench->json_path);
	free(bench);
	return r < 0 || result < 0 ? EXIT_FAILURE : success;
}

int bench_main(int argc, char **argv, int (*run)(struct bench *bench))
{
	struct bench *bench = NULL;
	int r = bench_new(argc, argv, &bench);

	return r < 0 ? EXIT_FAILURE : bench_end(bench, run(bench));
}
