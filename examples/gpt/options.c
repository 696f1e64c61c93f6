#include "options.h"

#include <errno.h>
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/cleanup.h"
#include "environment.h"
#include "number.h"

enum flag_kind { FLAG_COUNT, FLAG_BYTES, FLAG_REAL, FLAG_TEXT, FLAG_CHOICE, FLAG_SWITCH };

struct flag {
	const char *name, *argument, *help;
	enum flag_kind kind;
	size_t offset;		    /* in struct options */
	double least, most;	    /* of a number */
	const char *const *choices; /* their index is the value */
};

static const char *const formats[] = {
	[NUMBER_FP32] = "fp32", [NUMBER_BF16] = "bf16", [NUMBER_FP16] = "fp16", NULL
};
static const char *const placements[] = { [TIERD_PLACE_DEFAULT] = "default",
					  [TIERD_PLACE_HOST] = "host",
					  [TIERD_PLACE_NVME] = "nvme",
					  [TIERD_PLACE_AUTO] = "auto",
					  NULL };
static const char *const optimizers[] = {
	[TIERD_ADAMW] = "adamw", [TIERD_ADAM] = "adam", [TIERD_SGD] = "sgd", [TIERD_LION] = "lion", NULL
};
static const char *const moments[] = {
	[TIERD_MOMENTS_FP32] = "fp32", [TIERD_MOMENTS_BF16] = "bf16", [TIERD_MOMENTS_INT8] = "int8", NULL
};
static const char *const devices[] = { [DEVICE_CPU] = "cpu", [DEVICE_CUDA] = "cuda", NULL };
static const char *const modes[] = { [TIERD_EITHER] = "either",
				     [TIERD_CREATE] = "create",
				     [TIERD_RESUME] = "resume",
				     [TIERD_REPLACE] = "replace",
				     NULL };

#define HELP_COLUMN 26
#define MOST_SECONDS 86400 /* of --durability */
#define AT(member) offsetof(struct options, member)

