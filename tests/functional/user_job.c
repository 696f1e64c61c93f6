/* One rank of a job, of any user: joins, trains a step, says so, and leaves when its standard input ends.
 *
 * user_job KEY=VALUE…    uid, groups (the first is the primary one), job, rank, world_size, mib (of
 * parameters), units, frozen (the first of them), mode, owner, sharing, share_group, takeover, stage,
 * parameters and optimizer (nvme or host), durability (none), host_budget, nvme_budget (bytes), steps,
 * pattern (what the parameters are), writes (how often frozen ones are written: the last time the pattern),
 * digest (1: says what the state is), hold (a unit that it gathers, and keeps), clutch (as many of the first
 * units, in the same way), after (steps that it trains when its standard input has ended, and says what the
 * state is then), search (for the pattern of another job, before any step; says how often it was found),
 * source (a job whose values it takes), paced (1: for each line that it reads it takes a step, and says so;
 * the digest comes at the end), heir (1: forks a child, says its number, and leaves it all descriptors), from
 * (the number of the first step that it trains: another one has other gradients), snapshots (room for so
 * many), io_weight, every and keep (of snapshots that are taken by themselves), takes (a snapshot, when it
 * has trained), poison (1: its gradients are no numbers)
 *
 * user_job reads=STATE KEY=VALUE…    a reader of the job instead (uid, groups, job, owner, snapshot,
 * as_snapshot; paced: once for each line; follows: then at the step that the job stands at, and keeps it):
 * says what the state is, or all of it, as digest does
 *
 * Prints "ready" when it has trained. What fails is printed as "ERRNO: message", with the exit status 1. */
#include <ctype.h>
#include <errno.h>
#include <grp.h>
#include <math.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "crash_support.h"

static void become(int count, char *arguments[])
{
	uid_t uid = (uid_t)support_number(count, arguments, "uid", getuid());
	gid_t groups[16];
	size_t group_count = 0;
	char *text;

	if (uid == getuid())
		return;
	text = strdup(support_value(count, arguments, "groups", ""));
	for (char *word = strtok(text, ","); word && group_count < 16; word = strtok(NULL, ","))
		groups[group_count++] = (gid_t)strtoul(word, NULL, 10);
	free(text);
	REQUIRE(setgroups(group_count, groups) == 0);
	REQUIRE(setgid(group_count ? groups[0] : (gid_t)uid) == 0);
	REQUIRE(setuid(uid) == 0);
}

static void check(int r)
{
	if (r == 0)
		return;
	printf("%s: %s\n", strerrorname_np(-r), tierd_message());
	exit(1);
}

static uint32_t placement(const char *text)
{
	return strcmp(text, "nvme") == 0   ? TIERD_PLACE_NVME
	       : strcmp(text, "host") == 0 ? TIERD_PLACE_HOST
					   : TIERD_PLACE_DEFAULT;
}

static struct tierd_job_options read_options(int count, char *arguments[])
{
	struct tierd_job_options options =
		support_options(support_value(count, arguments, "job", "job"), 0, 1);

	options.rank = (uint32_t)support_number(count, arguments, "rank", 0);
	options.world_size = (uint32_t)support_number(count, arguments, "world_size", 1);
	options.stage = (uint32_t)support_number(count, arguments, "stage", 3);
	options.mode = (uint32_t)support_number(count, arguments, "mode", TIERD_EITHER);
	options.host_budget = support_number(count, arguments, "host_budget", 0);
	options.owner = (int64_t)strtoll(support_value(count, arguments, "owner", "-1"), NULL, 10);
	options.sharing = (uint32_t)support_number(count, arguments, "sharing", TIERD_PRIVATE);
	options.share_group = (uint32_t)support_number(count, arguments, "share_group", 0);
	options.takeover = support_number(count, arguments, "takeover", 0) != 0;
	options.snapshots = (uint32_t)support_number(count, arguments, "snapshots", 0);
	options.io_weight = (uint32_t)support_number(count, arguments, "io_weight", 0);
	options.snapshot_every = support_number(count, arguments, "every", 0);
	options.snapshot_keep = (uint32_t)support_number(count, arguments, "keep", 0);
	options.nvme_budget = support_number(count, arguments, "nvme_budget", 0);
	options.source = support_value(count, arguments, "source", NULL);
	options.parameter_placement = placement(support_value(count, arguments, "parameters", ""));
	options.optimizer_placement = placement(support_value(count, arguments, "optimizer", ""));
	if (strcmp(support_value(count, arguments, "durability", ""), "none") == 0)
		options.durability = TIERD_DURABILITY_NONE;
	return options;
}

