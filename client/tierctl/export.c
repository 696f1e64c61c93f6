#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "client/tierctl/export_copy.h"
#include "client/tierctl/partial.h"
#include "client/tierctl/progress.h"
#include "common/plural.h"
#include "common/size.h"

struct export_flags {
	struct choice choice;
	struct export_options options;
	const char *target;
	uint64_t shard_bytes;
	bool may_replace;
};

struct export
{
	struct export_copy copy;
	struct source source;
	struct export_list list;
	struct export_files files;
	const struct export_flags *flags;
	struct progress progress;
	uint64_t step;
	char refusal[1024]; /* why it is not kept in memory */
};

/* ---- Flags ---- */

/* "5GB" is a power of ten, as for the libraries that have such a flag; "5GiB" and "5G" of two, as elsewhere
 * here. */
static int read_size(const char *text, uint64_t *ret_bytes)
{
	static const char letters[] = "KMGT";
	char *end;
	uint64_t number, base = 1024;
	const char *letter;

	errno = 0;
	number = strtoull(text, &end, 10);
	if (errno || *text < '0' || *text > '9')
		return -EINVAL;
	letter = *end ? strchr(letters, toupper((unsigned char)*end)) : NULL;
	if (letter && strcasecmp(end + 1, "B") == 0)
		base = 1000;
	else if (letter ? end[1] && strcasecmp(end + 1, "iB") != 0 : *end && strcasecmp(end, "B") != 0)
		return -EINVAL;
	for (const char *power = letters; letter && power <= letter; power++)
		if (!size_multiply(number, base, &number))
			return -ERANGE;
	*ret_bytes = number;
	return number > 0 ? 0 : -EINVAL;
}

static int read_format(const char *text, bool *ret_is_fp32)
{
	*ret_is_fp32 = text && strcmp(text, "fp32") == 0;
	if (!text || *ret_is_fp32 || strcmp(text, "parameter") == 0)
		return COMMAND_DONE;
	return command_fail(COMMAND_USAGE, "--format cannot be '%s'; it is parameter or fp32", text);
}

static int name_target(const struct choice *choice, char **ret_target)
{
	return asprintf(ret_target, "%s%s%s.safetensors", choice->job, choice->snapshot ? "@" : "",
			choice->snapshot ? choice->snapshot : "");
}

static int read_flags(const struct command_context *context, struct export_flags *flags, char **ret_target)
{
	const char *shard_size = command_flag(context, "shard-size");
	int code = choice_read_source(context, &flags->choice);

	if (code == COMMAND_DONE)
		code = read_format(command_flag(context, "format"), &flags->options.is_fp32);
	if (code != COMMAND_DONE)
		return code;
	if (shard_size && read_size(shard_size, &flags->shard_bytes) < 0)
		return command_fail(COMMAND_USAGE,
				    "--shard-size cannot be '%s'; it takes a size, such as 5GB", shard_size);
	flags->options.with_optimizer = command_flag(context, "with-optimizer");
	flags->may_replace = command_flag(context, "force");
	flags->target = command_flag(context, "output");
	if (flags->target && strcmp(flags->target, "-") == 0)
		return command_fail(COMMAND_USAGE,
				    "an export goes to files, and not to the standard output; name one, or a "
				    "folder");
	if (!flags->target && name_target(&flags->choice, ret_target) < 0) {
		*ret_target = NULL;
		return command_fail_memory();
	}
	flags->target = flags->target ? flags->target : *ret_target;
	return COMMAND_DONE;
}

/* ---- Telling ---- */

static void tell_progress(struct export_copy *copy, uint64_t bytes)
{
	struct export *export = container_of(copy, struct export, copy);

	progress_tell(&export->progress, bytes, export->files.bytes);
}

static int tell_json(const struct export *export)
{
	cJSON *json = cJSON_CreateObject(), *files;

	cJSON_AddStringToObject(json, "event", "done");
	cJSON_AddNumberToObject(json, "step", (double)export->step);
	cJSON_AddNumberToObject(json, "tensors", (double)export->list.tensor_count);
	cJSON_AddNumberToObject(json, "bytes", (double)export->files.bytes);
	files = cJSON_AddArrayToObject(json, "files");
	for (size_t i = 0; i < export->files.count; i++)
		cJSON_AddItemToArray(files, cJSON_CreateString(export->files.files[i].path));
	if (export->files.index_path)
		cJSON_AddStringToObject(json, "index", export->files.index_path);
	return command_print_json_line(json);
}

