/* Mark: a file in the daemon's folder of an NVMe path by which the path's file system is recognised: a folder
 * in which a disk is to be mounted, and is not, lacks it. */
#ifndef TIERD_DAEMON_MARK_H
#define TIERD_DAEMON_MARK_H

#include <stdint.h>

#define MARK_NAME "mark"
#define MARK_BYTES 16

/* -ENOENT: there is none; -EBADMSG: it is no mark; others. Slow, as is the next one. */
int mark_read(int folder_fd, uint8_t ret_mark[MARK_BYTES]);
/* Makes one that no other path has. */
int mark_make(int folder_fd, uint8_t ret_mark[MARK_BYTES]);

#endif
