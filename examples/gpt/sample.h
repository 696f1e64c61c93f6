/* Text from the trained model, byte by byte. */
#ifndef GPT_SAMPLE_H
#define GPT_SAMPLE_H

#include "network.h"

struct sampling {
	const char *prompt;
	size_t bytes;	    /* to write after the prompt */
	double temperature; /* 0: always the likeliest byte */
	uint64_t seed;	    /* the same seed, the same text */
};

/* ret_text: `bytes` bytes and a final zero. */
int sample(struct network *network, struct backend *backend, const struct model *model,
	   const struct sampling *sampling, char *ret_text);

#endif
