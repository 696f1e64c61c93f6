/* A reader beside two trainers that never wait for it: each copy that it gets is, bit for bit, the state of
 * one step, which another job that nobody read had after as many. Then the idle job, refusals, and a reader
 * that is killed.
 *
 * readers PARAMETERS OPTIMIZER HOST_BUDGET    where they are placed (host, nvme); 0: no budget of its own */
#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>

#include "crash_support.h"

#define RANKS 2
#define REFRESHES 10
#define STATES 4
#define MAX_STEPS 100000

/* Large ones that are cut where no block ends, and small ones that share a pack. */
static const struct shape {
	const char *name;
	uint32_t format;
	uint64_t elements;
	bool is_frozen;
} shapes[] = {
	{ "large", TIERD_BF16, 2500001, false }, { "half", TIERD_FP16, 1200003, false },
	{ "full", TIERD_FP32, 1100007, false },	 { "bias", TIERD_FP32, 77, false },
	{ "scale", TIERD_BF16, 5000, false },	 { "ice", TIERD_BF16, 3001, true },
	{ "bytes", TIERD_BYTES, 70001, true },	 { "last", TIERD_FP16, 513, false },
};
#define UNITS (sizeof(shapes) / sizeof(shapes[0]))
static const char *const states[STATES] = { "parameter", "master", "m", "v" };

static uint32_t parameters, optimizer;
static uint64_t host_budget;

static uint64_t bytes_of(const struct shape *shape, unsigned state)
{
	if (state > 0)
		return shape->elements * 4;
	return shape->elements * (shape->format == TIERD_FP32 ? 4 : shape->format == TIERD_BYTES ? 1 : 2);
}

/* ---- The trainers ---- */

static struct tierd_job *open_rank(struct tierd_node *node, const char *name, uint32_t rank)
{
	struct tierd_job_options options = support_options(name, rank, RANKS);
	struct tierd_job *job;
	uint32_t index;

	options.parameter_placement = parameters;
	options.optimizer_placement = optimizer;
	options.host_budget = host_budget;
	OK(tierd_job_open(node, &options, &job));
	for (unsigned i = 0; i < UNITS; i++) {
		struct tierd_tensor tensor = TIERD_TENSOR_INIT;

		tensor.name = shapes[i].name;
		tensor.alias = i == 0 ? "tied" : NULL;
		tensor.format = shapes[i].format;
		tensor.dimensions = 1;
		tensor.shape[0] = shapes[i].elements;
		tensor.is_frozen = shapes[i].is_frozen;
		tensor.initializer =
			shapes[i].format == TIERD_BYTES ? TIERD_INITIALIZE_NONE : TIERD_INITIALIZE_NORMAL;
		tensor.b = 1;
		OK(tierd_unit_define(job, shapes[i].name, &tensor, 1, &index));
	}
	return job;
}

static void write_bytes(struct tierd_job *job)
{
	unsigned unit = 6;
	char *bytes = malloc(shapes[unit].elements);

	REQUIRE(bytes);
	for (uint64_t i = 0; i < shapes[unit].elements; i++)
		bytes[i] = (char)(i * 7);
	OK(tierd_tensor_write(job, unit, 0, 0, shapes[unit].elements, bytes, false));
	free(bytes);
}

/* A pattern again and again, from its element first on: with sanitizers a store for each element takes longer
 * than all that the test is about. */
static void repeat(void *to, const void *pattern, unsigned period, size_t size, uint64_t first,
		   uint64_t count)
{
	uint64_t done = 0;

	while (done < count) {
		uint64_t from = (first + done) % period;
		uint64_t wanted = period - from < count - done ? period - from : count - done;

		memcpy((char *)to + done * size, (const char *)pattern + from * size, wanted * size);
		done += wanted;
	}
}

