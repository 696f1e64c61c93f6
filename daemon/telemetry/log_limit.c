#include "daemon/telemetry/log_limit.h"

#include "common/log.h"

static void begin(struct log_limit *limit, uint64_t now_ns)
{
	if (limit->dropped > 0)
		log_info("%s that were not logged: %u more", limit->what, limit->dropped);
	limit->began_ns = now_ns;
	limit->lines = limit->dropped = 0;
}

bool log_limit_allows(struct log_limit *limit, uint64_t now_ns)
{
	if (limit->lines == 0 || now_ns - limit->began_ns >= LOG_LIMIT_SECONDS * UINT64_C(1000000000))
		begin(limit, now_ns);
	if (limit->lines < LOG_LIMIT_LINES) {
		limit->lines++;
		return true;
	}
	if (limit->dropped++ == 0)
		log_info("more %s follow; %d in %d s are logged", limit->what, LOG_LIMIT_LINES,
			 LOG_LIMIT_SECONDS);
	return false;
}
