/* A table for people: cells, row by row, in aligned columns. */
#ifndef TIERD_CLIENT_TIERCTL_TABLE_H
#define TIERD_CLIENT_TIERCTL_TABLE_H

#include <stdint.h>
#include <stdio.h>

#include "common/cleanup.h"

struct table;

/* Titles end with NULL and stay the caller's; one that begins with '>' is of a column of numbers, aligned to
 * the right. NULL: out of memory. */
struct table *table_new(const char *const *titles);
struct table *table_free(struct table *table);
DEFINE_FREEP(struct table *, table_free)

/* The next cell. Control characters, which a job's owner could have put into a name, become '?'. */
void table_add(struct table *table, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* "3.2 GiB"; "1.5 B" */
void table_add_bytes(struct table *table, uint64_t bytes);
void table_add_count(struct table *table, uint64_t count);

/* -ENOMEM if a cell could not be added. */
int table_print(const struct table *table, FILE *stream);

#define TEXT_SIZE 32
const char *text_bytes(uint64_t bytes, char text[TEXT_SIZE]);
const char *text_count(uint64_t count, char text[TEXT_SIZE]);
const char *text_duration(uint64_t ms, char text[TEXT_SIZE]);

#endif
