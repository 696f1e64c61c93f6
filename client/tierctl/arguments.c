#include "client/tierctl/arguments.h"

#include <ctype.h>
#include <string.h>

#include "client/tierctl/verb.h"

struct reading {
	struct command_context *context;
	int argc, at;
	char **argv;
	bool has_ended_flags; /* by "--" */
};

/* The value of the flag at hand: behind its "=", or the next word. */
static int read_value(struct reading *reading, const struct verb_flag *flag, const char **ret_value)
{
	const char *text = reading->argv[reading->at], *end = text + strcspn(text, "="), *value = "";

	if (!flag->value) {
		if (*end == '=')
			return command_fail(COMMAND_USAGE, "--%s takes no value", flag->name);
		*ret_value = "";
		return COMMAND_DONE;
	}
	if (*end == '=')
		value = end + 1;
	else if (reading->at + 1 < reading->argc)
		value = reading->argv[++reading->at];
	if (!*value)
		return command_fail(COMMAND_USAGE, "--%s needs a value: %s", flag->name, flag->value);
	*ret_value = value;
	return COMMAND_DONE;
}

static void take_common(struct command_context *context, const char *name, const char *value)
{
	if (strcmp(name, "socket") == 0)
		context->socket = value;
	else if (strcmp(name, "json") == 0)
		context->is_json = true;
	else if (strcmp(name, "wide") == 0)
		text_be_wide();
	else if (strcmp(name, "help") == 0)
		context->wants_help = true;
	else
		context->wants_version = true;
}

static int refuse_flag(const struct verb *verb, const char *text)
{
	if (!verb)
		return command_fail(COMMAND_USAGE, "unknown flag %s; see tierctl --help", text);
	return command_fail(COMMAND_USAGE, "unknown flag %s of %s; see tierctl %s --help", text, verb->name,
			    verb->name);
}

static int read_flag(struct reading *reading)
{
	struct command_context *context = reading->context;
	const struct verb_flag *flags = context->verb ? context->verb->flags : NULL;
	const char *text = reading->argv[reading->at], *value = NULL;
	const char *name = strncmp(text, "--", 2) == 0 ? text + 2 : "";
	int own = *name ? verb_find_flag(flags, name, strcspn(name, "="))
			: verb_find_letter(flags, text[2] == '\0' ? text[1] : '\0');
	int common = verb_find_flag(verb_common_flags, name, strcspn(name, "="));
	int code;

	if (own < 0 && common < 0)
		return refuse_flag(context->verb, text);
	code = read_value(reading, own >= 0 ? &flags[own] : &verb_common_flags[common], &value);
	if (code != COMMAND_DONE)
		return code;
	if (own >= 0)
		context->values[own] = value;
	else
		take_common(context, verb_common_flags[common].name, value);
	return COMMAND_DONE;
}

static int read_word(struct reading *reading)
{
	struct command_context *context = reading->context;
	char *text = reading->argv[reading->at];

	if (context->verb) {
		/* Never beyond the word at hand. */
		context->arguments[context->count++] = text;
		return COMMAND_DONE;
	}
	context->verb = verb_find(context->verbs, text);
	if (!context->verb)
		return command_fail(COMMAND_USAGE, "there is no command '%s'; see tierctl help", text);
	return COMMAND_DONE;
}

/* One of "a|b|c". */
static bool is_among(const char *text, const char *words)
{
	size_t length = strlen(text);

	for (; *words; words += strspn(words, "|")) {
		size_t word = strcspn(words, "|");

		if (word == length && strncmp(words, text, word) == 0)
			return true;
		words += word;
	}
	return false;
}

static int check_words(const struct command_context *context)
{
	const struct verb *verb = context->verb;
	struct verb_word word;

	for (int i = 0; i < context->count; i++)
		if (!verb_argument(verb, (unsigned)i, &word))
			return command_fail(COMMAND_USAGE, "'%s' is one argument too many: tierctl %s%s%s",
					    context->arguments[i], verb->name, *verb->arguments ? " " : "",
					    verb->arguments);
	for (int i = 0; i < context->count; i++) {
		const char *text = context->arguments[i];

		if (verb_argument(verb, (unsigned)i, &word) && islower((unsigned char)word.text[0]) &&
		    !is_among(text, word.text))
			return command_fail(COMMAND_USAGE, "'%s' is not '%s': tierctl %s %s", text, word.text,
					    verb->name, verb->arguments);
	}
	if (verb_argument(verb, (unsigned)context->count, &word) && !word.is_optional)
		return command_fail(COMMAND_USAGE, "%s is missing: tierctl %s %s", word.text, verb->name,
				    verb->arguments);
	return COMMAND_DONE;
}

/* For what is wrong before all of it is read. */
static bool asks_for_json(int argc, char *argv[])
{
	for (int i = 1; i < argc && strcmp(argv[i], "--") != 0; i++)
		if (strcmp(argv[i], "--json") == 0)
			return true;
	return false;
}

int arguments_read(int argc, char *argv[], struct command_context *context)
{
	struct reading reading = { .context = context, .argc = argc, .argv = argv };
	int code = COMMAND_DONE;

	command_tell_errors(asks_for_json(argc, argv));
	context->arguments = argv;
	for (reading.at = 1; code == COMMAND_DONE && reading.at < argc; reading.at++) {
		const char *text = argv[reading.at];

		if (context->wants_help || context->wants_version)
			return COMMAND_DONE;
		if (!reading.has_ended_flags && strcmp(text, "--") == 0)
			reading.has_ended_flags = true;
		else if (!reading.has_ended_flags && text[0] == '-' && text[1] != '\0')
			code = read_flag(&reading);
		else
			code = read_word(&reading);
	}
	if (code != COMMAND_DONE || context->wants_help || context->wants_version)
		return code;
	command_tell_errors(context->is_json);
	context->arguments[context->count] = NULL;
	if (context->verb)
		return check_words(context);
	if (context->is_json)
		return command_fail(COMMAND_USAGE, "a command is missing; see tierctl help");
	verb_print_all(context->verbs, stderr);
	return COMMAND_USAGE;
}
