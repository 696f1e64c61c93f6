/* Tells the service manager how the daemon is; without one it does nothing. */
#ifndef TIERD_DAEMON_NOTIFY_H
#define TIERD_DAEMON_NOTIFY_H

void notify_ready(const char *status);
void notify_stopping(const char *status);

#endif
