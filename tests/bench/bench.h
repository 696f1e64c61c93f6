/* What every benchmark program shares: which results are asked for, fair comparisons on a noisy machine, and
 * the list of results. */
#ifndef TIERD_TESTS_BENCH_BENCH_H
#define TIERD_TESTS_BENCH_BENCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

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
	double seconds; /* that a run takes; 0: one */
};

/* A result of any other kind. A spread of 0 or a limit of 0 is not given. */
struct bench_result {
	const char *name; /* borrowed for as long as the bench lives */
	double value;
	const char *unit;
	enum bench_bound bound;
	double limit, spread;
};

/* A program of benchmarks: reads PROGRAM [--quick] [--json FILE] [NAME…], calls run(), which returns 0 or a
 * negative errno, and writes the list of results where --json says. Returns the program's exit status: 77 if
 * all that was asked for was skipped. */
int bench_main(int argc, char **argv, int (*run)(struct bench *bench));

/* Whether a result was asked for: by its name, or because no name was given. */
bool bench_wants(const struct bench *bench, const char *name);
/* Whether one of these results was. */
#define bench_wants_any(bench, ...) bench_wants_one_of(bench, (const char *const[]){ __VA_ARGS__, NULL })
bool bench_wants_one_of(const struct bench *bench, const char *const *names);
bool bench_is_quick(const struct bench *bench);

/* Nine pairs, each in the order ours, theirs, theirs, ours or its reverse, by chance, of a second a run, or
 * what is asked for; the value is the median of the pairs' ratios. After each pair theirs runs against itself
 * in the same way: the spread is the median of those ratios, each turned so that it is at least 1. Prints the
 * rates. 0, or what a side returned. */
int bench_measure(struct bench *bench, const struct bench_comparison *comparison,
		  struct bench_result *ret_result);
/* Measures, and records the result. */
int bench_compare(struct bench *bench, const struct bench_comparison *comparison);

/* True or false, by chance. */
bool bench_toss(struct bench *bench);

/* The time since a reading of clock_now_ns(). */
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
double bench_median(double *values, unsigned count);

/* Records a value that is to be at most the limit; 0: there is none. -ENOBUFS: too many. */
int bench_record(struct bench *bench, const char *name, double value, const char *unit, double limit);
int bench_record_result(struct bench *bench, const struct bench_result *result);

/* Skips the result, if it is wanted: this machine cannot give it, for want of what is no part of tierd. The
 * reason is copied. */
void bench_skip(struct bench *bench, const char *name, const char *why);

/* Reads a line such as "VmHWM:  123 kB" of a file of /proc: so many bytes; 0: it is not there. */
uint64_t bench_proc_bytes(const char *path, const char *name);

/* Runs a command of the shell, and keeps what it writes, as far as there is room. -EIO: it has failed. */
int bench_read_output(const char *command, char *text, size_t size);

/* A new folder on the disk that is measured: $TMPDIR's, or that of /var/tmp. The path is "" after an error.
 */
int bench_make_folder(char *path, size_t size);

#endif
