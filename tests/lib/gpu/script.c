#include "tests/lib/gpu/script.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define FAILURES_MAX 16
#define TOLD_MAX 16

/* Guards what follows. */
static pthread_mutex_t telling = PTHREAD_MUTEX_INITIALIZER;
/* "NAME=value", with places between them that are free. */
static char *told[TOLD_MAX];
/* Calls that each of the failures has seen. */
static unsigned counts[FAILURES_MAX];

/* With the lock held; NULL: it has not been told. */
static char **find_told(const char *name)
{
	size_t length = strlen(name);

	for (unsigned i = 0; i < TOLD_MAX; i++)
		if (told[i] && strncmp(told[i], name, length) == 0 && told[i][length] == '=')
			return &told[i];
	return NULL;
}

static char **find_free(void)
{
	for (unsigned i = 0; i < TOLD_MAX; i++)
		if (!told[i])
			return &told[i];
	abort();
}

void standin_tell(const char *name, const char *value)
{
	char **at;

	pthread_mutex_lock(&telling);
	at = find_told(name);
	if (at) {
		free(*at);
		*at = NULL;
	}
	if (value && asprintf(find_free(), "%s=%s", name, value) < 0)
		abort();
	if (strcmp(name, "STANDIN_FAILURES") == 0)
		memset(counts, 0, sizeof(counts));
	pthread_mutex_unlock(&telling);
}

char **standin_environment(void)
{
	static char **environment;
	char **to;
	unsigned count = 0;

	while (environ[count])
		count++;
	environment = realloc(environment, (TOLD_MAX + count + 1) * sizeof(*environment));
	to = environment;
	if (!to)
		abort();
	/* Of two of one name the first counts. */
	for (unsigned i = 0; i < TOLD_MAX; i++)
		if (told[i])
			*to++ = told[i];
	memcpy(to, environ, (count + 1) * sizeof(*to));
	return environment;
}

/* With the lock held; NULL: it is not there. */
static const char *ask(const char *name)
{
	char **at = find_told(name);

	return at ? strchr(*at, '=') + 1 : getenv(name);
}

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
	size_t length = strlen(call);
	const char *error = NULL, *found = NULL;
	unsigned i = 0;

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

static int open_block(const char *call)
{
	const char *calls, *end;
	int fd = -1;

	pthread_mutex_lock(&telling);
	calls = ask("STANDIN_BLOCKS");
	end = calls ? strchr(calls, '=') : NULL;
	if (end && is_listed(calls, end, call))
		fd = open(end + 1, O_WRONLY | O_CLOEXEC);
	pthread_mutex_unlock(&telling);
	return fd;
}

/* As where a GPU does not answer. */
static void block(const char *call)
{
	int fd;

	while ((fd = open_block(call)) >= 0) {
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
	pthread_mutex_lock(&telling);
	failures = ask("STANDIN_FAILURES");
	found = failures ? find(failures, call) : NULL;
	if (found) {
		failure.error = atoi(found);
		failure.is_lasting = found[strcspn(found, "!,")] == '!';
	}
	pthread_mutex_unlock(&telling);
	return failure;
}

int script_error(const char *call)
{
	return script_failure(call).error;
}

long script_number(const char *name, long otherwise)
{
	const char *text;
	long number;

	pthread_mutex_lock(&telling);
	text = ask(name);
	number = text ? atol(text) : otherwise;
	pthread_mutex_unlock(&telling);
	return number;
}
