#include "daemon/life/remedy.h"

#include <errno.h>
#include <stdio.h>

#include "daemon/durability/durability.h"
#include "daemon/life/lost.h"
#include "daemon/life/own.h"

/* By what its store could not be opened for. The reason names the file. */
static const struct cause {
	int error;
	const char *remedy;
} causes[] = {
	{ ENOMEM,
	  "raise host_budget in tierd.conf and start tierd again, or let other jobs end (tierctl jobs "
	  "shows what they take)" },
	{ ENOSPC, "raise the size of its paths in tierd.conf and start tierd again, or let other jobs end "
		  "(tierctl jobs shows what they take)" },
	{ ENOENT, "mount the path, or put the file back" },
	{ ESTALE, "bring back the newer copy of the disk" },
	{ EEXIST, "move the file that is not wanted elsewhere (mv)" },
	{ EBUSY, "end the process that has the file (fuser -v FILE)" },
	{ EACCES, "give the file to the user that tierd runs as (chown), with mode 0600 (chmod)" },
	{ EPERM, "give the file and its folder to the user that tierd runs as (chown), and let nobody else "
		 "write to them (chmod go-w)" },
	{ EINVAL, "put the file back that was there, with mode 0600 (chmod)" },
	{ ENXIO, "put the file back that was there: no link, and nothing but a regular file" },
	{ EIO, "look at the disk (dmesg, smartctl -a), and put the file on another one if it fails" },
	{ EBADMSG, "put back a copy of its files that was made while tierd was stopped" },
	{ ENODATA, "put back a copy of its files that was made while tierd was stopped" },
	{ ENODEV, "put back the files that belong together, each on the path that it was on" },
	{ EPROTONOSUPPORT, "start the tierd that wrote it, or a newer one" },
};

static const char *find(int error)
{
	for (size_t i = 0; i < ARRAY_LENGTH(causes); i++)
		if (causes[i].error == -error)
			return causes[i].remedy;
	return "mend that";
}

const char *remedy_describe(const struct job *job, char text[static REMEDY_TEXT])
{
	uint64_t step;

	if (job_is_lost(job))
		snprintf(text, REMEDY_TEXT, "%s%s", find(job->life->loss.error),
			 job->life->loss.lacking < 0 ? "; it comes back when there is room"
						     : ", and open it again, or start tierd again");
	else if (durable_has_step(job, &step))
		snprintf(text, REMEDY_TEXT, "end its ranks: it comes back at step %llu then",
			 (unsigned long long)step);
	else
		snprintf(text, REMEDY_TEXT, "none: its state is lost; open it with replace, or drop it");
	return text;
}
