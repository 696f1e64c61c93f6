/* What GPUs have to hold and to be sent, for people and for programs. */
#include <string.h>

#include "client/tierctl/plan_request.h"
#include "common/plural.h"
#include "common/size.h"

#define INDENT 2

/* No text says more than that. */
static uint64_t whole(double number)
{
	return number < 0 ? 0 : number < 1e18 ? (uint64_t)number : (uint64_t)1e18;
}

enum plan_fit plan_gpu_fit(const struct plan_request *request)
{
	double bytes = (double)request->gpus.bytes;

	return request->gpu.high[PLAN_GPU_BYTES] <= bytes ? PLAN_FITS
	       : request->gpu.low[PLAN_GPU_BYTES] > bytes ? PLAN_LACKS
							  : PLAN_DEPENDS;
}

#define REFUSAL_SIZE (TIERD_MAX_NAME + 512)

/* The units of a model of which only the size is known have no names of their own. */
static void say_largest(const struct plan_request *request, char *text, size_t size)
{
	char bytes[TEXT_SIZE];

	text[0] = '\0';
	if (request->rows.cuts == 1 && request->gpu.largest)
		snprintf(text, size, " (the largest, %s, has %s)", request->gpu.largest,
			 text_bytes(whole(request->gpu.largest_bytes), bytes));
}

/* NULL: there is none. */
static const char *refusal(const struct plan_request *request, char text[REFUSAL_SIZE])
{
	const struct plan_gpus *gpus = &request->gpus;
	uint64_t least = whole(request->gpu.low[PLAN_GPU_BYTES]);
	bool has_activations = gpus->activation_bytes > 0;
	char a[TEXT_SIZE], b[TEXT_SIZE], largest[TIERD_MAX_NAME + 64];

	if (plan_gpu_fit(request) != PLAN_LACKS)
		return NULL;
	say_largest(request, largest, sizeof(largest));
	snprintf(text, REFUSAL_SIZE,
		 "a GPU of %s is too small: %u rank%s take%s %s there, for two units of each size%s%s the "
		 "gradients of two%s; --gpu %ux%lluM would do, or smaller units",
		 text_bytes(gpus->bytes, a), gpus->ranks, PLURAL(gpus->ranks), gpus->ranks == 1 ? "s" : "",
		 text_bytes(least, b), largest, has_activations ? "," : " and",
		 has_activations ? " and --activations" : "", gpus->count,
		 (unsigned long long)size_divide_up(least, MIB));
	return text;
}

/* ---- For people ---- */

/* Three figures. */
static const char *text_seconds(double seconds, char text[TEXT_SIZE])
{
	double value = seconds < 1 ? seconds * 1000 : seconds;

	snprintf(text, TEXT_SIZE, "%.*f%s",
		 value < 10    ? 2
		 : value < 100 ? 1
			       : 0,
		 value, seconds < 1 ? " ms" : " s");
	return text;
}

static void add_bytes(struct table *table, const char *what, double low, double high)
{
	char a[TEXT_SIZE], b[TEXT_SIZE];

	table_add(table, "%s", what);
	plan_add_range(table, text_bytes(whole(low), a), text_bytes(whole(high), b));
}

static void add_figure(struct table *table, const char *what, const struct plan_gpu_bounds *bounds,
		       enum plan_gpu_figure figure)
{
	add_bytes(table, what, bounds->low[figure], bounds->high[figure]);
}

static int print_needs(const struct plan_request *request)
{
	static const char *const titles[] = { "EACH GPU", ">TAKES", NULL };
	_cleanup_(table_freep) struct table *table = table_new(titles);
	const struct plan_gpu_bounds *bounds = &request->gpu;
	const struct plan_gpus *gpus = &request->gpus;
	double activations = (double)gpus->ranks * (double)gpus->activation_bytes,
	       bytes = (double)gpus->bytes;
	char a[TEXT_SIZE], b[TEXT_SIZE];

	if (!table)
		return command_print_table(table);
	add_figure(table, "two units of each size", bounds, PLAN_GPU_UNITS);
	add_figure(table, "gradients of two units", bounds, PLAN_GPU_GRADIENTS);
	if (activations > 0)
		add_bytes(table, "activations", activations, activations);
	add_bytes(table, activations > 0 ? "left" : "left, for activations",
		  bytes - bounds->high[PLAN_GPU_BYTES], bytes - bounds->low[PLAN_GPU_BYTES]);
	add_figure(table, "copied there in a step", bounds, PLAN_GPU_TO);
	add_figure(table, "copied back in a step", bounds, PLAN_GPU_FROM);
	table_add(table, "time of these copies");
	plan_add_range(table, text_seconds(bounds->low[PLAN_GPU_SECONDS], a),
		       text_seconds(bounds->high[PLAN_GPU_SECONDS], b));
	return command_print_table(table);
}

