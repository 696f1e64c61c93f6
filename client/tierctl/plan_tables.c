/* A plan for people. */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "client/tierctl/plan_request.h"
#include "common/plural.h"
#include "common/size.h"

/* Further lines of a sentence are indented by this. */
#define INDENT 2

static bool is_wanted(const struct plan_request *request, unsigned stage)
{
	return request->stage < 0 || request->stage == (int)stage;
}

/* ---- Cells ---- */

/* A unit that both have is written once: with two of them the last column would not fit into 80 columns. */
void plan_add_range(struct table *table, const char *low, const char *high)
{
	const char *unit = strrchr(low, ' ');
	size_t length = strlen(low);

	if (strcmp(low, high) == 0) {
		table_add(table, "%s", low);
		return;
	}
	if (unit && strcmp(unit, strrchr(high, ' ')) == 0)
		length = (size_t)(unit - low);
	table_add(table, "%.*s to %s", (int)length, low, high);
}

static void add_bounds(struct table *table, uint64_t low, uint64_t high)
{
	char a[TEXT_SIZE], b[TEXT_SIZE];

	plan_add_range(table, text_bytes(low, a), text_bytes(high, b));
}

static void add_needs(struct table *table, const struct plan_request *request, const struct plan_row *row)
{
	struct plan_bounds bounds;

	if (plan_row_problem(row)) {
		table_add(table, "-");
		table_add(table, "-");
		return;
	}
	bounds = plan_bounds_here(request, row);
	add_bounds(table, bounds.low.host_bytes, bounds.high.host_bytes);
	add_bounds(table, bounds.low.nvme_bytes, bounds.high.nvme_bytes);
}

static void add_fit(struct table *table, const struct plan_request *request, const struct plan_row *row)
{
	static const char *const texts[] = {
		[PLAN_FITS] = "yes",	    [PLAN_FITS_ALONE] = "not now", [PLAN_LACKS] = "no",
		[PLAN_DEPENDS] = "perhaps", [PLAN_UNKNOWN] = "?",	   [PLAN_IMPOSSIBLE] = "nowhere"
	};
	enum plan_fit fit = plan_fit(request, row);
	bool is_told = fit == PLAN_FITS_ALONE || fit == PLAN_LACKS || fit == PLAN_DEPENDS;
	bool no_host = is_told && plan_lacks_host(row), no_nvme = is_told && plan_lacks_nvme(request, row);

	table_add(table, "%s%s%s%s%s%s", texts[fit],
		  fit == PLAN_FITS && plan_is_auto(request, row) && !row->change ? ", auto" : "",
		  no_host || no_nvme ? ": " : "", no_host ? "host" : "", no_host && no_nvme ? ", " : "",
		  no_nvme ? "NVMe" : "");
}

/* Two decimals at most: "6", "4.03". */
static const char *text_traffic(double bytes, char text[TEXT_SIZE])
{
	snprintf(text, TEXT_SIZE, "%.10g", round(bytes * 100) / 100);
	return text;
}

static void add_traffic(struct table *table, double read, double written)
{
	char a[TEXT_SIZE], b[TEXT_SIZE];

	table_add(table, "%s + %s", text_traffic(read, a), text_traffic(written, b));
}

/* ---- Tables ---- */

static int print_memory(const struct plan_request *request)
{
	static const char *const titles[] = { ">STAGE", ">PARAMETERS",	  ">GRADIENTS", ">OPTIMIZER",
					      ">TOTAL", ">ELEMENTS SENT", NULL };
	_cleanup_(table_freep) struct table *table = table_new(titles);

	for (unsigned stage = 0; table && stage < PLAN_STAGES; stage++) {
		struct plan_memory memory = plan_memory(&request->model, stage);

		if (!is_wanted(request, stage))
			continue;
		table_add(table, "%u", stage);
		table_add_bytes(table, memory.parameters);
		table_add_bytes(table, memory.gradients);
		table_add_bytes(table, memory.optimizer);
		table_add_bytes(table, memory.total);
		table_add_count(table, plan_communication(&request->model, stage));
	}
	puts("Each rank, by the formulas of ZeRO; elements sent in a step:\n");
	return command_print_table(table);
}