static const struct flag flags[] = {
	{ NULL, NULL, "The model", 0, 0, 0, 0, NULL },
	{ "layers", "N", "layers", FLAG_COUNT, AT(layers), 1, 4096, NULL },
	{ "width", "N", "size of the vectors, a multiple of 16 and of --heads", FLAG_COUNT, AT(width), 16,
	  65536, NULL },
	{ "heads", "N", "attention heads", FLAG_COUNT, AT(heads), 1, 4096, NULL },
	{ "context", "N", "bytes that the model sees", FLAG_COUNT, AT(context), 1, 65536, NULL },
	{ "format", "bf16|fp16|fp32", "of parameters and gradients; norms are fp32", FLAG_CHOICE, AT(format),
	  0, 0, formats },
	{ NULL, NULL, "Training", 0, 0, 0, 0, NULL },
	{ "batch", "N", "sequences per micro-batch of a rank", FLAG_COUNT, AT(batch), 1, 1 << 20, NULL },
	{ "micro-batches", "N", "micro-batches per step of a rank", FLAG_COUNT, AT(micro_batches), 1, 1 << 20,
	  NULL },
	{ "steps", "N", "steps in all, also those of earlier runs of the job", FLAG_COUNT, AT(steps), 1, 1e9,
	  NULL },
	{ "optimizer", "adamw|adam|sgd|lion", "of the parameters", FLAG_CHOICE, AT(optimizer), 0, 0,
	  optimizers },
	{ "moments", "fp32|bf16|int8", "format of what the optimizer keeps", FLAG_CHOICE, AT(moments), 0, 0,
	  moments },
	{ "learning-rate", "X", "at its peak, after the warm-up", FLAG_REAL, AT(learning_rate), 0, 1e3,
	  NULL },
	{ "warmup", "N", "steps until then; half a cosine follows, down to a tenth", FLAG_COUNT, AT(warmup),
	  0, 1e9, NULL },
	{ "clip", "X", "global norm to clip the gradients to; 0: none", FLAG_REAL, AT(clip), 0, 1e9, NULL },
	{ "weight-decay", "X", "of matrices", FLAG_REAL, AT(weight_decay), 0, 1e3, NULL },
	{ "beta1", "X", "of AdamW, Adam and Lion", FLAG_REAL, AT(beta1), 0, 0.999999, NULL },
	{ "beta2", "X", "of AdamW, Adam and Lion", FLAG_REAL, AT(beta2), 0, 0.999999, NULL },
	{ "momentum", "X", "of SGD; 0: none", FLAG_REAL, AT(momentum), 0, 1e3, NULL },
	{ "loss-scale", "N|dynamic[:N]", "to multiply the loss with, for fp16; dynamic: from N (65536) on",
	  FLAG_TEXT, AT(loss_scale_text), 0, 0, NULL },
	{ "seed", "N", "of initial values, batches and sample", FLAG_COUNT, AT(seed), 0, 0x1p53, NULL },
	{ "evaluate-every", "N", "steps between looks at held-out text; 0: never", FLAG_COUNT,
	  AT(evaluate_every), 0, 1e9, NULL },
	{ "threads", "N", "per rank; default: 1 with several ranks, else the processors", FLAG_COUNT,
	  AT(threads), 1, 1024, NULL },
	{ "no-checkpointing", NULL, "keep activations instead of computing them again in the backward pass",
	  FLAG_SWITCH, AT(keep_activations), 0, 0, NULL },
	{ "device", "cpu|cuda",
	  "what computes: the processors, or a GPU: of several ranks each has the next one that is visible "
	  "($CUDA_VISIBLE_DEVICES). Not yet tried on hardware",
	  FLAG_CHOICE, AT(device), 0, 0, devices },
	{ NULL, NULL, "tierd", 0, 0, 0, 0, NULL },
	{ "no-tierd", NULL, "train unpartitioned in plain memory, playing all --ranks: the same bits",
	  FLAG_SWITCH, AT(is_plain), 0, 0, NULL },
	{ "socket", "PATH", "of the daemon; default: $TIERD_SOCKET, or where it usually is", FLAG_TEXT,
	  AT(socket), 0, 0, NULL },
	{ "job", "NAME", "of the job: of A-Z, a-z, 0-9, '.', '_' and '-'; default: gpt", FLAG_TEXT, AT(job),
	  0, 0, NULL },
	{ "mode", "either|create|resume|replace", "what to do about a job of that name", FLAG_CHOICE,
	  AT(mode), 0, 0, modes },
	{ "stage", "0-3", "what ZeRO partitions", FLAG_COUNT, AT(stage), 0, 3, NULL },
	{ "parameters-on", "host|nvme|auto|default", "where parameters lie", FLAG_CHOICE, AT(parameters_on),
	  0, 0, placements },
	{ "optimizer-on", "host|nvme|auto|default", "where the optimizer's state lies", FLAG_CHOICE,
	  AT(optimizer_on), 0, 0, placements },
	{ "gradients-on", "host|nvme|default", "where sums of gradients lie", FLAG_CHOICE, AT(gradients_on),
	  0, 0, placements },
	{ "host-budget", "BYTES",
	  "of host memory for the job, such as 8G (K, M, G, T); 0: what the daemon has left", FLAG_BYTES,
	  AT(host_budget), 0, 0x1p63, NULL },
	{ "gpu-budget", "BYTES",
	  "of each GPU's memory for the job's parameters and gradients; 0: what there is", FLAG_BYTES,
	  AT(gpu_budget), 0, 0x1p63, NULL },
	{ "gradient-bytes", "BYTES",
	  "of each rank's room for gradients; 0: two buffers as large as a layer's, and one for the "
	  "embedding",
	  FLAG_BYTES, AT(gradient_bytes), 0, 0x1p50, NULL },
	{ "durability", "step|none|SECONDS", "how often steps are committed; default: what the daemon says",
	  FLAG_TEXT, AT(durability_text), 0, 0, NULL },
	{ "snapshots", "N", "to have room for on NVMe, when the job is made", FLAG_COUNT, AT(snapshots), 0,
	  14, NULL },
	{ "source", "JOB", "whose values a new job begins with", FLAG_TEXT, AT(source), 0, 0, NULL },
	{ "with-optimizer", NULL, "and with what its optimizer keeps", FLAG_SWITCH, AT(with_optimizer), 0, 0,
	  NULL },
	{ "no-announce", NULL, "tell the daemon the rates of a step when it ends, not when it begins",
	  FLAG_SWITCH, AT(is_unannounced), 0, 0, NULL },
	{ "timeout", "SECONDS", "to wait for the other ranks", FLAG_COUNT, AT(timeout), 1, 1e6, NULL },
	{ NULL, NULL, "Ranks, unless RANK and WORLD_SIZE are in the environment", 0, 0, 0, 0, NULL },
	{ "ranks", "N", "to start on this machine", FLAG_COUNT, AT(ranks), 1, 1024, NULL },
	{ "restart", "N", "times that a rank that a signal kills is started again", FLAG_COUNT, AT(restarts),
	  0, 1e6, NULL },
	{ "crash-at", "STEP:POINT[:RANK]",
	  "for tests: rank RANK (1) kills itself in step STEP (from 0), at POINT: "
	  "gather, push, step, stepped or (after the last step) end",
	  FLAG_TEXT, AT(crash_at), 0, 0, NULL },
	{ NULL, NULL, "In and out", 0, 0, 0, 0, NULL },
	{ "data", "FILE", "to learn from; default: the sources and documents of tierd", FLAG_TEXT, AT(data),
	  0, 0, NULL },
	{ "log-every", "N", "steps between lines of progress; 0: none", FLAG_COUNT, AT(log_every), 0, 1e9,
	  NULL },
	{ "json", "FILE", "for a report of rank 0", FLAG_TEXT, AT(json), 0, 0, NULL },
	{ "dump", "FILE", "for the final parameters, master values and moments", FLAG_TEXT, AT(dump), 0, 0,
	  NULL },
	{ "sample-bytes", "N", "of text to write at the end", FLAG_COUNT, AT(sample_bytes), 0, 1 << 20,
	  NULL },
	{ "prompt", "TEXT", "that the sample goes on from", FLAG_TEXT, AT(prompt), 0, 0, NULL },
	{ "temperature", "X", "of the sample; 0: always the likeliest byte", FLAG_REAL, AT(temperature), 0,
	  100, NULL },
};

