/* A name is what people call units, tensors and phases: UTF-8 that a terminal and a JSON parser can take. */
#ifndef TIERD_PROTO_NAME_H
#define TIERD_PROTO_NAME_H

#include <stdbool.h>
#include <stddef.h>

/* 0; -ENODATA: it is empty (or NULL); -ENAMETOOLONG: it has more bytes than maximum; -EILSEQ: it is not
 * UTF-8, or has a character that is not printable (common/printable.h). */
int name_check(const char *name, size_t maximum);

/* The same of a name that is there already: of older versions, and of files from elsewhere, it may have any
 * character but controls. */
int name_check_kept(const char *name, size_t maximum);

/* Names of jobs and snapshots are parts of paths, too, and of command lines. Whether two differ in more than
 * their case does not matter: files of jobs have numbers beside their names. */
#define NAME_RULE "A-Z, a-z, 0-9, '.', '_' and '-', beginning with a letter or digit, without \"..\""
bool name_is_word(const char *name, size_t maximum);

/* Bytes of the character that text begins with, if such a name may have it; 0: it begins with none, or ends.
 */
size_t name_kept_character(const char *text);

/* Puts a question mark for each byte that such a name could not have. */
void name_make_printable(char *text);

/* Bytes of the whole characters of such a name that begin the text and fit into maximum bytes: for "%.*s". */
int name_fit(const char *text, int maximum);

#endif
