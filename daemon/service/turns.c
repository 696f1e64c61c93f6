/* A thread that has slept gets a processor from one that computes at the end of the other's slice, or at once
 * if its own is shorter (Linux from 6.12 on; sched_setattr(2), sched_runtime). What the daemon's threads do
 * between two waits takes microseconds, and meanwhile a device may be idle. The parts of the processors that
 * threads get do not depend on slices. */
#include "daemon/service/turns.h"

#include <sched.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <unistd.h>

/* The shortest that the kernel gives. */
#define SLICE_NS 100000

/* As sched_setattr() takes it from its first version on; glibc has none until 2.41. */
struct attributes {
	uint32_t size, policy;
	uint64_t flags;
	int32_t nice;
	uint32_t priority;
	uint64_t runtime, deadline, period;
};

void turns_take_soon(void)
{
	struct attributes attributes = { .size = sizeof(attributes) };

	if (syscall(SYS_sched_getattr, 0, &attributes, sizeof(attributes), 0) < 0 ||
	    attributes.policy != SCHED_OTHER)
		return;
	attributes.runtime = SLICE_NS;
	syscall(SYS_sched_setattr, 0, &attributes, 0);
}
