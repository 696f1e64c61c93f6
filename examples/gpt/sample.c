#include "sample.h"

#include <errno.h>
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

int sample(struct network *network, struct backend *backend, const struct model *model,
	   const struct sampling *sampling, char *ret_text)
{
	size_t prompt = strlen(sampling->prompt), length = prompt, context = model->shape.context;
	_cleanup_free_ uint8_t *text = malloc(prompt + sampling->bytes + 1);
	float logits[MODEL_VOCABULARY];

	if (!text)
		return -ENOMEM;
	memcpy(text, sampling->prompt, prompt);
	if (length == 0)
		text[length++] = '\n';
	for (size_t i = 0; i < sampling->bytes; i++) {
		size_t seen = length < context ? length : context;
		int r = network_predict(network, backend, text + length - seen, seen, logits);

		if (r < 0)
			return r;
		text[length] =
			(uint8_t)choose(logits, sampling->temperature, random_uniform(sampling->seed, i));
		ret_text[i] = (char)text[length++];
	}
	ret_text[sampling->bytes] = '\0';
	return 0;
}
