#include "daemon/service/systemd.h"

#include "common/clock.h"

#ifdef HAVE_SYSTEMD
#include <systemd/sd-daemon.h>
#else
static void sd_notifyf(int unset_environment, const char *format, ...)
{
}

static int sd_watchdog_enabled(int unset_environment, uint64_t *interval_us)
{
	return 0;
}
#endif

void notify_ready(const char *status)
{
	sd_notifyf(0, "READY=1\nSTATUS=%s", status);
}

void notify_stopping(const char *status)
{
	sd_notifyf(0, "STOPPING=1\nSTATUS=%s", status);
}

void notify_reloading(void)
{
	sd_notifyf(0, "RELOADING=1\nMONOTONIC_USEC=%llu\nSTATUS=reading the configuration again",
		   (unsigned long long)(clock_now_ns() / 1000));
}

uint64_t notify_watchdog_us(void)
{
	uint64_t interval = 0;

	return sd_watchdog_enabled(0, &interval) > 0 ? interval : 0;
}

void notify_alive(void)
{
	sd_notifyf(0, "WATCHDOG=1");
}

void notify_status(const char *status)
{
	sd_notifyf(0, "STATUS=%s", status);
}
