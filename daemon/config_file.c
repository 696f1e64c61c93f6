#include "daemon/config.h"

#include <ctype.h>
#include <errno.h>
#include <ini.h>
#include <stdarg.h>
#include <string.h>

#include "daemon/config_options.h"

/* Shorter than inih's own limit, beyond which it would take the rest of a line for a line. */
#define LINE_MAX_BYTES 190

struct reading {
	struct config *config;
	struct config_problem *problem;
	const char *name;
	FILE *stream;
	unsigned line;
	int status;
};

static int report(struct reading *reading, int r, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

/* The first problem counts. */
static int report(struct reading *reading, int r, const char *format, ...)
{
	char what[512];
	va_list arguments;

	if (reading->status < 0)
		return reading->status;
	va_start(arguments, format);
	vsnprintf(what, sizeof(what), format, arguments);
	va_end(arguments);
	snprintf(reading->problem->text, sizeof(reading->problem->text), "%s:%u: %s", reading->name,
		 reading->line, what);
	reading->status = r;
	return r;
}

/* inih goes on after a line that it cannot read, and tells at the end: the problem that it causes comes
 * first. */
static void check_line(struct reading *reading, const char *line)
{
	bool is_section = line[0] == '[' && strchr(line, ']');
	bool is_key = line[0] != '[' && strpbrk(line, "=:");

	if (line[0] != '\0' && !strchr("#;", line[0]) && !is_section && !is_key)
		report(reading, -EINVAL, "neither a [section] nor key = value");
}

/* For inih, as fgets. Blanks before a key are dropped: inih would take the line for the rest of a value. */
static char *read_line(char *line, int size, void *argument)
{
	struct reading *reading = argument;
	int length = 0, c;

	if (reading->status < 0)
		return NULL;
	reading->line++;
	while ((c = getc(reading->stream)) != EOF && c != '\n') {
		if (c == '\0') {
			report(reading, -EINVAL, "the file is not a text");
			return NULL;
		}
		if (length == 0 && isspace(c))
			continue;
		if (length == LINE_MAX_BYTES || length + 2 >= size) {
			report(reading, -EINVAL, "the line is longer than %d bytes", LINE_MAX_BYTES);
			return NULL;
		}
		line[length++] = (char)c;
	}
	if (c == EOF && length == 0)
		return NULL;
	line[length] = '\0';
	check_line(reading, line);
	return line;
}

static int handle_unknown(struct reading *reading, const char *section, const char *key)
{
	char known[512];
	size_t used = 0;

	known[0] = '\0';
	for (unsigned i = 0; i < config_option_count && used < sizeof(known); i++) {
		const struct config_option *option = &config_options[i];

		if (config_section_exists(section) && strcmp(option->section, section) == 0 && option->help)
			used += (size_t)snprintf(known + used, sizeof(known) - used, "%s%s", used ? ", " : "",
						 option->key);
	}
	if (!config_section_exists(section))
		return report(
			reading, -EINVAL,
			"unknown section [%s]; the sections are daemon, memory, nvme, io, users and limits",
			section);
	return report(reading, -EINVAL, "unknown key '%s' in [%s]; it has %s", key, section, known);
}

/* For inih: 1 goes on, 0 is an error. */
static int handle_key(void *argument, const char *section, const char *key, const char *value)
{
	struct reading *reading = argument;
	const struct config_option *option = config_option_find(section, key);
	char allowed[256];
	int r;

	if (reading->status < 0)
		return 0;
	if (!option) {
		handle_unknown(reading, section, key);
		return 0;
	}
	r = config_option_set(reading->config, option, value);
	if (r < 0) {
		config_option_describe(option, allowed, sizeof(allowed));
		report(reading, r, "%s = '%s' in [%s] is not allowed; it takes %s", key, value, section,
		       allowed);
	}
	return r == 0;
}

int config_read(struct config *config, FILE *stream, const char *name, struct config_problem *problem)
{
	struct reading reading = {
		.config = config,
		.problem = problem,
		.name = name,
		.stream = stream,
	};
	int first_error = ini_parse_stream(read_line, &reading, handle_key, &reading);

	if (reading.status < 0)
		return reading.status;
	if (ferror(stream)) {
		snprintf(problem->text, sizeof(problem->text), "%s: cannot be read", name);
		return -EIO;
	}
	if (first_error != 0) {
		reading.line = (unsigned)first_error;
		return report(&reading, -EINVAL, "neither a [section] nor key = value");
	}
	return 0;
}
