/* Turns: how soon the daemon's threads get a processor while trainers compute on all of them. */
#ifndef TIERD_DAEMON_TURNS_H
#define TIERD_DAEMON_TURNS_H

/* For this thread and those that it makes. Where the kernel or an administrator's policy does not allow it,
 * all stays as it is. */
void turns_take_soon(void);

#endif
