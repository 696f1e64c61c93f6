/* Eight ranks gather and release units of which a third fits, while steps update them and ranks are killed.
 * Every unit is one value repeated, another in each version; so a reader sees whether all it reads is of one
 * version, and whether it stays so under its lease.
 *
 *   leases SEED KILLS */
#include <errno.h>
#include <string.h>
#include <time.h>

#include "crash_support.h"

#define RANKS 8
#define UNITS 12
#define SLOTS 4
/* More than half a pack: every unit is one of its own. */
#define ELEMENTS UINT64_C(540672)
#define UNIT_BYTES (2 * ELEMENTS)
#define STEPS 10
#define LOOKS 6

/* The bits of each version of each unit, by whoever saw it first; and 1 more, so that 0 is nothing. */
struct values {
	_Atomic uint32_t seen[UNITS][STEPS + 1];
};

struct reader {
	struct values *values;
	struct tierd_node *node;
	struct tierd_job *job;
	struct crowd_board *board;
	uint64_t seed, step;
	unsigned rank;
};

static uint64_t budget(void)
{
	uint64_t sums = UNITS * ELEMENTS * 4;
	uint64_t gradients = (2 * RANKS + RANKS) * UNIT_BYTES;
	uint64_t windows = RANKS * (1 << 20);

	return sums + gradients + windows + SLOTS * UNIT_BYTES + (1 << 20);
}

static void join(struct reader *reader)
{
	struct tierd_job_options options = support_options("leases", reader->rank, RANKS);

	options.host_budget = budget();
	options.parameter_placement = options.optimizer_placement = TIERD_PLACE_NVME;
	reader->node = support_connect();
	OK(tierd_job_open(reader->node, &options, &reader->job));
	support_define_all(reader->job, UNITS, TIERD_BF16, ELEMENTS, 1, 1);
}

/* ---- Looking ---- */

static uint16_t value_of(const struct tierd_view *view)
{
	return *(const uint16_t *)tierd_at(view, 0);
}

static void require_value(const struct tierd_view *view, uint16_t value)
{
	const uint16_t *values = tierd_at(view, 0);
	uint16_t difference = 0;

	for (uint64_t i = 0; i < ELEMENTS; i++)
		difference |= values[i] ^ value;
	REQUIRE(difference == 0);
}

static void require_version(struct reader *reader, unsigned unit, const struct tierd_view *view)
{
	uint32_t mine = value_of(view) + 1u, nothing = 0;

	REQUIRE(view->version <= STEPS && view->version >= reader->step);
	require_value(view, value_of(view));
	if (!atomic_compare_exchange_strong(&reader->values->seen[unit][view->version], &nothing, mine))
		REQUIRE(nothing == mine);
	if (view->version > 0)
		REQUIRE(reader->values->seen[unit][view->version - 1] != mine);
}

/* A pair at once: both are there, or none is leased. */
static int look_at_two(struct reader *reader)
{
	uint32_t units[2] = { (uint32_t)(support_random(&reader->seed) % UNITS),
			      (uint32_t)(support_random(&reader->seed) % UNITS) };
	struct tierd_view views[2];
	int r = tierd_gather_many(reader->job, units, 2, views);

	if (r == -EDEADLK)
		FAILS(r, -EDEADLK, "\" by rank ");
	if (r < 0)
		return r == -EDEADLK ? 0 : r;
	for (int i = 0; i < 2; i++)
		require_version(reader, units[i], &views[i]);
	return tierd_release_many(reader->job, units, 2);
}

