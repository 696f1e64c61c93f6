#include "tests/sandbox/unit.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void end(int status, const char *prefix, const char *format, va_list arguments)
{
	printf("%s", prefix);
	vprintf(format, arguments);
	printf("\n");
	exit(status);
}

void die(const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	end(1, "sandbox: ", format, arguments);
	abort();
}

void skip(const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	end(77, "skipped: ", format, arguments);
	abort();
}

static void add_line(struct unit *unit, char *line, const char *path)
{
	char *equals = strchr(line, '=');

	if (!equals || unit->count == UNIT_MAX_LINES)
		die("%s: not understood: %s", path, line);
	*equals = '\0';
	unit->lines[unit->count++] = (struct unit_line){ strdup(line), strdup(equals + 1) };
}

void unit_read(struct unit *unit, const char *path)
{
	FILE *file = fopen(path, "re");
	bool is_service = false;
	char line[1024];

	if (!file)
		die("%s: %s", path, strerror(errno));
	while (fgets(line, sizeof(line), file)) {
		line[strcspn(line, "\n")] = '\0';
		if (line[0] == '[')
			is_service = strcmp(line, "[Service]") == 0;
		else if (line[0] != '#' && line[0] != '\0' && is_service)
			add_line(unit, line, path);
	}
	fclose(file);
}

const char *unit_get(const struct unit *unit, const char *key)
{
	for (unsigned i = unit->count; i-- > 0;)
		if (strcmp(unit->lines[i].key, key) == 0)
			return unit->lines[i].value;
	return NULL;
}

bool unit_is_on(const struct unit *unit, const char *key)
{
	const char *value = unit_get(unit, key);

	if (!value || strcmp(value, "no") == 0)
		return false;
	if (strcmp(value, "yes") != 0)
		die("%s=%s is neither yes nor no", key, value);
	return true;
}

static void each_word(const char *value, void (*call)(const char *word, void *argument), void *argument)
{
	char *copy = strdup(value), *place = NULL;
	bool is_inverse = copy[0] == '~';
	char word[256];

	/* A '~' before the list holds for all its words. */
	for (char *next = strtok_r(copy + is_inverse, " ", &place); next;
	     next = strtok_r(NULL, " ", &place)) {
		snprintf(word, sizeof(word), "%s%s", is_inverse ? "~" : "", next);
		call(word, argument);
	}
	free(copy);
}

void unit_each(const struct unit *unit, const char *key, void (*call)(const char *word, void *argument),
	       void *argument)
{
	unsigned first = 0;

	for (unsigned i = 0; i < unit->count; i++)
		if (strcmp(unit->lines[i].key, key) == 0 && unit->lines[i].value[0] == '\0')
			first = i;
	for (unsigned i = first; i < unit->count; i++)
		if (strcmp(unit->lines[i].key, key) == 0)
			each_word(unit->lines[i].value, call, argument);
}
