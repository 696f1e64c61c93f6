/* A real GPU, for tests and benchmarks: the first one that the driver shows; its calls; and kernels that take
 * their time, or go wrong. */
#ifndef TIERD_TESTS_GPU_HARDWARE_H
#define TIERD_TESTS_GPU_HARDWARE_H

#include "offload/cuda/driver.h"

extern struct driver hardware_driver;

/* NULL, or why there is none. What the tests' stand-in for the driver plays is none: no result of it may be
 * taken for a GPU's. */
const char *hardware_find(void);
const char *hardware_name(void);

/* How a bench calls its result. A test runs benches on what the stand-in plays, built with
 * -DHARDWARE_IS_PLAYED: their results are called standin_…, and nobody takes them for a GPU's. */
const char *hardware_result(const char *result);

/* Ends the program if the call has failed, and says why. */
#define hardware_expect(call) hardware_expect_done(#call, call)
void hardware_expect_done(const char *what, int error);

/* The GPU's own context is that of this thread from now on. */
void hardware_enter(void);

/* Calls that tierd does not make. All return an error of the driver's. */
struct hardware_calls {
	int (*wait)(void);
	int (*host_address)(driver_address *ret_address, void *base, unsigned flags);
};
extern struct hardware_calls hardware_calls;

/* Registers host memory, and has kernels use it: where they find it. */
#define HARDWARE_MAPPED 2
driver_address hardware_map(void *base, size_t bytes);

/* Begins a kernel that sets the first of the flags when it runs, and goes on until the second is set or the
 * time is over; then it writes the value there, unless that is 0. The flags are host memory. */
struct hardware_spin {
	uint64_t nanoseconds;
	driver_address flags, to;
	uint32_t value;
};
void hardware_begin_spin(const struct hardware_spin *spin, struct driver_stream *stream);

/* Runs a kernel that cannot end well: the error of waiting for it. */
extern const char *const hardware_mistakes[];
int hardware_make_mistake(const char *mistake);

#endif
