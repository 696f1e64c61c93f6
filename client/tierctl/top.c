/* top: what node and jobs do now, again and again. Rates are those between two looks; the first one is shown
 * when there has been another. */
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "client/tierctl/gpus.h"
#include "client/tierctl/limit.h"
#include "client/tierctl/top.h"
#include "common/size.h"

#define INDENT 9
#define HOME_AND_CLEAR "\033[H\033[J"
#define LEAST_INTERVAL 0.1
#define MOST_INTERVAL 3600.0
#define USUAL_INTERVAL 2.0
/* Before what is shown first. */
#define FIRST_INTERVAL 1.0

struct top_flags {
	bool is_once;
	double interval, first_interval; /* seconds */
};

/* ---- Flags ---- */

static int read_interval(const char *text, double *ret_interval)
{
	char *end;
	double interval = strtod(text, &end);

	if (end == text || *end != '\0' || !isfinite(interval) || interval < LEAST_INTERVAL ||
	    interval > MOST_INTERVAL)
		return command_fail(COMMAND_USAGE, "--interval cannot be '%s'; it takes seconds, %g to %g",
				    text, LEAST_INTERVAL, MOST_INTERVAL);
	*ret_interval = interval;
	return COMMAND_DONE;
}

static int read_flags(struct top_flags *flags, const struct command_context *context)
{
	const char *interval = command_flag(context, "interval");
	int code;

	flags->is_once = command_flag(context, "once") != NULL;
	flags->interval = USUAL_INTERVAL;
	flags->first_interval = FIRST_INTERVAL;
	if (!interval)
		return COMMAND_DONE;
	code = read_interval(interval, &flags->interval);
	if (flags->is_once || flags->interval < FIRST_INTERVAL)
		flags->first_interval = flags->interval;
	return code;
}

/* ---- Rates ---- */

void top_add_rate(struct table *table, uint64_t now, uint64_t before, double seconds)
{
	char text[TEXT_SIZE];

	table_add_known(table, seconds > 0, "%s",
			seconds > 0 ? text_rate(top_more(now, before), seconds, text) : "");
}

static void add_stall(struct table *table, uint64_t ns, double seconds)
{
	table_add_known(table, seconds > 0, "%.2f", (double)ns / 1e9 / seconds);
}

static uint64_t moved(const struct statistics_figures *figures, unsigned direction)
{
	uint64_t bytes = 0;

	for (unsigned kind = 0; kind < STATISTICS_KINDS; kind++)
		bytes += figures->bytes[kind][direction];
	return bytes;
}

static const char *hit_rate(const struct statistics_figures *now, const struct statistics_figures *before,
			    char text[TEXT_SIZE])
{
	uint64_t gathers = top_more(now->gathers, before->gathers),
		 misses = top_more(now->misses, before->misses);

	if (gathers == 0)
		return "-";
	snprintf(text, TEXT_SIZE, "%.1f %%",
		 misses > gathers ? 0 : 100.0 * (double)(gathers - misses) / (double)gathers);
	return text;
}

/* ---- The node ---- */

static void print_title(const struct view *view, double seconds)
{
	const struct statistics_node *node = &view->node;
	char a[TEXT_SIZE], b[TEXT_SIZE], c[TEXT_SIZE], d[TEXT_SIZE];

	text_say(2, "tierd at %s, pid %" PRIu64 ", up %s", view->context->socket, node->pid,
		 text_duration((view->read_ns - node->started_ns) / 1000000, a));
	if (view_is_stuck(view))
		printf("THE DAEMON HAS NOT TURNED FOR %" PRIu64 " s; what follows is of then\n",
		       view_silent_ns(view) / 1000000000);
	printf("jobs     %" PRIu64 ", clients: %" PRIu64 "\n", node->jobs, node->clients);
	text_say(INDENT, "host     %s of %s, %s of it cache, %s pinned", text_bytes(node->host_used, a),
		 text_bytes(node->host_budget, b), text_bytes(node->host_cache, c),
		 text_bytes(node->pinned, d));
	if (node->host_withheld > 0)
		text_say(INDENT,
			 "withheld %s of it: of jobs that have ended, and processes still have it open or "
			 "mapped",
			 text_bytes(node->host_withheld, a));
	if (seconds > 0)
		printf("rates    of the last %.1f s\n", seconds);
	else
		puts("rates    not known: the daemon has not turned between two looks");
}

static void print_gathers(const struct statistics_figures *now, const struct statistics_figures *before,
			  double seconds)
{
	char text[TEXT_SIZE];

	if (seconds > 0)
		printf("gathers  %.0f/s, without asking: %s\n",
		       (double)top_more(now->gathers, before->gathers) / seconds,
		       hit_rate(now, before, text));
}