static void define(struct tierd_job *job, unsigned units, unsigned frozen, uint64_t elements, double value)
{
	struct tierd_tensor tensor = TIERD_TENSOR_INIT;
	char name[16];
	uint32_t unit;

	tensor.name = name;
	tensor.format = TIERD_FP32;
	tensor.dimensions = 1;
	tensor.shape[0] = elements;
	tensor.initializer = TIERD_INITIALIZE_NORMAL;
	tensor.a = value;
	for (unsigned i = 0; i < units; i++) {
		snprintf(name, sizeof(name), "u%u", i);
		tensor.is_frozen = i < frozen;
		/* Frozen ones are written, by hand: they are only in host memory then. */
		tensor.initializer = tensor.is_frozen ? TIERD_INITIALIZE_NONE : TIERD_INITIALIZE_NORMAL;
		check(tierd_unit_define(job, name, &tensor, 1, &unit));
	}
}

static void write_frozen(struct tierd_job *job, unsigned frozen, uint64_t elements, uint64_t writes,
			 float value)
{
	float *values = malloc(elements * sizeof(*values));
	struct tierd_job_state state;

	REQUIRE(values);
	check(tierd_job_state(job, &state));
	for (; writes > 0 && state.status == TIERD_NEW; writes--) {
		for (uint64_t i = 0; i < elements; i++)
			values[i] = value + (float)(writes - 1);
		for (unsigned i = 0; i < frozen; i++)
			check(tierd_tensor_write(job, i, 0, 0, elements, values, false));
	}
	free(values);
}

static bool is_poisoned;

static void train(struct tierd_job *job, unsigned units, unsigned frozen, uint64_t elements, uint64_t first,
		  uint64_t steps)
{
	struct tierd_rates rates = support_rates(0.1f);

	for (uint64_t step = first; step < first + steps; step++) {
		for (unsigned i = frozen; i < units; i++)
			check(support_push(job, i, elements,
					   is_poisoned ? NAN : 1.0f / (float)(step + i + 1)));
		check(tierd_step(job, &rates, NULL));
	}
}

static uint64_t add_words(uint64_t sum, const uint32_t *values, uint64_t count)
{
	for (uint64_t i = 0; i < count; i++)
		sum = (sum ^ values[i]) * UINT64_C(0x100000001b3);
	return sum;
}

#define NO_WORDS UINT64_C(0xcbf29ce484222325)
static const char *const states[] = { "parameter", "m", "v" };

/* A number for all values of the job's state (FNV-1a, by words). */
static uint64_t digest(struct tierd_job *job, unsigned units, unsigned frozen, uint64_t elements)
{
	uint32_t *values = malloc(elements * sizeof(*values));
	uint64_t sum = NO_WORDS;

	REQUIRE(values);
	for (unsigned unit = 0; unit < units; unit++)
		for (unsigned i = 0; i < (unit < frozen ? 1 : 3); i++) {
			check(tierd_tensor_read(job, unit, 0, states[i], 0, elements, values));
			sum = add_words(sum, values, elements);
		}
	free(values);
	return sum;
}

/* The same of what a reader finds, or of one of the states. */
static uint64_t digest_reader(struct tierd_reader *reader, unsigned units, const char *state)
{
	bool is_all = strcmp(state, "all") == 0;
	uint64_t sum = NO_WORDS;

	for (unsigned unit = 0; unit < units; unit++)
		for (unsigned i = 0; i < (is_all ? 3 : 1); i++) {
			struct tierd_tensor tensor = TIERD_TENSOR_INIT;

			check(tierd_reader_tensor(reader, unit, 0, &tensor));
			uint32_t *values = malloc(tensor.shape[0] * sizeof(*values));

			REQUIRE(values);
			if (!tensor.is_frozen || i == 0) {
				check(tierd_reader_read(reader, unit, 0, is_all ? states[i] : state, 0,
							tensor.shape[0], values));
				sum = add_words(sum, values, tensor.shape[0]);
			}
			free(values);
		}
	return sum;
}