/* Now and then a unit is left out: its values stay, and belong to the next step as well. */
static void push(struct tierd_job *job, unsigned unit, uint64_t step, unsigned rank)
{
	float wide[17 * 16];
	uint16_t narrow[257];
	struct tierd_view view;

	if (shapes[unit].is_frozen || (unit == 1 && step % 3 == 1))
		return;
	/* Small numbers in every format. */
	for (unsigned i = 0; i < sizeof(wide) / sizeof(*wide); i++)
		wide[i] = (float)(i % 17) / 16 - 0.5f;
	for (unsigned i = 0; i < sizeof(narrow) / sizeof(*narrow); i++)
		narrow[i] = (uint16_t)(0x3000 + i);
	OK(tierd_gradients(job, unit, &view));
	if (shapes[unit].format == TIERD_FP32)
		repeat(tierd_at(&view, 0), wide, 17 * 16, sizeof(*wide), step + rank, shapes[unit].elements);
	else
		repeat(tierd_at(&view, 0), narrow, 257, sizeof(*narrow), step * 5 + rank,
		       shapes[unit].elements);
	OK(tierd_push(job, unit));
}

static void train_step(struct tierd_job *job, uint64_t step, unsigned rank)
{
	struct tierd_rates rates = TIERD_RATES_INIT;
	struct tierd_view view;

	rates.learning_rate = 0.01f;
	for (unsigned unit = 0; unit < UNITS; unit++) {
		OK(tierd_gather(job, unit, &view));
		push(job, unit, step, rank);
		OK(tierd_release(job, unit));
	}
	OK(tierd_step(job, &rates, NULL));
}

static void wait_for_end(struct crowd_board *crowd, unsigned rank)
{
	uint64_t seed = rank;

	crowd->has_arrived[rank] = true;
	while (!crowd->may_finish)
		crowd_pass_time(&seed, 1000);
}

struct board {
	_Atomic bool shall_stop;
	_Atomic uint64_t last; /* the step after which all ranks stop; 0: not decided yet */
	_Atomic uint64_t steps[RANKS];
};

/* The first rank says, a step ahead, where to stop. */
static bool is_over(struct board *board, unsigned rank, uint64_t step)
{
	if (rank == 0 && board->shall_stop && board->last == 0)
		board->last = step + 2;
	return board->last > 0 && step == board->last;
}

static void train_without_end(struct crowd_board *crowd, unsigned rank, void *argument)
{
	struct board *board = (struct board *)crowd->space;
	struct tierd_node *node = support_connect();
	struct tierd_job *job = open_rank(node, "read", rank);
	struct tierd_job_state state;
	uint64_t step = 0;

	if (rank == 0)
		write_bytes(job);
	OK(tierd_job_ready(job, -1, &state));
	while (!is_over(board, rank, step)) {
		train_step(job, step++, rank);
		board->steps[rank] = step;
		REQUIRE(step < MAX_STEPS);
	}
	OK(tierd_job_close(job));
	tierd_disconnect(node);
	wait_for_end(crowd, rank);
}

/* ---- Digests ---- */

static uint64_t digest(const void *data, uint64_t bytes)
{
	const uint64_t *words = data;
	uint64_t sum = UINT64_C(0xcbf29ce484222325), rest = 0;

	for (uint64_t i = 0; i < bytes / sizeof(*words); i++)
		sum = (sum ^ words[i]) * UINT64_C(0x100000001b3);
	memcpy(&rest, &words[bytes / sizeof(*words)], bytes % sizeof(*words));
	return (sum ^ rest) * UINT64_C(0x100000001b3);
}

struct digests {
	uint64_t step, values[UNITS][STATES];
};

typedef int read_function(void *source, uint32_t unit, const char *state, uint64_t first, uint64_t count,
			  void *data);

static int read_by_rank(void *source, uint32_t unit, const char *state, uint64_t first, uint64_t count,
			void *data)
{
	return tierd_tensor_read(source, unit, 0, state, first, count, data);
}

