#include "tests/lib/gpu/script.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

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

static bool is_listed(const char *calls, const char *end, const char *call)
{
	size_t length = strlen(call);

	for (const char *at = calls; at < end; at += strcspn(at, ",=") + 1)
		if (strncmp(at, call, length) == 0 && strchr(",=", at[length]))
			return true;
	return false;
}

/* As where a GPU does not answer. */
static void block(const char *call)
{
	const char *calls = getenv("STANDIN_BLOCKS"), *end = calls ? strchr(calls, '=') : NULL;
	int fd;

	while (end && is_listed(calls, end, call) && (fd = open(end + 1, O_WRONLY | O_CLOEXEC)) >= 0) {
		(void)!write(fd, "!", 1);
		close(fd);
		usleep(1000);
	}
}

struct script_failure script_failure(const char *call)
{
	const char *failures, *found;
	struct script_failure failure = { 0 };

	block(call);
	failures = getenv("STANDIN_FAILURES");
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
