#include "daemon/notify.h"

#ifdef HAVE_SYSTEMD
#include <systemd/sd-daemon.h>

void notify_ready(const char *status)
{
	sd_notifyf(0, "READY=1\nSTATUS=%s", status);
}

void notify_stopping(const char *status)
{
	sd_notifyf(0, "STOPPING=1\nSTATUS=%s", status);
}
#else
void notify_ready(const char *status)
{
}

void notify_stopping(const char *status)
{
}
#endif
