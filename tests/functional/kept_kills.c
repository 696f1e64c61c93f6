/* Two ranks whose optimizer state is kept in memory between commits, under daemons that die. What a rank
 * finds when it is back, what a commit has, and what a reader sees between two of them, are the bits of that
 * step of a job in plain memory.
 *
 *   kept_kills expect MOMENTS STAGE FILE   writes to the file what each step has, of a job in plain memory
 *   kept_kills train MOMENTS STAGE FILE    trains, and compares */
#include <errno.h>
#include <string.h>

#include "crash_support.h"

#define RANKS 2
#define STEPS 6
/* Steps of a commit. */
#define COMMIT_STEPS 2
#define NEVER_SECONDS 86400
#define WINDOW_ELEMENTS 65536

/* Packs of one and of several stretches, one of two units, and more stretches than are written at a time. */
static const struct {
	uint32_t format;
	uint64_t elements;
} units[] = { { TIERD_BF16, (1 << 20) + 100001 },
	      { TIERD_FP32, 150000 },
	      { TIERD_BF16, 70001 },
	      { TIERD_FP32, 850000 } };
#define UNITS (sizeof(units) / sizeof(units[0]))

static const char *const states[] = { "parameter", "master", "m", "v" };
#define STATES (sizeof(states) / sizeof(states[0]))

struct expectation {
	uint64_t hashes[STEPS + 1][UNITS];
};

struct training {
	bool is_expecting; /* else it has the file's */
	uint32_t moments, stage;
	struct expectation expected;
};

struct rank {
	const struct training *training;
	struct expectation *found; /* the board's: what is expected later */
	unsigned rank;
	struct tierd_node *node;
	struct tierd_job *job;
	struct tierd_ticket *ticket;
	uint64_t step, durable;
};

/* ---- What a step has ---- */

/* A job, or a reader of it. */
struct source {
	struct tierd_job *job;
	struct tierd_reader *reader;
};

static int read_values(const struct source *source, uint32_t unit, const char *state, uint64_t first,
		       uint64_t count, void *ret_values)
{
	return source->reader ? tierd_reader_read(source->reader, unit, 0, state, first, count, ret_values)
			      : tierd_tensor_read(source->job, unit, 0, state, first, count, ret_values);
}

static uint64_t add(uint64_t hash, const uint32_t *words, uint64_t count)
{
	for (uint64_t i = 0; i < count; i++)
		hash = (hash ^ words[i]) * UINT64_C(0x9e3779b97f4a7c15) + (hash >> 29);
	return hash;
}

static int hash_unit(const struct source *source, uint32_t unit, uint64_t *ret_hash)
{
	static uint32_t words[WINDOW_ELEMENTS];
	uint64_t hash = 0;
	int r = 0;

	for (unsigned state = 0; state < STATES; state++)
		for (uint64_t first = 0; r == 0 && first < units[unit].elements; first += WINDOW_ELEMENTS) {
			uint64_t rest = units[unit].elements - first;
			uint64_t count = rest < WINDOW_ELEMENTS ? rest : WINDOW_ELEMENTS;
			bool is_narrow = state == 0 && units[unit].format == TIERD_BF16;

			words[(count - 1) / (is_narrow ? 2 : 1)] = 0;
			r = read_values(source, unit, states[state], first, count, words);
			hash = add(hash, words, is_narrow ? (count + 1) / 2 : count);
		}
	if (r == 0)
		*ret_hash = hash;
	return r;
}

static void compare(const struct rank *rank, const char *who, uint32_t unit, uint64_t step, uint64_t hash)
{
	if (rank->training->expected.hashes[step][unit] == hash)
		return;
	fprintf(stderr, "rank %u: step %llu of unit %u has other bits %s\n", rank->rank,
		(unsigned long long)step, unit, who);
	exit(1);
}