static void print_step(const struct plan_request *request)
{
	const struct plan_gpus *gpus = &request->gpus;
	char least[TEXT_SIZE], most[TEXT_SIZE];
	bool is_range = strcmp(text_seconds(request->gpu.low[PLAN_GPU_SECONDS], least),
			       text_seconds(request->gpu.high[PLAN_GPU_SECONDS], most)) != 0;

	text_say(INDENT,
		 "A step takes at least %s: that long its copies take over PCIe at %g GB/s each way%s%s. "
		 "NVMe and the computation may take longer",
		 least, (double)gpus->pcie_rate / 1e9,
		 gpus->pcie_rate == PLAN_PCIE_USUAL ? ", as of PCIe 4 with 16 lanes (--pcie)" : "",
		 is_range ? ", if units stay there as long as there is room. If none stays, each is copied "
			    "for forward and for backward"
			  : "");
}

static void print_verdict(const struct plan_request *request)
{
	char text[REFUSAL_SIZE];

	if (refusal(request, text)) {
		text_say(INDENT, "It does not fit: %s", text);
		return;
	}
	if (plan_gpu_fit(request) == PLAN_DEPENDS)
		text_say(INDENT, "Whether it fits depends on how the model is cut into units");
	else
		text_say(INDENT, "It fits if what is left is enough for %swhat CUDA and the framework take",
			 request->gpus.activation_bytes > 0 ? "" : "activations and for ");
	print_step(request);
}

int plan_print_gpus(const struct plan_request *request)
{
	const struct plan_gpus *gpus = &request->gpus;
	char bytes[TEXT_SIZE];
	int code;

	if (gpus->bytes == 0)
		return COMMAND_DONE;
	putchar('\n');
	text_say(0,
		 "%u GPU%s of %s with %u rank%s%s. Units are copied there from host memory, where the state "
		 "stays. This follows from sizes alone:",
		 gpus->count, PLURAL(gpus->count), text_bytes(gpus->bytes, bytes), gpus->ranks,
		 PLURAL(gpus->ranks), gpus->count > 1 ? " each" : "");
	putchar('\n');
	code = print_needs(request);
	if (code != COMMAND_DONE)
		return code;
	putchar('\n');
	print_verdict(request);
	return COMMAND_DONE;
}

/* ---- For programs ---- */

static void add_figures(cJSON *json, const double figures[PLAN_GPU_FIGURES])
{
	static const char *const keys[PLAN_GPU_FIGURES] = {
		[PLAN_GPU_UNITS] = "unit_bytes",    [PLAN_GPU_GRADIENTS] = "gradient_bytes",
		[PLAN_GPU_BYTES] = "taken_bytes",   [PLAN_GPU_TO] = "to_gpu_bytes",
		[PLAN_GPU_FROM] = "from_gpu_bytes", [PLAN_GPU_SECONDS] = "pcie_seconds",
	};

	for (unsigned i = 0; i < PLAN_GPU_FIGURES; i++)
		cJSON_AddNumberToObject(json, keys[i], figures[i]);
}

cJSON *plan_gpus_json(const struct plan_request *request)
{
	const struct plan_gpus *gpus = &request->gpus;
	enum plan_fit fit = plan_gpu_fit(request);
	cJSON *json = cJSON_CreateObject(), *best;
	char text[REFUSAL_SIZE];

	cJSON_AddNumberToObject(json, "count", gpus->count);
	cJSON_AddNumberToObject(json, "bytes", (double)gpus->bytes);
	cJSON_AddNumberToObject(json, "ranks", gpus->ranks);
	cJSON_AddNumberToObject(json, "activation_bytes",
				(double)gpus->ranks * (double)gpus->activation_bytes);
	cJSON_AddNumberToObject(json, "pcie_bytes_per_second", (double)gpus->pcie_rate);
	add_figures(json, request->gpu.high);
	best = cJSON_AddObjectToObject(json, "at_best");
	add_figures(best, request->gpu.low);
	if (fit != PLAN_DEPENDS)
		cJSON_AddBoolToObject(json, "fits", fit == PLAN_FITS);
	if (refusal(request, text))
		cJSON_AddStringToObject(json, "refusal", text);
	return json;
}
