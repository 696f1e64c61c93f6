/* Asking: one connection to the daemon, one request at a time, and its answer. */
#ifndef TIERD_CLIENT_TIERCTL_ASK_H
#define TIERD_CLIENT_TIERCTL_ASK_H

#include <stdbool.h>

#include "common/cleanup.h"
#include "proto/frame.h"

struct ask;

#define ASK_TIMEOUT_MS 10000

/* Connects and says hello. The object is there also after an error, for ask_message(), unless -ENOMEM. Each
 * answer is waited for so long, and for no answer beyond end_ns by much (0: no end). With ASK_TIMEOUT_MS and
 * no end a daemon that is stuck is given up then, and one that runs is waited for. */
int ask_open(const char *socket_path, unsigned timeout_ms, uint64_t end_ns, struct ask **ret_ask);
struct ask *ask_free(struct ask *ask);
DEFINE_FREEP(struct ask *, ask_free)

/* Sends the request and waits for its answer, which is valid until the next. What the daemon refused is an
 * error too, but the connection stays; ask_is_connected() tells that from a daemon that is gone. */
int ask_request(struct ask *ask, const Tierd__Wire__Request *request, const Tierd__Wire__Reply **ret_reply);
/* After a Watch: waits for the next event, which is valid until the next, until end_ns (0: for ever; by
 * clock_now_ns()). -ETIMEDOUT of a connection that stays: none came. */
int ask_event(struct ask *ask, uint64_t end_ns, const Tierd__Wire__Event **ret_event);
/* The descriptor that came with the last answer, now the caller's; -1: none did. */
int ask_take_descriptor(struct ask *ask);
bool ask_is_connected(const struct ask *ask);
/* The daemon has said no, to the last question or to the hello: it is there. */
bool ask_was_refused(const struct ask *ask);

/* What went wrong last. */
const char *ask_message(const struct ask *ask);

/* "tierd 0.1.0" */
const char *ask_daemon(const struct ask *ask);

#endif
