#include "environment.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#define MAXIMUM_RANKS 1024

static int fail(const char *name, const char *value, const char *remedy)
{
	fprintf(stderr, "gpt: $%s: '%s' is not possible; give %s\n", name, value, remedy);
	return -EINVAL;
}

static int read_number(const char *name, uint64_t least, uint64_t most, uint64_t *ret_number)
{
	const char *text = getenv(name);
	unsigned long long number;
	char remedy[64];
	char *end;

	if (!text)
		return 0;
	errno = 0;
	number = strtoull(text, &end, 10);
	if (end == text || *end || errno || *text == '-' || number < least || number > most) {
		snprintf(remedy, sizeof(remedy), "a number from %llu to %llu", (unsigned long long)least,
			 (unsigned long long)most);
		return fail(name, text, remedy);
	}
	*ret_number = number;
	return 0;
}

/* The others would wait for ranks that never come. */
static int check_node(const struct environment *environment)
{
	static const char remedy[] = "tierd serves the ranks of one node, so start all of them here";
	uint64_t rank = environment->rank, world_size = environment->world_size;
	int r = read_number("LOCAL_RANK", 0, MAXIMUM_RANKS - 1, &rank);

	if (r == 0)
		r = read_number("LOCAL_WORLD_SIZE", 1, MAXIMUM_RANKS, &world_size);
	if (r == 0 && (rank != environment->rank || world_size != environment->world_size)) {
		fprintf(stderr,
			"gpt: LOCAL_RANK %llu of LOCAL_WORLD_SIZE %llu is not RANK %llu of WORLD_SIZE %llu: "
			"%s\n",
			(unsigned long long)rank, (unsigned long long)world_size,
			(unsigned long long)environment->rank, (unsigned long long)environment->world_size,
			remedy);
		return -EINVAL;
	}
	return r;
}

int environment_read(struct environment *ret_environment)
{
	struct environment environment = { .is_rank = getenv("RANK") || getenv("WORLD_SIZE") };
	int r;

	if (!environment.is_rank) {
		*ret_environment = environment;
		return 0;
	}
	if (!getenv("RANK") || !getenv("WORLD_SIZE")) {
		fprintf(stderr,
			"gpt: RANK and WORLD_SIZE belong together; set both, or neither and give --ranks\n");
		return -EINVAL;
	}
	r = read_number("RANK", 0, MAXIMUM_RANKS - 1, &environment.rank);
	if (r == 0)
		r = read_number("WORLD_SIZE", 1, MAXIMUM_RANKS, &environment.world_size);
	if (r == 0 && environment.rank >= environment.world_size)
		return fail("RANK", getenv("RANK"), "a rank below WORLD_SIZE");
	if (r == 0)
		r = check_node(&environment);
	if (r == 0)
		r = read_number("TORCHELASTIC_RESTART_COUNT", 0, UINT64_MAX, &environment.restarts);
	if (r == 0)
		*ret_environment = environment;
	return r;
}

static void set_number(const char *name, uint64_t value)
{
	char text[24];

	snprintf(text, sizeof(text), "%llu", (unsigned long long)value);
	setenv(name, text, 1);
}

void environment_set(const struct environment *environment)
{
	set_number("RANK", environment->rank);
	set_number("LOCAL_RANK", environment->rank);
	set_number("WORLD_SIZE", environment->world_size);
	set_number("LOCAL_WORLD_SIZE", environment->world_size);
	set_number("TORCHELASTIC_RESTART_COUNT", environment->restarts);
}
