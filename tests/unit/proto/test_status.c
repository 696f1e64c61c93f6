#include <errno.h>

#include "proto/status.h"
#include "tests/unit/test.h"

/* As they were in the first release: a change of one of these breaks every older program. */
static void codes_keep_their_meaning(void **state)
{
	static const int first_release[] = {
		0,	    EIO,       EINVAL,	   ENOENT,	    EEXIST,  EBUSY,  ESTALE,
		ENOMEM,	    ENOSPC,    ENODATA,	   ENOBUFS,	    EDEADLK, EDOM,   ETIMEDOUT,
		ECANCELED,  EPROTO,    EOPNOTSUPP, EPROTONOSUPPORT, EBADMSG, EPERM,  EACCES,
		E2BIG,	    EOVERFLOW, ESHUTDOWN,  ENAMETOOLONG,    EAGAIN,  ERANGE, EMSGSIZE,
		ECONNRESET, ENODEV,
	};

	for (int code = 0; code < (int)(sizeof(first_release) / sizeof(first_release[0])); code++) {
		assert_int_equal(status_to_errno(code), -first_release[code]);
		assert_int_equal(status_from_errno(-first_release[code]), code);
	}
}

static void an_errno_without_code_becomes_that_of_eio(void **state)
{
	assert_int_equal(status_to_errno(status_from_errno(-ENOTTY)), -EIO);
}

static void an_unknown_code_is_a_protocol_error(void **state)
{
	assert_int_equal(status_to_errno(-1), -EPROTO);
	assert_int_equal(status_to_errno(30), -EPROTO);
	assert_int_equal(status_to_errno(INT32_MAX), -EPROTO);
	assert_int_equal(status_to_errno(INT32_MIN), -EPROTO);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(codes_keep_their_meaning),
		cmocka_unit_test(an_errno_without_code_becomes_that_of_eio),
		cmocka_unit_test(an_unknown_code_is_a_protocol_error),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