static void add_place(struct table *table, const struct plan_request *request, const struct plan_row *row)
{
	struct plan_place place = plan_place_of(row);
	struct plan_traffic traffic = plan_traffic(&request->model, &place);
	char text[TEXT_SIZE];

	table_add(table, "%u", row->stage);
	table_add(table, place.is_parameter_nvme ? "nvme" : "host");
	table_add(table, place.is_optimizer_nvme ? "nvme" : "host");
	table_add(table, place.is_gradient_nvme ? "nvme" : "host");
	add_needs(table, request, row);
	add_traffic(table, traffic.update_read, traffic.update_written);
	table_add(table, "%s", text_traffic(traffic.gather_read, text));
	add_traffic(table, traffic.gradient_read, traffic.gradient_written);
	if (request->step_ms > 0)
		table_add_bytes(table,
				plan_whole(plan_written_per_day(&request->model, &place, request->step_ms)));
	if (request->step_ms > 0 && plan_has_days(request, &place))
		table_add_count(table, plan_days(request, &place));
	else if (request->step_ms > 0)
		table_add(table, "-");
	add_fit(table, request, row);
}

static int print_places(const struct plan_request *request)
{
	static const char *const titles[] = { ">STAGE",		"PARAMETERS",  "OPTIMIZER",
					      "3SUMS",		">HOST",       ">NVME",
					      "1>UPDATE R + W", "1>GATHERS R", "2>SUMS R + W",
					      "\"FITS",		NULL };
	static const char *const titles_by_day[] = {
		">STAGE",	"PARAMETERS",	  "OPTIMIZER",	 "3SUMS",	 ">HOST",
		">NVME",	"3>UPDATE R + W", "3>GATHERS R", "2>SUMS R + W", "2>WRITTEN A DAY",
		"1>LASTS DAYS", "\"FITS",	  NULL
	};
	_cleanup_(table_freep) struct table *table = table_new(request->step_ms > 0 ? titles_by_day : titles);

	for (unsigned i = 0; table && i < request->rows.count; i++)
		if (plan_row_is_plain(&request->rows.rows[i]))
			add_place(table, request, &request->rows.rows[i]);
	puts("\nThis node, by placement; NVMe bytes moved per parameter and step:\n");
	return command_print_table(table);
}

/* ---- What would do ---- */

/* Rounded up, so that it is enough. */
static unsigned long long mib(uint64_t bytes)
{
	return size_divide_up(bytes, MIB);
}

/* A job that trains takes more: blobs on their way, phases. */
#define LATER_BYTES (256 * KIB)

/* Counts with the most that the job may need, so that the daemon has room whatever the units are. */
static void print_least(const struct plan_row *row)
{
	const char *problem = plan_row_problem(row);
	char nvme[2 * TEXT_SIZE] = "";
	struct plan_bounds least;

	if (problem) {
		text_say(INDENT, "Stage %u: no node has that: %s", row->stage, problem);
		return;
	}
	least = plan_row_least(row);
	if (least.high.nvme_bytes > 0)
		snprintf(nvme, sizeof(nvme), " and --nvme DIR:%lluM%s", mib(least.high.path_bytes),
			 least.high.nvme_bytes > least.high.path_bytes ? ", for each path," : "");
	text_say(INDENT,
		 "Stage %u: a tierd with --host-budget %lluM%s has room for it, if nobody else is there "
		 "(--host-budget %lluM of the job itself)",
		 row->stage, mib(least.high.host_bytes + least.high_own + LATER_BYTES), nvme,
		 mib(least.high.host_bytes + LATER_BYTES));
}

static int print_changes(const struct plan_request *request)
{
	static const char *const titles[] = { "WITH", ">HOST", ">NVME", "\"FITS", NULL };
	_cleanup_(table_freep) struct table *table = table_new(titles);
	unsigned changes = 0;

	for (unsigned i = 0; table && i < request->rows.count; i++) {
		const struct plan_row *row = &request->rows.rows[i];

		if (!row->change || plan_row_problem(row))
			continue;
		table_add(table, "%s", row->change->flags);
		add_needs(table, request, row);
		add_fit(table, request, row);
		changes++;
	}
	if (changes == 0)
		return COMMAND_DONE;
	printf("\nWhat would help, at stage %u where the daemon finds the places:\n\n", plan_stage(request));
	return command_print_table(table);
}

