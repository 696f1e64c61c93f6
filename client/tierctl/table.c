#include "client/tierctl/table.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdbool.h>
#include <string.h>

#include "proto/name.h"

#define MAXIMUM_COLUMNS 20
#define GAP 2

struct table {
	const char *const *titles;
	unsigned columns;
	char **cells;
	size_t count, capacity;
	bool has_failed;
};

struct table *table_new(const char *const *titles)
{
	struct table *table = calloc(1, sizeof(*table));

	if (!table)
		return NULL;
	table->titles = titles;
	while (titles[table->columns] && table->columns < MAXIMUM_COLUMNS)
		table->columns++;
	return table;
}

struct table *table_free(struct table *table)
{
	if (!table)
		return NULL;
	for (size_t i = 0; i < table->count; i++)
		free(table->cells[i]);
	free(table->cells);
	free(table);
	return NULL;
}

static bool make_place(struct table *table)
{
	size_t capacity = table->capacity ? table->capacity * 2 : 64;
	char **cells;

	if (table->count < table->capacity)
		return true;
	cells = realloc(table->cells, capacity * sizeof(*cells));
	if (!cells)
		return false;
	table->cells = cells;
	table->capacity = capacity;
	return true;
}

void table_add(struct table *table, const char *format, ...)
{
	char *cell = NULL;
	va_list arguments;
	int length;

	va_start(arguments, format);
	length = vasprintf(&cell, format, arguments);
	va_end(arguments);
	if (length < 0 || !make_place(table)) {
		if (length >= 0)
			free(cell);
		table->has_failed = true;
		return;
	}
	name_make_printable(cell);
	table->cells[table->count++] = cell;
}

void table_add_bytes(struct table *table, uint64_t bytes)
{
	char text[TEXT_SIZE];

	table_add(table, "%s", text_bytes(bytes, text));
}

void table_add_count(struct table *table, uint64_t count)
{
	char text[TEXT_SIZE];

	table_add(table, "%s", text_count(count, text));
}

static const char *title_text(const char *title)
{
	return title[0] == '>' ? title + 1 : title;
}

/* Characters, not bytes: those that continue one in UTF-8 do not count. */
static int width_of(const char *text)
{
	int width = 0;

	for (; *text; text++)
		width += ((unsigned char)*text & 0xc0) != 0x80;
	return width;
}

static void print_cell(FILE *stream, const char *text, int width, bool is_number, bool is_last)
{
	int blanks = width - width_of(text);

	if (is_number)
		fprintf(stream, "%*s%s", blanks, "", text);
	else if (is_last)
		fputs(text, stream);
	else
		fprintf(stream, "%s%*s", text, blanks, "");
	fprintf(stream, "%*s", is_last ? 0 : GAP, "");
}

static void print_row(const struct table *table, FILE *stream, const int *widths, char *const *cells)
{
	for (unsigned column = 0; column < table->columns; column++) {
		const char *title = table->titles[column];

		print_cell(stream, cells ? cells[column] : title_text(title), widths[column], title[0] == '>',
			   column + 1 == table->columns);
	}
	fputc('\n', stream);
}

int table_print(const struct table *table, FILE *stream)
{
	int widths[MAXIMUM_COLUMNS];

	if (table->has_failed)
		return -ENOMEM;
	for (unsigned column = 0; column < table->columns; column++)
		widths[column] = width_of(title_text(table->titles[column]));
	for (size_t i = 0; i < table->count; i++) {
		int width = width_of(table->cells[i]);

		if (width > widths[i % table->columns])
			widths[i % table->columns] = width;
	}
	print_row(table, stream, widths, NULL);
	for (size_t i = 0; i + table->columns <= table->count; i += table->columns)
		print_row(table, stream, widths, table->cells + i);
	return 0;
}

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
