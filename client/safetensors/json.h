/* Reading JSON as files of tensors have it, strictly: whole numbers that fit into 64 bits, UTF-8, no value
 * that lies too deep. Strings are decoded where they lie, so nothing is allocated, whatever a file says.
 *
 * cJSON, which writes tierctl's output, cannot read such headers: its numbers are doubles, which round
 * offsets above 2^53; it takes text that is not UTF-8; and its tree takes 64 bytes for an element of which
 * the file has two ("0,"), so that a header of 100 MB could ask for gigabytes. */
#ifndef TIERD_CLIENT_SAFETENSORS_JSON_H
#define TIERD_CLIENT_SAFETENSORS_JSON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "client/safetensors/problem.h"

struct json {
	char *text; /* borrowed; decoding writes into it */
	size_t length, at;
	const char *file; /* for messages */
	struct safetensors_problem *problem;
};

/* Text has a zero byte at its length. */
void json_begin(struct json *json, char *text, size_t length, const char *file,
		struct safetensors_problem *problem);

/* -EINVAL, and where: something else is there than what was expected. */
int json_fail(const struct json *json, const char *what);

/* Takes the character, after blanks; it is an error if another one is the next. */
int json_expect(struct json *json, char character);

/* A string that lives as long as the text, and has no zero byte in it. */
int json_string(struct json *json, const char **ret_string);
/* -ERANGE: it does not fit. */
int json_number(struct json *json, uint64_t *ret_number);
bool json_take_null(struct json *json);

/* Any value, of a depth that is bounded. */
int json_skip(struct json *json);

/* Nothing but blanks is left. */
int json_end(struct json *json);

/* Reads an object, or an array: calls read() for each member, which takes its value. In an array name is
 * NULL.
 */
int json_object(struct json *json, int (*read)(struct json *json, const char *name, void *context),
		void *context);
int json_array(struct json *json, int (*read)(struct json *json, const char *name, void *context),
	       void *context);

#endif
