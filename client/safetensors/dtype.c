#include "client/safetensors/dtype.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/size.h"

static const struct {
	const char *name;
	unsigned bits;
} dtypes[SAFETENSORS_DTYPES] = {
	[SAFETENSORS_BOOL] = { "BOOL", 8 },
	[SAFETENSORS_F4] = { "F4", 4 },
	[SAFETENSORS_F6_E2M3] = { "F6_E2M3", 6 },
	[SAFETENSORS_F6_E3M2] = { "F6_E3M2", 6 },
	[SAFETENSORS_U8] = { "U8", 8 },
	[SAFETENSORS_I8] = { "I8", 8 },
	[SAFETENSORS_F8_E5M2] = { "F8_E5M2", 8 },
	[SAFETENSORS_F8_E4M3] = { "F8_E4M3", 8 },
	[SAFETENSORS_F8_E8M0] = { "F8_E8M0", 8 },
	[SAFETENSORS_F8_E4M3FNUZ] = { "F8_E4M3FNUZ", 8 },
	[SAFETENSORS_F8_E5M2FNUZ] = { "F8_E5M2FNUZ", 8 },
	[SAFETENSORS_I16] = { "I16", 16 },
	[SAFETENSORS_U16] = { "U16", 16 },
	[SAFETENSORS_F16] = { "F16", 16 },
	[SAFETENSORS_BF16] = { "BF16", 16 },
	[SAFETENSORS_I32] = { "I32", 32 },
	[SAFETENSORS_U32] = { "U32", 32 },
	[SAFETENSORS_F32] = { "F32", 32 },
	[SAFETENSORS_C64] = { "C64", 64 },
	[SAFETENSORS_F64] = { "F64", 64 },
	[SAFETENSORS_I64] = { "I64", 64 },
	[SAFETENSORS_U64] = { "U64", 64 },
};

const char *safetensors_dtype_name(enum safetensors_dtype dtype)
{
	return dtypes[dtype].name;
}

int safetensors_dtype_find(const char *name, enum safetensors_dtype *ret_dtype)
{
	for (unsigned i = 0; i < SAFETENSORS_DTYPES; i++)
		if (strcmp(dtypes[i].name, name) == 0) {
			*ret_dtype = (enum safetensors_dtype)i;
			return 0;
		}
	return -EINVAL;
}

unsigned safetensors_dtype_bits(enum safetensors_dtype dtype)
{
	return dtypes[dtype].bits;
}

/* From the first dimension on: a zero behind what is too large does not make it good. The reference does so,
 * too. */
int safetensors_dtype_bytes(enum safetensors_dtype dtype, const uint64_t *shape, uint32_t dimensions,
			    uint64_t *ret_bytes)
{
	uint64_t bits = 1;

	for (uint32_t i = 0; i < dimensions; i++)
		if (!size_multiply(bits, shape[i], &bits))
			return -ERANGE;
	if (!size_multiply(bits, dtypes[dtype].bits, &bits))
		return -ERANGE;
	if (bits % 8 != 0)
		return -EDOM;
	*ret_bytes = bits / 8;
	return 0;
}

char *safetensors_dtype_print(enum safetensors_dtype dtype, const uint64_t *shape, uint32_t dimensions)
{
	char *text = NULL;
	size_t length;
	FILE *stream = open_memstream(&text, &length);

	if (!stream)
		return NULL;
	fprintf(stream, "%s[", dtypes[dtype].name);
	for (uint32_t i = 0; i < dimensions; i++)
		fprintf(stream, "%s%" PRIu64, i ? "," : "", shape[i]);
	fputc(']', stream);
	if (fclose(stream) == 0)
		return text;
	free(text);
	return NULL;
}

static int parse_name(const char **text, enum safetensors_dtype *ret_dtype)
{
	size_t length = strcspn(*text, "[");
	char name[16];

	if (length >= sizeof(name) || (*text)[length] != '[')
		return -EINVAL;
	memcpy(name, *text, length);
	name[length] = '\0';
	*text += length + 1;
	return safetensors_dtype_find(name, ret_dtype);
}

int safetensors_dtype_parse(const char *text, enum safetensors_dtype *ret_dtype, uint64_t *ret_shape,
			    uint32_t maximum, uint32_t *ret_dimensions)
{
	enum safetensors_dtype dtype;
	uint32_t dimensions = 0;
	int r = parse_name(&text, &dtype);

	while (r == 0 && isdigit((unsigned char)*text) && dimensions < maximum) {
		char *end;

		errno = 0;
		ret_shape[dimensions++] = strtoull(text, &end, 10);
		r = -errno;
		text = *end == ',' && isdigit((unsigned char)end[1]) ? end + 1 : end;
	}
	if (r < 0 || strcmp(text, "]") != 0)
		return -EINVAL;
	*ret_dtype = dtype;
	*ret_dimensions = dimensions;
	return 0;
}
