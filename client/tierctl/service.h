/* The service: what systemd has been told about tierd.service. */
#ifndef TIERD_CLIENT_TIERCTL_SERVICE_H
#define TIERD_CLIENT_TIERCTL_SERVICE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct service {
	bool is_loaded;		      /* else nothing else is set */
	pid_t pid;		      /* 0: it does not run */
	bool is_strict;		      /* ProtectSystem=strict: it may write to what is named only */
	char *writable;		      /* ReadWritePaths=; owned */
	uint64_t files, locked_bytes; /* UINT64_MAX: no limit */
};

void service_read(struct service *ret_service);
void service_clear(struct service *service);

/* Whether the folder, or one above it, is among the writable ones. */
bool service_may_write(const struct service *service, const char *folder);

#endif
