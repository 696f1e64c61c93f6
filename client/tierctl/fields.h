/* The fields of a message of the protocol, as JSON. */
#ifndef TIERD_CLIENT_TIERCTL_FIELDS_H
#define TIERD_CLIENT_TIERCTL_FIELDS_H

#include <cjson/cJSON.h>
#include <protobuf-c/protobuf-c.h>
#include <stdbool.h>

/* Adds the named fields to an object, in that order: "unit name bytes". Their keys are their names in
 * proto/tierd.proto; "bytes=size" gives the field size the key bytes. "?rank" is left out where has_rank is
 * false; without a has_rank, where it is an empty text or 0. A repeated number becomes an array. */
void fields_add(cJSON *json, const ProtobufCMessage *message, const char *fields);
/* The same; null in the place of what is not known. */
void fields_add_known(cJSON *json, const ProtobufCMessage *message, bool is_known, const char *fields);
/* A new object that has them. */
cJSON *fields_json(const ProtobufCMessage *message, const char *fields);

#endif
