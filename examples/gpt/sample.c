#include "sample.h"

#include <math.h>
#include <string.h>

#include "random.h"

static unsigned likeliest(const float logits[MODEL_VOCABULARY])
{
	unsigned best = 0;

	for (unsigned i = 1; i < MODEL_VOCABULARY; i++)
		best = logits[i] > logits[best] ? i : best;
	return best;
}

/* draw: a number in [0, 1) that picks the byte. */
static unsigned choose(const float logits[MODEL_VOCABULARY], double temperature, double draw)
{
	unsigned best = likeliest(logits);
	double weights[MODEL_VOCABULARY], sum = 0.0;

	if (temperature <= 0.0)
		return best;
	for (unsigned i = 0; i < MODEL_VOCABULARY; i++)
		sum += weights[i] = exp(((double)logits[i] - (double)logits[best]) / temperature);
	draw *= sum;
	for (unsigned i = 0; i < MODEL_VOCABULARY; i++) {
		draw -= weights[i];
		if (draw < 0.0)
			return i;
	}
	return best;
}

/* The model goes on from something: from a line's end, where no prompt is given. */
static const char *beginning(const struct sampling *sampling)
{
	return *sampling->prompt ? sampling->prompt : "\n";
}

size_t sample_size(const struct sampling *sampling)
{
	return strlen(beginning(sampling)) + sampling->bytes + 1;
}

int sample(struct network *network, struct backend *backend, const struct model *model,
	   const struct sampling *sampling, char *buffer, const char **ret_text)
{
	size_t prompt = strlen(beginning(sampling)), length = prompt, context = model->shape.context;
	uint8_t *text = (uint8_t *)buffer;
	float logits[MODEL_VOCABULARY];

	memcpy(text, beginning(sampling), prompt);
	for (size_t i = 0; i < sampling->bytes; i++) {
		size_t seen = length < context ? length : context;
		int r = network_predict(network, backend, text + length - seen, seen, logits);

		if (r < 0)
			return r;
		text[length++] =
			(uint8_t)choose(logits, sampling->temperature, random_uniform(sampling->seed, i));
	}
	text[length] = '\0';
	*ret_text = buffer + prompt;
	return 0;
}