static int read_by_reader(void *source, uint32_t unit, const char *state, uint64_t first, uint64_t count,
			  void *data)
{
	return tierd_reader_read(source, unit, 0, state, first, count, data);
}

static void digest_all(read_function *read, void *source, struct digests *digests)
{
	char *data = malloc(shapes[0].elements * 4);

	REQUIRE(data);
	for (unsigned unit = 0; unit < UNITS; unit++)
		for (unsigned state = 0; state < (shapes[unit].is_frozen ? 1 : STATES); state++) {
			OK(read(source, unit, states[state], 0, shapes[unit].elements, data));
			digests->values[unit][state] = digest(data, bytes_of(&shapes[unit], state));
		}
	free(data);
}

/* ---- Reading while it is trained ---- */

static struct tierd_reader *open_reader(struct tierd_node *node)
{
	struct tierd_reader_options options = TIERD_READER_OPTIONS_INIT;
	struct tierd_reader *reader;

	options.name = "read";
	OK(tierd_reader_open(node, &options, &reader));
	return reader;
}

/* Everything, in an order of its own: the daemon has its own, too. */
static void keep_all(struct tierd_reader *reader, uint64_t *ret_step)
{
	struct tierd_piece pieces[STATES];

	for (unsigned i = 0; i < STATES; i++) {
		pieces[i] = (struct tierd_piece)TIERD_PIECE_INIT;
		pieces[i].state = states[(i + 2) % STATES];
	}
	OK(tierd_reader_refresh(reader, pieces, STATES, ret_step));
}

/* What is not kept is of the reader's step, too, or refused. Returns whether it was read. */
static bool look_at_one(struct tierd_reader *reader, unsigned unit, unsigned state, struct digests *seen)
{
	char *data = malloc(shapes[0].elements * 4);
	int r = tierd_reader_read(reader, unit, 0, states[state], 0, shapes[unit].elements, data);

	if (r == 0)
		seen->values[unit][state] = digest(data, bytes_of(&shapes[unit], state));
	else
		FAILS(r, -ESTALE, "has moved on to step");
	free(data);
	return r == 0;
}

static void read_while_it_trains(const struct board *board, struct digests *kept, struct digests *seen)
{
	struct tierd_node *node = support_connect();
	struct tierd_reader *reader = open_reader(node), *other = open_reader(node);
	uint64_t seed = 1, last = 0;

	for (unsigned i = 0; i < REFRESHES;) {
		uint64_t before = board->steps[0];

		if (i == 0)
			keep_all(reader, &kept[i].step);
		else
			OK(tierd_reader_refresh(reader, NULL, 0, &kept[i].step));
		/* What was applied before is not missing. */
		REQUIRE(kept[i].step >= before && kept[i].step >= last);
		seen[i] = (struct digests){ 0 };
		OK(tierd_reader_refresh(other, NULL, 0, &seen[i].step));
		look_at_one(other, support_random(&seed) % 2, support_random(&seed) % STATES, &seen[i]);
		if (kept[i].step == last)
			continue;
		last = kept[i].step;
		digest_all(read_by_reader, reader, &kept[i++]);
	}
	OK(tierd_reader_close(other));
	OK(tierd_reader_close(reader));
	tierd_disconnect(node);
}

static void compare(const struct digests *read, const struct digests *reference, bool is_complete)
{
	for (unsigned unit = 0; unit < UNITS; unit++)
		for (unsigned state = 0; state < (shapes[unit].is_frozen ? 1 : STATES); state++) {
			if (!is_complete && read->values[unit][state] == 0)
				continue;
			if (read->values[unit][state] == reference->values[unit][state])
				continue;
			fprintf(stderr, "%s of %s (%s) is not that of step %llu\n", states[state],
				shapes[unit].name, is_complete ? "kept" : "not kept",
				(unsigned long long)read->step);
			exit(1);
		}
}

