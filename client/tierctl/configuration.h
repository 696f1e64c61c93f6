/* The configuration, as tierd itself reads it: what is in effect, or what is wrong. */
#ifndef TIERD_CLIENT_TIERCTL_CONFIGURATION_H
#define TIERD_CLIENT_TIERCTL_CONFIGURATION_H

#include <cjson/cJSON.h>

/* Asks tierd --check-config about a file (NULL: its own). Then the object has is_valid, problems (what is
 * wrong, or what the machine lacks for it, as texts) and configuration: by section, by key, texts as the file
 * has them, a list where a key may be repeated. -ENOENT: tierd is not installed here; -ENOMEM and the like.
 */
int configuration_read(const char *file, cJSON **ret_json);

#endif
