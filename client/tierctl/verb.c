#include "client/tierctl/verb.h"

#include <string.h>

const struct verb_flag verb_common_flags[] = {
	{ "socket", "FILE",
	  "of the daemon (default: $TIERD_SOCKET, $XDG_RUNTIME_DIR/tierd/tierd.sock, "
	  "/run/tierd/tierd.sock)" },
	{ "json", NULL, "for programs" },
	{ "wide", NULL, "all columns of a table, however wide" },
	{ "help", NULL, "this; after a command, what it takes" },
	{ "version", NULL, "which tierctl this is" },
	{ NULL, NULL, NULL },
};

/* ---- Finding ---------------------------------------------------------------------------------------------
 */

const struct verb *verb_find(const struct verb verbs[], const char *name)
{
	for (const struct verb *verb = verbs; verb->name; verb++)
		if (strcmp(verb->name, name) == 0)
			return verb;
	return NULL;
}

int verb_find_flag(const struct verb_flag *flags, const char *name, size_t length)
{
	for (int i = 0; flags && flags[i].name; i++)
		if (strlen(flags[i].name) == length && strncmp(flags[i].name, name, length) == 0)
			return i;
	return -1;
}

int verb_find_letter(const struct verb_flag *flags, char letter)
{
	for (int i = 0; flags && flags[i].name; i++)
		if (flags[i].letter && flags[i].letter == letter)
			return i;
	return -1;
}

bool verb_argument(const struct verb *verb, unsigned n, struct verb_word *ret_word)
{
	const char *word = verb->arguments;

	for (unsigned i = 0; i < n; i++) {
		const char *blank = strchr(word, ' ');

		/* The one that may come again is the last. */
		if (!blank && !strstr(word, "…"))
			return false;
		word = blank ? blank + 1 : word;
	}
	if (!*word)
		return false;
	ret_word->is_optional = *word == '[';
	word += ret_word->is_optional;
	snprintf(ret_word->text, sizeof(ret_word->text), "%.*s",
		 (int)strspn(word, "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
				   "abcdefghijklmnopqrstuvwxyz|"),
		 word);
	return true;
}

/* ---- Help ------------------------------------------------------------------------------------------------
 */

#define HELP_COLUMN 23

static void print_flags(const struct verb_flag *flags, FILE *stream)
{
	for (; flags && flags->name; flags++) {
		int width =
			fprintf(stream, "  --%s%s%s%s%.1s", flags->name, flags->value ? " " : "",
				flags->value ? flags->value : "", flags->letter ? ", -" : "", &flags->letter);

		if (width > HELP_COLUMN - 2)
			width = fprintf(stream, "\n") - 1;
		fprintf(stream, "%*s%s\n", HELP_COLUMN - width, "", flags->help);
	}
}

static void print_line(const struct verb *verb, FILE *stream)
{
	char text[64];
	/* Columns, not bytes: the ellipsis has three. */
	int width = HELP_COLUMN - 4 + (strstr(verb->arguments, "…") ? 2 : 0);

	snprintf(text, sizeof(text), "%s%s%s", verb->name, *verb->arguments ? " " : "", verb->arguments);
	if (strlen(text) > HELP_COLUMN - 4)
		fprintf(stream, "  %s\n%*s%s\n", text, HELP_COLUMN, "", verb->help);
	else
		fprintf(stream, "  %-*s  %s\n", width, text, verb->help);
}

static bool is_first_with(const struct verb verbs[], const struct verb *verb, const struct verb_flag *flags)
{
	for (const struct verb *other = verbs; other != verb; other++)
		if (other->flags == flags)
			return false;
	return true;
}

/* Prints the flags that all verbs have. */
static void print_flags_of_all(const struct verb verbs[], const struct verb_flag *flags, FILE *stream)
{
	const char *before = "\n";

	for (const struct verb *verb = verbs; verb->name; verb++)
		if (verb->flags == flags) {
			fprintf(stream, "%s%s", before, verb->name);
			before = ", ";
		}
	fputs("\n", stream);
	print_flags(flags, stream);
}

void verb_print_all(const struct verb verbs[], FILE *stream)
{
	fputs("Usage: tierctl COMMAND [FLAG…]\n\n", stream);
	for (const struct verb *verb = verbs; verb->name; verb++)
		print_line(verb, stream);
	fputs("\n", stream);
	print_flags(verb_common_flags, stream);
	for (const struct verb *verb = verbs; verb->name; verb++)
		if (verb->flags && is_first_with(verbs, verb, verb->flags))
			print_flags_of_all(verbs, verb->flags, stream);
	fputs("\nExit codes: 0 done, 1 the daemon refused, 2 usage, 3 no daemon.\n", stream);
}

void verb_print_one(const struct verb *verb, FILE *stream)
{
	fprintf(stream, "Usage: tierctl %s%s%s%s\n\n  %s\n\n", verb->name, *verb->arguments ? " " : "",
		verb->arguments, verb->flags ? " [FLAG…]" : "", verb->help);
	print_flags(verb->flags, stream);
	print_flags(verb_common_flags, stream);
}
