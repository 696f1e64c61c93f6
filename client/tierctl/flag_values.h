/* Values of flags, of which a table says what they may be and where in a struct they go. */
#ifndef TIERD_CLIENT_TIERCTL_FLAG_VALUES_H
#define TIERD_CLIENT_TIERCTL_FLAG_VALUES_H

#include <stddef.h>

#include "client/tierctl/command.h"

struct flag_value {
	const char *name;  /* of the flag */
	const char *takes; /* for people */
	int (*set)(const struct flag_value *flag, const char *text, void *place);
	size_t place;  /* its offset in the struct */
	size_t given;  /* of a bool that says that the flag was given; 0: there is none */
	uint64_t most; /* of a count, a number or bytes, which are 1 at least then; 0: no limit */
	const char *const *choices; /* NULL is behind them, and where a number has no name */
};

#define FLAG_SIZE_HELP "a size such as 64G (K, M, G or T)"
/* Choices that several commands have, by their numbers in tierd.h. */
extern const char *const flag_formats[], *const flag_stages[], *const flag_places[];

#define FLAG_DURABILITY_HELP "step, none, or seconds from 1 to 86400"

/* What may be set, by the type of its place; others have functions of their own. 0 or a negative errno. */
int flag_set_text(const struct flag_value *flag, const char *text, void *place);   /* const char * */
int flag_set_count(const struct flag_value *flag, const char *text, void *place);  /* uint64_t, as 7B */
int flag_set_bytes(const struct flag_value *flag, const char *text, void *place);  /* uint64_t, as 64G */
int flag_set_number(const struct flag_value *flag, const char *text, void *place); /* uint32_t */
int flag_set_choice(const struct flag_value *flag, const char *text, void *place); /* uint32_t: its index */
int flag_set_durability(const struct flag_value *flag, const char *text, void *place); /* uint32_t */

/* Reads those that are given, in the order of the table. An exit code, after a message. */
int flag_values_read(const struct command_context *context, const struct flag_value *flags, size_t count,
		     void *values);

#endif
