/* Fuzzes the reading of the list of jobs: any bytes give a list, or an error; and a list that was read is the
 * same when it is written and read again. The checksum is made to fit, or nothing else would ever be read. */
#include <assert.h>
#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <xxhash.h>

#include "common/little_endian.h"
#include "daemon/durability/job_list.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length);

static void write_again(const struct job_list *list, const uint8_t *bytes, size_t length)
{
	void *written;
	size_t written_length;

	assert(job_list_encode(list, &written, &written_length) == 0);
	assert(written_length == length && memcmp(written, bytes, length) == 0);
	free(written);
}

static void read_list(const uint8_t *bytes, size_t length)
{
	struct job_list list = { 0 };
	int r = job_list_decode(&list, bytes, length);

	assert(r == 0 || r == -EBADMSG || r == -EPROTONOSUPPORT);
	if (r == 0)
		write_again(&list, bytes, length);
	job_list_clear(&list);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length)
{
	uint8_t *sealed = malloc(length + 1);

	assert(sealed);
	memcpy(sealed, bytes, length);
	read_list(sealed, length);
	if (length >= 8) {
		put64(sealed + length - 8, XXH3_64bits(sealed, length - 8));
		read_list(sealed, length);
	}
	free(sealed);
	return 0;
}