static int tell_done(const struct export *export)
{
	char bytes[TEXT_SIZE];

	if (export->progress.is_json)
		return tell_json(export);
	printf("%s, of step %" PRIu64 ": %zu tensor%s, %s, in %s\n", export->flags->choice.job, export->step,
	       export->list.tensor_count, PLURAL(export->list.tensor_count),
	       text_bytes(export->files.bytes, bytes),
	       export->files.index_path ? export->files.index_path : export->files.files[0].path);
	return COMMAND_DONE;
}

/* ---- Standing at a step ---- */

/* A copy of what may change, in the memory of the daemon. */
static int keep_in_memory(struct export *export)
{
	int r = export_list_keep(&export->list, export->source.reader);

	if (r != -ENOMEM)
		return r;
	snprintf(export->refusal, sizeof(export->refusal), "%s", tierd_message());
	return tierd_reader_refresh(export->source.reader, NULL, 0, NULL);
}

/* An idle job does not change: the daemon need not keep anything. */
static int stand(struct export *export)
{
	struct tierd_reader_state state = TIERD_READER_STATE_INIT;
	int r = export->source.is_trained && !export->source.is_kept
			? keep_in_memory(export)
			: tierd_reader_refresh(export->source.reader, NULL, 0, NULL);

	if (r == 0)
		r = tierd_reader_state(export->source.reader, &state);
	if (r < 0)
		return source_fail(r);
	export->step = state.step;
	return COMMAND_DONE;
}

static int fail_stale(const struct export *export)
{
	return command_fail(
		COMMAND_FAILED,
		"the job has moved on from step %" PRIu64
		", which could not be kept meanwhile, neither on its devices (%s) nor in memory "
		"(%s); make room for a snapshot (tierctl reserve), give its reader that memory, or "
		"export it while nobody trains it",
		export->step, export->source.refusal, export->refusal);
}

/* ---- Writing ---- */

static int plan(struct export *export)
{
	int code = export_list_read(&export->list, export->source.reader, &export->flags->options);

	if (code == COMMAND_DONE)
		code = export_files_plan(&export->files, &export->list, export->flags->target,
					 export->flags->shard_bytes);
	export->copy = (struct export_copy){ .reader = export->source.reader,
					     .list = &export->list,
					     .files = &export->files,
					     .may_replace = export->flags->may_replace,
					     .progress = tell_progress };
	return code == COMMAND_DONE ? export_copy_check(&export->copy) : code;
}

static int write_files(struct export *export)
{
	int code = plan(export);

	if (code == COMMAND_DONE)
		code = stand(export);
	if (code == COMMAND_DONE)
		code = export_files_begin(&export->files, &export->list, export->flags->choice.job,
					  export->step);
	if (code == COMMAND_DONE)
		code = export_copy_run(&export->copy);
	progress_end(&export->progress);
	return code;
}

static void close_export(struct export *export)
{
	export_files_clear(&export->files);
	export_list_clear(&export->list);
	source_close(&export->source);
}

/* Nothing is left of what was read before it was known that somebody trains the job. */
static int write_again(const struct command_context *context, struct export *export)
{
	int code;

	close_export(export);
	export->copy.is_stale = false;
	export->source.is_trained = true;
	code = source_open(context, &export->flags->choice, true, &export->source);
	return code == COMMAND_DONE ? write_files(export) : code;
}

int command_export(const struct command_context *context)
{
	_cleanup_free_ char *target = NULL;
	struct export_flags flags = { .target = NULL };
	struct export export = { .flags = &flags };
	int code = read_flags(context, &flags, &target);

	progress_begin(&export.progress, context->is_json);
	if (code == COMMAND_DONE) {
		partial_guard();
		code = source_open(context, &flags.choice, true, &export.source);
	}
	if (code == COMMAND_DONE)
		code = write_files(&export);
	if (export.copy.is_stale && !export.source.is_trained)
		code = write_again(context, &export);
	if (export.copy.is_stale)
		code = fail_stale(&export);
	else if (code == COMMAND_DONE)
		code = tell_done(&export);
	close_export(&export);
	return code;
}
