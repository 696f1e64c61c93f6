/* The service manager: the socket that it passes, its journal, and what it is told. Without libsystemd, or
 * where something else has started the daemon, none of this does anything. */
#ifndef TIERD_DAEMON_SYSTEMD_H
#define TIERD_DAEMON_SYSTEMD_H

#include <stdint.h>

/* activation.c: takes a socket that the service manager opened, and on which it may have accepted clients
 * before the daemon ran; it must listen at path. 0: there is none, ret_socket is -1. What else was passed is
 * refused, with an error in the log. Call it once, before any other descriptor is opened. */
int activation_take(const char *path, int *ret_socket);

/* journal.c: where stderr leads to the journal, lines go there with fields of their own, for journalctl to
 * filter by. After log_open(). */
void journal_open(void);

/* notify.c: how the daemon is. Statuses are for people. */
void notify_ready(const char *status);
void notify_stopping(const char *status);
/* Until the next notify_ready(). */
void notify_reloading(void);
/* Microseconds after which the service manager kills a daemon that does not say that it is alive; 0: never.
 */
uint64_t notify_watchdog_us(void);
void notify_alive(void);
void notify_status(const char *status);

#endif