static int print_remedies(const struct plan_request *request)
{
	const struct plan_row *advised = plan_find_auto(request, plan_stage(request));
	enum plan_fit fit;

	if (!advised)
		return COMMAND_DONE;
	puts("\nThe least that does:\n");
	for (unsigned i = 0; i < request->rows.count; i++)
		if (request->rows.rows[i].parameters == PLACEMENT_AUTO && !request->rows.rows[i].change)
			print_least(&request->rows.rows[i]);
	fit = plan_fit(request, advised);
	return fit == PLAN_FITS || fit == PLAN_UNKNOWN ? COMMAND_DONE : print_changes(request);
}

/* ---- Around them ---- */

/* Each rank has a connection. */
static void print_connections(const struct plan_request *request)
{
	unsigned ranks = plan_local_ranks(request);

	if (request->connections == 0 || ranks <= request->connections)
		return;
	putchar('\n');
	text_say(INDENT,
		 "%u ranks take a connection each, but a user may have %u here: connections_per_user in "
		 "tierd.conf(5) has to be raised",
		 ranks, request->connections);
}

static void print_cut(const struct plan_request *request)
{
	const struct plan_rows *rows = &request->rows;

	if (rows->cuts == 1)
		text_say(INDENT, "It has %zu unit%s, so what it takes is known to the byte",
			 rows->requests[0]->n_units, PLURAL(rows->requests[0]->n_units));
	else
		text_say(INDENT,
			 "How it is cut into units is not known, so these are bounds, for usual cuts; "
			 "FILE, --like, --layers or --units say it to the byte");
}

static void print_model(const struct plan_request *request)
{
	const struct plan_model *model = &request->model;
	char a[TEXT_SIZE], formats[PLAN_FORMAT_TEXT], moments[PLAN_FORMAT_TEXT], frozen[2 * TEXT_SIZE] = "";
	bool has_moments =
		model->optimizer->slots > 0 && *plan_moments(model, moments) && strcmp(moments, "fp32") != 0;

	if (model->frozen_bytes > 0)
		snprintf(frozen, sizeof(frozen), "; %s frozen", text_bytes(model->frozen_bytes, a));
	text_say(INDENT, "%s parameters in %s with %s%s%s%s over %u rank%s, %u micro-batch%s%s%s%s%s",
		 text_count(plan_parameters(model), a), plan_formats(model, formats), model->optimizer->name,
		 has_moments ? " (moments in " : "", has_moments ? moments : "", has_moments ? ")" : "",
		 model->world_size, PLURAL(model->world_size), model->micro_batches,
		 model->micro_batches == 1 ? "" : "es", frozen, model->is_durable ? "" : "; not durable",
		 model->is_pushed_once ? "; each unit pushed once" : "",
		 !model->is_pushed_once			    ? ""
		 : model->world_size > 1		    ? ", which saves nothing with several ranks"
		 : model->optimizer->kind == OPTIMIZER_NONE ? ", which saves nothing without an optimizer"
							    : "");
	print_cut(request);
}

static void print_room(const struct plan_request *request)
{
	char a[TEXT_SIZE], b[TEXT_SIZE];

	if (request->has_host && request->has_nvme)
		text_say(INDENT, "Free here (%s): %s of host memory, %s of NVMe", request->source,
			 text_bytes(request->host_bytes, a), text_bytes(request->nvme_bytes, b));
	else if (request->has_host)
		text_say(INDENT,
			 "Free here (%s): %s of host memory; no tierd answers, so --nvme would have to say "
			 "what else there is",
			 request->source, text_bytes(request->host_bytes, a));
	else if (request->has_nvme)
		text_say(
			INDENT,
			"Free here (%s): %s of NVMe; no tierd answers, so --host would have to say what else "
			"there is",
			request->source, text_bytes(request->nvme_bytes, b));
	else
		text_say(INDENT,
			 "No tierd answers, so what fits is unknown; --host and --nvme say what there is");
	putchar('\n');
}

int plan_print_tables(const struct plan_request *request)
{
	int code;

	print_model(request);
	print_room(request);
	code = print_memory(request);
	if (code == COMMAND_DONE && request->rows.count == 0)
		puts("\ntierd trains on one node so far: what a part of the ranks takes there is not "
		     "planned");
	else if (code == COMMAND_DONE)
		code = print_places(request);
	if (code == COMMAND_DONE)
		code = plan_print_gpus(request);
	if (code == COMMAND_DONE)
		code = print_remedies(request);
	if (code == COMMAND_DONE)
		print_connections(request);
	return code;
}
