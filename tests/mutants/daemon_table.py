"""The daemon's mutants, in the form of table.py; and those of the pages that it shares with the library."""

PAGES = "proto/pages.h"
EVICTION = "daemon/eviction.c"
STEP = "daemon/step.c"

MUTANTS = (
    # Beside each other, because each builds all that there is.
    (
        "the version published after the word",
        "interleavings",
        PAGES,
        (
            ("\tatomic_store_explicit(&entry->version, version, memory_order_release);\n", ""),
            (
                "directory_word_reloads(word) + 1, offset),\n\t\t\t      memory_order_release);\n",
                "directory_word_reloads(word) + 1, offset),\n\t\t\t      memory_order_release);\n"
                "\tatomic_store_explicit(&entry->version, version, memory_order_release);\n",
            ),
        ),
    ),
    (
        "a lease believed without a second look at the word",
        "interleavings",
        PAGES,
        (("\t\tif (again == word) {", "\t\tif (true) {"),),
    ),
    (
        "a lease counted after the second look at the word",
        "interleavings",
        PAGES,
        (
            ("\t\tatomic_fetch_add_explicit(lease, 1, memory_order_seq_cst);\n", ""),
            (
                "\t\tif (again == word) {",
                "\t\tatomic_fetch_add_explicit(lease, 1, memory_order_seq_cst);\n\t\tif (again == word) {",
            ),
        ),
    ),
    (
        "no second look at the leases",
        "interleavings",
        EVICTION,
        (("\tif (!pack_holder(job, pack, only_trainable))\n\t\treturn true;", "\treturn true;"),),
    ),
    (
        "leases of ranks that have left not counted",
        "residency",
        EVICTION,
        (("return unit_holder_among(&job->lingering, unit);", "return NULL;"),),
    ),
    (
        "clipping that begins well above the bound",
        "clipping",
        STEP,
        (("norm > (double)job->options.clip_norm", "norm > 1.1 * (double)job->options.clip_norm"),),
    ),
    (
        "a refused push remembered beyond its epoch",
        "refused",
        "daemon/ready.c",
        (("\t\tmember->refused_pushes = 0;\n", ""),),
    ),
    (
        "a step taken without a push that was refused",
        "refused",
        STEP,
        (("step->refused_pushes == member->refused_pushes", "true"),),
    ),
    (
        "a refused push counted as a micro-batch",
        "refused",
        "daemon/gradient.c",
        (
            (
                "\t\trefuse_push(pending, push->is_silent, r, message);",
                "\t\tif (push->unit < job->catalog.unit_count)\n\t\t\tmember->pushed[push->unit]++;\n"
                "\t\trefuse_push(pending, push->is_silent, r, message);",
            ),
        ),
    ),
)