static void say_what_it_reads(struct tierd_reader *reader, const char *read)
{
	struct tierd_reader_state state = TIERD_READER_STATE_INIT;

	check(tierd_reader_state(reader, &state));
	printf("step %llu: %016llx\n", (unsigned long long)state.step,
	       (unsigned long long)digest_reader(reader, state.unit_count, read));
	fflush(stdout);
}

/* To the step that the job stands at, with what is read kept. */
static void refresh(struct tierd_reader *reader, const char *read)
{
	struct tierd_piece piece = TIERD_PIECE_INIT;

	piece.state = read;
	check(tierd_reader_refresh(reader, &piece, 1, NULL));
}

static int read_job(struct tierd_node *node, int count, char *arguments[])
{
	struct tierd_reader_options options = TIERD_READER_OPTIONS_INIT;
	const char *read = support_value(count, arguments, "reads", "all");
	bool is_paced = support_number(count, arguments, "paced", 0) != 0;
	struct tierd_reader *reader;

	options.name = support_value(count, arguments, "job", "job");
	options.owner = (int64_t)strtoll(support_value(count, arguments, "owner", "-1"), NULL, 10);
	options.snapshot = support_value(count, arguments, "snapshot", NULL);
	options.as_snapshot = support_number(count, arguments, "as_snapshot", 0) != 0;
	check(tierd_reader_open(node, &options, &reader));
	if (!is_paced)
		say_what_it_reads(reader, read);
	puts("ready");
	fflush(stdout);
	for (int character = getchar(); character != EOF; character = getchar()) {
		if (!is_paced || character != '\n')
			continue;
		if (support_number(count, arguments, "follows", 0))
			refresh(reader, read);
		say_what_it_reads(reader, read);
	}
	OK(tierd_reader_close(reader));
	tierd_disconnect(node);
	return 0;
}

static void say_digest(struct tierd_job *job, unsigned units, unsigned frozen, uint64_t elements)
{
	struct tierd_job_state state;

	check(tierd_job_state(job, &state));
	printf("step %llu: %016llx\n", (unsigned long long)state.step,
	       (unsigned long long)digest(job, units, frozen, elements));
}

static void train_by_lines(struct tierd_job *job, unsigned units, unsigned frozen, uint64_t elements,
			   uint64_t steps)
{
	for (int character = getchar(); character != EOF; character = getchar()) {
		if (character != '\n')
			continue;
		train(job, units, frozen, elements, steps++, 1);
		printf("applied %llu\n", (unsigned long long)steps);
		fflush(stdout);
	}
}

/* It does nothing with them: only the kernel sees that the connection is still open. */
static void leave_to_heir(void)
{
	pid_t heir = fork();

	REQUIRE(heir >= 0);
	while (heir == 0)
		pause();
	printf("heir %d\n", (int)heir);
}

/* What is mapped for reading cannot be made writable. The other attacks are users_memfds.py's. */
static void attack(const char *from, const char *to, const char *protection)
{
	if (protection[1] != 'w')
		REQUIRE(mprotect((void *)from, (size_t)(to - from), PROT_READ | PROT_WRITE) < 0);
}

/* How often the word is in what the daemon shares with this process. */
static uint64_t search(uint32_t word)
{
	FILE *maps = fopen("/proc/self/maps", "r");
	char line[512], protection[8];
	uint64_t found = 0, looked = 0;
	char *from, *to;

	REQUIRE(maps);
	while (fgets(line, sizeof(line), maps)) {
		if (!strstr(line, "/memfd:tierd-") ||
		    sscanf(line, "%p-%p %7s", (void **)&from, (void **)&to, protection) != 3)
			continue;
		attack(from, to, protection);
		for (const uint32_t *value = (const uint32_t *)from; value < (const uint32_t *)to; value++)
			found += *value == word;
		looked++;
	}
	fclose(maps);
	/* Window, arena, directory, leases, gradients. */
	REQUIRE(looked >= 5);
	return found;
}

