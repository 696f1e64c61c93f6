#include "common/log.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/printable.h"

#define LINE_BYTES 1536

static enum log_level maximum = LOG_LEVEL_INFO;
static bool is_journal;
static bool (*diverted)(enum log_level level, const char *line, const struct log_fields *fields);

/* Of a child whose stderr was redirected the variable is still there: it says which stream it means. */
static bool look_for_journal(void)
{
	const char *stream = getenv("JOURNAL_STREAM");
	unsigned long long device, inode;
	struct stat status;

	return stream && sscanf(stream, "%llu:%llu", &device, &inode) == 2 &&
	       fstat(STDERR_FILENO, &status) == 0 && status.st_dev == device && status.st_ino == inode;
}

void log_open(enum log_level level)
{
	maximum = level;
	is_journal = look_for_journal();
}

void log_divert(bool (*take)(enum log_level level, const char *line, const struct log_fields *fields))
{
	diverted = take;
}

bool log_is_journal(void)
{
	return is_journal;
}

bool log_takes(enum log_level level)
{
	return level <= maximum;
}

/* Nothing that a user has named begins a line of its own, or moves a terminal's cursor, or is shown as what
 * it is not. */
static void escape(const char *text, char line[LINE_BYTES])
{
	char *end = line;

	while (*text && end + sizeof("\\x00") <= line + LINE_BYTES) {
		size_t length = printable_character(text);

		if (length == 0)
			end += sprintf(end, "\\x%02x", (unsigned)(unsigned char)*text++);
		else
			end = mempcpy(end, text, length);
		text += length;
	}
	*end = '\0';
}

/* One call, so that lines of several threads and processes do not mix. */
static void print(enum log_level level, const char *line)
{
	if (is_journal)
		fprintf(stderr, "<%d>%s\n", level, line);
	else
		fprintf(stderr, "tierd: %s%s\n",
			level <= LOG_LEVEL_WARNING ? (level == LOG_LEVEL_ERROR ? "error: " : "warning: ")
						   : "",
			line);
}

void log_about(enum log_level level, const struct log_fields *fields, const char *format, ...)
{
	static const struct log_fields nothing;
	char text[LINE_BYTES], line[LINE_BYTES];
	va_list arguments;

	if (!log_takes(level))
		return;
	va_start(arguments, format);
	vsnprintf(text, sizeof(text), format, arguments);
	va_end(arguments);
	escape(text, line);
	if (!diverted || !diverted(level, line, fields ? fields : &nothing))
		print(level, line);
}
