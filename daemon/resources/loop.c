#include "daemon/resources/loop.h"

#include <event2/event.h>
#include <stddef.h>

/* Events that are served before the loop looks for others. Without such a number it would first serve all
 * that those being served ask for, such as turns of jobs: where one turn leads to another nobody else would
 * ever be heard. */
#define EVENTS_AT_ONCE 16

struct event_base *loop_new(void)
{
	struct event_config *config = event_config_new();
	struct event_base *loop = NULL;

	if (config && event_config_set_max_dispatch_interval(config, NULL, EVENTS_AT_ONCE, 0) == 0)
		loop = event_base_new_with_config(config);
	if (config)
		event_config_free(config);
	return loop;
}
