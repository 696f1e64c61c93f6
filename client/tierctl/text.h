/* Text for people: sizes, counts and times, and what is to fit into a line of the terminal. */
#ifndef TIERD_CLIENT_TIERCTL_TEXT_H
#define TIERD_CLIENT_TIERCTL_TEXT_H

#include <stdint.h>
#include <stdio.h>

#define TEXT_SIZE 32
/* "3.2 GiB"; "1.5B"; "3 min 2 s" */
const char *text_bytes(uint64_t bytes, char text[TEXT_SIZE]);
/* Bytes of a second; the daemon may say anything. */
const char *text_rate(uint64_t bytes, double seconds, char text[TEXT_SIZE]);
const char *text_count(uint64_t count, char text[TEXT_SIZE]);
const char *text_duration(uint64_t ms, char text[TEXT_SIZE]);

#define TEXT_SHAPE_SIZE 256
/* "[32, 64]"; of many dimensions the first. */
const char *text_shape(const uint64_t *shape, size_t count, char text[TEXT_SHAPE_SIZE]);

/* The columns of a line: as $COLUMNS says, else as the terminal has, else 80. */
int text_columns(void);
/* From now on there are as many as anybody wants. */
void text_be_wide(void);

/* Characters, not bytes: those that continue one in UTF-8 do not count. */
int text_width(const char *text);
/* At most so many characters, without some in the middle where there are more. */
void text_print_shortened(FILE *stream, const char *text, int width);
/* Goes on in the next line, at that column, where this one, in which so many columns are taken, is full.
 * Without the end of the last line. */
void text_print_wrapped(FILE *stream, const char *text, int taken, int indent);
/* To the standard output: a line, or several if it does not fit in one. What is not printable becomes '?'. */
void text_say(int indent, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* The character that text begins with, in a string of JSON: what is not printable (common/printable.h) as an
 * escape, a byte that is no UTF-8 as a question mark. The bytes that it has in text. */
size_t text_put_json(FILE *stream, const char *text);
/* So of a whole text of JSON, but its ends of lines and tabs. To be freed; NULL: there is no memory for it.
 */
char *text_escape_json(const char *json);

#endif