struct reference {
	struct digests *kept, *seen, last;
	uint64_t steps;
};

/* The same training, that nobody disturbs. */
static void run_reference(struct crowd_board *crowd, unsigned rank, void *argument)
{
	struct reference *reference = argument;
	struct tierd_node *node = support_connect();
	struct tierd_job *job = open_rank(node, "reference", rank);
	struct tierd_job_state state;

	if (rank == 0)
		write_bytes(job);
	OK(tierd_job_ready(job, -1, &state));
	for (uint64_t step = 0;; step++) {
		struct digests now = { 0 };
		bool is_wanted = step == reference->steps;

		for (unsigned i = 0; i < REFRESHES; i++)
			is_wanted |= reference->kept[i].step == step || reference->seen[i].step == step;
		if (rank == 0 && is_wanted)
			digest_all(read_by_rank, job, &now);
		for (unsigned i = 0; rank == 0 && i < REFRESHES; i++) {
			if (reference->kept[i].step == step)
				compare(&reference->kept[i], &now, true);
			if (reference->seen[i].step == step)
				compare(&reference->seen[i], &now, false);
		}
		if (rank == 0 && step == reference->steps)
			compare(&reference->last, &now, true);
		if (step == reference->steps)
			break;
		train_step(job, step, rank);
	}
	OK(tierd_job_close(job));
	tierd_disconnect(node);
	wait_for_end(crowd, rank);
}

/* ---- The idle job ---- */

static void find_what_was_defined(struct tierd_reader *reader)
{
	struct tierd_reader_state state = TIERD_READER_STATE_INIT;
	struct tierd_tensor tensor = TIERD_TENSOR_INIT;
	uint32_t unit, index, count;
	const char *name;

	OK(tierd_reader_state(reader, &state));
	REQUIRE(state.unit_count == UNITS);
	for (uint32_t i = 0; i < UNITS; i++) {
		OK(tierd_reader_unit(reader, i, &name, &count));
		REQUIRE(strcmp(name, shapes[i].name) == 0 && count == 1);
		OK(tierd_reader_tensor(reader, i, 0, &tensor));
		REQUIRE(strcmp(tensor.name, shapes[i].name) == 0 && tensor.format == shapes[i].format);
		REQUIRE(tensor.dimensions == 1 && tensor.shape[0] == shapes[i].elements);
		REQUIRE(tensor.is_frozen == shapes[i].is_frozen && !tensor.slice_of);
		OK(tierd_reader_find(reader, shapes[i].name, &unit, &index));
		REQUIRE(unit == i && index == 0);
	}
	OK(tierd_reader_find(reader, "tied", &unit, &index));
	REQUIRE(unit == 0);
	FAILS(tierd_reader_find(reader, "no-such", &unit, &index), -ENOENT, "no tensor \"no-such\"");
	FAILS(tierd_reader_unit(reader, UNITS, &name, &count), -EINVAL, "it has 8");
	FAILS(tierd_reader_tensor(reader, 0, 1, &tensor), -EINVAL, "has no tensor 1");
}

static void refuse_what_cannot_be(struct tierd_node *node, struct tierd_reader *reader)
{
	struct tierd_reader_options options = TIERD_READER_OPTIONS_INIT;
	struct tierd_piece piece = TIERD_PIECE_INIT;
	struct tierd_reader *other;
	char data[64];

	options.name = "no-such";
	FAILS(tierd_reader_open(node, &options, &other), -ENOENT, "no job no-such");
	FAILS(tierd_reader_read(reader, 0, 0, "v", shapes[0].elements, 1, data), -EINVAL, "not within");
	FAILS(tierd_reader_read(reader, 0, 0, "no-such", 0, 1, data), -ENODATA, "there are: parameter");
	FAILS(tierd_reader_read(reader, 5, 0, "master", 0, 1, data), -ENODATA, "is frozen");
	OK(tierd_reader_read(reader, 0, 0, "m", shapes[0].elements, 0, data));
	piece.unit = UNITS;
	FAILS(tierd_reader_refresh(reader, &piece, 1, NULL), -EINVAL, "has no unit");
	piece.unit = 0;
	piece.state = "w";
	FAILS(tierd_reader_refresh(reader, &piece, 1, NULL), -ENODATA, "no state");
	/* A refusal changes nothing. */
	OK(tierd_reader_read(reader, 3, 0, "m", 76, 1, data));
}

