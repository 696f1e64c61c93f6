#include "tests/gpu/plain_copy.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "common/cleanup.h"
#include "tests/bench/bench.h"
#include "tests/gpu/hardware.h"

#define BYTES ((size_t)64 << 20)

static struct {
	void *host;
	driver_address gpu;
	struct driver_stream *stream;
} place;

static void open_place(void)
{
	int (*allocate)(driver_address * ret_address, size_t bytes);
	const struct dynamic_symbol symbols[] = { { "cuMemAlloc_v2", &allocate } };
	struct dynamic_library library = { .is_found = false };

	if (!dynamic_library_open(&library, "libcuda.so.1", symbols, ARRAY_LENGTH(symbols))) {
		fprintf(stderr, "%s\n", library.problem);
		exit(1);
	}
	hardware_enter();
	place.host = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (place.host == MAP_FAILED) {
		perror("plain copies");
		exit(1);
	}
	(void)madvise(place.host, BYTES, MADV_HUGEPAGE);
	hardware_expect(hardware_driver.host_register(place.host, BYTES, DRIVER_PORTABLE));
	hardware_expect(allocate(&place.gpu, BYTES));
	hardware_expect(hardware_driver.stream_create(&place.stream, DRIVER_NO_STREAM_0));
	/* New memory has no pages yet. */
	hardware_expect(hardware_driver.copy(place.gpu, (uintptr_t)place.host, BYTES, place.stream));
	hardware_expect(hardware_driver.stream_synchronize(place.stream));
}

double plain_copy_rate(bool is_to_host, double seconds)
{
	uint64_t start;
	unsigned copies = 0;

	if (!place.host)
		open_place();
	hardware_enter();
	start = clock_now_ns();
	do {
		for (unsigned i = 0; i < 4; i++, copies++)
			hardware_expect(hardware_driver.copy(is_to_host ? (uintptr_t)place.host : place.gpu,
							     is_to_host ? place.gpu : (uintptr_t)place.host,
							     BYTES, place.stream));
		hardware_expect(hardware_driver.stream_synchronize(place.stream));
	} while (bench_seconds_since(start) < seconds);
	return (double)copies * (double)BYTES / bench_seconds_since(start);
}
