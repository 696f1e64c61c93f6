/* A client is what the daemon knows of one connection: the requests it has sent, and its memberships of jobs.
 */
#ifndef TIERD_DAEMON_CLIENT_H
#define TIERD_DAEMON_CLIENT_H

#include <stdbool.h>

#include "daemon/resources/resources.h"
#include "daemon/request/request.h"

struct client;

/* port: borrowed until client_free(); answers go there. maximum_requests: gathers and pushes that may wait
 * for their answers; more are answered with -EBUSY. */
int client_new(struct node *node, struct port *port, unsigned maximum_requests, struct client **ret_client);

/* Handles one request; every request is answered through the port, now or later, unless the client or the
 * daemon is gone before. The message is valid only for the call. */
void client_request(struct client *client, uint32_t number, const Tierd__Wire__Request *request);

/* The client has read what was sent. */
void client_catch_up(struct client *client);

/* The connection has ended: nothing is sent to the port any more, its ranks leave their jobs (reason is for
 * the other ranks: "its process died", "it closed the connection"; NULL: the daemon ends). What the process
 * may still read stays leased until client_free(). */
void client_hang_up(struct client *client, const char *reason);
bool client_has_leases(const struct client *client);
bool client_has_jobs(const struct client *client);
/* If it hangs up, an epoch ends. */
bool client_has_epochs(const struct client *client);

/* The process is dead, or has no lease: frees all. */
struct client *client_free(struct client *client);

#endif
