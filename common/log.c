#include "common/log.h"

#include <errno.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static enum log_level maximum = LOG_LEVEL_INFO;
static bool is_journal;

static const struct {
	const char *name;
	enum log_level level;
} names[] = {
	{ "error", LOG_LEVEL_ERROR },
	{ "warning", LOG_LEVEL_WARNING },
	{ "info", LOG_LEVEL_INFO },
	{ "debug", LOG_LEVEL_DEBUG },
};

void log_open(enum log_level level)
{
	maximum = level;
	is_journal = getenv("JOURNAL_STREAM") != NULL;
}

int log_level_parse(const char *text, enum log_level *ret_level)
{
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		if (strcmp(text, names[i].name) == 0) {
			*ret_level = names[i].level;
			return 0;
		}
	return -EINVAL;
}

void log_line(enum log_level level, const char *format, ...)
{
	char line[1024];
	va_list arguments;

	if (level > maximum)
		return;
	va_start(arguments, format);
	vsnprintf(line, sizeof(line), format, arguments);
	va_end(arguments);

	/* One call, so that lines of several threads and processes do not mix. */
	if (is_journal)
		fprintf(stderr, "<%d>%s\n", level, line);
	else
		fprintf(stderr, "tierd: %s%s\n",
			level <= LOG_LEVEL_WARNING ? (level == LOG_LEVEL_ERROR ? "error: " : "warning: ")
						   : "",
			line);
}
