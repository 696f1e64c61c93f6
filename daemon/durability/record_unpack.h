/* What is read of a record without making a job of it. Nothing in the bytes is believed. */
#ifndef TIERD_DAEMON_RECORD_UNPACK_H
#define TIERD_DAEMON_RECORD_UNPACK_H

#include "daemon/durability/record.h"
#include "proto/record.pb-c.h"

/* A message, in no more memory than its size allows. what: "definition" or "progress". -EPROTONOSUPPORT,
 * -EBADMSG, -ENOMEM with a message. */
int record_unpack(const char *what, const ProtobufCMessageDescriptor *descriptor, struct record_message part,
		  ProtobufCMessage **ret_message, char *message, size_t size);
void record_free_message(ProtobufCMessage **place);

/* It has as many numbers as the job has units, groups and tensors. -EBADMSG with a message; so does the next
 * one, of a progress that has passed this. */
int record_check_job(const struct job *job, const Tierd__Record__JobProgress *progress, char *message,
		     size_t size);
/* Its counts of updates can be. */
int record_check_updates(const struct job *job, const Tierd__Record__JobProgress *progress, char *message,
			 size_t size);

/* What it says of the job that this module keeps. */
void record_take_definition(struct job *job, const Tierd__Record__JobDefinition *definition);

/* How many updates of its unit a tensor has had no part in. */
uint64_t record_missed(const Tierd__Record__JobProgress *progress, const struct unit *unit, uint32_t tensor);

#endif
