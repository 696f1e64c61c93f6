/* The file of the configuration: read line by line, each fault told with its line. */
#include "daemon/config.h"

#include <assert.h>
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
	unsigned first_lines[CONFIG_MAX_OPTIONS]; /* of each option; 0: not yet given */
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

/* inih knows only that a ';' after a blank begins a comment. */
static void cut_comment(char *line)
{
	for (char *mark = strchr(line, '#'); mark; mark = strchr(mark + 1, '#'))
		if (mark > line && isspace((unsigned char)mark[-1])) {
			*mark = '\0';
			return;
		}
}

/* Editors of other systems begin a file with it. */
static bool is_byte_order_mark(const struct reading *reading, const char *line, int length)
{
	return reading->line == 1 && length == 3 && memcmp(line, "\xEF\xBB\xBF", 3) == 0;
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
		if (is_byte_order_mark(reading, line, length))
			length = 0;
	}
	if (c == EOF && length == 0)
		return NULL;
	line[length] = '\0';
	cut_comment(line);
	check_line(reading, line);
	return line;
}

static int handle_unknown_section(struct reading *reading, const char *section, const char *key)
{
	char sections[256];

	config_sections_describe(sections, sizeof(sections));
	if (*section)
		return report(reading, -EINVAL, "unknown section [%s]; the sections are %s", section,
			      sections);
	return report(reading, -EINVAL, "'%s' stands before the first [section]; the sections are %s", key,
		      sections);
}

static int handle_unknown(struct reading *reading, const char *section, const char *key)
{
	char known[512];
	size_t used = 0;

	if (!config_section_exists(section))
		return handle_unknown_section(reading, section, key);
	known[0] = '\0';
	for (unsigned i = 0; i < config_option_count && used < sizeof(known); i++) {
		const struct config_option *option = &config_options[i];

		if (strcmp(option->section, section) == 0 && option->help)
			used += (size_t)snprintf(known + used, sizeof(known) - used, "%s%s", used ? ", " : "",
						 option->key);
	}
	return report(reading, -EINVAL, "unknown key '%s' in [%s]; it has %s", key, section, known);
}

/* Which of two values was meant? Only paths and limits may be several. */
static int handle_again(struct reading *reading, const struct config_option *option)
{
	unsigned *first = &reading->first_lines[option - config_options];

	assert(config_option_count <= CONFIG_MAX_OPTIONS);
	if (*first > 0 && option->kind != CONFIG_PATHS && option->kind != CONFIG_LIMITS)
		return report(reading, -EINVAL, "%s is in line %u already; give it once", option->key,
			      *first);
	*first = reading->line;
	return 0;
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
	if (handle_again(reading, option) < 0)
		return 0;
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
