/* gpt: trains a byte-level GPT whose parameters, gradients and optimizer state live in tierd.
 *
 * Where to read: network.c walks through the model, gathering, releasing and pushing its units; train.c does
 * the steps and recovers when a rank dies; tierd.c is all that knows libtierd. plain.c and plain_unit.c are
 * the reference, layer.c and what it uses the arithmetic, cuda/ the same for a GPU. */
#include <errno.h>

#include "launch.h"
#include "rank.h"

int main(int argc, char **argv)
{
	struct options options;
	int r = options_read(argc, argv, &options);

	if (r == -ECANCELED)
		return 0;
	if (r < 0)
		return 2;
	if (!options.is_plain && !options.is_rank && (options.ranks > 1 || options.restarts > 0))
		r = launch(argv, &options);
	else
		r = rank_train(&options);
	return r < 0 ? 1 : 0;
}
