/* The loop on which the daemon lives. */
#ifndef TIERD_DAEMON_LOOP_H
#define TIERD_DAEMON_LOOP_H

struct event_base;

/* NULL: there is no memory, or no descriptor. */
struct event_base *loop_new(void);

#endif
