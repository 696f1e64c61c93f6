/* A unit is the section [Service] of a unit file, with its drop-ins behind it. */
#ifndef TIERD_TESTS_SANDBOX_UNIT_H
#define TIERD_TESTS_SANDBOX_UNIT_H

#include <stdbool.h>

#define UNIT_MAX_LINES 256

struct unit_line {
	char *key, *value;
};

struct unit {
	struct unit_line lines[UNIT_MAX_LINES];
	unsigned count;
};

/* Ends the program with a reason. */
void die(const char *format, ...) __attribute__((format(printf, 1, 2), noreturn));

/* What cannot be done here: status 77. */
void skip(const char *format, ...) __attribute__((format(printf, 1, 2), noreturn));

/* Adds the lines of a file. */
void unit_read(struct unit *unit, const char *path);

/* The value that counts: the last; NULL if there is none. */
const char *unit_get(const struct unit *unit, const char *key);
bool unit_is_on(const struct unit *unit, const char *key);

/* Calls for each word of a list: lines add up, and an empty one begins anew. */
void unit_each(const struct unit *unit, const char *key, void (*call)(const char *word, void *argument),
	       void *argument);

#endif
