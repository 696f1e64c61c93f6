/* A location says what bytes of a job's store are, for people: of which unit, which state, which tensors. */
#ifndef TIERD_DAEMON_LOCATION_H
#define TIERD_DAEMON_LOCATION_H

#include "offload/store/store.h"

struct job;

/* A few names in full, and how many more there are: "and 7 more". */
#define LOCATION_TENSORS_TEXT 320
#define LOCATION_TEXT 600

/* Names are borrowed from the job. */
struct location {
	const char *unit;		     /* the first one that has bytes there; "": of none */
	const char *state;		     /* "parameter", "master", "m", …; "record", "blobs" */
	char tensors[LOCATION_TENSORS_TEXT]; /* "\"a\", \"b\" and 3 more"; "": padding */
};

/* Of the job's store on NVMe. */
void location_find(const struct job *job, const struct store_range *piece, struct location *ret_location);

/* What a transfer between the job's NVMe store and host memory has failed at. */
void location_of_fault(const struct job *job, const struct store_transfer *transfer,
		       struct location *ret_location);

/* "unit \"a\", m of tensor \"b\"" */
const char *location_print(const struct location *location, char text[LOCATION_TEXT]);

/* The same, and where it lies: "unit \"a\", m of tensor \"b\", at byte 4096 of /mnt/…", or "of its store". */
#define LOCATION_FAULT_TEXT (LOCATION_TEXT + 320)
const char *location_print_fault(const struct job *job, const struct store_transfer *transfer,
				 char text[LOCATION_FAULT_TEXT]);

#endif
