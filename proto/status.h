/* Status codes on the wire, and the errno values that they stand for. Numbers never change their meaning. */
#ifndef TIERD_PROTO_STATUS_H
#define TIERD_PROTO_STATUS_H

/* 0 or -errno, to what goes on the wire; an errno without a code of its own becomes that of EIO. */
int status_from_errno(int r);

/* What came over the wire, to 0 or -errno; -EPROTO for a code that this version does not know. */
int status_to_errno(int code);

#endif
