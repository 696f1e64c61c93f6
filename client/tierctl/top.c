/* top: what node and jobs do now, again and again. Rates are those between two looks; of the first look,
 * since the daemon's start. */
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "client/tierctl/top.h"
#include "common/size.h"

#define HOME_AND_CLEAR "\033[H\033[J"
#define LEAST_INTERVAL 0.1
#define MOST_INTERVAL 3600.0

struct top_flags {
	bool is_once;
	double interval; /* seconds */
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

	flags->is_once = command_flag(context, "once") != NULL;
	return interval ? read_interval(interval, &flags->interval) : COMMAND_DONE;
}

/* ---- Rates ---- */

static const char *rate(uint64_t now, uint64_t before, double seconds, char text[TEXT_SIZE])
{
	return text_bytes(seconds > 0 ? (uint64_t)((double)top_more(now, before) / seconds) : 0, text);
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

static void print_title(const struct view *view)
{
	const struct statistics_node *node = &view->node;
	char a[TEXT_SIZE], b[TEXT_SIZE], c[TEXT_SIZE], d[TEXT_SIZE];

	printf("tierd at %s, pid %" PRIu64 ", up %s\n", view->context->socket, node->pid,
	       text_duration((view->read_ns - node->started_ns) / 1000000, a));
	if (view_is_stuck(view))
		printf("THE DAEMON HAS NOT TURNED FOR %" PRIu64 " s; what follows is of then\n",
		       view_silent_ns(view) / 1000000000);
	printf("jobs     %" PRIu64 ", clients: %" PRIu64 "\n", node->jobs, node->clients);
	printf("host     %s of %s, %s of it cache, %s pinned\n", text_bytes(node->host_used, a),
	       text_bytes(node->host_budget, b), text_bytes(node->host_cache, c),
	       text_bytes(node->pinned, d));
}

static void print_paths(const struct statistics_node *now, const struct statistics_node *before,
			double seconds)
{
	char a[TEXT_SIZE], b[TEXT_SIZE], c[TEXT_SIZE], d[TEXT_SIZE];

	for (size_t i = 0; i < now->path_count; i++) {
		const struct statistics_path *path = &now->paths[i], *old = &before->paths[i];

		printf("nvme     %s of %s, reads %s/s, writes %s/s: %s\n", text_bytes(path->used, a),
		       text_bytes(path->capacity, b),
		       rate(path->moved[STATISTICS_READ], old->moved[STATISTICS_READ], seconds, c),
		       rate(path->moved[STATISTICS_WRITTEN], old->moved[STATISTICS_WRITTEN], seconds, d),
		       path->path);
	}
}

static void print_figures(const struct statistics_figures *now, const struct statistics_figures *before,
			  double seconds)
{
	char a[TEXT_SIZE], b[TEXT_SIZE];

	fputs("i/o     ", stdout);
	for (unsigned kind = 0; kind < STATISTICS_KINDS; kind++)
		printf(" %s %s/s read, %s/s written%s", view_kind_name(kind),
		       rate(now->bytes[kind][STATISTICS_READ], before->bytes[kind][STATISTICS_READ], seconds,
			    a),
		       rate(now->bytes[kind][STATISTICS_WRITTEN], before->bytes[kind][STATISTICS_WRITTEN],
			    seconds, b),
		       kind + 1 < STATISTICS_KINDS ? ";" : "\n");
	printf("gathers  %.0f/s, without asking: %s\n",
	       seconds > 0 ? (double)top_more(now->gathers, before->gathers) / seconds : 0,
	       hit_rate(now, before, a));
	fputs("stalls  ", stdout);
	for (unsigned cause = 0; cause < STATISTICS_CAUSES; cause++)
		printf(" %s %.2f s/s%s", view_cause_name(cause),
		       seconds > 0 ? (double)top_more(now->stall_ns[cause], before->stall_ns[cause]) / 1e9 /
					     seconds
				   : 0,
		       cause + 1 < STATISTICS_CAUSES ? "," : "\n\n");
}

/* ---- Jobs ---- */

static void add_job(struct table *table, const struct view_job *job, const struct statistics_job *before)
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
	table_add(table, "%" PRIu64 "/%" PRIu64, now->ranks, now->world_size);
	table_add(table, "%" PRIu64, now->step);
	table_add(table, "%" PRIu64, now->durable_step);
	table_add_bytes(table, now->host_bytes);
	table_add_bytes(table, now->cache_bytes);
	if (now->warm_most_bytes > 0)
		table_add(table, "%.0f %%", 100.0 * size_fraction(now->warm_bytes, now->warm_most_bytes));
	else
		table_add(table, "-");
	table_add_bytes(table, now->nvme_bytes);
	for (unsigned direction = 0; direction < STATISTICS_DIRECTIONS; direction++)
		table_add(table, "%s",
			  seconds > 0 ? rate(moved(&now->figures, direction), moved(&old->figures, direction),
					     seconds, text)
				      : "-");
	table_add(table, "%s", hit_rate(&now->figures, &old->figures, text));
	if (seconds > 0)
		table_add(table, "%.2f", (double)stalled / 1e9 / seconds);
	else
		table_add(table, "-");
}

