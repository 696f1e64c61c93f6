/* A client's holds on units, by the library's own code, over pages that a test has mapped: without a
 * connection. */
#ifndef TIERD_TESTS_UNIT_CLIENT_HOLDS_H
#define TIERD_TESTS_UNIT_CLIENT_HOLDS_H

#include <stdbool.h>
#include <stdint.h>

struct directory_header;
struct lease_header;

void client_attach(struct directory_header *directory, struct lease_header *leases, uint32_t buffer_count);

/* False: the daemon would have to be asked. ret_offset: in the arena. */
bool client_take(uint32_t unit, uint64_t awaited, uint64_t *ret_offset, uint64_t *ret_version);
void client_give(uint32_t unit);

#endif
