#include "tests/unit/seeds.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* 0: nothing runs. */
static uint64_t running;

static void tell(void)
{
	if (running)
		fprintf(stderr, "seed %llu: TIERD_SEED=%llu repeats it\n", (unsigned long long)running,
			(unsigned long long)running);
	running = 0;
}

/* An assertion of the code under test; nothing is left to spoil. */
static void on_abort(int number)
{
	tell();
}

/* Whoever started it has waited long enough: a seed that never ends is one to be told, too. */
static void on_end(int number)
{
	tell();
	_exit(1);
}

/* Who has asked for many wants to know how far they are. A runner of tests shows what one prints when it has
 * ended: so there is a file for it, too. */
static void tell_progress(uint64_t seed, uint64_t count)
{
	const char *path = getenv("TIERD_PROGRESS");
	FILE *file = path ? fopen(path, "a") : NULL;

	fprintf(file ? file : stderr, "%s: %llu of %llu seeds\n", program_invocation_short_name,
		(unsigned long long)seed, (unsigned long long)count);
	if (file)
		fclose(file);
}

static void run_one(uint64_t seed, void (*run)(uint64_t seed))
{
	running = seed;
	run(seed);
	running = 0;
}

void seeds_run(uint64_t count, void (*run)(uint64_t seed))
{
	const char *alone = getenv("TIERD_SEED"), *many = getenv("TIERD_SEEDS");

	signal(SIGABRT, on_abort);
	signal(SIGTERM, on_end);
	if (alone) {
		run_one(strtoull(alone, NULL, 10), run);
		return;
	}
	if (many)
		count = strtoull(many, NULL, 10);
	else
		count = (count - 1) / seeds_part() + 1;
	for (uint64_t seed = 1; seed <= count; seed++) {
		run_one(seed, run);
		if (many && seed % (count / 10 + 1) == 0)
			tell_progress(seed, count);
	}
}

int seeds_tell(void **state)
{
	tell();
	return 0;
}
