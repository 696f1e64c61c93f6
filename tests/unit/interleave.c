#include "tests/unit/interleave.h"

#include <assert.h>
#include <stddef.h>
#include <ucontext.h>

#define STACK_BYTES (256 * 1024)
/* At which both could go on. */
#define MAX_CHOICES 64

enum { NOBODY = -1 };

static const struct interleaving *interleaving;
static ucontext_t loop, actors[2];
static char stacks[2][STACK_BYTES];
static bool is_over[2];
static int running = NOBODY;
/* Who went on each time; the next run differs in the last one that can. */
static int choices[MAX_CHOICES];
static unsigned made, known;

void interleave_turn(void)
{
	if (running != NOBODY)
		swapcontext(&actors[running], &loop);
}

void interleave_access(const volatile void *address)
{
	if (running != NOBODY && interleaving->is_shared(address))
		interleave_turn();
}

static void act(int actor)
{
	interleaving->actors[actor]();
	is_over[actor] = true;
}

static void enter(int actor)
{
	is_over[actor] = false;
	getcontext(&actors[actor]);
	actors[actor].uc_stack = (stack_t){ .ss_sp = stacks[actor], .ss_size = STACK_BYTES };
	actors[actor].uc_link = &loop;
	makecontext(&actors[actor], (void (*)(void))act, 1, actor);
}

static int choose(void)
{
	if (is_over[0] || is_over[1])
		return is_over[0];
	if (made == known) {
		assert(known < MAX_CHOICES);
		choices[known++] = 0;
	}
	return choices[made++];
}

static void run(void)
{
	made = 0;
	enter(0);
	enter(1);
	while (!is_over[0] || !is_over[1]) {
		running = choose();
		swapcontext(&loop, &actors[running]);
		running = NOBODY;
	}
}

/* False: there is none. */
static bool find_next_order(void)
{
	while (known > 0 && choices[known - 1] == 1)
		known--;
	if (known == 0)
		return false;
	choices[known - 1] = 1;
	return true;
}

uint64_t interleave(const struct interleaving *what)
{
	uint64_t orders = 0;

	interleaving = what;
	known = 0;
	do {
		what->begin();
		run();
		what->end();
		orders++;
	} while (find_next_order());
	return orders;
}