static void read_the_idle_job(struct digests *digests)
{
	struct tierd_node *node = support_connect();
	struct tierd_reader *reader = open_reader(node);
	struct tierd_reader_state state = TIERD_READER_STATE_INIT;
	char *piece = malloc(4000), *whole = malloc(shapes[0].elements * 2);

	find_what_was_defined(reader);
	refuse_what_cannot_be(node, reader);
	OK(tierd_reader_state(reader, &state));
	digests->step = state.step;
	digest_all(read_by_reader, reader, digests);
	/* A part is a part of the whole. */
	OK(tierd_reader_read(reader, 0, 0, "parameter", 0, shapes[0].elements, whole));
	for (uint64_t first = 131; first + 2000 < shapes[0].elements; first += 524287) {
		OK(tierd_reader_read(reader, 0, 0, "parameter", first, 2000, piece));
		REQUIRE(memcmp(piece, whole + 2 * first, 4000) == 0);
	}
	free(piece);
	free(whole);
	OK(tierd_reader_close(reader));
	tierd_disconnect(node);
}

/* ---- A reader that is killed ---- */

/* It keeps much, and more is on its way. */
static void run_reader(struct crowd_board *crowd, unsigned rank, void *argument)
{
	struct tierd_node *node = support_connect();
	struct tierd_reader *reader = open_reader(node);
	uint64_t step;

	keep_all(reader, &step);
	crowd->has_arrived[rank] = true;
	for (;;)
		OK(tierd_reader_refresh(reader, NULL, 0, &step));
}

static void kill_readers(void)
{
	struct crowd crowd;
	uint64_t seed = 1;

	crowd_start(&crowd, 3, 0, run_reader, NULL);
	for (unsigned i = 0; i < 3; i++) {
		while (!crowd.board->has_arrived[i])
			crowd_pass_time(&seed, 1000);
		kill(crowd.pids[i], SIGKILL);
		REQUIRE(waitpid(crowd.pids[i], NULL, 0) == crowd.pids[i]);
	}
	crowd.count = 0;
	crowd_free(&crowd);
}

static uint32_t placement(const char *text)
{
	return strcmp(text, "nvme") == 0 ? TIERD_PLACE_NVME : TIERD_PLACE_HOST;
}

int main(int argc, char *argv[])
{
	static struct digests kept[REFRESHES], seen[REFRESHES];
	struct reference reference = { .kept = kept, .seen = seen };
	struct crowd crowd, other;
	uint64_t seed = 1;

	REQUIRE(argc == 4);
	parameters = placement(argv[1]);
	optimizer = placement(argv[2]);
	host_budget = strtoull(argv[3], NULL, 0) << 20;
	crowd_start(&crowd, RANKS, sizeof(struct board), train_without_end, NULL);
	struct board *board = (struct board *)crowd.board->space;

	while (board->steps[0] < 1) {
		crowd_check(&crowd);
		crowd_pass_time(&seed, 1000);
	}
	read_while_it_trains(board, kept, seen);
	kill_readers();
	board->shall_stop = true;
	crowd_finish(&crowd);
	read_the_idle_job(&reference.last);
	REQUIRE(reference.last.step == board->last);
	reference.steps = reference.last.step;
	crowd_free(&crowd);
	crowd_start(&other, RANKS, 0, run_reference, &reference);
	crowd_finish(&other);
	crowd_free(&other);
	kill_readers();
	return 0;
}
