/* The message: the text of tierd_message(), about the last failed call of this thread. */
#ifndef TIERD_CLIENT_MESSAGE_H
#define TIERD_CLIENT_MESSAGE_H

#include <stddef.h>

/* Sets the text and returns r, so that a caller can fail in one line. */
int message_fail(int r, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* 0, or -EINVAL naming the first of these arguments of a call that is NULL. */
#define CHECK_GIVEN(...) CHECK_GIVEN_OF(__func__, __VA_ARGS__)
#define CHECK_GIVEN_OF(call, ...)                                                                            \
	message_check_given(call, #__VA_ARGS__, (const void *const[]){ __VA_ARGS__ },                        \
			    sizeof((const void *const[]){ __VA_ARGS__ }) / sizeof(void *))
int message_check_given(const char *call, const char *names, const void *const *pointers, size_t count);

/* The daemon's words, or, where it has none, the error's name. */
int message_fail_text(int r, const char *text);

/* Out of memory in this process. */
int message_fail_memory(void);

/* -ECHILD. */
int message_fail_child(void);

#endif
