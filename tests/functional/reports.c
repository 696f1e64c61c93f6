/* Clients whose jobs are looked at from outside, by reports.py: each says a word when it is where it is to be
 * seen, and goes on when it is told to.
 *
 *   reports many      one rank, a job of MANY_UNITS units; holds leases
 *   reports shared    two ranks; both hold leases
 *   reports frozen    values of a frozen unit are written before it is ready
 *   reports steps     large units; a step for each line that it reads
 *   reports spilled   the same, in so little host memory that sums of gradients are spilled
 *   reports wide      the first of WIDE_RANKS ranks, before any other comes
 *   reports jobs N    N jobs that wait for units */
#include <string.h>

#include "crash_support.h"

#define MANY_UNITS 5000
#define WIDE_RANKS 1024
#define WIDE_UNITS 100
#define LARGE_UNITS 6
#define LARGE_ELEMENTS (UINT64_C(1) << 20)
#define JOBS_PER_CONNECTION 60
#define JOBS_MAX (8 * JOBS_PER_CONNECTION)

/* False: there is no more to do. */
static bool say(const char *word)
{
	char line[16];

	puts(word);
	fflush(stdout);
	return fgets(line, sizeof(line), stdin) != NULL;
}

static void hold(struct tierd_job *job, uint32_t unit)
{
	struct tierd_view view;

	OK(tierd_gather(job, unit, &view));
}

/* The first and last units of an answer, and the last of all. */
static void many(void)
{
	static const uint32_t held[] = { 0, 511, 512, 1023, 1024, MANY_UNITS - 1 };
	struct tierd_node *node = support_connect();
	struct tierd_job_options options = support_options("many", 0, 1);
	struct tierd_job *job = support_join(node, &options, MANY_UNITS);

	OK(tierd_job_ready(job, -1, NULL));
	for (size_t i = 0; i < sizeof(held) / sizeof(*held); i++)
		hold(job, held[i]);
	say("held");
	for (size_t i = 0; i < sizeof(held) / sizeof(*held); i++)
		OK(tierd_release(job, held[i]));
	say("released");
	OK(tierd_job_close(job));
	tierd_disconnect(node);
}

static void shared(void)
{
	struct tierd_node *nodes[2];
	struct tierd_job *jobs[2];

	for (unsigned rank = 0; rank < 2; rank++) {
		struct tierd_job_options options = support_options("shared", rank, 2);

		nodes[rank] = support_connect();
		jobs[rank] = support_join(nodes[rank], &options, 3);
	}
	support_ready(jobs, 2, 0, NULL);
	hold(jobs[0], 1);
	hold(jobs[1], 1);
	hold(jobs[1], 1);
	hold(jobs[0], 2);
	say("both");
	/* What a rank held goes with it. */
	OK(tierd_job_detach(jobs[1]));
	say("one");
	OK(tierd_job_detach(jobs[0]));
	for (unsigned rank = 0; rank < 2; rank++)
		tierd_disconnect(nodes[rank]);
}

static void frozen(void)
{
	struct tierd_node *node = support_connect();
	struct tierd_job_options options = support_options("frozen", 0, 1);
	struct tierd_tensor tensor = TIERD_TENSOR_INIT;
	struct tierd_job *job = support_join(node, &options, 0);
	const float values[4] = { 1, 2, 3, 4 };
	uint32_t unit;

	options.parameter_placement = TIERD_PLACE_NVME;
	/* More than half a pack: a unit of its own. */
	support_define(job, "trained", TIERD_FP32, LARGE_ELEMENTS, 1.0);
	tensor.name = "frozen";
	tensor.format = TIERD_FP32;
	tensor.dimensions = 1;
	tensor.shape[0] = 4;
	tensor.is_frozen = true;
	OK(tierd_unit_define(job, "frozen", &tensor, 1, &unit));
	/* When all are there they are stored at once. */
	OK(tierd_tensor_write(job, unit, 0, 0, 3, values, false));
	say("written");
	OK(tierd_tensor_write(job, unit, 0, 3, 1, &values[3], false));
	OK(tierd_job_ready(job, -1, NULL));
	say("ready");
	OK(tierd_job_close(job));
	tierd_disconnect(node);
}

static void train(const struct tierd_job_options *options)
{
	struct tierd_node *node = support_connect();
	struct tierd_rates rates = { sizeof(rates), .gradient_scale = 1 };
	struct tierd_ticket *ticket;
	struct tierd_job *job;

	OK(tierd_job_open(node, options, &job));
	support_define_all(job, LARGE_UNITS, TIERD_FP32, LARGE_ELEMENTS, 1.0, 0.0);
	OK(tierd_job_ready(job, -1, NULL));
	while (say("ready")) {
		for (unsigned unit = 0; unit < LARGE_UNITS; unit++)
			OK(support_push(job, unit, LARGE_ELEMENTS, 1.0f));
		OK(tierd_step(job, &rates, &ticket));
		say("stepping");
		OK(tierd_ticket_wait(ticket, TIERD_DONE, -1));
		tierd_ticket_free(ticket);
	}
	OK(tierd_job_close(job));
	tierd_disconnect(node);
}

static void steps(void)
{
	struct tierd_job_options options = support_options("steps", 0, 1);

	train(&options);
}

static void spilled(void)
{
	struct tierd_job_options options = support_options("spilled", 0, 1);

	options.host_budget = 28 << 20;
	options.gradient_placement = TIERD_PLACE_NVME;
	train(&options);
}

static void wide(void)
{
	struct tierd_node *node = support_connect();
	struct tierd_job_options options = support_options("wide", 0, WIDE_RANKS);
	struct tierd_job *job;

	OK(tierd_job_open(node, &options, &job));
	support_define_all(job, WIDE_UNITS, TIERD_BF16, UINT64_C(1) << 36, 0.0, 0.0);
	say("defined");
	OK(tierd_job_close(job));
	tierd_disconnect(node);
}

static void jobs(unsigned count)
{
	struct tierd_node *nodes[JOBS_MAX / JOBS_PER_CONNECTION] = { NULL };
	struct tierd_job *job;
	char name[16];

	REQUIRE(count <= JOBS_MAX);
	for (unsigned i = 0; i < count; i++) {
		struct tierd_node **node = &nodes[i / JOBS_PER_CONNECTION];

		snprintf(name, sizeof(name), "job%u", i);
		struct tierd_job_options options = support_options(name, 0, 2);

		if (!*node)
			*node = support_connect();
		OK(tierd_job_open(*node, &options, &job));
	}
	say("open");
	for (size_t i = 0; i < sizeof(nodes) / sizeof(*nodes); i++)
		tierd_disconnect(nodes[i]);
}

int main(int argc, char *argv[])
{
	static const struct {
		const char *name;
		void (*run)(void);
	} parts[] = { { "many", many },	  { "shared", shared },	  { "frozen", frozen },
		      { "steps", steps }, { "spilled", spilled }, { "wide", wide } };

	REQUIRE(argc >= 2);
	for (size_t i = 0; i < sizeof(parts) / sizeof(*parts); i++)
		if (strcmp(argv[1], parts[i].name) == 0) {
			parts[i].run();
			return 0;
		}
	REQUIRE(argc == 3 && strcmp(argv[1], "jobs") == 0);
	jobs((unsigned)atoi(argv[2]));
	return 0;
}
