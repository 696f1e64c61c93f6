#include "tests/lib/gpu/script.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FAILURES_MAX 16

static pthread_mutex_t counting = PTHREAD_MUTEX_INITIALIZER;

/* Whether this is the call that a failure, "#3=2", is of; with where its error stands. */
static bool is_meant(const char *text, unsigned *count, const char **ret_error)
{
	char *end = (char *)text;

	if (*text == '#' && strtoul(text + 1, &end, 10) != ++*count)
		return false;
	*ret_error = end + 1;
	return *end == '=';
}

static const char *find(const char *failures, const char *call)
{
	static char known[512];
	static unsigned counts[FAILURES_MAX];
	size_t length = strlen(call);
	const char *error = NULL, *found = NULL;
	unsigned i = 0;

	if (strncmp(known, failures, sizeof(known) - 1) != 0) {
		snprintf(known, sizeof(known), "%s", failures);
		memset(counts, 0, sizeof(counts));
	}
	for (const char *at = failures; *at && i < FAILURES_MAX; i++) {
		if (strncmp(at, call, length) == 0 && strchr("#=", at[length]) &&
		    is_meant(at + length, &counts[i], &error) && !found)
			found = error;
		at += strcspn(at, ",");
		at += *at == ',';
	}
	return found;
}

struct script_failure script_failure(const char *call)
{
	const char *failures = getenv("STANDIN_FAILURES"), *found;
	struct script_failure failure = { 0 };

	pthread_mutex_lock(&counting);
	found = find(failures ? failures : "", call);
	pthread_mutex_unlock(&counting);
	if (found) {
		failure.error = atoi(found);
		failure.is_lasting = found[strcspn(found, "!,")] == '!';
	}
	return failure;
}

int script_error(const char *call)
{
	return script_failure(call).error;
}

long script_number(const char *name, long otherwise)
{
	const char *text = getenv(name);

	return text ? atol(text) : otherwise;
}