/* This rank's part of the job, as it is. */
static int check(struct rank *rank, const char *who)
{
	const struct source source = { .job = rank->job };
	int r = 0;

	for (uint32_t unit = rank->rank; r == 0 && unit < UNITS; unit += RANKS) {
		uint64_t hash = 0;

		r = hash_unit(&source, unit, &hash);
		if (r == 0 && rank->training->is_expecting)
			rank->found->hashes[rank->step][unit] = hash;
		else if (r == 0)
			compare(rank, who, unit, rank->step, hash);
	}
	return r;
}

static int read_all(const struct rank *rank, struct tierd_reader *reader)
{
	const struct source source = { .reader = reader };
	struct tierd_piece pieces[STATES];
	uint64_t step, hash;
	int r;

	for (unsigned state = 0; state < STATES; state++) {
		pieces[state] = (struct tierd_piece)TIERD_PIECE_INIT;
		pieces[state].state = states[state];
	}
	r = tierd_reader_refresh(reader, pieces, STATES, &step);
	for (uint32_t unit = 0; r == 0 && unit < UNITS; unit++) {
		r = hash_unit(&source, unit, &hash);
		if (r == 0)
			compare(rank, "for a reader", unit, step, hash);
	}
	return r;
}

/* What a reader copies is written first, beside the sweep of the step that is under way. */
static int look(struct rank *rank)
{
	struct tierd_reader_options options = TIERD_READER_OPTIONS_INIT;
	struct tierd_reader *reader;
	int r;

	options.name = "kept";
	r = tierd_reader_open(rank->node, &options, &reader);
	if (r < 0)
		return r;
	r = read_all(rank, reader);
	tierd_reader_close(reader);
	return r;
}

/* ---- Steps ---- */

static int push_unit(const struct rank *rank, uint32_t unit)
{
	bool is_bf16 = units[unit].format == TIERD_BF16;
	struct tierd_view parameters, gradients;
	int r = tierd_gather(rank->job, unit, &parameters);

	if (r < 0)
		return r;
	REQUIRE(parameters.version == rank->step);
	r = tierd_gradients(rank->job, unit, &gradients);
	if (r == 0) {
		/* The first parameter too: a wrong version shows. */
		uint64_t seed = (rank->step * RANKS + rank->rank) * UNITS + unit +
				*(const uint16_t *)tierd_at(&parameters, 0);

		support_fill(tierd_at(&gradients, 0), units[unit].elements, is_bf16, seed);
		r = tierd_push(rank->job, unit);
	}
	OK(tierd_release(rank->job, unit));
	return r;
}

static int commit(struct rank *rank)
{
	int r = tierd_ticket_wait(rank->ticket, TIERD_DURABLE, -1);

	if (r == 0)
		rank->durable = rank->step;
	return r == 0 ? check(rank, "after a commit") : r;
}

static int take_step(struct rank *rank)
{
	struct tierd_rates rates = support_rates(0.01f / (float)(rank->step + 1));
	int r = 0;

	for (uint32_t unit = 0; r == 0 && unit < UNITS; unit++)
		r = push_unit(rank, unit);
	if (r == 0)
		r = tierd_step(rank->job, &rates, &rank->ticket);
	/* After one that is not committed. */
	if (r == 0 && rank->rank == 0 && !rank->training->is_expecting && rank->step % COMMIT_STEPS == 1)
		r = look(rank);
	if (r == 0)
		r = tierd_ticket_wait(rank->ticket, TIERD_DONE, -1);
	if (r < 0)
		return r;
	rank->step++;
	if (rank->training->is_expecting)
		r = check(rank, "");
	else if (rank->step % COMMIT_STEPS == 0)
		r = commit(rank);
	rank->ticket = tierd_ticket_free(rank->ticket);
	return r;
}

/* Until there is memory for all of its state: else each step writes it. */
static int await_memory(const struct rank *rank)
{
	static const char command[] =
		"\"$TIERCTL\" --json jobs kept 2>&1 | grep -q '\"kept_fraction\":[[:space:]]*1,$'";
	uint64_t seed = rank->rank;
	int r = 0;

	while (r == 0 && system(command) != 0) {
		crowd_pass_time(&seed, 5000);
		/* It asks the daemon, and so sees that it has died. */
		r = tierd_phase(rank->job, "train");
	}
	return r;
}

