/* Values in a configuration: numbers, sizes, folders with a capacity. */
#ifndef TIERD_DAEMON_CONFIG_VALUES_H
#define TIERD_DAEMON_CONFIG_VALUES_H

#include <stddef.h>
#include <stdint.h>

#define CONFIG_SIZE_TEXT 32

/* "8G": digits and K, M, G or T, in either case (powers of two), or plain bytes. -EINVAL: anything else;
 * -ERANGE: it does not fit in 64 bits. */
int config_parse_size(const char *text, uint64_t *ret_size);

/* Digits only. -EINVAL, -ERANGE. */
int config_parse_count(const char *text, unsigned *ret_count);

/* "FOLDER:SIZE" or "FOLDER:SIZE,ENDURANCE", split at the last colon; the caller frees the path. Endurance 0:
 * none is given. -EINVAL, -ERANGE, -ENOMEM. */
int config_parse_path(const char *text, char **ret_path, uint64_t *ret_capacity, uint64_t *ret_endurance);

/* The shortest text that config_parse_size() reads as the same size. */
void config_format_size(uint64_t size, char text[CONFIG_SIZE_TEXT]);

#endif