static int print_paths(const struct statistics_node *now, const struct statistics_node *before,
		       double seconds)
{
	static const char *const titles[] = { "~NVME",	    ">USED",  ">CAPACITY", ">READ/S",
					      ">WRITTEN/S", "1>BUSY", NULL };
	_cleanup_(table_freep) struct table *table = table_new(titles);
	struct limit_load load = limit_of_looks(now, before);

	for (size_t i = 0; table && i < now->path_count; i++) {
		const struct statistics_path *path = &now->paths[i], *old = &before->paths[i];

		table_add(table, "%s", path->path);
		table_add_bytes(table, path->used);
		table_add_bytes(table, path->capacity);
		for (unsigned direction = 0; direction < STATISTICS_DIRECTIONS; direction++)
			top_add_rate(table, path->moved[direction], old->moved[direction], seconds);
		table_add_known(table, load.seconds > 0, "%.0f %%", 100 * load.paths[i].busy);
	}
	return command_print_table(table);
}

/* Bytes per second by purpose and direction. */
static int print_io(const struct statistics_figures *now, const struct statistics_figures *before,
		    double seconds)
{
	static const char *const titles[] = { "I/O",	     ">DEMAND",	  ">PREFETCH", ">UPDATE",
					      ">WRITE BACK", ">GRADIENT", NULL };
	_cleanup_(table_freep) struct table *table = table_new(titles);

	for (unsigned direction = 0; table && direction < STATISTICS_DIRECTIONS; direction++) {
		table_add(table, "%s/s", view_direction_name(direction));
		for (unsigned kind = 0; kind < STATISTICS_KINDS; kind++)
			top_add_rate(table, now->bytes[kind][direction], before->bytes[kind][direction],
				     seconds);
	}
	return command_print_table(table);
}

/* How long ranks wait, for what. */
static int print_stalls(const struct statistics_node *now, const struct statistics_node *before,
			double seconds)
{
	bool has_gpus = now->gpu_count > 0;
	const char *const titles[] = { "STALLS", ">NVME READ",	     ">SLOT",
				       ">STEP",	 ">GRADIENT BUFFER", has_gpus ? ">GPU" : NULL,
				       NULL };
	_cleanup_(table_freep) struct table *table = table_new(titles);

	if (!table)
		return command_print_table(NULL);
	table_add(table, "seconds/s");
	for (unsigned cause = 0; cause < (has_gpus ? STATISTICS_CAUSES : STATISTICS_GPU); cause++)
		add_stall(table, top_more(now->figures.stall_ns[cause], before->figures.stall_ns[cause]),
			  seconds);
	return command_print_table(table);
}

/* ---- Jobs ---- */

static void add_job(struct table *table, const struct view_job *job, const struct statistics_job *before,
		    bool has_gpus)
{
	static const struct statistics_job nothing;
	const struct statistics_job *now = &job->body, *old = before ? before : &nothing;
	double seconds = before ? top_seconds(now->heartbeat_ns, before->heartbeat_ns) : 0;
	char text[TEXT_SIZE];
	uint64_t stalled = 0;

	for (unsigned cause = 0; cause < STATISTICS_CAUSES; cause++)
		stalled += top_more(now->figures.stall_ns[cause], old->figures.stall_ns[cause]);
	table_add(table, "%s", now->name);
	table_add(table, "%s", job->user);
	table_add(table, "%s", now->status);
	table_add_known(table, !now->is_lost, "%" PRIu64 "/%" PRIu64, now->ranks, now->world_size);
	table_add_known(table, !now->is_lost, "%" PRIu64, now->step);
	if (now->is_lost || now->has_durable_step)
		table_add_known(table, !now->is_lost, "%" PRIu64, now->durable_step);
	else
		table_add(table, "no");
	table_add_bytes(table, now->host_bytes);
	table_add_bytes(table, now->cache_bytes);
	table_add_known(table, now->warm_most_bytes > 0, "%.0f %%",
			100.0 * size_fraction(now->warm_bytes, now->warm_most_bytes));
	table_add_known(table, !now->is_lost, "%s", text_bytes(now->nvme_bytes, text));
	for (unsigned direction = 0; direction < STATISTICS_DIRECTIONS; direction++)
		top_add_rate(table, moved(&now->figures, direction), moved(&old->figures, direction),
			     seconds);
	table_add(table, "%s", hit_rate(&now->figures, &old->figures, text));
	add_stall(table, stalled, seconds);
	if (!has_gpus)
		return;
	table_add_bytes(table, now->gpu_bytes);
	table_add_known(table, now->gpu_steps > old->gpu_steps && before, "%s",
			gpus_text_energy(before ? top_joules_per_step(now, old) : 0, text));
}

