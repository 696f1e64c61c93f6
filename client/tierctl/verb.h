/* A verb: what tierctl does for a word, with the arguments and flags that it takes. Help, reading the command
 * line and completion all go by one list of them. */
#ifndef TIERD_CLIENT_TIERCTL_VERB_H
#define TIERD_CLIENT_TIERCTL_VERB_H

#include <stdbool.h>
#include <stdio.h>

struct command_context;

#define VERB_MAX_FLAGS 33

/* What a value or an argument is: "JOB", "USER" (of the machine), "FILE" or "COMMAND" can be completed; so
 * can "one|of|these"; anything else is for people. */
struct verb_flag {
	const char *name;  /* without its dashes; NULL: the end */
	const char *value; /* NULL: it takes none */
	const char *help;
	char letter; /* "-o" means the same; 0: there is none */
};

struct verb {
	const char *name;
	int (*run)(const struct command_context *context);
	const char *arguments; /* as in "JOB [UNIT…]": in brackets what may be missing, "…" what may come
				* again, in small letters what is meant literally */
	const char *help;
	const struct verb_flag *flags; /* NULL: none */
};

extern const struct verb_flag verb_common_flags[];

/* In a list of verbs the last has no name. NULL: there is none of that name. */
const struct verb *verb_find(const struct verb verbs[], const char *name);

/* -1: the verb has none of that name. */
int verb_find_flag(const struct verb_flag *flags, const char *name, size_t length);

int verb_find_letter(const struct verb_flag *flags, char letter);

struct verb_word {
	char text[16];
	bool is_optional;
};

/* The nth of its arguments, from 0; false: it takes fewer. */
bool verb_argument(const struct verb *verb, unsigned n, struct verb_word *ret_word);

void verb_print_all(const struct verb verbs[], FILE *stream);
void verb_print_one(const struct verb *verb, FILE *stream);

#endif
