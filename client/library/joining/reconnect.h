/* Reconnecting: a connection that was lost is opened again by whoever needs it, with the jobs on it. */
#ifndef TIERD_CLIENT_RECONNECT_H
#define TIERD_CLIENT_RECONNECT_H

#include "client/library/connection/connection.h"

/* Connects to the node's socket, again and again for reconnect_ms while nobody listens there or who does has
 * no place. Takes no lock. */
int reconnect_first(struct tierd_node *node);

/* ---- With the lock held ---- */

/* Opens a connection that was lost, and its jobs as far as they can be; releases the lock meanwhile, and
 * waits for another thread that does it already. 0: the connection stands. */
int reconnect(struct tierd_node *node);

/* Waits for another thread that opens the connection. */
void reconnect_settle(struct tierd_node *node);

#endif