static uint64_t search_state(struct tierd_job *job, unsigned units, uint64_t elements, float pattern)
{
	uint32_t *values = malloc(elements * sizeof(*values)), word;
	struct tierd_view view;
	uint64_t found;

	memcpy(&word, &pattern, sizeof(word));
	REQUIRE(values);
	found = search(word);
	for (unsigned unit = 0; unit < units; unit++) {
		check(tierd_gather(job, unit, &view));
		check(tierd_gradients(job, unit, &view));
		found += search(word);
		check(tierd_discard(job, unit));
		check(tierd_release(job, unit));
		/* Nobody has trained yet: all of the moments are zero. */
		for (unsigned moment = 0; moment < 2; moment++) {
			check(tierd_tensor_read(job, unit, 0, moment ? "v" : "m", 0, elements, values));
			for (uint64_t i = 0; i < elements; i++)
				found += values[i] != 0;
		}
	}
	free(values);
	return found;
}

int main(int argc, char *argv[])
{
	unsigned units = (unsigned)support_number(argc, argv, "units", 2);
	unsigned frozen = (unsigned)support_number(argc, argv, "frozen", 0);
	uint64_t elements = (support_number(argc, argv, "mib", 2) << 20) / 4 / units;
	uint64_t steps = support_number(argc, argv, "steps", 1);
	uint64_t first = support_number(argc, argv, "from", 0);
	bool is_paced = support_number(argc, argv, "paced", 0) != 0;
	struct tierd_job_options options = read_options(argc, argv);
	unsigned hold = (unsigned)support_number(argc, argv, "hold", units);
	unsigned clutch = (unsigned)support_number(argc, argv, "clutch", 0);
	uint64_t after = support_number(argc, argv, "after", 0);
	struct tierd_job_state state;
	struct tierd_view parameters;
	struct tierd_node *node;
	struct tierd_job *job;

	is_poisoned = support_number(argc, argv, "poison", 0) != 0;
	become(argc, argv);
	check(tierd_connect(NULL, &node));
	check(tierd_set_timeout(node, PATIENCE_MS));
	if (support_value(argc, argv, "reads", NULL))
		return read_job(node, argc, argv);
	check(tierd_job_open(node, &options, &job));
	define(job, units, frozen, elements, (double)support_number(argc, argv, "pattern", 1));
	write_frozen(job, frozen, elements, support_number(argc, argv, "writes", 1),
		     (float)support_number(argc, argv, "pattern", 1));
	check(tierd_job_ready(job, -1, &state));
	train(job, units, frozen, elements, first, steps);
	if (support_value(argc, argv, "takes", NULL))
		check(tierd_snapshot(job, support_value(argc, argv, "takes", NULL)));
	if (support_number(argc, argv, "search", 0))
		printf("found %llu\n",
		       (unsigned long long)search_state(job, units, elements,
							(float)support_number(argc, argv, "search", 0)));
	if (support_number(argc, argv, "digest", 0) && !is_paced)
		say_digest(job, units, frozen, elements);
	if (hold < units)
		check(tierd_gather(job, hold, &parameters));
	if (support_number(argc, argv, "heir", 0))
		leave_to_heir();
	for (unsigned unit = 0; unit < clutch; unit++)
		check(tierd_gather(job, unit, &parameters));
	printf("ready\n");
	fflush(stdout);
	if (is_paced)
		train_by_lines(job, units, frozen, elements, first + steps);
	while (getchar() != EOF)
		;
	if (support_number(argc, argv, "digest", 0) && is_paced)
		say_digest(job, units, frozen, elements);
	if (hold < units)
		check(tierd_release(job, hold));
	for (unsigned unit = 0; unit < clutch; unit++)
		check(tierd_release(job, unit));
	if (after > 0) {
		train(job, units, frozen, elements, steps, after);
		printf("after %016llx\n", (unsigned long long)digest(job, units, frozen, elements));
	}
	/* Whether it may go on. */
	check(tierd_job_state(job, &state));
	OK(tierd_job_close(job));
	tierd_disconnect(node);
	return 0;
}
