#include "offload/optimizer/format.h"

#include <string.h>

#include "common/float16.h"

static void split(const float *restrict values, size_t count, uint16_t *restrict ret_parameter,
		  int16_t *restrict ret_remainder)
{
	for (size_t i = 0; i < count; i++) {
		ret_parameter[i] = bfloat16_from_float(values[i]);
		ret_remainder[i] = bfloat16_remainder(values[i]);
	}
}

static void join(const uint16_t *restrict parameter, const int16_t *restrict remainder, size_t count,
		 float *restrict ret_values)
{
	for (size_t i = 0; i < count; i++)
		ret_values[i] = bfloat16_join(parameter[i], remainder[i]);
}

void format_keep(enum master_kind kind, const float *values, size_t count, void *ret_parameter,
		 void *ret_master)
{
	if (kind == MASTER_SPLIT)
		split(values, count, ret_parameter, ret_master);
	else
		format_narrow(kind, values, count, ret_parameter);
	if (kind == MASTER_BESIDE)
		memcpy(ret_master, values, count * sizeof(*values));
}

void format_restore(enum master_kind kind, const void *parameter, const void *master, size_t count,
		    float *ret_values)
{
	if (kind == MASTER_SPLIT)
		join(parameter, master, count, ret_values);
	else
		memcpy(ret_values, kind == MASTER_BESIDE ? master : parameter, count * sizeof(*ret_values));
}

void format_narrow(enum master_kind kind, const float *values, size_t count, void *ret_parameter)
{
	uint16_t *narrow = ret_parameter;

	if (kind == MASTER_ITSELF)
		memcpy(ret_parameter, values, count * sizeof(*values));
	for (size_t i = 0; kind == MASTER_SPLIT && i < count; i++)
		narrow[i] = bfloat16_from_float(values[i]);
	for (size_t i = 0; kind == MASTER_BESIDE && i < count; i++)
		narrow[i] = float16_from_float(values[i]);
}

void format_widen(enum master_kind kind, const void *parameter, size_t count, float *ret_values)
{
	const uint16_t *narrow = parameter;

	if (kind == MASTER_ITSELF)
		memcpy(ret_values, parameter, count * sizeof(*ret_values));
	for (size_t i = 0; kind == MASTER_SPLIT && i < count; i++)
		ret_values[i] = bfloat16_to_float(narrow[i]);
	for (size_t i = 0; kind == MASTER_BESIDE && i < count; i++)
		ret_values[i] = float16_to_float(narrow[i]);
}
