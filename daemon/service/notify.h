/* Tells the service manager how the daemon is; without one it does nothing. Statuses are for people. */
#ifndef TIERD_DAEMON_NOTIFY_H
#define TIERD_DAEMON_NOTIFY_H

#include <stdint.h>

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
