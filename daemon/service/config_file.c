/* The file of the configuration: read line by line, each fault told with its line. */
#include "daemon/service/config.h"

#include <assert.h>
#include <ctype.h>
#include <errno.h>
#include <stdarg.h>
#include <string.h>

#include "daemon/service/config_options.h"

/* A path as long as Linux has them, its key and its size. A library whose lines end at 200 bytes, as inih's
 * do, cannot read back what --nvme and the printed configuration may hold. */
#define LINE_MAX_BYTES 4352
#define SECTION_MAX_BYTES 64

struct reading {
	struct config *config;
	struct config_problem *problem;
	const char *name;
	unsigned line;
	char section[SECTION_MAX_BYTES + 1];
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

static int handle_unknown_section(struct reading *reading, const char *key)
{
	char sections[256];

	config_sections_describe(sections, sizeof(sections));
	if (reading->section[0])
		return report(reading, -EINVAL, "unknown section [%s]; the sections are %s", reading->section,
			      sections);
	return report(reading, -EINVAL, "'%s' stands before the first [section]; the sections are %s", key,
		      sections);
}

static int handle_unknown(struct reading *reading, const char *key)
{
	char known[512];
	size_t used = 0;

	if (!config_section_exists(reading->section))
		return handle_unknown_section(reading, key);
	known[0] = '\0';
	for (unsigned i = 0; i < config_option_count && used < sizeof(known); i++) {
		const struct config_option *option = &config_options[i];

		if (strcmp(option->section, reading->section) == 0 && option->help)
			used += (size_t)snprintf(known + used, sizeof(known) - used, "%s%s", used ? ", " : "",
						 option->key);
	}
	return report(reading, -EINVAL, "unknown key '%s' in [%s]; it has %s", key, reading->section, known);
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

static int handle_key(struct reading *reading, const char *key, const char *value)
{
	const struct config_option *option = config_option_find(reading->section, key);
	char allowed[256];
	int r;

	if (!option)
		return handle_unknown(reading, key);
	r = handle_again(reading, option);
	if (r < 0)
		return r;
	r = config_option_set(reading->config, option, value);
	if (r < 0) {
		config_option_describe(option, allowed, sizeof(allowed));
		return report(reading, r, "%s = '%s' in [%s] is not allowed; it takes %s", key, value,
			      reading->section, allowed);
	}
	return 0;
}

/* A '#' or ';' begins a comment where a line begins, and after a blank. */
static void cut_comment(char *line)
{
	for (char *mark = strpbrk(line, "#;"); mark; mark = strpbrk(mark + 1, "#;"))
		if (mark == line || isspace((unsigned char)mark[-1])) {
			*mark = '\0';
			return;
		}
}

static char *strip(char *text)
{
	size_t length;

	while (isspace((unsigned char)*text))
		text++;
	length = strlen(text);
	while (length > 0 && isspace((unsigned char)text[length - 1]))
		length--;
	text[length] = '\0';
	return text;
}

static int handle_section(struct reading *reading, const char *line)
{
	size_t length = strcspn(line + 1, "]");

	if (line[1 + length] != ']' || length > SECTION_MAX_BYTES)
		return report(reading, -EINVAL, "neither a [section] nor key = value");
	memcpy(reading->section, line + 1, length);
	reading->section[length] = '\0';
	return 0;
}

static int handle_line(struct reading *reading, char *line)
{
	char *separator;

	cut_comment(line);
	line = strip(line);
	if (*line == '\0')
		return 0;
	if (*line == '[')
		return handle_section(reading, line);
	separator = strpbrk(line, "=:");
	if (!separator)
		return report(reading, -EINVAL, "neither a [section] nor key = value");
	*separator = '\0';
	return handle_key(reading, strip(line), strip(separator + 1));
}

/* Editors of other systems begin a file with one. */
static char *skip_byte_order_mark(const struct reading *reading, char *line)
{
	static const char mark[] = "\xEF\xBB\xBF";

	return reading->line == 1 && strncmp(line, mark, strlen(mark)) == 0 ? line + strlen(mark) : line;
}

/* Returns whether there is one. */
static bool read_line(struct reading *reading, FILE *stream, char line[LINE_MAX_BYTES + 1])
{
	int length = 0, c;

	reading->line++;
	while ((c = getc(stream)) != EOF && c != '\n') {
		if (c == '\0')
			return report(reading, -EINVAL, "the file is not a text") == 0;
		if (length == LINE_MAX_BYTES)
			return report(reading, -EINVAL, "the line is longer than %d bytes", LINE_MAX_BYTES) ==
			       0;
		line[length++] = (char)c;
	}
	line[length] = '\0';
	return c != EOF || length > 0;
}

int config_read(struct config *config, FILE *stream, const char *name, struct config_problem *problem)
{
	struct reading reading = { .config = config, .problem = problem, .name = name };
	char line[LINE_MAX_BYTES + 1];

	while (reading.status == 0 && read_line(&reading, stream, line))
		handle_line(&reading, skip_byte_order_mark(&reading, line));
	if (reading.status == 0 && ferror(stream)) {
		snprintf(problem->text, sizeof(problem->text), "%s: cannot be read", name);
		return -EIO;
	}
	return reading.status;
}