static const struct options defaults = {
	.layers = 4,
	.width = 256,
	.heads = 4,
	.context = 128,
	.format = NUMBER_BF16,
	.batch = 4,
	.micro_batches = 1,
	.steps = 100,
	.learning_rate = 5e-4,
	.warmup = 10,
	.clip = 1.0,
	.weight_decay = 0.1,
	.beta1 = 0.9,
	.beta2 = 0.95,
	.momentum = 0.9,
	.seed = 1,
	.loss_scale_text = "1",
	.loss_scale = 1.0,
	.log_every = 10,
	.job = "gpt",
	.stage = 3,
	.timeout = 60,
	.ranks = 1,
	.gpu = -1,
	.prompt = "",
	.temperature = 0.8,
};

/* What a flag is without being given. */
static void print_default(const struct flag *flag)
{
	const void *place = (const char *)&defaults + flag->offset;

	switch (flag->kind) {
	case FLAG_COUNT:
		if (*(const uint64_t *)place >= (uint64_t)flag->least)
			printf(" (%llu)", (unsigned long long)*(const uint64_t *)place);
		break;
	case FLAG_REAL:
		printf(" (%g)", *(const double *)place);
		break;
	case FLAG_CHOICE:
		printf(" (%s)", flag->choices[*(const uint64_t *)place]);
		break;
	case FLAG_TEXT:
		if (*(const char *const *)place && **(const char *const *)place)
			printf(" (%s)", *(const char *const *)place);
		break;
	case FLAG_BYTES:
	case FLAG_SWITCH:
		break;
	}
}

static void print_flag(const struct flag *flag)
{
	int width;

	if (!flag->name) {
		printf("\n%s:\n", flag->help);
		return;
	}
	width = printf("  --%s %s", flag->name, flag->argument ? flag->argument : "");
	if (width > HELP_COLUMN)
		width = printf("\n") - 1;
	printf("%*s %s", HELP_COLUMN - width, "", flag->help);
	print_default(flag);
	printf("\n");
}

static void print_help(void)
{
	printf("Usage: gpt [FLAG…]\n\nTrains a byte-level GPT whose state lives in tierd. Defaults in "
	       "brackets.\n");
	for (size_t i = 0; i < ARRAY_LENGTH(flags); i++)
		print_flag(&flags[i]);
	printf("\n  --help, --version\n\n"
	       "RANK and WORLD_SIZE in the environment make it one rank of several. torchrun sets them:\n"
	       "  torchrun --no-python --nproc-per-node 4 gpt --stage 3\n"
	       "All ranks of a job are on one node: LOCAL_RANK and LOCAL_WORLD_SIZE have to be the same. "
	       "With "
	       "a\nTORCHELASTIC_RESTART_COUNT above 0 the job goes on where it stands, whatever --mode "
	       "says.\n\n"
	       "TIERD_RECONNECT_MS is for how many milliseconds a rank waits for a tierd that is restarted; "
	       "without\nit training ends with the daemon. A durable job goes on from its last durable step; "
	       "one that is\nnot is trained again from step 0, unless --mode is resume.\n\n"
	       "Losses in lines of progress are those of rank 0. Exit status: 0; 1: training failed; 2: "
	       "wrong flags.\n");
}