/* Ranks that hold units and want more can lock each other out; then one of them is told, and lets go. */
static int look_around(struct reader *reader)
{
	struct tierd_view held[2], view;
	unsigned units[2];
	int count = 0, r = 0;

	for (int i = 0; r == 0 && i < LOOKS; i++) {
		unsigned unit = (unsigned)(support_random(&reader->seed) % UNITS);

		if (count == 0 || i % 8 == 0)
			r = look_at_two(reader);
		if (r == 0)
			r = tierd_gather(reader->job, unit, &view);
		if (r == -EDEADLK) {
			FAILS(r, -EDEADLK, "\" by rank ");
			while (count > 0)
				OK(tierd_release(reader->job, units[--count]));
			r = 0;
			continue;
		}
		if (r < 0)
			break;
		require_version(reader, unit, &view);
		units[count] = unit;
		held[count++] = view;
		if (count == 2) {
			/* The older one has been through whatever the gather of the newer one made necessary.
			 */
			require_value(&held[0], value_of(&held[0]));
			require_value(&held[1], value_of(&held[1]));
			OK(tierd_release(reader->job, units[0]));
			units[0] = units[1];
			held[0] = held[1];
			count = 1;
		}
	}
	while (count > 0)
		OK(tierd_release(reader->job, units[--count]));
	return r;
}

/* ---- Steps ---- */

static int push_ones(struct reader *reader, unsigned unit)
{
	struct tierd_view gradients;
	int r = tierd_gradients(reader->job, unit, &gradients);

	if (r < 0)
		return r;
	uint16_t *values = tierd_at(&gradients, 0);

	for (uint64_t i = 0; i < ELEMENTS; i++)
		values[i] = 0x3f80;
	return tierd_push(reader->job, unit);
}

static int take_step(struct reader *reader)
{
	struct tierd_rates rates = support_rates(0.25f);
	struct tierd_ticket *ticket = NULL;
	int r = look_around(reader);

	for (unsigned unit = 0; r == 0 && unit < UNITS; unit++)
		if ((unit + reader->step) % RANKS == reader->rank)
			r = push_ones(reader, unit);
	if (r == 0)
		r = tierd_step(reader->job, &rates, &ticket);
	/* While it is being applied. */
	if (r == 0) {
		reader->step++;
		r = look_around(reader);
	}
	if (r == 0)
		r = tierd_ticket_wait(ticket, TIERD_DONE, -1);
	tierd_ticket_free(ticket);
	return r;
}

static void run_reader(struct crowd_board *board, unsigned rank, void *argument)
{
	struct reader reader = { .values = (struct values *)board->space, .board = board, .rank = rank };
	struct tierd_job_state state;
	int r;

	(void)argument;
	reader.seed = rank * 1000 + (uint64_t)clock();
	join(&reader);
	do {
		r = tierd_job_ready(reader.job, -1, &state);
		if (r == -ESTALE)
			continue;
		OK(r);
		reader.step = state.step;
		while (r == 0 && reader.step < STEPS)
			r = take_step(&reader);
		if (r != -ESTALE)
			OK(r);
	} while (r == -ESTALE || !crowd_arrive(board, rank, reader.job));
	OK(tierd_job_close(reader.job));
	tierd_disconnect(reader.node);
}

static void read_under_fire(uint64_t seed, unsigned kills)
{
	struct crowd crowd;

	crowd_start(&crowd, RANKS, sizeof(struct values), run_reader, NULL);
	for (unsigned i = 0; i < kills; i++) {
		crowd_pass_time(&seed, 200000);
		crowd_replace(&crowd, (unsigned)(support_random(&seed) % RANKS));
	}
	crowd_finish(&crowd);
	const struct values *values = (const struct values *)crowd.board->space;
	unsigned seen = 0;

	for (unsigned unit = 0; unit < UNITS; unit++)
		for (unsigned version = 0; version <= STEPS; version++)
			seen += values->seen[unit][version] != 0;
	printf("%u of %u versions were seen\n", seen, UNITS * (STEPS + 1));
	REQUIRE(seen > UNITS * (STEPS + 1) / 2);
	crowd_free(&crowd);
	support_drop("leases");
}

int main(int argc, char *argv[])
{
	REQUIRE(argc == 3);
	read_under_fire(strtoull(argv[1], NULL, 10), (unsigned)strtoul(argv[2], NULL, 10));
	return 0;
}
