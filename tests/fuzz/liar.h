/* A liar is a fake peer that answers as an input says: what its client makes of that is fuzzed. */
#ifndef TIERD_TESTS_FUZZ_LIAR_H
#define TIERD_TESTS_FUZZ_LIAR_H

#include "tests/fuzz/script.h"
#include "tests/unit/fake_peer.h"

/* Record by record, request by request: the action's lowest three bits are one of these. */
enum liar_action {
	LIAR_ANSWER, /* as it should be */
	LIAR_REPLY,  /* the bytes are the Reply */
	LIAR_PAGES, /* the same, with a descriptor of a page that begins with the bytes; and of a GPU's memory
		     */
	LIAR_EVENT, /* the bytes are an Event; then the answer */
	LIAR_OTHER, /* the bytes are a Reply to another request; then the answer */
	LIAR_FAIL,  /* with the errno of the first byte, and the others as the words */
	LIAR_NOISE, /* the bytes, as they are, and the end of the stream */
	LIAR_HANG_UP
};

struct liar {
	struct fake_peer peer; /* first */
	struct script script;
	/* Of a GPU, where there is one: true: it has answered as it should be, or hung up. */
	bool (*answer_gpu)(struct liar *liar, uint32_t number, const Tierd__Wire__Request *request);
	int gpu_memory, gpu_gradients; /* descriptors */
};

/* When the script ends, answers are as they should be. The hello's, too, is the script's if its first record
 * says so. What is of a GPU is the caller's to set before. */
void liar_start(struct liar *liar, const uint8_t *bytes, size_t length);
void liar_stop(struct liar *liar);

#endif
