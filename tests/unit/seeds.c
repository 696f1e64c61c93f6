#include "tests/unit/seeds.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

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
	if (alone) {
		run_one(strtoull(alone, NULL, 10), run);
		return;
	}
	if (many)
		count = strtoull(many, NULL, 10);
	for (uint64_t seed = 1; seed <= count; seed++) {
		run_one(seed, run);
		/* Who has asked for many wants to know how far they are. */
		if (many && seed % (count / 10 + 1) == 0)
			fprintf(stderr, "%llu of %llu seeds\n", (unsigned long long)seed,
				(unsigned long long)count);
	}
}

int seeds_tell(void **state)
{
	tell();
	return 0;
}