static int print_jobs(const struct view *view, const struct top_past *past)
{
	bool has_gpus = view->node.gpu_count > 0;
	const char *const titles[] = {
		"~JOB",	     "5~USER",	    "STATUS",	     ">RANKS",	">STEP",
		"3>DURABLE", "4>HOST",	    "7>OF IT CACHE", "6>KEPT",	"4>NVME",
		"1>READ/S",  "1>WRITTEN/S", "2>HITS",	     "1>STALL", has_gpus ? "4>GPUS" : NULL,
		"6>J/STEP",  NULL
	};
	_cleanup_(table_freep) struct table *table = table_new(titles);

	for (size_t i = 0; table && i < view->job_count; i++)
		add_job(table, &view->jobs[i], top_find(past, &view->jobs[i].body), has_gpus);
	return command_print_table(table);
}

/* ---- Looks ---- */

static int print_look(const struct view *view, const struct top_past *past)
{
	const struct statistics_node *now = &view->node, *before = &past->node;
	double seconds = top_seconds(now->heartbeat_ns, before->heartbeat_ns);
	struct limit_load load = limit_of_looks(now, before);
	int code;

	print_title(view, seconds);
	print_gathers(&now->figures, &before->figures, seconds);
	code = limit_print(&load, INDENT);
	putchar('\n');
	if (code == COMMAND_DONE)
		code = print_paths(now, before, seconds);
	putchar('\n');
	if (code == COMMAND_DONE)
		code = top_print_gpus(now, before, seconds);
	if (code == COMMAND_DONE)
		code = print_io(&now->figures, &before->figures, seconds);
	putchar('\n');
	if (code == COMMAND_DONE)
		code = print_stalls(now, before, seconds);
	putchar('\n');
	return code == COMMAND_DONE ? print_jobs(view, past) : code;
}

static int remember(const struct view *view, struct top_past *past)
{
	struct statistics_job *jobs = calloc(view->job_count + 1, sizeof(*jobs));

	if (!jobs)
		return command_fail_memory();
	for (size_t i = 0; i < view->job_count; i++)
		jobs[i] = view->jobs[i].body;
	free(past->jobs);
	*past = (struct top_past){ view->node, jobs, view->job_count };
	return COMMAND_DONE;
}

static void pause_for(double seconds)
{
	struct timespec left = { .tv_sec = (time_t)seconds, .tv_nsec = (long)(fmod(seconds, 1) * 1e9) };

	while (nanosleep(&left, &left) < 0 && errno == EINTR)
		;
}

/* Each look takes the place of the last one. */
static bool fills_screen(const struct view *view, const struct top_flags *flags)
{
	return !view->context->is_json && !flags->is_once && isatty(STDOUT_FILENO);
}

/* To programs each look is a line. */
static int show(const struct view *view, const struct top_past *past, const struct top_flags *flags)
{
	if (view->context->is_json)
		return command_print_json_line(top_json(view, past));
	if (fills_screen(view, flags))
		fputs(HOME_AND_CLEAR, stdout);
	return print_look(view, past);
}

/* After a while, beside what there was. */
static int look_again(struct view *view, struct top_past *past, double interval)
{
	int code = remember(view, past);

	if (code != COMMAND_DONE)
		return code;
	pause_for(interval);
	return view_refresh(view);
}

static int look_on(struct view *view, const struct top_flags *flags)
{
	struct top_past past = { .jobs = NULL };
	int code;

	if (fills_screen(view, flags)) {
		printf(HOME_AND_CLEAR "looking for %.1f s at what tierd does\n", flags->first_interval);
		fflush(stdout);
	}
	code = look_again(view, &past, flags->first_interval);
	while (code == COMMAND_DONE) {
		code = show(view, &past, flags);
		/* Who reads it may have gone. */
		if (code == COMMAND_DONE && fflush(stdout) != 0)
			code = COMMAND_FAILED;
		if (code != COMMAND_DONE || flags->is_once)
			break;
		code = look_again(view, &past, flags->interval);
	}
	free(past.jobs);
	return code;
}

int command_top(const struct command_context *context)
{
	struct top_flags flags;
	struct view view = { NULL };
	int code = read_flags(&flags, context);

	if (code == COMMAND_DONE)
		code = view_open(context, &view);
	if (code == COMMAND_DONE)
		code = look_on(&view, &flags);
	view_close(&view);
	return code;
}
