/* Which elements of tensors have values. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/size.h"
#include "daemon/model/catalog.h"

int tensor_reserve_written(struct tensor *tensor, unsigned pieces)
{
	unsigned needed = tensor->written_count + pieces, capacity = 2 * tensor->written_capacity;
	struct span *spans;

	if (needed > CATALOG_MAX_SPANS)
		return -E2BIG;
	if (needed <= tensor->written_capacity)
		return 0;
	capacity = capacity > needed ? capacity : needed;
	spans = realloc(tensor->written, capacity * sizeof(*spans));
	if (!spans)
		return -ENOMEM;
	tensor->written = spans;
	tensor->written_capacity = (uint16_t)capacity;
	return 0;
}

int tensor_mark_written(struct tensor *tensor, uint64_t first, uint64_t count)
{
	struct span span = { first, first + count }, *spans;
	unsigned from = 0, end;
	int r = count > 0 ? tensor_reserve_written(tensor, 1) : 0;

	if (r < 0 || count == 0)
		return r;
	spans = tensor->written;
	while (from < tensor->written_count && spans[from].end < span.first)
		from++;
	/* Those that it touches, or overlaps, become one with it. */
	for (end = from; end < tensor->written_count && spans[end].first <= span.end; end++) {
		span.first = spans[end].first < span.first ? spans[end].first : span.first;
		span.end = spans[end].end > span.end ? spans[end].end : span.end;
	}
	memmove(spans + from + 1, spans + end, (tensor->written_count - end) * sizeof(*spans));
	spans[from] = span;
	tensor->written_count += 1 + from - end;
	return 0;
}

bool tensor_has_written(const struct tensor *tensor, uint64_t first, uint64_t count)
{
	for (unsigned i = 0; i < tensor->written_count; i++)
		if (tensor->written[i].first < first + count && first < tensor->written[i].end)
			return true;
	return false;
}

bool tensor_is_written(const struct tensor *tensor)
{
	return tensor->layout.elements == 0 || (tensor->written_count == 1 && tensor->written[0].first == 0 &&
						tensor->written[0].end == tensor->layout.elements);
}

unsigned catalog_unwritten(const struct catalog *catalog, char *text, size_t size)
{
	unsigned count = 0;
	size_t used = 0;

	text[0] = '\0';
	for (uint32_t u = 0; u < catalog->unit_count; u++)
		for (uint32_t t = 0; t < catalog->units[u].tensor_count; t++) {
			const struct tensor *tensor = &catalog->units[u].tensors[t];

			if (tensor->initializer != INITIALIZE_NONE || tensor_is_written(tensor))
				continue;
			if (count < 4 && used < size)
				used += (size_t)snprintf(text + used, size - used, "%s\"%s\"",
							 count ? ", " : "", tensor->name);
			count++;
		}
	return count;
}
