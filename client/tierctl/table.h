/* A table for people: cells, row by row, in aligned columns. */
#ifndef TIERD_CLIENT_TIERCTL_TABLE_H
#define TIERD_CLIENT_TIERCTL_TABLE_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "client/tierctl/text.h"
#include "common/cleanup.h"

struct table;

/* Titles end with NULL and stay the caller's. Marks before a title say what is in its column: '>' numbers, to
 * the right; '~' names, which may be shortened in their middle; '"' sentences, in the last column, which go
 * on in the next line. A figure before these: in a terminal that is too narrow the columns of the highest
 * figure are left out first, and of those of the same one the last; those without a figure stay. NULL: out of
 * memory. */
struct table *table_new(const char *const *titles);
struct table *table_free(struct table *table);
DEFINE_FREEP(struct table *, table_free)

/* The next cell. Control characters, which a job's owner could have put into a name, become '?'. */
void table_add(struct table *table, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* "-" where it is not known. */
void table_add_known(struct table *table, bool is_known, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

/* "3.2 GiB"; "1.5 B" */
void table_add_bytes(struct table *table, uint64_t bytes);
void table_add_count(struct table *table, uint64_t count);

/* No wider than text_columns(), if it can be; says how many columns are left out. -ENOMEM if a cell could not
 * be added. */
int table_print(const struct table *table, FILE *stream);

#endif
