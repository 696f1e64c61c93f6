/* The message is this thread's text about its last failed call. */
#ifndef TIERD_CLIENT_MESSAGE_H
#define TIERD_CLIENT_MESSAGE_H

/* Sets the text and returns r, so that a caller can fail in one line. */
int message_fail(int r, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* The daemon's words, or, where it has none, the error's name. */
int message_fail_text(int r, const char *text);

/* Out of memory in this process. */
int message_fail_memory(void);

/* -ECHILD. */
int message_fail_child(void);

#endif
