/* Versions that one side speaks, of the protocol or of the shared pages, and the one that both use. */
#ifndef TIERD_PROTO_VERSIONS_H
#define TIERD_PROTO_VERSIONS_H

#include <stdbool.h>
#include <stdint.h>

struct versions {
	uint32_t minimum, maximum;
};

static inline bool versions_have(struct versions versions, uint32_t version)
{
	return version >= versions.minimum && version <= versions.maximum;
}

/* The highest that both speak; 0: none. */
static inline uint32_t versions_agree(struct versions one, struct versions other)
{
	uint32_t highest = one.maximum < other.maximum ? one.maximum : other.maximum;

	return versions_have(one, highest) && versions_have(other, highest) ? highest : 0;
}

#endif