static int fail(const struct flag *flag, const char *value, const char *remedy)
{
	fprintf(stderr, "gpt: --%s: '%s' is not possible; give %s\n", flag->name, value, remedy);
	return -EINVAL;
}

static int fail_range(const struct flag *flag, const char *value)
{
	char remedy[80];

	if (flag->kind == FLAG_BYTES)
		return fail(flag, value, "bytes, or a size such as 8G (K, M, G or T)");
	snprintf(remedy, sizeof(remedy), "a number from %.16g to %.16g", flag->least, flag->most);
	return fail(flag, value, remedy);
}

static int read_real(const struct flag *flag, const char *value, double *ret_real)
{
	char *end;
	double real = strtod(value, &end);

	if (end == value || *end || !(real >= flag->least && real <= flag->most))
		return fail_range(flag, value);
	*ret_real = real;
	return 0;
}

static int read_count(const struct flag *flag, const char *value, uint64_t *ret_count)
{
	static const char suffixes[] = "KMGT";
	char *end;
	unsigned long long count;
	unsigned shift = 0;

	errno = 0;
	count = strtoull(value, &end, 10);
	if (flag->kind == FLAG_BYTES && *end && strchr(suffixes, *end))
		shift = 10 * (unsigned)(strchr(suffixes, *end++) - suffixes + 1);
	if (end == value || *end || errno || *value == '-' || count > UINT64_MAX >> shift)
		return fail_range(flag, value);
	count <<= shift;
	if ((double)count < flag->least || (double)count > flag->most)
		return fail_range(flag, value);
	*ret_count = count;
	return 0;
}

static int read_choice(const struct flag *flag, const char *value, uint64_t *ret_choice)
{
	for (uint64_t i = 0; flag->choices[i]; i++) {
		if (strcmp(flag->choices[i], value) == 0) {
			*ret_choice = i;
			return 0;
		}
	}
	return fail(flag, value, flag->argument);
}

static int read_value(const struct flag *flag, const char *value, struct options *options)
{
	void *place = (char *)options + flag->offset;

	switch (flag->kind) {
	case FLAG_COUNT:
	case FLAG_BYTES:
		return read_count(flag, value, place);
	case FLAG_REAL:
		return read_real(flag, value, place);
	case FLAG_CHOICE:
		return read_choice(flag, value, place);
	case FLAG_TEXT:
		*(const char **)place = value;
		return 0;
	case FLAG_SWITCH:
		*(bool *)place = true;
		return 0;
	}
	return -EINVAL;
}

static const struct flag *find_flag(const char *name, size_t length)
{
	for (size_t i = 0; i < ARRAY_LENGTH(flags); i++) {
		if (flags[i].name && strlen(flags[i].name) == length &&
		    strncmp(flags[i].name, name, length) == 0)
			return &flags[i];
	}
	return NULL;
}

/* Reads the flag at arguments[*at], and moves on past it and its value. */
static int read_flag(char **arguments, int *at, struct options *options)
{
	const char *text = arguments[(*at)++];
	const char *name = strncmp(text, "--", 2) == 0 ? text + 2 : "", *equals = strchr(name, '=');
	const struct flag *flag = find_flag(name, equals ? (size_t)(equals - name) : strlen(name));

	if (!flag) {
		fprintf(stderr, "gpt: unknown flag '%s'; gpt --help lists them\n", text);
		return -EINVAL;
	}
	if (flag->kind == FLAG_SWITCH && equals)
		return fail(flag, equals + 1, "the flag without a value");
	if (flag->kind == FLAG_SWITCH)
		return read_value(flag, NULL, options);
	if (equals)
		return read_value(flag, equals + 1, options);
	if (!arguments[*at])
		return fail(flag, "", flag->argument);
	return read_value(flag, arguments[(*at)++], options);
}

/* A rank that is started again goes on where the job stands, whatever the mode was, and does not crash again.
 */
