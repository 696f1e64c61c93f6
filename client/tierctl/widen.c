#include "client/tierctl/widen.h"

#include <string.h>

#include "client/tierd.h"
#include "common/bfloat16.h"
#include "common/float16.h"

void widen(uint32_t format, const void *narrow, uint64_t count, float *ret_wide)
{
	const char *bytes = narrow;

	for (uint64_t i = 0; i < count; i++) {
		uint16_t value;

		memcpy(&value, bytes + i * sizeof(value), sizeof(value));
		ret_wide[i] = format == TIERD_BF16 ? bfloat16_to_float(value) : float16_to_float(value);
	}
}
