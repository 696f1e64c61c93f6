/* Workers that call the driver of GPUs, and NVML. */
#include <errno.h>
#include <event2/event.h>
#include <stdio.h>

#include "common/clock.h"
#include "daemon/gpu/own.h"

static void on_helped(evutil_socket_t fd, short events, void *argument)
{
	workers_reap(((struct gpu_helper *)argument)->workers);
}

void gpu_helper_stop(struct gpu_helper *helper)
{
	if (helper->event)
		event_free(TAKE_PTR(helper->event));
	helper->workers = workers_free(helper->workers);
}

int gpu_helper_start(struct gpu_helper *helper, struct node *node, const char *name)
{
	int r = helper->workers ? 0 : workers_new(1, name, &helper->workers);

	if (r < 0 || helper->event)
		return r;
	helper->event =
		event_new(node->loop, workers_fd(helper->workers), EV_READ | EV_PERSIST, on_helped, helper);
	if (helper->event && event_add(helper->event, NULL) == 0)
		return 0;
	gpu_helper_stop(helper);
	return -ENOMEM;
}

void gpu_helper_begin(struct gpu_helper *helper, const char *what, int gpu)
{
	atomic_store(&helper->what, what);
	atomic_store(&helper->gpu, gpu);
	atomic_store(&helper->since_ns, clock_now_ns());
}

void gpu_helper_end(struct gpu_helper *helper)
{
	atomic_store(&helper->since_ns, 0);
}

bool gpu_helper_hangs(const struct gpu_helper *helper, uint64_t patience_ns, struct gpu_problem *ret_problem)
{
	int gpu = atomic_load(&helper->gpu);
	char of[24] = "";

	if (!clock_is_late(atomic_load(&helper->since_ns), patience_ns))
		return false;
	if (gpu >= 0)
		snprintf(of, sizeof(of), " of GPU %d", gpu);
	snprintf(ret_problem->text, sizeof(ret_problem->text), "%s%s has not ended for %.3g s",
		 atomic_load(&helper->what), of, (double)patience_ns / 1e9);
	return true;
}