static int read_environment(struct options *options)
{
	struct environment environment;
	int r = environment_read(&environment);

	if (r < 0)
		return r;
	options->is_rank = environment.is_rank;
	options->rank = environment.rank;
	options->world_size = environment.is_rank ? environment.world_size : options->ranks;
	options->is_restarted = environment.restarts > 0;
	if (options->is_restarted) {
		options->mode = TIERD_EITHER;
		options->crash_at = NULL;
	}
	return 0;
}

static bool is_crash_point(const char *point)
{
	static const char *const points[] = { "gather", "push", "step", "stepped", "end" };

	for (size_t i = 0; i < ARRAY_LENGTH(points); i++) {
		if (strcmp(points[i], point) == 0)
			return true;
	}
	return false;
}

static int read_crash(struct options *options)
{
	static const struct flag flag = { .name = "crash-at" };
	unsigned long long step, rank = options->world_size > 1;
	int fields, end = 0;

	if (!options->crash_at)
		return 0;
	fields = sscanf(options->crash_at, "%llu:%11[a-z]%n:%llu%n", &step, options->crash_point, &end, &rank,
			&end);
	if (fields < 2 || options->crash_at[end] || !is_crash_point(options->crash_point))
		return fail(&flag, options->crash_at,
			    "STEP:POINT[:RANK], with gather, push, step, stepped or end as POINT");
	if (rank >= options->world_size)
		return fail(&flag, options->crash_at, "a rank that there is");
	options->crash_step = step;
	options->crash_rank = rank;
	return 0;
}

static int read_loss_scale(struct options *options)
{
	static const struct flag flag = { .name = "loss-scale", .least = SCALE_MINIMUM, .most = 1e30 };
	const char *text = options->loss_scale_text;

	options->is_scale_dynamic = strncmp(text, "dynamic", 7) == 0 && (text[7] == '\0' || text[7] == ':');
	if (!options->is_scale_dynamic)
		return read_real(&flag, text, &options->loss_scale);
	options->loss_scale = SCALE_INITIAL;
	return text[7] == ':' ? read_real(&flag, text + 8, &options->loss_scale) : 0;
}

static int read_durability(struct options *options)
{
	static const struct flag flag = { .name = "durability" };
	const char *text = options->durability_text;
	unsigned seconds;
	int end = 0;

	if (!text)
		return 0;
	if (strcmp(text, "step") == 0)
		options->durability = TIERD_DURABILITY_STEP;
	else if (strcmp(text, "none") == 0)
		options->durability = TIERD_DURABILITY_NONE;
	else if (sscanf(text, "%5u%n", &seconds, &end) == 1 && !text[end] && seconds >= 1 &&
		 seconds <= MOST_SECONDS)
		options->durability = seconds;
	else
		return fail(&flag, text, "step, none, or seconds from 1 to 86400");
	return 0;
}

static int check(const struct options *options)
{
	uint64_t unit = 16 * options->heads;

	if (options->width % 16 != 0 || options->width % options->heads != 0) {
		fprintf(stderr,
			"gpt: --width %llu is not a multiple of 16 and of --heads %llu; %llu would be\n",
			(unsigned long long)options->width, (unsigned long long)options->heads,
			(unsigned long long)((options->width + unit - 1) / unit * unit));
		return -EINVAL;
	}
	if (options->with_optimizer && !options->source) {
		fprintf(stderr, "gpt: --with-optimizer is of a source; give --source JOB, too\n");
		return -EINVAL;
	}
	if (options->is_plain && options->is_rank) {
		fprintf(stderr,
			"gpt: --no-tierd plays all ranks in one process; unset RANK and give --ranks\n");
		return -EINVAL;
	}
	return 0;
}

int options_read(int argc, char **argv, struct options *ret_options)
{
	struct options options = defaults;
	int r = 0;

	for (int at = 1; at < argc && r == 0;) {
		if (strcmp(argv[at], "--help") == 0) {
			print_help();
			return -ECANCELED;
		}
		if (strcmp(argv[at], "--version") == 0) {
			printf("gpt (tierd) %s\n", TIERD_VERSION);
			return -ECANCELED;
		}
		r = read_flag(argv, &at, &options);
	}
	if (r == 0)
		r = read_environment(&options);
	if (r == 0)
		r = read_crash(&options);
	if (r == 0)
		r = read_loss_scale(&options);
	if (r == 0)
		r = read_durability(&options);
	if (r == 0)
		r = check(&options);
	if (r == 0)
		*ret_options = options;
	return r;
}
