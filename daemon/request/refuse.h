/* Refusing: an errno, and a message for the client who asked. */
#ifndef TIERD_DAEMON_REFUSE_H
#define TIERD_DAEMON_REFUSE_H

#include <stddef.h>

/* Prints the message and returns r, so that a check can end with it. */
int refuse(char *message, size_t size, int r, const char *format, ...) __attribute__((format(printf, 4, 5)));

#endif
