#include "client/tierctl/table.h"

#include <errno.h>
#include <stdint.h>
#include <stdarg.h>
#include <stdbool.h>
#include <string.h>

#include "proto/name.h"

#define MAXIMUM_COLUMNS 24
#define GAP 2
/* The least width of names: shorter ones are hard to tell apart. */
#define LEAST_NAME 28
/* Where that is too much beside what is not left out. */
#define LEAST_SQUEEZED 12

enum kind { KIND_WORD, KIND_NUMBER, KIND_NAME, KIND_SENTENCE };

struct column {
	const char *title;
	enum kind kind;
	unsigned figure; /* 0: it is never left out */
};

/* How wide each column is printed; 0: it is left out. */
struct layout {
	int widths[MAXIMUM_COLUMNS], natural[MAXIMUM_COLUMNS];
	unsigned left_out;
};

struct table {
	struct column columns[MAXIMUM_COLUMNS];
	unsigned column_count;
	char **cells;
	size_t count, capacity;
	bool has_failed;
};

static struct column read_title(const char *title)
{
	struct column column = { .kind = KIND_WORD };

	if (*title >= '1' && *title <= '9')
		column.figure = (unsigned)(*title++ - '0');
	if (*title == '>')
		column.kind = KIND_NUMBER;
	else if (*title == '~')
		column.kind = KIND_NAME;
	else if (*title == '"')
		column.kind = KIND_SENTENCE;
	column.title = title + (column.kind != KIND_WORD);
	return column;
}

struct table *table_new(const char *const *titles)
{
	struct table *table = calloc(1, sizeof(*table));

	if (!table)
		return NULL;
	for (; *titles && table->column_count < MAXIMUM_COLUMNS; titles++)
		table->columns[table->column_count++] = read_title(*titles);
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

static void add(struct table *table, const char *format, va_list arguments)
{
	char *cell = NULL;
	int length = vasprintf(&cell, format, arguments);

	if (length < 0 || !make_place(table)) {
		if (length >= 0)
			free(cell);
		table->has_failed = true;
		return;
	}
	name_make_printable(cell);
	table->cells[table->count++] = cell;
}

void table_add(struct table *table, const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	add(table, format, arguments);
	va_end(arguments);
}

void table_add_known(struct table *table, bool is_known, const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	add(table, is_known ? format : "-", arguments);
	va_end(arguments);
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

/* ---- Layout ---- */

static int wider(int width, int other)
{
	return width > other ? width : other;
}

static void measure(const struct table *table, struct layout *layout)
{
	for (unsigned i = 0; i < table->column_count; i++)
		layout->natural[i] = text_width(table->columns[i].title);
	for (size_t i = 0; i < table->count; i++) {
		int *natural = &layout->natural[i % table->column_count];

		*natural = wider(*natural, text_width(table->cells[i]));
	}
}

/* The least width of a column. */
static int least_width(const struct column *column, int natural)
{
	if (column->kind == KIND_WORD || column->kind == KIND_NUMBER || natural <= LEAST_NAME)
		return natural;
	return wider(LEAST_NAME, text_width(column->title));
}

static int64_t width_of_all(const struct table *table, const struct layout *layout)
{
	int64_t width = -GAP;

	for (unsigned i = 0; i < table->column_count; i++)
		if (layout->widths[i] > 0)
			width += layout->widths[i] + GAP;
	return width;
}

/* False: all that are left stay. */
static bool leave_one_out(const struct table *table, struct layout *layout)
{
	unsigned figure = 1, chosen = table->column_count;

	for (unsigned i = 0; i < table->column_count; i++)
		if (layout->widths[i] > 0 && table->columns[i].figure >= figure) {
			figure = table->columns[i].figure;
			chosen = i;
		}
	if (chosen == table->column_count)
		return false;
	layout->widths[chosen] = 0;
	layout->left_out++;
	return true;
}

/* Columns of that kind become narrower, the last ones first, until the table fits or all are as narrow as
 * that, or as their titles. */
static void squeeze(const struct table *table, struct layout *layout, enum kind kind, int least)
{
	for (unsigned i = table->column_count; i-- > 0;) {
		int64_t excess = width_of_all(table, layout) - text_columns();
		int spare = layout->widths[i] - wider(least, text_width(table->columns[i].title));

		if (excess > 0 && table->columns[i].kind == kind && layout->widths[i] > 0 && spare > 0)
			layout->widths[i] -= excess < spare ? (int)excess : spare;
	}
}

static void lay_out(const struct table *table, struct layout *layout)
{
	int64_t room;

	measure(table, layout);
	for (unsigned i = 0; i < table->column_count; i++)
		layout->widths[i] = least_width(&table->columns[i], layout->natural[i]);
	while (width_of_all(table, layout) > text_columns() && leave_one_out(table, layout))
		;
	squeeze(table, layout, KIND_NAME, LEAST_SQUEEZED);
	squeeze(table, layout, KIND_WORD, LEAST_SQUEEZED);
	/* Names that could be longer get the rest. */
	room = text_columns() - width_of_all(table, layout);
	for (unsigned i = 0; i < table->column_count && room > 0; i++) {
		int more = layout->widths[i] > 0 ? layout->natural[i] - layout->widths[i] : 0;

		more = more > room ? (int)room : more;
		layout->widths[i] += more;
		room -= more;
	}
}

/* ---- Rows ---- */

static void print_cell(FILE *stream, const struct column *column, const char *text, int width, int taken,
		       bool is_last)
{
	int blanks = wider(width - text_width(text), 0);

	if (column->kind == KIND_NUMBER)
		fprintf(stream, "%*s", blanks, "");
	if (column->kind == KIND_SENTENCE && is_last)
		text_print_wrapped(stream, text, taken, taken);
	else
		text_print_shortened(stream, text, width);
	if (!is_last)
		fprintf(stream, "%*s", GAP + (column->kind == KIND_NUMBER ? 0 : blanks), "");
}

static void print_row(const struct table *table, FILE *stream, const struct layout *layout,
		      char *const *cells)
{
	unsigned last = table->column_count - 1;
	int taken = 0;

	while (last > 0 && layout->widths[last] == 0)
		last--;
	for (unsigned i = 0; i <= last; i++) {
		const struct column *column = &table->columns[i];

		if (layout->widths[i] == 0)
			continue;
		print_cell(stream, column, cells ? cells[i] : column->title, layout->widths[i], taken,
			   i == last);
		taken += layout->widths[i] + GAP;
	}
	fputc('\n', stream);
}

int table_print(const struct table *table, FILE *stream)
{
	struct layout layout = { .left_out = 0 };

	if (table->has_failed)
		return -ENOMEM;
	lay_out(table, &layout);
	print_row(table, stream, &layout, NULL);
	for (size_t i = 0; i + table->column_count <= table->count; i += table->column_count)
		print_row(table, stream, &layout, table->cells + i);
	if (layout.left_out > 0)
		fprintf(stream, "(%u column%s left out; --wide shows all)\n", layout.left_out,
			layout.left_out == 1 ? " is" : "s are");
	return 0;
}
