#include "proto/status.h"

#include <errno.h>
#include <stddef.h>

/* The index is the code; append only. */
static const int errnos[] = {
	0,	    EIO,       EINVAL,	   ENOENT,	    EEXIST,  EBUSY,  ESTALE,
	ENOMEM,	    ENOSPC,    ENODATA,	   ENOBUFS,	    EDEADLK, EDOM,   ETIMEDOUT,
	ECANCELED,  EPROTO,    EOPNOTSUPP, EPROTONOSUPPORT, EBADMSG, EPERM,  EACCES,
	E2BIG,	    EOVERFLOW, ESHUTDOWN,  ENAMETOOLONG,    EAGAIN,  ERANGE, EMSGSIZE,
	ECONNRESET, ENODEV,
};

int status_from_errno(int r)
{
	for (size_t code = 0; code < sizeof(errnos) / sizeof(errnos[0]); code++)
		if (errnos[code] == -r)
			return (int)code;
	return 1;
}

int status_to_errno(int code)
{
	if (code < 0 || (size_t)code >= sizeof(errnos) / sizeof(errnos[0]))
		return -EPROTO;
	return -errnos[code];
}
