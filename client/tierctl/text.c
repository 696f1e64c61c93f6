#include "client/tierctl/text.h"

#include <inttypes.h>
#include <limits.h>
#include <stdarg.h>
#include <stdbool.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/printable.h"
#include "proto/name.h"

#define USUAL_COLUMNS 80
/* Nobody can read anything in fewer columns. */
#define LEAST_COLUMNS 20
#define LEAST_ROOM 8

/* ---- Numbers ---- */

/* Three figures are enough to compare. */
static void scale(uint64_t number, double base, const char *const *units, char text[TEXT_SIZE])
{
	double value = (double)number;
	unsigned power = 0;

	while (value >= base && units[power + 1]) {
		value /= base;
		power++;
	}
	if (power == 0)
		snprintf(text, TEXT_SIZE, "%" PRIu64 "%s", number, units[0]);
	else
		snprintf(text, TEXT_SIZE,
			 value < 10    ? "%.2f%s"
			 : value < 100 ? "%.1f%s"
				       : "%.0f%s",
			 value, units[power]);
}

const char *text_bytes(uint64_t bytes, char text[TEXT_SIZE])
{
	static const char *const units[] = { " B", " KiB", " MiB", " GiB", " TiB", " PiB", NULL };

	scale(bytes, 1024, units, text);
	return text;
}

const char *text_rate(uint64_t bytes, double seconds, char text[TEXT_SIZE])
{
	double rate = (double)bytes / seconds;

	return text_bytes(rate < 0x1p64 ? (uint64_t)rate : UINT64_MAX, text);
}

const char *text_count(uint64_t count, char text[TEXT_SIZE])
{
	static const char *const units[] = { "", "K", "M", "B", "T", NULL };

	scale(count, 1000, units, text);
	return text;
}

const char *text_duration(uint64_t ms, char text[TEXT_SIZE])
{
	uint64_t seconds = ms / 1000;

	if (seconds < 60)
		snprintf(text, TEXT_SIZE, "%" PRIu64 " s", seconds);
	else if (seconds < 3600)
		snprintf(text, TEXT_SIZE, "%" PRIu64 " min %" PRIu64 " s", seconds / 60, seconds % 60);
	else if (seconds < 86400)
		snprintf(text, TEXT_SIZE, "%" PRIu64 " h %" PRIu64 " min", seconds / 3600, seconds / 60 % 60);
	else
		snprintf(text, TEXT_SIZE, "%" PRIu64 " d %" PRIu64 " h", seconds / 86400,
			 seconds / 3600 % 24);
	return text;
}

const char *text_shape(const uint64_t *shape, size_t count, char text[TEXT_SHAPE_SIZE])
{
	size_t used = (size_t)snprintf(text, TEXT_SHAPE_SIZE, "[");

	for (size_t i = 0; i < count && used < TEXT_SHAPE_SIZE - TEXT_SIZE; i++)
		used += (size_t)snprintf(text + used, TEXT_SHAPE_SIZE - used, "%s%" PRIu64, i ? ", " : "",
					 shape[i]);
	snprintf(text + used, TEXT_SHAPE_SIZE - used, "]");
	return text;
}

/* ---- Lines ---- */

static bool is_wide;

void text_be_wide(void)
{
	is_wide = true;
}

static long asked_columns(void)
{
	const char *text = getenv("COLUMNS");
	char *end;
	long columns = text ? strtol(text, &end, 10) : 0;

	return text && *end == '\0' && columns > 0 ? columns : 0;
}

int text_columns(void)
{
	struct winsize size;
	long columns = asked_columns();

	if (is_wide)
		return INT_MAX;
	if (columns == 0)
		columns = ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col
											  : USUAL_COLUMNS;
	return columns < LEAST_COLUMNS ? LEAST_COLUMNS : columns > INT_MAX ? INT_MAX : (int)columns;
}

static bool continues_character(char byte)
{
	return ((unsigned char)byte & 0xc0) == 0x80;
}

int text_width(const char *text)
{
	int width = 0;

	for (; *text; text++)
		width += !continues_character(*text);
	return width;
}

/* The bytes of the first so many characters. */
static int bytes_of(const char *text, int characters)
{
	const char *end = text;

	while (*end && (continues_character(*end) || characters-- > 0))
		end++;
	return (int)(end - text);
}

void text_print_shortened(FILE *stream, const char *text, int width)
{
	int all = text_width(text), behind = (width - 1) / 2;

	if (all <= width)
		fputs(text, stream);
	else
		fprintf(stream, "%.*s…%s", bytes_of(text, width - 1 - behind), text,
			text + bytes_of(text, all - behind));
}

/* The bytes of a line: up to its last blank, or, of a word that is longer, as many as it has room for. */
static int bytes_of_line(const char *text, int room)
{
	int most = bytes_of(text, room);

	for (int length = most; length > 0; length--)
		if (text[length] == ' ')
			return length;
	return most;
}

void text_print_wrapped(FILE *stream, const char *text, int taken, int indent)
{
	int columns = text_columns();

	for (;;) {
		int room = columns - taken > LEAST_ROOM ? columns - taken : LEAST_ROOM, length;

		if (text_width(text) <= room)
			break;
		length = bytes_of_line(text, room);
		fprintf(stream, "%.*s\n%*s", length, text, indent, "");
		text += length;
		text += strspn(text, " ");
		taken = indent;
	}
	fputs(text, stream);
}

void text_say(int indent, const char *format, ...)
{
	_cleanup_free_ char *line = NULL;
	va_list arguments;
	int length;

	va_start(arguments, format);
	length = vasprintf(&line, format, arguments);
	va_end(arguments);
	if (length < 0) {
		line = NULL;
		return;
	}
	name_make_printable(line);
	text_print_wrapped(stdout, line, 0, indent);
	putchar('\n');
}

/* ---- JSON ---- */

/* Beyond U+FFFF as a pair (RFC 8259, 7). */
static void put_escape(FILE *stream, uint32_t code)
{
	if (code >= 0x10000)
		fprintf(stream, "\\u%04x\\u%04x", 0xd800 + ((code - 0x10000) >> 10), 0xdc00 + (code & 0x3ff));
	else
		fprintf(stream, "\\u%04x", code);
}

size_t text_put_json(FILE *stream, const char *text)
{
	uint32_t code;
	size_t length = printable_decode(text, &code);

	if (length == 0)
		putc('?', stream);
	else if (printable_code(code))
		fwrite(text, 1, length, stream);
	else
		put_escape(stream, code);
	return length ? length : 1;
}

char *text_escape_json(const char *json)
{
	char *escaped = NULL;
	size_t size;
	FILE *stream = open_memstream(&escaped, &size);

	while (stream && *json) {
		if (*json == '\n' || *json == '\t')
			putc(*json++, stream);
		else
			json += text_put_json(stream, json);
	}
	if (!stream || fclose(stream) == 0)
		return escaped;
	free(escaped);
	return NULL;
}