static int print_jobs(const struct view *view, const struct top_past *past)
{
	static const char *const titles[] = { "JOB",	  "USER",	"STATUS",	">RANKS", ">STEP",
					      ">DURABLE", ">HOST",	">OF IT CACHE", ">KEPT",  ">NVME",
					      ">READ/S",  ">WRITTEN/S", ">HITS",	">STALL", NULL };
	_cleanup_(table_freep) struct table *table = table_new(titles);

	for (size_t i = 0; table && i < view->job_count; i++)
		add_job(table, &view->jobs[i], top_find(past, &view->jobs[i].body));
	return command_print_table(table);
}

/* ---- Looks ---- */

static int print_look(const struct view *view, const struct top_past *past)
{
	const struct statistics_node *now = &view->node, *before = &past->node;
	double seconds = top_seconds(now->heartbeat_ns, before->heartbeat_ns);

	print_title(view);
	print_paths(now, before, seconds);
	print_figures(&now->figures, &before->figures, seconds);
	return print_jobs(view, past);
}

static int remember(const struct view *view, struct top_past *past)
{
	struct statistics_job *jobs = calloc(view->job_count + 1, sizeof(*jobs));

	if (!jobs)
		return command_fail(COMMAND_FAILED, "out of memory");
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

/* To programs each look is a line. */
static int show(const struct view *view, const struct top_past *past, const struct top_flags *flags)
{
	if (view->context->is_json)
		return command_print_json_line(top_json(view, past));
	if (!flags->is_once && isatty(STDOUT_FILENO))
		fputs(HOME_AND_CLEAR, stdout);
	return print_look(view, past);
}

static int look_on(struct view *view, const struct top_flags *flags)
{
	struct top_past past = { .node.heartbeat_ns = view->node.started_ns };
	int code;

	for (;;) {
		code = show(view, &past, flags);
		/* Who reads it may have gone. */
		if (code == COMMAND_DONE && fflush(stdout) != 0)
			code = COMMAND_FAILED;
		if (code != COMMAND_DONE || flags->is_once)
			break;
		code = remember(view, &past);
		if (code != COMMAND_DONE)
			break;
		pause_for(flags->interval);
		code = view_refresh(view);
		if (code != COMMAND_DONE)
			break;
	}
	free(past.jobs);
	return code;
}

int command_top(const struct command_context *context)
{
	struct top_flags flags = { .interval = 2 };
	struct view view = { NULL };
	int code = read_flags(&flags, context);

	if (code == COMMAND_DONE)
		code = view_open(context, &view);
	if (code == COMMAND_DONE)
		code = look_on(&view, &flags);
	view_close(&view);
	return code;
}
