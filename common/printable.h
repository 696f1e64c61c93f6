/* What is printable: characters of Unicode that a terminal shows, and that change nothing else there. */
#ifndef TIERD_COMMON_PRINTABLE_H
#define TIERD_COMMON_PRINTABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* By its category: no control, formatting, surrogate, private use, end of a line or paragraph, and assigned.
 */
bool printable_code(uint32_t code);

/* Bytes of the character of UTF-8 that text begins with, and what it is; 0: it begins with none, or ends. */
size_t printable_decode(const char *text, uint32_t *ret_code);

/* The same of a printable one. */
size_t printable_character(const char *text);

#endif
