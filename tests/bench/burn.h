/* A burner computes as the layers of a model do: pieces of work that all processors share, each of which
 * takes what comes next. */
#ifndef TIERD_TESTS_BENCH_BURN_H
#define TIERD_TESTS_BENCH_BURN_H

struct burner;

/* With a thread for each processor, the caller's among them. -ENOMEM; -EAGAIN: the kernel refuses a thread.
 */
int burner_new(struct burner **ret_burner);
struct burner *burner_free(struct burner *burner);

/* What a piece takes of one processor that has nothing else to do. */
double burner_piece_seconds(const struct burner *burner);

/* Returns when all of them are done. */
void burner_work(struct burner *burner, unsigned pieces);

#endif
