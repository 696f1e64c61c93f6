#include "client/tierctl/source.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client/tierctl/output.h"
#include "common/plural.h"
#include "proto/name.h"

/* Elements at a time. */
#define PIECE_ELEMENTS (UINT64_C(1) << 18)

struct read_flags {
	struct choice choice;
	const char *tensor, *state, *output;
	bool is_unkept;
};

/* The tensor that is read, and its output. */
struct reading {
	struct source source;
	uint32_t unit, index;
	struct tierd_tensor tensor;
	uint64_t elements, element_bytes;
	struct output *output;
};

static int read_flags(const struct command_context *context, struct read_flags *flags)
{
	const char *state = command_flag(context, "state");

	flags->tensor = context->arguments[1];
	flags->state = state ? state : "parameter";
	flags->output = command_flag(context, "output");
	if (!flags->output)
		flags->output = "-";
	flags->is_unkept = command_flag(context, "unkept") != NULL;
	return choice_read_source(context, &flags->choice);
}

static int open_reader(struct reading *reading, const struct command_context *context,
		       const struct read_flags *flags)
{
	struct tierd_reader *reader;
	int code = source_open(context, &flags->choice, false, &reading->source), r;

	if (code != COMMAND_DONE)
		return code;
	reader = reading->source.reader;
	r = tierd_reader_find(reader, flags->tensor, &reading->unit, &reading->index);
	if (r == 0)
		r = tierd_reader_tensor(reader, reading->unit, reading->index, &reading->tensor);
	return r < 0 ? source_fail(r) : COMMAND_DONE;
}

static void measure(struct reading *reading, const char *state)
{
	const struct tierd_tensor *tensor = &reading->tensor;

	reading->elements = source_elements(tensor);
	reading->element_bytes = 2;
	if (strcmp(state, "parameter") != 0 || tensor->format == TIERD_FP32)
		reading->element_bytes = 4;
	else if (tensor->format == TIERD_BYTES)
		reading->element_bytes = 1;
}

/* A job that is trained goes on meanwhile. Whether to do without memory for the tensor, and to fail in the
 * middle if it is, is for the caller to say. */
static int keep(const struct reading *reading, const char *state)
{
	struct tierd_piece piece = TIERD_PIECE_INIT;
	int r;

	piece.state = state;
	piece.unit = reading->unit;
	piece.tensor = reading->index;
	piece.count = reading->elements;
	r = tierd_reader_refresh(reading->source.reader, &piece, 1, NULL);
	if (r == -ENOMEM)
		return command_fail_at(COMMAND_FAILED, r,
				       "%s, or, of a job that nobody trains, read it --unkept",
				       tierd_message());
	return r < 0 ? source_fail(r) : COMMAND_DONE;
}

static int copy(const struct reading *reading, const char *state)
{
	_cleanup_free_ char *data = malloc(PIECE_ELEMENTS * reading->element_bytes);

	if (!data)
		return command_fail_memory();
	for (uint64_t first = 0, count; first < reading->elements; first += count) {
		int r;

		count = reading->elements - first < PIECE_ELEMENTS ? reading->elements - first
								   : PIECE_ELEMENTS;
		r = tierd_reader_read(reading->source.reader, reading->unit, reading->index, state, first,
				      count, data);
		if (r < 0)
			return source_fail(r);
		if (fwrite(data, reading->element_bytes, count, output_stream(reading->output)) != count)
			break;
	}
	return output_publish(reading->output);
}

/* Beside the values, which may be on the standard output. */
static void tell(const struct reading *reading, const struct read_flags *flags, bool is_json)
{
	static const char *const formats[] = { "?", "fp32", "bf16", "fp16", "bytes" };
	struct tierd_reader_state state = TIERD_READER_STATE_INIT;
	bool is_parameter = strcmp(flags->state, "parameter") == 0;
	const char *format = formats[is_parameter ? reading->tensor.format % 5 : TIERD_FP32];
	_cleanup_free_ char *line = NULL, *escaped = NULL;
	char bytes[TEXT_SIZE], name[TIERD_MAX_NAME + 1];
	cJSON *json;

	tierd_reader_state(reading->source.reader, &state);
	if (!is_json) {
		snprintf(name, sizeof(name), "%s", reading->tensor.name);
		name_make_printable(name);
		fprintf(stderr, "%s, %s, of step %llu: %llu element%s, %s, %s\n", name, flags->state,
			(unsigned long long)state.step, (unsigned long long)reading->elements,
			PLURAL(reading->elements), format,
			text_bytes(reading->elements * reading->element_bytes, bytes));
		return;
	}
	json = cJSON_CreateObject();
	cJSON_AddStringToObject(json, "tensor", reading->tensor.name);
	cJSON_AddStringToObject(json, "state", flags->state);
	cJSON_AddNumberToObject(json, "step", (double)state.step);
	cJSON_AddNumberToObject(json, "elements", (double)reading->elements);
	cJSON_AddStringToObject(json, "format", format);
	line = cJSON_PrintUnformatted(json);
	escaped = line ? text_escape_json(line) : NULL;
	fprintf(stderr, "%s\n", escaped ? escaped : "{}");
	cJSON_Delete(json);
}

int command_read(const struct command_context *context)
{
	struct read_flags flags = { .state = NULL };
	struct reading reading = { .tensor = TIERD_TENSOR_INIT };
	int code = read_flags(context, &flags);

	if (code == COMMAND_DONE && strcmp(flags.output, "-") == 0 && isatty(STDOUT_FILENO))
		code = command_fail(
			COMMAND_USAGE,
			"raw values are not for a terminal; say where they go, with --output FILE");
	if (code == COMMAND_DONE)
		code = open_reader(&reading, context, &flags);
	if (code == COMMAND_DONE) {
		measure(&reading, flags.state);
		code = flags.is_unkept ? COMMAND_DONE : keep(&reading, flags.state);
	}
	if (code == COMMAND_DONE)
		code = output_open(flags.output, NULL, true, &reading.output);
	if (code == COMMAND_DONE)
		code = copy(&reading, flags.state);
	if (code == COMMAND_DONE)
		tell(&reading, &flags, context->is_json);
	output_free(reading.output);
	source_close(&reading.source);
	return code;
}
