/* What every benchmark program shares: which results are asked for, fair comparisons on a noisy machine, and
 * the list of results. */
#ifndef TIERD_TESTS_BENCH_BENCH_H
#define TIERD_TESTS_BENCH_BENCH_H

#include <stdbool.h>
#include <stddef.h>

#include "common/clock.h"

struct bench;

/* The two sides of a comparison. run() works for about that many seconds and returns its rate (more is
 * better), or a negative errno. */
struct bench_side {
	double (*run)(void *context, double seconds);
	void *context;
};

/* What a limit asks of a value. */
enum bench_bound { BENCH_AT_MOST, BENCH_AT_LEAST };

struct bench_comparison {
	const char *name;
	enum bench_bound bound; /* at least: of our rate over theirs; at most: of our time over theirs */
	double limit;		/* the ratio that is asked for */
	const char *unit;	/* of the rates, for people */
	double scale;		/* rates are shown divided by this */
	struct bench_side ours, theirs;
};

/* A result of any other kind. A spread of 0 or a limit of 0 is not given. */
struct bench_result {
	const char *name; /* borrowed for as long as the bench lives */
	double value;
	const char *unit;
	enum bench_bound bound;
	double limit, spread;
};

/* Reads PROGRAM [--quick] [--json FILE] [NAME…]. 0, or -EINVAL with the usage on stderr. */
int bench_new(int argc, char **argv, struct bench **ret_bench);

/* Whether a result was asked for: by its name, or because no name was given. */
bool bench_wants(const struct bench *bench, const char *name);
bool bench_is_quick(const struct bench *bench);

/* Nine pairs, each in the order ours, theirs, theirs, ours or its reverse, by chance, of a second a run; the
 * value is the median of the pairs' ratios. After each pair theirs runs against itself in the same way: the
 * spread is the median of those ratios, each turned so that it is at least 1. Prints the rates. 0, or what a
 * side returned. */
int bench_measure(struct bench *bench, const struct bench_comparison *comparison,
		  struct bench_result *ret_result);
/* And records it. */
int bench_compare(struct bench *bench, const struct bench_comparison *comparison);

/* By chance. */
bool bench_toss(struct bench *bench);

/* Since a reading of clock_now_ns(). */
static inline double bench_seconds_since(uint64_t start)
{
	return (double)(clock_now_ns() - start) / 1e9;
}

static inline double bench_ms_since(uint64_t start)
{
	return bench_seconds_since(start) * 1e3;
}

/* Sorts the values; part: from 0, the least, to 1. */
double bench_quantile(double *values, unsigned count, double part);

/* -ENOBUFS: too many. */
int bench_record(struct bench *bench, const struct bench_result *result);

/* A result that this machine cannot give, for want of what is no part of tierd. The reason is copied. */
void bench_skip(struct bench *bench, const char *name, const char *why);

/* A new folder on the disk that is measured: $TMPDIR's, or that of /var/tmp. The path is "" after an error.
 */
int bench_make_folder(char *path, size_t size);

/* Says what has failed (result: 0, or a negative errno), writes the list where --json says, and frees.
 * Returns the program's exit status: 77 if all that was asked for was skipped. */
int bench_end(struct bench *bench, int result);

#endif