static int train(struct rank *rank)
{
	int r = check(rank, "after a death");

	if (r == 0 && !rank->training->is_expecting && rank->rank == 0)
		r = await_memory(rank);
	while (r == 0 && rank->step < STEPS)
		r = take_step(rank);
	return r;
}

/* ---- Lives ---- */

static void join(struct rank *rank)
{
	const struct training *training = rank->training;
	struct tierd_job_options options = support_options("kept", rank->rank, RANKS);
	struct tierd_group group = TIERD_GROUP_INIT;
	char name[16];

	rank->node = support_connect();
	group.moments = training->moments;
	options.stage = training->stage;
	options.parameter_placement =
		training->is_expecting || training->stage < 3 ? TIERD_PLACE_HOST : TIERD_PLACE_NVME;
	options.optimizer_placement = training->is_expecting ? TIERD_PLACE_HOST : TIERD_PLACE_NVME;
	options.durability = training->is_expecting ? TIERD_DURABILITY_NONE : NEVER_SECONDS;
	options.clip_norm = 0.5f;
	options.seed = 7;
	options.group_count = 1;
	options.groups = &group;
	OK(tierd_job_open(rank->node, &options, &rank->job));
	for (unsigned unit = 0; unit < UNITS; unit++) {
		snprintf(name, sizeof(name), "unit%u", unit);
		REQUIRE(support_define(rank->job, name, units[unit].format, units[unit].elements, 0.5) ==
			unit);
	}
}

/* The daemon has died: the ranks meet under the next one. */
static bool is_lost(int r)
{
	return r == -ESTALE || r == -ECONNRESET;
}

/* Those that were durable are there, and no part of a commit. */
static int begin(struct rank *rank)
{
	struct tierd_job_state state;
	int r;

	rank->ticket = tierd_ticket_free(rank->ticket);
	r = tierd_job_ready(rank->job, -1, &state);
	if (r < 0)
		return r;
	REQUIRE(state.step >= rank->durable && state.step % COMMIT_STEPS == 0);
	rank->step = state.step;
	return train(rank);
}

static void run_rank(struct crowd_board *board, unsigned number, void *argument)
{
	struct rank rank = { .training = argument, .found = (void *)board->space, .rank = number };
	int r;

	join(&rank);
	do {
		r = begin(&rank);
		if (!is_lost(r))
			OK(r);
	} while (is_lost(r) || !crowd_arrive(board, number, rank.job));
	OK(tierd_job_close(rank.job));
	tierd_disconnect(rank.node);
}

static void open_file(struct training *training, const char *path)
{
	FILE *file = fopen(path, "r");

	REQUIRE(file && fread(&training->expected, sizeof(training->expected), 1, file) == 1);
	fclose(file);
}

static void write_file(const struct crowd *crowd, const char *path)
{
	FILE *file = fopen(path, "w");

	REQUIRE(file && fwrite(crowd->board->space, sizeof(struct expectation), 1, file) == 1 &&
		fclose(file) == 0);
}

static uint32_t moments_named(const char *name)
{
	return strcmp(name, "bf16") == 0   ? TIERD_MOMENTS_BF16
	       : strcmp(name, "int8") == 0 ? TIERD_MOMENTS_INT8
					   : TIERD_MOMENTS_FP32;
}

int main(int argc, char *argv[])
{
	struct training training = { 0 };
	struct crowd crowd;

	REQUIRE(argc == 5);
	training.is_expecting = strcmp(argv[1], "expect") == 0;
	training.moments = moments_named(argv[2]);
	training.stage = (uint32_t)atoi(argv[3]);
	if (!training.is_expecting)
		open_file(&training, argv[4]);
	crowd_start(&crowd, RANKS, sizeof(struct expectation), run_rank, &training);
	crowd_finish(&crowd);
	if (training.is_expecting)
		write_file(&crowd, argv[4]);
	crowd_free(&crowd);
	return 0;
}
