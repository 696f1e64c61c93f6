#include "offload/format.h"

#include "common/bfloat16.h"

void format_split(const float *restrict master, size_t count, uint16_t *restrict ret_parameter,
		  int16_t *restrict ret_remainder)
{
	for (size_t i = 0; i < count; i++) {
		ret_parameter[i] = bfloat16_from_float(master[i]);
		ret_remainder[i] = bfloat16_remainder(master[i]);
	}
}

void format_join(const uint16_t *restrict parameter, const int16_t *restrict remainder, size_t count,
		 float *restrict ret_master)
{
	for (size_t i = 0; i < count; i++)
		ret_master[i] = bfloat16_join(parameter[i], remainder[i]);
}
