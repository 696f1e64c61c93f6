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

/* How large a buffer sample() needs. */
size_t sample_size(const struct sampling *sampling);

/* Fills the buffer; ret_text is the part of it behind the prompt: `bytes` bytes and a final zero. */
int sample(struct network *network, struct backend *backend, const struct model *model,
	   const struct sampling *sampling, char *buffer, const char **ret_text);

#endif
